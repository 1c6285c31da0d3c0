"""Things a stranger's package might bring: a family, a model, a method, a utility, an estimator, an
executor and a view. Nothing here is known to posteer but by registration."""

from dataclasses import dataclass

import torch

from posteer.methods.answers import Answer, StopReason
from posteer.methods.protocol import Needs, Work
from posteer.methods.scorers.importance import ImportanceSampled
from posteer.models.protocol import Model
from posteer.sweeps.executors import run_here

SHOWN = []
"""What the view was asked to show, what the executor was asked to run."""


@dataclass(frozen=True)
class CycleFamily:
    """Latents that repeat a word for ever, each token with probability `1 - noise`."""

    vocab_size: int
    name: str = "cycles"
    order: int = 0

    def tally(self, n, context, device):
        return Tokens()

    def fit(self, counts, treatment, stream, law_after):
        """The commonest token at even and at odd places."""
        words = [counts[:, place::2].mode(1).values for place in range(2)]
        return Cycles(torch.stack(words, 1), 0.2, self.vocab_size)

    def latents_of(self, tensors):
        return Cycles(tensors["words"], 0.2, self.vocab_size)


class Tokens:
    """A tally that keeps all tokens."""

    def __init__(self):
        self.kept = []

    def add(self, tokens):
        self.kept.append(tokens)

    def counts(self):
        return torch.stack(self.kept, 1)


def cycle_family(facts):
    return CycleFamily(facts["vocab_size"])


@dataclass(frozen=True, eq=False)
class Cycles:
    """L words of one length; no Markov kernel of a low order says the same."""

    words: torch.Tensor
    noise: float
    vocab_size: int

    @property
    def family(self):
        return CycleFamily(self.vocab_size)

    def __len__(self):
        return len(self.words)

    def laws(self, place):
        """The next-token law of each latent after so many tokens."""
        share = self.noise / self.vocab_size
        law = torch.full((len(self), self.vocab_size), share, dtype=torch.float64)
        at = self.words[:, place % self.words.shape[1], None]
        return law.scatter_add(1, at, torch.full_like(law[:, :1], 1 - self.noise))

    def log_likelihood(self, prompts):
        logs = torch.zeros(len(prompts), len(self), dtype=torch.float64)
        for place, tokens in enumerate(prompts.unbind(1)):
            logs = logs + self.laws(place).log().T[tokens]
        return logs

    def mean_utility(self, utility, prompts, horizon):
        continuations = torch.cartesian_prod(*[torch.arange(self.vocab_size)] * horizon)
        law = torch.ones(len(self), len(continuations), dtype=torch.float64)
        for step in range(horizon):
            law = law * self.laws(prompts.shape[1] + step)[:, continuations[:, step]]
        values = utility(continuations, torch.zeros(len(continuations), dtype=torch.long))
        return (law @ values.double()).expand(len(prompts), -1)

    def roll_out(self, length, generator, head=()):
        tokens = []
        for place in range(len(head), len(head) + length):
            tokens.append(torch.multinomial(self.laws(place), 1, generator=generator)[:, 0])
        return torch.stack(tokens, 1)

    def tensors(self):
        return {"words": self.words.contiguous()}


@dataclass(frozen=True, eq=False)
class CycleBelief:
    """The log-weights of all words, and how many tokens were read."""

    prior: "CyclePrior"
    logs: torch.Tensor
    read: int

    @property
    def log_probs(self):
        weights = self.logs.log_softmax(-1)
        laws = self.prior.atoms.laws(self.read).log()
        return (weights[:, :, None] + laws).logsumexp(1)

    def select(self, rows):
        return CycleBelief(self.prior, self.logs[rows], self.read)


