"""Every `--json` is as `posteer/schema.json` says, and docs/SCHEMA.md is made of it."""

import json
from pathlib import Path
from runpy import run_path

import pytest
from schemas import definitions, faults, promised

from posteer.cli import main

ROOT = Path(__file__).parent.parent
SWEEP = 'models = "exact:urn"\nutilities = "dyck"\nmethods = "random(prompts=2)"\nlengths = 3\n'
LINES = {
    "evaluate": "evaluate --prompt 0101",
    "compare": "compare --model exact:urn --methods beam,gcg,random(prompts=2) --seeds 2 "
    "--length 4",
    "sample": "sample --model exact:urn --rollouts 20 --length 12 --out bank.safetensors",
    "check": "check --model exact:beta-bernoulli --rollouts 20 --length 20 --effort 0.02 "
    "--no-families",
    "train": "train --preset tiny --out trained --steps 1 --batch 2 --length 6 --warmup 0 "
    "--device cpu",
    "train-many": "train-many --config many.toml --out many --device cpu",
    "models": "models",
    "models --verbose": "models --verbose",
    "methods": "methods",
    "utilities": "utilities",
    "sweep plan": "sweep plan --config mine.toml",
    "sweep": "sweep --config mine.toml --out runs",
    "sweep status": "sweep status --out runs",
    "tables": "tables runs",
    "report": "report runs",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("json")
    (here / "mine.toml").write_text(SWEEP + "horizons = 2\nseeds = 1\n")
    tiny = 'name = "a"\npreset = "tiny"\nsteps = 1\nbatch = 2\nlength = 6\nwarmup = 0\n'
    (here / "many.toml").write_text(f"[[training]]\n{tiny}")
    return here


@pytest.mark.parametrize("command", LINES)
def test_what_a_command_prints_fits_the_schema(command, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    if command in ("sweep status", "tables", "report") and not (folder / "runs").exists():
        main(LINES["sweep"].split())
        capsys.readouterr()
    main([*LINES[command].split(), "--json"])
    value = json.loads(capsys.readouterr().out)
    assert list(faults(value, definitions()[command.replace(" status", "")])) == []


ELICITED = {
    "plain": "--model exact:coins(0.2,0.7) --length 4",
    "after a context": "--context 01 --allowed first=1 --method beam --length 4",
    "by name": "--alphabet (,) --method exhaustive --length 3",
    "verified": "--method classes-analytic(samples=50,estimator=psis) --verify 2 --length 4",
    "an ascent": "--method ppt-rb(samples=50,rollout-length=20,steps=3) --length 4",
    "proven": "--model exact:coins(0.2,0.7) --method bounds --length 3",
    "soft": "--model beta-bernoulli --method simplex-pt(steps=2) --length 3 --device cpu",
}


@pytest.mark.parametrize("line", ELICITED)
def test_every_elicitation_has_the_same_keys(line, capsys):
    main(["elicit", *ELICITED[line].split(), "--json"])
    value = json.loads(capsys.readouterr().out)
    assert value.keys() == promised("elicit")
    assert list(faults(value, definitions()["elicit"])) == []


def test_the_check_can_fail():
    proof = {"bound": 0.5, "gap": 0.0, "nodes": 3}
    assert list(faults(proof, definitions()["proof"])) == []
    assert list(faults({**proof, "nodes": 2.5}, definitions()["proof"])) == [
        ".nodes: 2.5 is no integer"
    ]
    assert list(faults({**proof, "more": 1}, definitions()["proof"])) == [".more: unknown"]
    del proof["gap"]
    assert list(faults(proof, definitions()["proof"])) == [".gap: missing"]
    assert list(faults({"proof": True}, {"properties": {"proof": {"type": "integer"}}})) != []


def test_nothing_is_optional():
    """The same keys are always there: what does not apply is null."""
    for name, one in definitions().items():
        assert set(one.get("properties", {})) == set(one.get("required", [])), name


def test_the_page_is_made_of_the_schema():
    """As `python docs/making/schema_page.py docs/SCHEMA.md` writes it."""
    page = run_path(str(ROOT / "docs" / "making" / "schema_page.py"))["page"]
    assert (ROOT / "docs" / "SCHEMA.md").read_text() == page({"$defs": definitions()})
