import pytest
import torch
from examples import batch, random_kernels, random_prompts

from posteer.core.errors import InputError
from posteer.families.markov.means import utility_of_kernels
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.ascent import AscentSettings, ascend, initial_prompts
from posteer.methods.ppt.estimator import Estimate, ExactMeans, TiltedRuns, estimate
from posteer.methods.ppt.updates import LogitAdam, ProjectedAscent, project, update_rule
from posteer.tokens.contexts import ContextSpace


def problem(vocab, order, seeds, text="dyck", n_latents=300):
    space = ContextSpace(vocab, order)
    kernels = random_kernels(space, n_latents, seed=9, concentration=0.5)
    means = utility_of_kernels(open_utility(text, space), space, kernels, 4).T
    n = len(seeds)
    return space, initial_prompts(space, seeds), batch(kernels, n), means.expand(n, -1, -1)


@pytest.mark.parametrize(("vocab", "order"), [(2, 0), (2, 1), (3, 1), (2, 2)])
def test_ascent_ends_higher_than_it_began(vocab, order):
    space, prompts, latents, means = problem(vocab, order, [0, 1, 2], "frequency(0.9)")
    runs = ascend(
        TiltedRuns(space, latents, 5, ExactMeans(means)), prompts, AscentSettings(max_steps=60)
    )
    for run in runs:
        assert run.surrogate_history[-1] > run.surrogate_history[0]
        assert run.surrogate == run.surrogate_history[-1]
        assert run.steps == 60
        assert run.stop_reason == "step-limit"
        assert len(run.ess_history) == 60
        assert all(0 < fraction <= 1 + 1e-12 for fraction in run.ess_history)
        assert torch.allclose(run.prompt.transitions.sum(-1), torch.ones(1).double())


def test_a_run_is_the_same_alone_and_in_company():
    space, prompts, latents, means = problem(2, 1, [0, 1, 2])
    settings = AscentSettings(max_steps=400)
    together = ascend(TiltedRuns(space, latents, 5, ExactMeans(means)), prompts, settings)
    assert len({run.steps for run in together}) > 1, "runs should stop at different steps"
    for seed, run in enumerate(together):
        space, prompts, latents, means = problem(2, 1, [seed])
        alone = ascend(TiltedRuns(space, latents, 5, ExactMeans(means)), prompts, settings)[0]
        assert (run.steps, run.stop_reason) == (alone.steps, alone.stop_reason)
        assert run.surrogate_history == pytest.approx(alone.surrogate_history, abs=1e-9)


def test_stops_after_patience_without_improvement():
    """A utility that no prompt can change: the first value is the best, then patience runs out."""
    space, prompts, latents, means = problem(2, 1, [0])
    flat = ExactMeans(torch.full_like(means, 0.25))
    run = ascend(TiltedRuns(space, latents, 5, flat), prompts, AscentSettings(patience=7))[0]
    assert run.steps == 8
    assert run.stop_reason == "no-improvement"


def test_a_run_that_meets_nan_is_recorded_as_diverged():
    space, prompts, latents, means = problem(2, 1, [0, 1])
    broken = means.clone()
    broken[1, 0, 0] = torch.nan
    good, bad = ascend(
        TiltedRuns(space, latents, 5, ExactMeans(broken)), prompts, AscentSettings(max_steps=5)
    )
    assert good.stop_reason == "step-limit"
    assert (bad.stop_reason, bad.steps) == ("diverged", 1)


def estimate_with(gradient, initial_gradient):
    empty = torch.zeros(len(gradient)).double()
    return Estimate(empty, empty, empty, empty[:, None], gradient, initial_gradient)


def test_projected_step_is_the_papers():
    space = ContextSpace(2, 1)
    prompts = random_prompts(space, 1)
    gradient = torch.tensor([[[3.0, 1.0], [-9.0, 40.0]]]).double()
    moved = ProjectedAscent(0.1, 1e-6)(
        prompts, estimate_with(gradient, torch.tensor([[0.5, 0.1]]).double())
    )
    for row, change in enumerate([[1.0, -1.0], [-24.5, 24.5]]):
        raised = prompts.transitions[0, row] + 0.1 * torch.tensor(change).double()
        raised = raised.clamp(min=1e-6)
        assert torch.allclose(moved.transitions[0, row], raised / raised.sum(), rtol=1e-12)
    assert float(moved.transitions[0, 1, 0]) < 1e-6, "pushed to the floor, then renormalised"
    rho = prompts.initial[0] + 0.1 * torch.tensor([0.2, -0.2]).double()
    assert torch.allclose(moved.initial[0], rho)


