"""Reasons that docs/RESULTS.md gives, by the commands it names, and the studies behind them."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from running import read_document

from posteer.api.eliciting import elicit_many
from posteer.cli import main
from posteer.core.randomness import torch_stream
from posteer.models import load, open_model
from posteer.models.continuations import continuation_laws
from posteer.models.shipped import shipped_models
from posteer.paper.agreement import Why, outside
from posteer.paper.cells import Cells
from posteer.paper.published import HORIZON, published
from posteer.sweeps.results import read_rows
from posteer.tokens.contexts import all_sequences
from posteer.training.plan import PRESETS
from posteer.views.paper.reasons import TESTS, command_of

DOCS = Path(__file__).parent.parent / "docs"
RECORDS = DOCS / "records"


MODELS = DOCS.parent / "studies" / "models"
in_a_checkout = pytest.mark.skipif(
    not any(MODELS.glob("*/*.safetensors")),
    reason="weights of two urns are in a checkout, not in a source distribution",
)


@pytest.fixture(scope="module")
def cells():
    return Cells(read_rows(RECORDS / "paper.parquet"))


@pytest.fixture(scope="module")
def odd(cells):
    snapped = Cells(read_rows(RECORDS / "rollouts-own-context.parquet"))
    return outside(cells, snapped, {})


@pytest.fixture(scope="module")
def beside():
    from results_parts import Beside

    return Beside.of(RECORDS)


@pytest.fixture(scope="module")
def moved(cells, beside):
    """Cells that urns trained alike move as far as they are outside."""
    every = outside(cells, beside.other_snapping, beside.other_models)
    return [one for one in every if one.why is Why.MODELS]


def answer(command, capsys):
    """What a command of ours says, as JSON."""
    words = shlex.split(command)
    assert words[0] == "posteer"
    main([*words[1:], "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("why", [Why.NO_PROMPT, Why.NO_PROMPT_HERE, Why.JUDGED])
def test_the_best_of_all_prompts_by_the_command_that_is_named(why, odd, capsys):
    """The first cell of each kind: what no prompt reaches is above the optimum; where both found
    the best prompt, ours is the optimum."""
    one = next(one for one in odd if one.why is why)
    said = answer(command_of(one), capsys)
    if why is Why.JUDGED:
        assert said["optimum"] == pytest.approx(one.pair.ours.value, abs=1e-4)
    else:
        assert said["optimum"] < one.pair.theirs.value - 0.005


@in_a_checkout
def test_another_urn_by_the_command_that_is_named(moved, beside, capsys, monkeypatch):
    """The first cell at m=6: the ten runs have the recorded mean, and are nearer than ours."""
    monkeypatch.chdir(DOCS.parent)
    one = next(one for one in moved if one.pair.key[2] == 6)
    (found,) = answer(command_of(one), capsys)["methods"]
    recorded = beside.other_models[one.nearest].figure(one.pair.key, "J")
    assert found["mean"] == pytest.approx(recorded.value, abs=1e-3)
    assert abs(found["mean"] - one.pair.theirs.value) < abs(one.pair.difference)


@in_a_checkout
@pytest.mark.parametrize("seed", [1, 2])
def test_gcg_on_more_urns_is_run_again_on_their_weights(seed):
    """One goal at m=6, ten seeds: the recorded runs name these very weights."""
    folder = f"studies/models/urn-16k-{seed}"
    model = open_model(str(MODELS / f"urn-16k-{seed}"))
    rows = [
        row
        for row in read_rows(RECORDS / "gcg-urns.parquet")
        if (row["model"], row["utility"], row["length"]) == (folder, "dyck", 6)
    ]
    assert {row["model_fingerprint"] for row in rows} == {model.fingerprint}
    again = elicit_many(model, ["dyck"], length=6, method="gcg", seeds=range(10))
    found = {one.seed: one.expected_utility for one in again}
    assert sorted(found) == sorted(row["seed"] for row in rows) == list(range(10))
    for row in rows:
        assert found[row["seed"]] == pytest.approx(row["expected_utility"], abs=2e-5)


def test_the_named_commands_stand_on_the_page(odd, moved):
    page = (DOCS / "RESULTS.md").read_text()
    for why in (Why.NO_PROMPT, Why.NO_PROMPT_HERE, Why.JUDGED, Why.SNAPPING):
        assert command_of(next(one for one in odd if one.why is why)) in page
    assert command_of(moved[0]) in page
    assert all(one.why is not Why.UNEXPLAINED for one in odd if one.why in TESTS)


@pytest.mark.slow
def test_the_snapping_reason_by_the_command_that_is_named(odd, capsys):
    one = next(one for one in odd if one.why is Why.SNAPPING)
    assert answer(command_of(one), capsys)["prompt"] == [0, 1] * 3


def test_all_starts_end_where_the_sweep_ended(cells):
    """The record of all 64 starts against 510 runs of GCG at m=6: the urn's to the prompt; the coin
    sees counts alone, so its prompts tie and J is compared."""
    record = read_document(RECORDS / "gcg-starts.json")
    powers = 2 ** torch.arange(5, -1, -1)
    starts = [
        int((torch.randint(2, (1, 6), generator=torch_stream(seed, "gcg-start"))[0] * powers).sum())
        for seed in range(10)
    ]
    compared = 0
    for cell in cells:
        model, target, length, method = cell.key
        if (length, method) != (6, "gcg"):
            continue
        known = record[model]["targets"][target]
        for row in cell.rows:
            end = known["ends"][starts[row["seed"]]]
            assert known["expected_utility"][end] == pytest.approx(
                row["expected_utility"], abs=2e-5
            )
            assert model != "urn" or f"{end:06b}" == row["prompt"]
            compared += 1
    assert compared == 510
    assert record["urn"]["fingerprint"] == load("urn", "cpu").fingerprint


@pytest.mark.parametrize(("name", "order"), [("beta-bernoulli", 0), ("urn", 1)])
def test_relaxed_counts_are_exact_bayes_on_hard_prompts(name, order):
    from greedy import bayes_counts

    prompts = all_sequences(2, 4)
    rows = torch.nn.functional.one_hot(prompts, 2).double()
    exact = continuation_laws(open_model(f"exact:{name}"), prompts, HORIZON)
    assert torch.allclose(bayes_counts(order)(rows), exact.double(), atol=1e-9)


def test_the_network_read_by_hand_is_the_model():
    """With its start token and positions; without them the laws are others."""
    from greedy import laws_read

    model, prompts = load("urn", "cpu"), all_sequences(2, 3)
    with torch.no_grad():
        plain = laws_read(model, prompts, bos=True, shift=0)
        assert torch.allclose(plain, continuation_laws(model, prompts, HORIZON).double(), atol=1e-5)
        assert not torch.allclose(plain, laws_read(model, prompts, bos=False, shift=0), atol=1e-2)


def test_gcg_on_a_landscape_by_hand():
    """Two tokens, J = 0, 1, 3, 2 of 00, 01, 10, 11: the best proposed flip while it improves."""
    from greedy import ends

    values, prompts = torch.tensor([0.0, 1.0, 3.0, 2.0]), all_sequences(2, 2)
    everything = torch.ones(4, 2, dtype=torch.bool)
    assert ends(values, everything, prompts) == [2, 2, 2, 2]
    second = torch.tensor([[False, True]]).expand(4, 2)
    assert ends(values, second, prompts) == [1, 1, 2, 2]
    assert ends(values, ~everything, prompts) == [0, 1, 2, 3]


def test_the_update_of_order_one_is_that_of_the_library():
    """Its surrogate, ESS and both gradients at a prompt kernel, against the estimator that `ppt`
    ascends, on the same latents."""
    import order_one

    from posteer.families.markov.family import Lifted
    from posteer.families.markov.tilt import PromptKernel
    from posteer.methods.ppt.batches import tilted_runs
    from posteer.methods.protocol import Request, pose

    kernels = order_one.nodes(32)[::37]
    means = order_one.means_of(("dyck",), kernels)
    table = torch.tensor([[[0.3, 0.7], [0.6, 0.4]]], dtype=torch.float64, requires_grad=True)
    rho = torch.tensor([[0.2, 0.8]], dtype=torch.float64, requires_grad=True)
    value, ess, fixed = order_one.surrogate(table, rho, kernels, means, 6, True)
    (slope,) = torch.autograd.grad(value.sum(), table, retain_graph=True)
    (of_rho,) = torch.autograd.grad(fixed.sum(), rho)
    problem = pose([Request(model="exact:urn", utility="dyck", length=6, horizon=4)])[0]
    owned = [(problem, Lifted(problem.markov.space, kernels, None))]
    runs = tilted_runs(owned, "linear", True, torch.device("cpu"))
    at = runs.estimate(PromptKernel(table.detach(), rho.detach()))
    assert float(at.surrogate[0]) == pytest.approx(value.item(), abs=1e-9)
    assert float(at.ess_fraction[0]) == pytest.approx(ess.item(), abs=1e-9)

    def tangent(some):
        return some - some.mean(-1, keepdim=True)

    assert torch.allclose(tangent(at.gradient), tangent(slope), atol=1e-8)
    assert torch.allclose(tangent(at.initial_gradient), tangent(of_rho), atol=1e-8)


def test_model_steps_are_said():
    """Where the urn is presented its steps are: the paper's 100,000."""
    manifest = json.loads((shipped_models()["urn"] / "manifest.json").read_text())
    assert manifest["steps_done"] == PRESETS["urn"].steps == 100_000
    for page in (DOCS / "RESULTS.md", DOCS / "PAPER.md", DOCS.parent / "README.md"):
        assert re.search(r"(trained\s+for|the\s+same)\s+100,000\s+steps", page.read_text()), page


def test_chance_allows_the_published_ranks_by_the_enumerated_starts():
    """GCG at the six extreme frequencies, m=6: a mean rank of 16.3 from ten starts, about once in
    six times, by drawing a million of them. On the urn of 14,900 steps it was once in ten thousand.
    """
    import numpy as np

    record = read_document(RECORDS / "gcg-starts.json")["urn"]["targets"]
    extremes = [f"q-{q}" for q in ("0.0", "0.1", "0.2", "0.8", "0.9", "1.0")]
    ranks = np.array([[t["rank"][end] for end in t["ends"]] for t in map(record.get, extremes)])
    theirs = np.mean([published()["urn", t, 6, "gcg", "rank"].value for t in extremes])
    drawn = np.random.default_rng(0).integers(64, size=(1_000_000, 10))
    assert 0.15 < (ranks.mean(0)[drawn].mean(1) >= theirs - 0.05).mean() < 0.2