@dataclass(frozen=True, eq=False)
class CyclePrior:
    """Every word of two tokens, equally likely."""

    noise: float
    context: tuple = ()

    @property
    def atoms(self):
        words = torch.cartesian_prod(torch.arange(2), torch.arange(2))
        return Cycles(words, self.noise, 2)

    @property
    def family(self):
        return self.atoms.family

    @property
    def spec(self):
        return f"cycles(noise={self.noise})"

    def sample(self, n, stream):
        chosen = torch.from_numpy(stream.integers(0, 4, size=n))
        return Cycles(self.atoms.words[chosen], self.noise, 2)

    def start(self, batch):
        belief = CycleBelief(self, torch.zeros(batch, 4).double(), 0)
        for token in self.context:
            belief = self.observe(belief, torch.full((batch,), token))
        return belief

    def observe(self, belief, tokens):
        logs = belief.logs + self.atoms.laws(belief.read).log().T[tokens]
        return CycleBelief(self, logs, belief.read + 1)

    def evidence(self, prompts):
        whole = torch.cat([torch.tensor(self.context).long().expand(len(prompts), -1), prompts], 1)
        own = self.atoms.log_likelihood(whole).logsumexp(-1)
        if not self.context:
            return own - torch.tensor(4.0).log()
        known = self.atoms.log_likelihood(torch.tensor([self.context])).logsumexp(-1)
        return own - known

    def after(self, tokens):
        return CyclePrior(self.noise, (*self.context, *tokens))


def cycle_prior(spec):
    return CyclePrior(float(spec.take(noise=0.2)["noise"]))


class Alternating(Model):
    """Goes on as 0101.. with probability 0.9, whatever it reads; says nothing of latents."""

    vocab_size = 2
    name = "alternating"

    @dataclass(frozen=True)
    class State:
        log_probs: torch.Tensor

        def select(self, rows):
            return Alternating.State(self.log_probs[rows])

    def start(self, batch, capacity=16):
        return self.State(torch.full((batch, 2), 0.5).double().log())

    def advance(self, state, tokens):
        law = torch.where(torch.arange(2) == 1 - tokens[:, None], 0.9, 0.1).double().log()
        return law, self.State(law)


def alternating(text, device="cpu"):
    model = Alternating()
    model.name = text
    return model


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Always answers the same token."""

    token: int = 0

    @property
    def needs(self):
        return Needs()

    def forecast(self, problem, together):
        return Work(1e-6)

    def solve(self, problems, progress=None):
        prompt = torch.full((problems[0].length,), self.token)
        before = problems[0].model.queries
        return [
            Answer(prompt=prompt, queries=before.since(before), stop_reason=StopReason.COMPLETE)
            for _ in problems
        ]


def constant(spec):
    return Constant(token=spec.take(token=0)["token"])


@dataclass(frozen=True)
class Zeros:
    """How many zeros there are."""

    name: str = "zeros"
    order: int = 0

    def __call__(self, continuations, contexts):
        return (continuations == 0).sum(-1).double()

    def finite_state(self, vocab_size, horizon):
        return None


def zeros(spec, vocab_size):
    spec.take()
    return Zeros()


class Doubtful(ImportanceSampled):
    """Plain weights with twice their error."""

    def of_folded(self, utility, prompts, horizon):
        from dataclasses import replace

        scores = super().of_folded(utility, prompts, horizon)
        return replace(scores, standard_error=2 * scores.standard_error)


def doubtful(estimators):
    posterior = Doubtful(estimators.bank)
    posterior.name = "doubtful"
    return posterior


def here(work):
    SHOWN.append(f"ran {work.job.config.name}")
    run_here(work)


def short(record):
    SHOWN.append("".join(map(str, record.prompt)))


def two_runs():
    from posteer.sweeps.configuration import config_from

    grid = {"models": "exact:urn", "utilities": "dyck", "methods": "beam", "seeds": [0, 1]}
    return config_from({**grid, "name": "two"}, "strangers")


THINGS = {
    "families": ("cycles", cycle_family),
    "presets": ("two-runs", two_runs),
    "priors": ("cycles", cycle_prior),
    "models": ("alternating", alternating),
    "methods": ("constant", constant),
    "utilities": ("zeros", zeros),
    "scorers": ("doubtful", doubtful),
    "executors": ("here", here),
    "views": ("short", short),
}
"""By the group of entry points that each would be offered under."""
