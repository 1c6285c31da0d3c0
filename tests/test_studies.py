"""The scripts of studies/: they start from any folder, refuse in one line, and some run."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from posteer.banks.shipped import shipped_bank
from posteer.core.errors import InputError
from posteer.models import load, shipped_models
from posteer.sweeps.configuration import read_config
from posteer.sweeps.presets import preset

STUDIES = Path(__file__).parent.parent / "studies"
SHARED = {
    "awkward",
    "browsers",
    "journals",
    "language_settings",
    "language_tables",
    "other_urns",
    "places",
    "results_parts",
    "running",
    "serving",
    "startless",
    "tables",
    "tilts_figure",
}
NAMES = sorted(path.stem for path in STUDIES.glob("*.py") if path.stem not in SHARED)
WITHOUT_TORCH = {"curves"}
"""These start at once; to start the others takes seconds."""

BAD = {
    "antibodies": ["--species", "nobody"],
    "bank_seeds": ["show", "nowhere.jsonl"],
    "beyond": ["nowhere"],
    "class_climb": ["nothing"],
    "class_search": ["--method", "nothing"],
    "corners": ["--out", "run", "--device", "nothing"],
    "correlations": ["--models", "0"],
    "error_bars": ["--seeds", "0"],
    "curves": ["nowhere", "--out", "curves.svg"],
    "dna": ["nowhere", "--out", "dna.json"],
    "directions": ["--out", "nowhere/directions.svg"],
    "estimators": ["--model", "nothing"],
    "explorer_pages": ["--times", "0"],
    "families": ["--only", "nothing"],
    "filtering": ["nothing"],
    "greedy": ["signs", "--from", "nowhere.json"],
    "held_out_banks": ["--keep", "nowhere"],
    "kills": [],
    "language_models": ["run", "--texts", "nothing"],
    "order_one": ["--nothing"],
    "past_binary": ["--model", "nothing"],
    "readings": ["--nothing"],
    "relay": ["pack", "nowhere", "parts"],
    "reliability": ["--out", "nowhere.md"],
    "report_pages": ["nowhere.parquet"],
    "results_page": ["nowhere.parquet"],
    "shipped_banks": ["banks", "--models", "nothing"],
    "snapping": ["--banks", "0"],
    "statements": ["--nothing"],
    "tilts": ["--out", "tilts.txt"],
    "trained_filters": ["--models", "nothing"],
    "unvisited": ["--banks", "0"],
    "urns": ["--keep", "nowhere.jsonl"],
    "verifying": ["--models", "nothing"],
    "validation": ["--out", "nowhere/pmc.svg"],
}
"""A wrong name, a missing file or a number that will not do, for each."""

OTHERS = {
    "bank_seeds": [["run"], ["run", "nowhere"], ["show", "--paper", "nowhere.parquet"]],
    "beyond": [["--records", "nowhere"]],
    "class_search": [["--method", "gcg"], ["--models", "nothing"], ["--lengths", "0"]],
    "corners": [["--out", "run", "--steps", "1,x"]],
    "curves": [["--out", "curves.txt"], []],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Another folder than the repository's, and an empty one."""
    monkeypatch.chdir(tmp_path)


def called(name, arguments):
    """What a study says in this process: its exit status; it prints as it does on its own."""
    from running import run

    with pytest.raises(SystemExit) as ended:
        run(lambda: import_module(name).main(arguments))
    return ended.value.code


