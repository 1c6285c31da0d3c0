"""What tests of several modules start from: latents, prompt kernels, a prior of two modes."""

import torch
from scipy.stats import t as student

from posteer.banks import LatentBank, Origin, draw_analytic
from posteer.core.randomness import numpy_stream
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.fit.dirichlet_mixture import DirichletMixture
from posteer.families.markov.kernels import log_likelihood
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.tilt import PromptKernel, latents_last
from posteer.families.registry import open_process
from posteer.models import ExactModel
from posteer.tokens.contexts import ContextSpace, count_transitions

PROMISED = {
    "model",
    "utility",
    "horizon",
    "length",
    "method",
    "seed",
    "prompt",
    "expected_utility",
    "standard_error",
    "surrogate",
    "ess_fraction",
    "pareto_k",
    "rank",
    "optimum",
    "bound",
    "steps",
    "stop_reason",
    "cost",
    "seconds",
}
"""Keys of every record of an elicitation."""

SPACE = ContextSpace(3, 1)
ALPHA = torch.tensor(
    [
        [[0.5, 1.5, 0.7], [2.0, 0.4, 0.9], [0.3, 0.6, 3.0]],
        [[6.0, 2.0, 3.0], [1.0, 5.0, 8.0], [4.0, 4.0, 1.5]],
    ],
    dtype=torch.float64,
)
MIXTURE = DirichletMixture(SPACE, torch.tensor([0.35, 0.65], dtype=torch.float64).log(), ALPHA)


def random_kernels(space, n, seed=0, concentration=0.7):
    process = DirichletRows.symmetric(space.vocab_size, space.order, concentration)
    return process.sample_kernels(n, numpy_stream(seed, "test"))


def random_prompts(space, n, seed=0):
    stream = numpy_stream(seed, "prompts")
    transitions = stream.dirichlet([1.0] * space.vocab_size, size=(n, space.n_contexts))
    initial = stream.dirichlet([1.0] * space.n_contexts, size=n)
    return PromptKernel(torch.tensor(transitions), torch.tensor(initial))


def batch(kernels, n):
    return latents_last(kernels).expand(n, -1, -1, -1)


def bank_of(process, n, seed=0):
    origin = Origin(source="analytic", model="exact", fingerprint="", process=None, seed=seed)
    return LatentBank(process.sample(n, numpy_stream(seed, "test")), origin)


def within(differences, errors, degrees, false_alarm=1e-3):
    """Student's bound on all of them at once, by Bonferroni."""
    scaled = (differences / errors).abs().flatten()
    return bool((scaled < student.ppf(1 - false_alarm / (2 * len(scaled)), degrees)).all())


def bank_estimate(process, context, goal, utility_order, prompts, horizon, samples, seed=0):
    """The estimate by definition: prior posterior latents weighed by the prompt's transitions,
    continued from the end of context + prompt."""
    bank = draw_analytic(process, samples, seed)
    order = process.space.order
    walks = torch.cat([torch.tensor(context).long().expand(len(prompts), -1), prompts], 1)
    own = count_transitions(process.space, walks)
    if len(context) > order:
        own = own - count_transitions(process.space, torch.tensor(context))
    weights = log_likelihood(own, bank.kernels).softmax(-1)
    wide = bank.lifted(max(order, utility_order))
    means = utility_of_kernels(goal, wide.space, wide.kernels, horizon)
    return (weights * means.T[wide.space.suffix(walks)]).sum(-1)


class Claims(ExactModel):
    """Filters one prior and says it filters another."""

    def __init__(self, true, claimed):
        super().__init__(open_process(claimed), f"{true} as {claimed}")
        self.true = ExactModel(open_process(true))

    def start(self, batch, capacity=16):
        return self.true.start(batch)

    def advance(self, state, tokens):
        return self.true.advance(state, tokens)
