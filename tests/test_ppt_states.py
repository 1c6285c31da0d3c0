"""Posterior prefix tuning on machines with states."""

import pytest
import torch
from posing import posed

from posteer import InputError, elicit, evaluate
from posteer.banks import LatentBank, draw_analytic
from posteer.banks.atoms import AtomBank
from posteer.core.randomness import numpy_stream
from posteer.families.atoms.prior import AtomPrior
from posteer.families.finite_state.machines import state_latents
from posteer.families.finite_state.unifilar import from_kernels
from posteer.families.markov.tilt import PromptKernel
from posteer.families.protocol import Tiltable
from posteer.methods.climbing.latents import LatentScore
from posteer.methods.ppt.states import StateRuns
from posteer.models.exact import ExactModel
from posteer.tokens.contexts import ContextSpace, all_sequences


def hmms(n=3, states=3, seed=0):
    stream = numpy_stream(seed, "ppt-machines")
    rows = torch.from_numpy(stream.dirichlet([0.4] * (2 * states), size=(n, states)))
    start = torch.from_numpy(stream.dirichlet([1.0] * states, size=n))
    machines = state_latents(start, rows.reshape(n, states, 2, states))
    weights = torch.arange(1, n + 1).double()
    return ExactModel(AtomPrior.of(machines, weights / weights.sum(), "hmms"))


def kernels():
    """Of two orders, so that they are machines whose tokens say the state."""
    tables = [torch.tensor([[0.3, 0.7]]).double(), torch.tensor([[0.9, 0.1], [0.2, 0.8]]).double()]
    return ExactModel(AtomPrior.of(from_kernels(tables), None, "kernels"))


@pytest.mark.parametrize("context", ["", "011"])
@pytest.mark.parametrize("model", [hmms(), kernels()], ids=["hmm", "unifilar"])
@pytest.mark.parametrize("utility", ["frequency(1.0)", "dyck"])
def test_the_surrogate_is_a_mean_of_j_over_prompts(model, utility, context):
    """Weighed by how likely the kernel and the model make them, each J by the model itself."""
    problem = posed(model, utility, 4, context=context)
    space = ContextSpace(2, max(1, problem.goal.order))
    bank = AtomBank.of(problem.model.prior)
    score = LatentScore.of(bank, problem.context, problem.expected, 4)
    stream = numpy_stream(1, "any-kernel")
    table = torch.from_numpy(stream.dirichlet([1.0, 1.0], size=(1, space.n_contexts)))
    start = torch.from_numpy(stream.dirichlet([1.0] * space.n_contexts))[None]
    at = StateRuns.of(space, [score], 4).estimate(PromptKernel(table, start))
    prompts = all_sequences(2, 4)
    chance = start[0, space.encode(prompts[:, : space.order])]
    for place in range(space.order, 4):
        before = space.encode(prompts[:, place - space.order : place])
        chance = chance * table[0, before, prompts[:, place]]
    weights = chance * problem.model.prior.evidence(prompts).exp()
    values = [
        evaluate(model, utility, prompt, context=context).expected_utility
        for prompt in prompts.tolist()
    ]
    expected = float((weights * torch.tensor(values, dtype=torch.float64)).sum() / weights.sum())
    assert float(at.surrogate[0]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("method", ["ppt-rb-analytic", "ppt-analytic"])
def test_it_climbs_and_its_prompt_is_scored_exactly(method):
    model = hmms()
    assert isinstance(model.family, Tiltable)
    found = elicit(model, "frequency(1.0)", length=6, method=f"{method}(steps=60)")
    answer = found.answer
    assert answer.surrogate_history[-1] > answer.surrogate_history[0]
    assert answer.surrogate <= found.optimum + 1e-10
    assert answer.snapped_surrogate == pytest.approx(found.expected_utility, abs=1e-10)
    assert answer.surrogate_standard_error == 0.0 and answer.ess_fraction is None
    assert found.cost["forward_tokens"] == 0


@pytest.mark.parametrize("allowed", ["first=0", "first=0;last=0;count(1)=3;position(3)=1"])
def test_allowed_prompts_are_kept_to(allowed):
    problem = posed(hmms(), "frequency(1.0)", 6, allowed=allowed)
    found = elicit(
        hmms(), "frequency(1.0)", length=6, method="ppt-rb-analytic(steps=20)", allowed=allowed
    )
    assert bool(problem.allowed.allows(torch.tensor([found.prompt])).all())


def test_a_prompt_of_one_token():
    found = elicit(hmms(), "frequency(1.0)", length=1, method="ppt-rb-analytic(steps=20)")
    assert found.rank == 1


def test_on_draws_there_are_errors():
    found = elicit(
        hmms(), "frequency(1.0)", length=5, method="ppt-rb-analytic(samples=200,steps=20)"
    ).answer
    assert found.surrogate_standard_error > 0 and found.held_out_surrogate is not None
    assert 0 < found.ess_fraction <= 1


def test_a_bank_of_machines_is_ascended():
    model = hmms()
    drawn = draw_analytic(model.prior, 50, 0)
    bank = LatentBank(drawn.latents, drawn.origin)
    found = elicit(
        model, "frequency(1.0)", length=5, method="ppt-rb(steps=20)", bank=bank, allow_mismatch=True
    )
    assert found.answer.surrogate is not None and len(found.prompt) == 5


def test_what_needs_kernels_still_says_so():
    with pytest.raises(InputError, match="tilt geometric works on Markov kernels"):
        elicit(hmms(), "dyck", length=4, method="ppt-rb-analytic(tilt=geometric)")
    with pytest.raises(InputError, match="no latents that see a prompt through counts"):
        elicit(hmms(), "dyck", length=4, method="classes-analytic")