def test_projection_floors_and_renormalises():
    found = project(torch.tensor([0.7, -0.2, 0.7]).double(), 1e-6)
    assert float(found.sum()) == pytest.approx(1.0)
    assert found.tolist() == pytest.approx([0.5, 1e-6 / 1.4, 0.5], rel=1e-5)


def test_logit_steps_are_torchs_adam():
    """Ascending the softmax of logits with torch's own optimiser and autograd."""
    space, prompts, latents, means = problem(3, 0, [0], "frequency(0.2)")
    source = ExactMeans(means)
    update = update_rule(space, 0.1, 1e-6)
    assert isinstance(update, LogitAdam)
    logits = prompts.transitions[0, 0].log().requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=0.1)
    kernels = latents[0, 0].T
    for _ in range(25):
        prompts = update(prompts, estimate(TiltedRuns(space, latents, 8, source), prompts))
        optimiser.zero_grad()
        weights = (8 * (kernels @ logits.softmax(0)).log()).softmax(0)
        (-(weights * means[0, 0]).sum()).backward()
        optimiser.step()
        assert torch.allclose(prompts.transitions[0, 0], logits.detach().softmax(0), atol=1e-9)


def test_initial_kernels_are_uniform_on_the_simplex():
    """Dirichlet(1, 1): the first coordinate is uniform; 2,000 draws, six standard errors."""
    space = ContextSpace(2, 1)
    prompts = initial_prompts(space, list(range(2000)))
    for draws in (prompts.initial[:, 0], prompts.transitions[:, 0, 0]):
        assert abs(float(draws.mean()) - 0.5) < 6 * (1 / 12 / 2000) ** 0.5
        assert abs(float(draws.var()) - 1 / 12) < 6 * (1 / 180 / 2000) ** 0.5


@pytest.mark.parametrize("bad", [{"learning_rate": 0.0}, {"max_steps": 0}, {"patience": 0}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(InputError):
        AscentSettings(**bad)


def test_the_settings_are_the_papers():
    settings = AscentSettings()
    assert settings.learning_rate == 0.1
    assert (settings.patience, settings.tolerance, settings.floor) == (100, 1e-5, 1e-6)
    assert settings.max_steps == 5000, "read off its tables, docs/LOG.md"


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-12])
def test_a_utility_of_any_scale_is_climbed(order, scale):
    """Made small, it is ascended as one that spreads over 1: the same kernels, at any scale."""
    space, prompts, latents, means = problem(2, order, [0], "frequency(0.9)")
    means = (means - means.min()) / (means.max() - means.min())
    settings = AscentSettings(max_steps=150)
    runs = TiltedRuns(space, latents, 5, ExactMeans(means))
    (plain,) = ascend(runs, prompts, settings)
    small = TiltedRuns(space, latents, 5, ExactMeans(scale * means))
    (climbed,) = ascend(small, prompts, settings)
    assert climbed.steps == plain.steps and climbed.stop_reason == plain.stop_reason
    assert torch.allclose(climbed.prompt.transitions, plain.prompt.transitions, atol=1e-6)
    assert climbed.surrogate == pytest.approx(scale * plain.surrogate, rel=1e-6)
    both = torch.cat([means, scale * means])
    together = TiltedRuns(space, latents.expand(2, -1, -1, -1), 5, ExactMeans(both))
    twice = type(prompts)(
        prompts.transitions.expand(2, -1, -1).clone(), prompts.initial.expand(2, -1).clone()
    )
    large, _ = ascend(together, twice, settings)
    assert large.surrogate_history == pytest.approx(plain.surrogate_history, abs=1e-12)


def test_rounding_is_no_spread():
    space, prompts, latents, means = problem(2, 1, [0])
    noise = 1e-16 * torch.rand(means.shape, generator=torch.Generator().manual_seed(0)).double()
    run = ascend(
        TiltedRuns(space, latents, 5, ExactMeans(0.25 + noise)), prompts, AscentSettings(patience=7)
    )[0]
    assert run.steps == 8
