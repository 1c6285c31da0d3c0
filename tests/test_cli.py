"""The command line as its users meet it: real processes for the start, in-process for the rest."""

import json
import math
import signal
import subprocess
import sys

import pytest
from examples import PROMISED

from posteer.cli import main

FAST = "ppt-rb-analytic(samples=300,steps=40)"
EVALUATE_KEYS = {
    *("model", "utility", "horizon", "prompt", "expected_utility", "standard_error"),
    *("rank", "optimum", "bound", "best_prompt", "judging_tokens", "warnings"),
}


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "posteer.cli", *arguments], capture_output=True, text=True, cwd=cwd
    )


def refused(capsys, *arguments):
    """Run in process, expect exit 2; the one line that was printed."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert printed.out == ""
    assert printed.err.startswith("posteer: ")
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


def test_help_does_not_import_torch():
    code = (
        "import sys\n"
        "from posteer.cli import app\n"
        "app(['--help'], result_action='return_value')\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules, 'heavy imports'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "elicit" in done.stdout
    assert "evaluate" in done.stdout


def test_elicit_prints_one_json_object_with_the_promised_keys():
    done = run("elicit", "--length", "6", "--method", FAST, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert set(record) >= PROMISED
    spent = {"forward_tokens", "backward_tokens", "bank_tokens", "drawn_tokens", "judging_tokens"}
    assert set(record["cost"]) == spent
    assert all(token in (0, 1) for token in record["prompt"])
    assert record["model"] == "exact:urn"
    assert record["method"] == FAST


def test_elicit_repeats_itself_to_the_byte(capsys):
    def once():
        main(["elicit", "--method", "ppt-analytic(samples=200,steps=20)", "--json"])
        record = json.loads(capsys.readouterr().out)
        del record["seconds"]
        return record

    assert once() == once()


def test_evaluate_prints_the_promised_keys(capsys):
    main(["evaluate", "--prompt", "010101", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert set(record) >= EVALUATE_KEYS
    assert record["rank"] == 1
    assert record["prompt"] == [0, 1, 0, 1, 0, 1]
    assert record["bound"] == record["optimum"], "all prompts of an exact model were tried"
    main(["evaluate", "--model", "urn", "--prompt", "010101", "--json"])
    assert json.loads(capsys.readouterr().out)["bound"] is None, "nothing is proven of a network"


def test_large_vocabularies_are_comma_separated(capsys):
    model = "exact:markov(vocab=12,order=0)"
    utility = "frequency(1.0,token=11)"
    main(["evaluate", "--model", model, "--utility", utility, "--prompt", "11,3,11", "--json"])
    assert json.loads(capsys.readouterr().out)["prompt"] == [11, 3, 11]
    main(["evaluate", "--model", model, "--utility", utility, "--prompt", "11,3,11"])
    assert "11,3,11" in capsys.readouterr().out


def test_a_function_in_a_file_is_a_utility(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("def ones(y):\n    return sum(y)\n")
    utility = f"{tmp_path}/mine.py:ones"
    main(["evaluate", "--utility", utility, "--prompt", "1111", "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["utility"] == utility
    assert record["expected_utility"] > 3


USER_FILES = {
    "raises.py": "def f(y):\n    raise RuntimeError('no idea\\nsecond line')\n",
    "nan.py": "def f(y):\n    return float('nan')\n",
    "broken.py": "def f(:\n",
    "empty.py": "",
    "exits.py": "import sys\nsys.exit(0)\n",
    "quits.py": "import sys\ndef f(y):\n    sys.exit(0)\n",
}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["elicit", "--utility", "joy"], "unknown utility 'joy'"),
        (["elicit", "--length", "1"], "length 1"),
        (["elicit", "--horizon", "0"], "horizon 0"),
        (["elicit", "--length", "six"], "six"),
        (["elicit", "--utility", "reverse-xent([0.5,0.6])"], "not a distribution"),
        (["elicit", "--model", "gpt"], "unknown model"),
        (["elicit", "--model", "exact:gpt"], "unknown process"),
        (["elicit", "--method", "magic"], "unknown method"),
        (["elicit", "--lenth", "6"], "--lenth"),
        (["evaluate", "--prompt", "0120"], "'2'"),
        (["evaluate", "--prompt", "01x"], "'x'"),
        (["evaluate", "--prompt", "0"], "more than the order"),
        (["evaluate", "--prompt", ""], "empty"),
        (["evaluate"], "prompt"),
        (["evaluate", "--prompt", "01", "--context", "02"], "context has the symbol '2'"),
        (["elicit", "--context", "0x"], "context has the symbol 'x'"),
        (["elicit", "--allowed", "first=3"], "'first=3' has the symbol '3'"),
        (["elicit", "--allowed", "ban=0,1"], "no allowed prompt of 6 tokens"),
        (
            ["elicit", "--model", "urn", "--method", "soft-pt", "--allowed", "first=0"],
            "soft-pt: cannot honour allowed prompts: use",
        ),
        (["elicit", "--utility", "raises.py:f"], "raised RuntimeError: no idea"),
        (["elicit", "--utility", "nan.py:f"], "returned nan"),
        (["elicit", "--utility", "broken.py:f"], "raised SyntaxError"),
        (["elicit", "--utility", "empty.py:f"], "defines no 'f'"),
        (["elicit", "--utility", "exits.py:f"], "raised SystemExit"),
        (["elicit", "--utility", "absent.py:f"], "no such file"),
        (["elicit", "--utility", "quits.py:f"], "raised SystemExit"),
        (["elicit", "--utility", "reverse-xent(tau-x)"], "'tau-x': expected a probability"),
        (["elicit", "--alphabet", "A,A"], "alphabet 'A,A': expected 2 different"),
        (["elicit", "--model", "exact:random-hmm(states=some)"], "states 'some': expected a whole"),
        (["elicit", "--bank", "no bank"], "'no bank': no such bank"),
        (["elicit", "--method", "ppt(device=foo)"], "device 'foo'"),
        (["elicit", "--utility", "reverse-xent(dir-99999999999999999999999)"], "a seed"),
        (["elicit", "--model", "exact:markov(order=100000000000)"], "table of"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(
    arguments, complaint, capsys, tmp_path, monkeypatch
):
    for name, text in USER_FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    assert complaint in refused(capsys, *arguments)
    assert {path.name for path in tmp_path.iterdir()} == set(USER_FILES)


def test_contexts_and_allowed_prompts_at_the_command_line(capsys):
    asked = ["--context", "0111", "--length", "4", "--allowed", "first=0;count(1)<=2"]
    main(["elicit", "--method", FAST, *asked, "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["context"] == [0, 1, 1, 1]
    assert record["allowed"] == "first=0;count(1)<=2"
    assert record["prompt"][0] == 0
    assert sum(record["prompt"]) <= 2
    main(["evaluate", "--prompt", "0101", "--context", "0111", "--json"])
    judged = json.loads(capsys.readouterr().out)
    assert judged["context"] == [0, 1, 1, 1]
    main(["elicit", "--method", FAST, *asked])
    text = capsys.readouterr().out
    assert "over allowed prompts" in text
    assert "0111" in text
    main(["compare", "--model", "exact:urn", "--methods", f"{FAST},beam", "--seeds", "2", *asked])
    assert "optimum over allowed prompts" in capsys.readouterr().out


def test_refusals_leave_with_status_two_for_real():
    done = run("elicit", "--horizon", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_progress_appears_only_for_long_work(monkeypatch):
    from posteer.views.terminal import panels as console

    shown = []
    monkeypatch.setattr(console.Progress, "start", lambda self: shown.append("start"))
    monkeypatch.setattr(console, "PATIENCE_SECONDS", math.inf)
    with console.delayed_progress() as report:
        report("ascending", 1, 10)
    assert shown == []
    monkeypatch.setattr(console, "PATIENCE_SECONDS", 0.0)
    with console.delayed_progress() as report:
        report("ascending", 1, 10)
    assert shown == ["start"]


TRAIN = ["train", "--preset", "tiny", "--steps", "150", "--batch", "4", "--length", "16", "--json"]


def test_training_stops_on_a_signal_and_the_same_command_goes_on(tmp_path, capsys, monkeypatch):
    """A real signal, in step 60; whether to stop is asked every 50 steps."""
    from posteer.training.data import Batches

    def train(out):
        main([*TRAIN, "--out", str(out)])
        return json.loads(capsys.readouterr().out)

    def take(batches, step, taken=Batches.take):
        if step == 60:
            signal.raise_signal(signal.SIGTERM)
        return taken(batches, step)

    with monkeypatch.context() as patched:
        patched.setattr(Batches, "take", take)
        record = train(tmp_path)
    assert (record["status"], record["step"]) == ("stopped", 100)
    assert (tmp_path / "model" / "manifest.json").is_file()
    record = train(tmp_path)
    assert (record["status"], record["step"]) == ("finished", 150)
    whole = tmp_path / "whole"
    assert train(whole)["step"] == 150
    weights = "model/model.safetensors"
    assert (tmp_path / weights).read_bytes() == (whole / weights).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--preset"),
        (["--preset", "large"], "unknown preset"),
        (["--preset", "tiny", "--process", "urn"], "exclude each other"),
        (["--process", "magic"], "unknown process"),
        (["--preset", "tiny", "--heads", "5"], "cannot be shared"),
        (["--preset", "tiny", "--positions", "rotary"], "none or learned"),
        (["--preset", "tiny", "--steps", "0"], "steps 0"),
        (["--preset", "tiny", "--device", "tpu"], "device 'tpu'"),
    ],
)
def test_bad_trainings_are_refused(arguments, complaint, capsys, tmp_path):
    out = tmp_path / "run"
    assert complaint in refused(capsys, "train", "--out", str(out), *arguments)
    assert not out.exists()


def test_shipped_models_are_listed_with_their_facts(capsys):
    main(["models", "--json"])
    most = {"chains-1024": 0.35, "chains-16": 0.04, "ginc": 0.02}  # trained on a laptop
    for facts in json.loads(capsys.readouterr().out):
        assert facts["parameters"] > 0 and len(facts["sha256"]) == 64
        assert facts["excess_risk"]["overall"] < most.get(facts["name"], 0.01)
    main(["models"])
    assert "excess risk" in capsys.readouterr().out


def test_sample_draws_a_bank_that_elicit_takes(tmp_path, capsys):
    out = tmp_path / "bank.safetensors"
    settings = ["--model", "exact:urn", "--rollouts", "200", "--length", "64", "--out", str(out)]
    main(["sample", *settings, "--json"])
    record = json.loads(capsys.readouterr().out)
    assert record["rollouts"] == 200 and record["tokens"] == 200 * 63
    assert record["unvisited"] == "donor"
    assert record["check"] is None
    main(["sample", *settings])
    assert "200 by rollouts of 64 tokens" in capsys.readouterr().out
    main(["elicit", "--model", "exact:urn", "--bank", str(out), "--json"])
    choice = json.loads(capsys.readouterr().out)["choice"]
    assert (choice["method"], choice["reasons"][0]["because"]) == ("classes", "bank-given")
    main(["elicit", "--model", "exact:urn", "--bank", str(out), "--verbose"])
    assert "classes: latents from the bank given" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_sample_checks_and_draws_a_figure(tmp_path, capsys):
    figure = tmp_path / "check.svg"
    settings = ["--model", "exact:urn", "--rollouts", "300", "--length", "64", "--check"]
    settings += ["--effort", "0.2"]
    main(["sample", *settings, "--figure", str(figure)])
    printed = capsys.readouterr().out
    assert "is exact:urn a Bayes filter of order 1?" in printed
    assert "no deviation" in printed
    assert figure.read_text().startswith("<?xml")
    main(["sample", *settings, "--json"])
    report = json.loads(capsys.readouterr().out)["check"]
    assert set(report["p_values"]) == {"prior", "ranks", "martingale", "exchangeability"}
    assert report["verdict"].startswith("no deviation")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "expected --out FILE for the bank, or --check"),
        (["--figure", "x.svg", "--out", "b"], "give both"),
        (["--check", "--figure", "x.gif"], "expected a name in .svg"),
        (["--check", "--figure", "/nowhere/x.svg"], "no folder"),
        (["--out", "b", "--length", "2001"], "at most 2000"),
        (["--out", "b", "--context", "012"], "symbol '2'"),
        (["--check", "--effort", "-1"], "must be positive"),
        (["--check", "--effort", "inf"], "must be positive and finite"),
        (["--out", "b", "--rollouts", "1"], "at least 2"),
        (["--model", "nothing", "--out", "b"], "unknown model"),
    ],
)
def test_bad_samples_are_refused(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert complaint in refused(capsys, "sample", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_bank_that_is_no_bank_is_refused(capsys, tmp_path):
    path = tmp_path / "bank.safetensors"
    path.write_bytes(b"nonsense")
    assert "not a bank, or is cut short" in refused(capsys, "elicit", "--bank", str(path))
    assert "no such bank" in refused(capsys, "elicit", "--bank", str(tmp_path / "none"))


def test_json_is_strict_whatever_is_found(capsys, tmp_path):
    """A coin that always shows one face: nothing moves, slopes are not numbers."""
    figure = str(tmp_path / "x.svg")
    settings = ["--model", "exact:coins(1.0)", "--rollouts", "50", "--length", "200"]
    main(["sample", *settings, "--check", "--effort", "0.1", "--figure", figure, "--json"])
    record = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert record["check"]["convergence"]["slope"]["value"] is None


def test_compare_sets_methods_side_by_side(tmp_path, capsys):
    figure = tmp_path / "compare.svg"
    settings = ["--model", "beta-bernoulli", "--utility", "frequency(0.3)", "--length", "6"]
    settings += ["--methods", "ppt-rb(steps=60),gcg,random(prompts=9)", "--seeds", "2"]
    main(["compare", *settings, "--figure", str(figure)])
    printed = capsys.readouterr().out
    assert "frequency(0.3) from beta-bernoulli" in printed
    assert "its bank costs less than gcg from" in printed
    assert figure.read_text().startswith("<?xml")
    main(["compare", *settings, "--json"])
    record = json.loads(capsys.readouterr().out)
    names = [entry["method"] for entry in record["methods"]]
    assert names == ["ppt-rb(steps=60)", "gcg", "random(prompts=9)"]
    ppt, gcg, _ = record["methods"]
    assert ppt["model_tokens"] == 0
    assert ppt["bank_tokens"] == 9_995_000
    assert len(gcg["runs"]) == 2
    expected = math.ceil(9_995_000 / gcg["model_tokens"])
    assert record["break_even"]["ppt-rb(steps=60)"]["gcg"] == expected


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--methods", ""], "at least one method"),
        (["--methods", "magic"], "unknown method 'magic'"),
        (["--methods", "gcg(", "--seeds", "1"], "brackets do not match"),
        (["--seeds", "0"], "seeds 0"),
        (["--max-model-tokens", "0"], "budget of 0"),
        (["--model", "exact:urn", "--methods", "gcg"], "exact:urn gives none: use auto, "),
        (["--figure", "x.gif"], "expected a name in .svg"),
        (["--amortise", "0"], "expected at least 1"),
    ],
)
def test_bad_comparisons_are_refused(arguments, complaint, capsys):
    assert complaint in refused(capsys, "compare", *arguments)


def test_budgets_and_forward_cross_entropy_at_the_command_line(capsys):
    settings = ["--model", "beta-bernoulli", "--utility", "forward-xent(tau-0.3)"]
    main(["elicit", *settings, "--method", "gcg", "--max-model-tokens", "300", "--json"])
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert 0 < cost["forward_tokens"] + cost["backward_tokens"] <= 300
    words = ["--utility", "forward-xent(tau-0.3)", "--method", "ppt-rb-analytic"]
    assert "no expected utility" in refused(capsys, "elicit", *words)


@pytest.mark.parametrize("command", ["elicit", "compare", "evaluate", "sample"])
def test_devices_that_are_not_there_are_refused(command, capsys):
    more = {"evaluate": ["--prompt", "0101"], "sample": ["--check"]}.get(command, [])
    message = refused(capsys, command, "--model", "beta-bernoulli", "--device", "tpu", *more)
    assert "expected auto, cpu or cuda" in message
