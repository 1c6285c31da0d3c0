"""A stranger's method, family, model kind, utility, estimator, executor and view: one registration
each, in a running process or by the entry points of an installed package."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from strangers import SHOWN, THINGS

import posteer
from posteer.cli import main
from posteer.core.errors import InputError
from posteer.families.protocol import Fittable
from posteer.families.registry import FAMILIES, PRIORS
from posteer.goals.utilities import UTILITIES
from posteer.methods.registry import METHODS
from posteer.methods.scorers import SCORERS
from posteer.models.registry import KINDS
from posteer.sweeps.configuration import config_from
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.executors import EXECUTORS
from posteer.sweeps.presets import PRESETS, preset
from posteer.views import VIEWS

REGISTRIES = {
    "families": FAMILIES,
    "presets": PRESETS,
    "priors": PRIORS,
    "models": KINDS,
    "methods": METHODS,
    "utilities": UTILITIES,
    "scorers": SCORERS,
    "executors": EXECUTORS,
    "views": VIEWS,
}


@pytest.fixture
def registered():
    for group, (name, thing) in THINGS.items():
        REGISTRIES[group].add(name, thing)
    SHOWN.clear()
    yield
    for group, (name, _) in THINGS.items():
        REGISTRIES[group].remove(name)


def test_a_method_of_a_strangers(registered):
    found = posteer.elicit("exact:urn", "dyck", length=4, method="constant(token=1)")
    assert found.prompt == [1, 1, 1, 1] and found.rank == 16
    both = posteer.compare("exact:urn", "dyck", length=4, methods=["constant", "random"], seeds=1)
    assert [summary.method for summary in both.methods] == ["constant", "random"]


def test_a_family_of_a_strangers(registered):
    """Exact Bayes over it is a model; searches on latents run, those on counts refuse it."""
    model = posteer.open_model("exact:cycles(noise=0.1)")
    found = posteer.elicit(model, "dyck", length=4)
    assert found.choice.method == "climb-analytic"
    assert [reason.because for reason in found.choice.reasons] == ["prior-known", "few-prompts"]
    assert found.prompt == [0, 1, 0, 1] and found.rank == 1 and found.bound == found.optimum
    with pytest.raises(InputError, match=r"classes: .* use auto, .*coordinate"):
        posteer.elicit(model, "dyck", length=4, method="classes")


def test_latents_of_a_strangers_family_are_drawn_kept_and_read_again(registered, tmp_path):
    """Fittable: rollouts of the exact filter settle on the words it was given, a quarter of them on
    each, give or take 0.03: the estimate moves by far less than 0.1."""
    model = posteer.open_model("exact:cycles(noise=0.2)")
    assert isinstance(model.family, Fittable)
    bank = posteer.sample(model, rollouts=200, length=40, out=tmp_path / "cycles.safetensors")
    again = posteer.load_bank(tmp_path / "cycles.safetensors")
    assert again.latents.family.name == "cycles" and torch.equal(
        again.latents.words, bank.latents.words
    )
    prompts = torch.tensor([[0, 1, 0, 1]])
    dyck = posteer.open_utility("dyck", model)
    exact = float(posteer.expected_utility(model, dyck, prompts, 4).expected_utility[0])
    assert float(posteer.estimate_from_bank(again, dyck, prompts, 4)[0]) == pytest.approx(
        exact, abs=0.1
    )
    with pytest.raises(InputError, match="no latents that see a prompt through counts"):
        posteer.elicit(model, "dyck", length=4, method="classes", bank=bank)


def test_a_sweep_by_name_of_a_strangers(registered):
    assert preset("two-runs").grids[0].size == 2


def test_a_bank_of_such_latents_estimates_what_exact_bayes_gives(registered):
    """All four words, each once: the estimate is then exact Bayes, whatever the family."""
    prior = posteer.open_process("cycles(noise=0.3)")
    model = posteer.open_model("exact:cycles(noise=0.3)")
    prompts = torch.cartesian_prod(*[torch.arange(2)] * 3)
    dyck = posteer.open_utility("dyck", model)
    estimate = posteer.estimate_from_bank(prior.atoms, dyck, prompts, 4)
    exact = posteer.expected_utility(model, dyck, prompts, 4).expected_utility
    assert torch.allclose(estimate, exact, atol=1e-12)


def test_a_kind_of_model_of_a_strangers(registered):
    found = posteer.elicit("alternating:any", "dyck", length=3, method="coordinate")
    assert found.model == "alternating:any"
    assert found.prompt[-1] == 1 and found.expected_utility == pytest.approx(
        0.9**4 + 0.09**2, rel=1e-5
    )


def test_a_utility_of_a_strangers(registered):
    assert posteer.elicit("exact:beta-bernoulli", "zeros", length=5).prompt == [0] * 5


def test_an_estimator_of_a_strangers(registered):
    errors = {
        name: posteer.elicit(
            "exact:urn", "dyck", length=5, method=f"classes-analytic(samples=500,estimator={name})"
        ).surrogate_standard_error
        for name in ("importance", "doubtful")
    }
    assert errors["doubtful"] == pytest.approx(2 * errors["importance"])


def test_an_executor_of_a_strangers(registered, tmp_path):
    tiny = {"models": "exact:urn", "utilities": "dyck", "methods": "constant", "lengths": [3]}
    config = config_from({**tiny, "seeds": [0], "name": "tiny"}, "here")
    ended = run_sweep(config, tmp_path / "runs", device="cpu", executor="here")
    assert ended.statuses == {"done": 1} and SHOWN == ["ran tiny"]


def test_a_view_of_a_strangers(registered):
    main(["elicit", "--length", "4", "--method", "constant", "--view", "short"])
    assert SHOWN == ["0000"]


def test_names_that_are_taken_or_unknown_are_refused():
    with pytest.raises(InputError, match="there is a method 'gcg' already"):
        METHODS.add("gcg", None)
    with pytest.raises(InputError, match="unknown method 'cordinate': did you mean coordinate"):
        posteer.elicit("exact:urn", "dyck", length=4, method="cordinate")


def test_an_installed_package_needs_no_more_than_entry_points(tmp_path):
    """A package of which only its metadata speak to posteer, in a process that imports neither."""
    lines = []
    for group, (name, thing) in THINGS.items():
        lines += [f"[posteer.{group}]", f"{name} = strangers:{thing.__name__}"]
    package = tmp_path / "strangers-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: strangers\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("\n".join(lines))
    code = """
import posteer
from posteer.cli import main
found = posteer.elicit("exact:cycles", "zeros", length=3, method="constant(token=1)")
assert found.prompt == [1, 1, 1], found
assert "constant" in __import__("posteer.methods.registry").methods.registry.METHODS.names()
main(["elicit", "--model", "alternating:x", "--method", "constant", "--view", "short"])
main(["elicit", "--method", "classes-analytic(samples=50,estimator=doubtful)", "--view", "short"])
main(["sweep", "--preset", "two-runs", "--out", sys.argv[1], "--executor", "here", "--json"])
import strangers
assert strangers.SHOWN[0] == "000000" and strangers.SHOWN[2] == "ran two", strangers.SHOWN
from posteer.families.registry import FAMILIES
assert FAMILIES["cycles"]({"vocab_size": 2}).name == "cycles"
"""
    here = Path(__file__).parent
    path = [str(tmp_path), str(here), *sys.path]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path[:0] = {path!r}\n{code}",
            str(tmp_path / "runs"),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
