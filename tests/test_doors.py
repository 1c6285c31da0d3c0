"""What a user with a model of their own meets at the doors: prints, comparisons, abilities."""

import json

import pytest

import posteer
from posteer.cli import main
from posteer.views.terminal.models import show_abilities

LOUD = """
print("loading")
def predict(tokens):
    print("asked")
    return [[0.5, 0.5]] * len(tokens)
predict.vocab_size, predict.order = 2, 0
def worth(y):
    print("worth")
    return sum(y)
"""


def test_what_a_users_file_prints_is_not_in_the_json(tmp_path, capsys):
    (tmp_path / "loud.py").write_text(LOUD)
    line = ["--model", f"{tmp_path}/loud.py:predict", "--utility", f"{tmp_path}/loud.py:worth"]
    main(["evaluate", *line, "--prompt", "01", "--horizon", "2", "--json"])
    printed = capsys.readouterr()
    assert json.loads(printed.out)["expected_utility"] == pytest.approx(1.0)
    assert {"loading", "asked", "worth"} <= set(printed.err.split())


def test_a_comparison_leaves_out_what_cannot_run_and_says_so(tmp_path, capsys):
    asked = ["--model", "exact:urn", "--length", "3", "--seeds", "1"]
    main(["compare", *asked, "--methods", "gcg,exhaustive", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [one["method"] for one in found["methods"]] == ["exhaustive"]
    assert found["refused"] == {"gcg": "needs gradients and exact:urn gives none"}
    main(["compare", *asked, "--methods", "gcg,exhaustive"])
    assert "gcg was left out: needs gradients" in capsys.readouterr().out
    with pytest.raises(posteer.InputError, match="no method can be compared: gcg: needs gradients"):
        posteer.compare("exact:urn", "dyck", length=3, methods=["gcg", "soft-pt"], seeds=1)


def test_a_comparison_takes_a_bank_for_those_that_use_one(tmp_path, capsys):
    bank = tmp_path / "bank.safetensors"
    posteer.sample("exact:urn", rollouts=100, length=30, out=bank)
    line = ["--model", "exact:urn", "--length", "3", "--seeds", "1", "--bank", str(bank)]
    main(
        ["compare", *line, "--methods", "classes(estimator=importance),random(prompts=4)", "--json"]
    )
    found = json.loads(capsys.readouterr().out)
    tokens = {one["method"]: one["bank_tokens"] for one in found["methods"]}
    assert tokens == {"classes(estimator=importance)": 100 * 29, "random(prompts=4)": 0}


def test_models_say_what_they_can_do(capsys):
    main(["models", "--verbose", "--json"])
    found = json.loads(capsys.readouterr().out)
    urn = next(one for one in found["models"] if one["name"] == "urn")
    assert {"read-trees", "one-hots", "embed"} <= set(urn["can"])
    kinds = {one["kind"]: one for one in found["kinds"]}
    assert kinds["exact"]["can"] == ["exact"] and "shares" in kinds["hf"]["can"]
    main(["models", "--verbose"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "smollm2" in shown and "gradients" in shown


def test_what_to_install_is_said_whole(capsys, monkeypatch):
    """Brackets are no markup."""
    monkeypatch.setenv("COLUMNS", "200")
    show_abilities([], [{"kind": "smollm2", "can": [], "missing": ["gguf"]}])
    assert "pip install 'posteer[llm]'" in capsys.readouterr().out