def started(name, *arguments):
    """A study in a process of its own."""
    command = [sys.executable, str(STUDIES / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def in_processes():
    return [
        pytest.param(name, marks=[] if name in WITHOUT_TORCH else [pytest.mark.slow])
        for name in NAMES
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_study_says_what_it_does(name, capsys):
    assert called(name, ["--help"]) == 0
    said = capsys.readouterr().out
    assert import_module(name).__doc__.splitlines()[0] in said
    assert f"python studies/{name}.py" in said


@pytest.mark.parametrize("name", in_processes())
def test_every_study_starts_from_any_folder(name):
    done = started(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {name}.py")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, bad) for name in NAMES for bad in [BAD[name], *OTHERS.get(name, [])]],
)
def test_bad_input_is_one_line(name, arguments, capsys, tmp_path):
    assert called(name, arguments) == 2
    assert re.fullmatch(r"\S+: .+\n", capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", in_processes())
def test_bad_input_is_one_line_in_a_process_of_its_own(name):
    done = started(name, *BAD[name])
    assert done.returncode == 2
    assert re.fullmatch(rf"{name}\.py: .+\n", done.stderr)


def test_a_reader_that_goes_away_is_no_fault():
    """As in `.. | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    code = "from running import run; run(lambda: print('a line'))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=STUDIES, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_records_that_are_none_are_refused(tmp_path, capsys):
    (tmp_path / "records.jsonl").write_text("no records\n")
    assert called("bank_seeds", ["show", "records.jsonl"]) == 2
    assert "records.jsonl is not a file of records" in capsys.readouterr().err


def test_defaults_are_those_of_the_repository(capsys):
    """Records are found from another folder; the first table as docs/LOG.md has it."""
    import bank_seeds

    bank_seeds.main(["show"])
    rows = capsys.readouterr().out.splitlines()
    log = (STUDIES.parent / "docs" / "LOG.md").read_text()
    assert len(rows[2:8]) == 6
    assert all(row in log for row in rows[:8])


def test_banks_are_as_large_as_a_model_can_write():
    """Its last token is not read again."""
    import shipped_banks

    for name in shipped_models():
        model = load(name, "cpu")
        bank, plan = shipped_bank(model.fingerprint), shipped_banks.plan_for(name, model, 0)
        asked = (plan.n_samples, plan.rollout_length)
        assert asked == (len(bank), bank.origin.rollout_length), name


@pytest.mark.parametrize("name", ["held_out_banks.toml", "models/gcg.toml"])
def test_sweeps_beside_the_papers_are_of_its_cells(name):
    """Their files list goals, methods, lengths and seeds: those of the preset."""
    paper = {grid.models[0]: grid for grid in preset("paper").grids}
    found = {model: grid for grid in read_config(STUDIES / name).grids for model in grid.models}
    assert len(found) == 2
    for model, grid in found.items():
        theirs = paper.get(model, paper["urn"])
        for part in ("utilities", "lengths", "horizons", "seeds"):
            assert getattr(grid, part) == getattr(theirs, part), part
        assert set(grid.methods) < set(theirs.methods)


def test_a_training_is_looked_at_along_its_way_and_where_its_schedule_ends():
    import urns

    assert urns.stops(1500, 100_000) == [250, 500, 1000, 1500]
    assert urns.stops(100_000, 100_000) == urns.MILESTONES
    assert urns.stops(100_000, 16_000)[-2:] == [12_000, 16_000]
    assert urns.stops(100_000, 5000)[-2:] == [4000, 5000]
    assert urns.stops(4500, 5000)[-1] == 4000
    with pytest.raises(InputError, match="--steps 900: warming up takes 1000"):
        urns.main(["train", "--steps", "900"])


def test_training_curves_are_drawn_again_as_they_are_committed(tmp_path):
    """The same panels and labels; how a line is cut into a path is matplotlib's."""
    import curves

    curves.main(["--out", "curves.svg"])
    drawn = (tmp_path / "curves.svg").read_text()
    committed = (STUDIES.parent / "docs" / "figures" / "training.svg").read_text()
    assert re.findall(r"<!-- (.+) -->", drawn) == re.findall(r"<!-- (.+) -->", committed)


def test_the_two_cross_entropies_want_different_prompts(capsys):
    """The figures of docs/LOG.md, on forward and reverse cross-entropy."""
    import directions

    directions.main(["--out", "directions.svg"])
    best = [int(n) for n in re.findall(r"best with (\d+) ones", capsys.readouterr().out)]
    reverse, forward = best[::2], best[1::2]
    assert len(best) == 6
    assert all(one > other for one, other in zip(reverse, forward, strict=True))


def test_estimators_beside_exact_values(monkeypatch, capsys):
    import estimators

    monkeypatch.setattr(estimators, "SETTINGS", [(2, 1, 4, 8)])
    monkeypatch.setattr(estimators, "UTILITIES", ["dyck"])
    estimators.main(["--prompts", "2", "--latents", "200"])
    row = capsys.readouterr().out.splitlines()[2].split("|")
    assert row[1:6] == [" 2 ", " 1 ", " 4 ", " 8 ", " dyck "]
    missed = [float(cell.split()[0]) for cell in row[9:13]]
    assert all(0 <= value < 0.1 for value in missed)


def test_urns_along_training_beside_the_published_figures(capsys):
    """Every row of the record has the 124 published means of PPT at length 6."""
    import urns

    urns.main([])
    rows = capsys.readouterr().out.splitlines()[3:]
    assert rows and all(" of 124 | " in row for row in rows)


def test_a_training_is_carried_to_another_machine(tmp_path, capsys):
    """Matrices as bfloat16 has them, moments to an eighth: forgotten soon."""
    import relay

    from posteer.training.loop import Trainer
    from posteer.training.plan import make_plan

    plan = make_plan("tiny", None, {}, {"steps": 200})
    here = Trainer(plan, tmp_path / "here", log_every=10)
    here.run(should_stop=lambda: here.step >= 100)
    relay.main(["pack", str(tmp_path / "here"), str(tmp_path / "parts")])
    relay.main(["unpack", str(tmp_path / "parts"), str(tmp_path / "there")])
    assert capsys.readouterr().out.count("step 100 of 200") == 2
    there = Trainer(plan, tmp_path / "there", log_every=10)
    assert (there.step, there.records) == (here.step, here.records)
    for one, other in zip(here.network.parameters(), there.network.parameters(), strict=True):
        assert torch.equal(one.bfloat16().float() if one.ndim > 1 else one, other)
        kept, found = here.optimiser.state[one], there.optimiser.state[other]
        assert float(found["step"]) == 100
        large = kept["exp_avg"].abs() > 1e-6 * kept["exp_avg"].abs().max()
        assert torch.allclose(found["exp_avg"][large], kept["exp_avg"][large], rtol=0.126)
        assert torch.equal(found["exp_avg_sq"] > 0, kept["exp_avg_sq"] > 0)
        assert torch.allclose(found["exp_avg_sq"], kept["exp_avg_sq"], rtol=0.28)
    here.run(), there.run()
    assert there.records[-1]["loss"] == pytest.approx(here.records[-1]["loss"], abs=2e-3)


def test_ranks_that_tie_are_shared():
    """By hand: of ranks 1, 2.5, 2.5, 4 and 2, 1, 3.5, 3.5, less their means, products sum to 2.25
    and squares to 4.5 each."""
    from statements import rank_correlation

    found = rank_correlation([0.1, 0.2, 0.2, 0.5], [7.0, 3.0, 9.0, 9.0])
    assert found == pytest.approx(2.25 / 4.5, abs=1e-12)


@pytest.mark.slow
def test_auto_is_behind_no_rival_on_any_family(capsys):
    """Rivals are told the exact J, and try all prompts where these are few."""
    import families

    families.main(["--quick", "--nodes", "2000", "--only", "mess3,orders,coins"])
    *table, _, last = capsys.readouterr().out.splitlines()
    ahead = [float(row.split("|")[8]) for row in table[2:]]
    assert len(ahead) == 14 and min(ahead) >= -1e-6
    assert last.startswith(f"{len(ahead)} rows: ") and last.endswith("behind in 0")


def test_every_study_is_listed_and_every_link_leads_somewhere():
    page = (STUDIES / "README.md").read_text()
    listed = re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\)", page, re.MULTILINE)
    assert listed == NAMES
    for target in re.findall(r"\]\(([^)]+)\)", page):
        file, _, anchor = target.partition("#")
        text = (STUDIES / file).read_text()
        assert not anchor or anchor in {slug(line) for line in headings(text)}, target


def test_the_docs_name_studies_that_there_are():
    pages = [*(STUDIES.parent / "docs").glob("*.md"), *STUDIES.parent.glob("*.md")]
    named = {name for page in pages for name in re.findall(r"studies/(\w+)\.py", page.read_text())}
    assert named <= set(NAMES)
    assert not [page for page in pages if "-m posteer.experiments" in page.read_text()]


def headings(text):
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)


def slug(heading):
    """The anchor that a heading has on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
