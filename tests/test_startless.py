"""The study's transformer without a start token: trained, rolled out, read and looked at."""

import pytest
import torch
import urns
from startless import StartlessModel, StartlessTrainer

from posteer.families.registry import open_process
from posteer.paper.published import TARGETS, VARIANTS, published
from posteer.tokens.contexts import all_sequences
from posteer.training.plan import make_plan


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    shape = {"layers": 2, "width": 32, "heads": 4, "feedforward": 48}
    plan = make_plan("urn", None, shape, {"steps": 60, "batch": 16, "length": 60, "warmup": 5})
    trainer = StartlessTrainer(plan, tmp_path_factory.mktemp("startless"), held_out=8)
    trainer.run()
    return trainer


def test_it_learns_from_the_second_token_on(trained):
    """The first is a half, as the prior has it; then it comes nearer to Bayes than guessing is."""
    losses, exact = trained.held_out.losses(trained.network), trained.held_out.exact
    assert torch.equal(losses[:, 0], exact[:, 0])
    assert torch.allclose(exact[:, 0], torch.tensor(2.0, dtype=torch.float64).log())
    tokens, guessing = trained.held_out.tokens, torch.tensor(2.0).log()
    assert losses.shape == tokens.shape
    assert losses[:, 1:].mean() < guessing
    assert trained.records[-1]["overall"] == pytest.approx(float((losses - exact).mean()))


def test_as_a_model_it_says_the_same_in_every_way(trained):
    """Token by token, at once, along trees and of one-hot rows; its start token is never read."""
    model = StartlessModel(trained.network, "startless", open_process("urn"))
    prompts, words = all_sequences(2, 4)[:5], all_sequences(2, 3)
    whole = torch.cat([prompts.repeat_interleave(8, 0), words.repeat(5, 1)], 1)
    laws = model.log_predictive(whole)
    assert laws.shape == (40, 8, 2)
    state = model.start(40)
    for place, token in enumerate(whole.T):
        law, state = model.advance(state, token)
        assert torch.allclose(law, laws[:, place + 1], atol=1e-5)
    said = laws[:, 4:7].gather(2, whole[:, 4:, None]).sum((1, 2)).view(5, 8)
    assert torch.allclose(model.continuation_log_probs(prompts, 3), said, atol=1e-5)
    rows = torch.nn.functional.one_hot(prompts, 2).float().requires_grad_()
    of_rows = model.continuation_log_probs_of_rows(rows, 3)
    assert torch.allclose(of_rows, said, atol=1e-5)
    (slope,) = torch.autograd.grad(of_rows[:, 0].sum(), rows)
    assert slope.isfinite().all() and slope.abs().sum() > 0
    with torch.no_grad():
        model.network.tokens.weight[2] += 100.0
    assert torch.equal(model.log_predictive(whole), laws)


def test_it_is_looked_at_as_the_others_are(trained):
    line = urns.looked_at(trained, 20)
    assert line["startless"] and set(line["readings"]) == {"float32", "bfloat16"}
    assert set(line["gcg"]) == set(urns.GREEDY) and all(map(len, line["gcg"].values()))
    (row,) = urns.show([line], ["float32", "no start token"])[4:]
    assert row.startswith("| 0, no start token, schedule of 60 | 60 |") and " of 124 | " in row


def test_what_is_published_of_best_prompts_tells_networks_apart():
    """A network that has the published bests is at no distance; better ones are off as well."""
    known = urns.found_bests()
    assert len(known) == 9 and known["dyck"] == 0.59
    every = {t: [published()["urn", t, 6, m, "J"].value for m in VARIANTS] for t in TARGETS["urn"]}
    theirs = {target: max(values) for target, values in every.items()} | known
    assert urns.from_bests(theirs) == {"over": 0, "total": 124, "same": 9, "apart": 0.0}
    better = urns.from_bests({target: value + 0.02 for target, value in theirs.items()})
    assert (better["over"], better["same"]) == (0, 0) and abs(better["apart"] - 0.02) < 1e-12
    worse = urns.from_bests({target: value - 0.02 for target, value in theirs.items()})
    ties = sum(value > theirs[target] - 0.015 for target in every for value in every[target])
    assert (worse["over"], worse["same"]) == (ties, 0)
