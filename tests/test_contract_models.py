"""What every model promises: laws, states that fork, abilities as declared, an honest meter."""

import pytest
import torch
from networks import small
from strangers import Alternating, CyclePrior

from posteer.goals.utilities import open_utility
from posteer.models import Can, ExactModel, FunctionModel, Metered, Model, condition, open_model
from posteer.models.continuations import continuation_laws, laws_by_levels, read_prompts
from posteer.models.personas import personas
from posteer.models.registry import KINDS
from posteer.models.trees import tree_size
from posteer.tokens.contexts import ContextSpace, all_sequences


class Minimal:
    """What a user must bring, and no more."""

    vocab_size, order = 2, 1

    def __init__(self):
        self.inner = open_model("exact:urn")

    def start(self, batch):
        return self.inner.start(batch)

    def advance(self, state, tokens):
        return self.inner.advance(state, tokens)


def predicting():
    exact = open_model("exact:urn")
    return FunctionModel(
        lambda tokens: exact.log_predictive(tokens)[:, -1].exp(), vocab_size=2, order=1
    )


MODELS = {
    "exact": lambda: open_model("exact:markov(vocab=3,order=1)"),
    "mixture": lambda: open_model("exact:coins(0.2,0.7)"),
    "stranger's family": lambda: ExactModel(CyclePrior(0.2)),
    "stranger's model": Alternating,
    "function": predicting,
    "minimal": lambda: open_model(Minimal()),
    "transformer": lambda: small(),
    "positions": lambda: small("learned", max_tokens=40),
    "one layer": lambda: open_model("beta-bernoulli"),
    "exact after a context": lambda: condition(open_model("exact:urn"), (0, 1, 1)),
    "function after a context": lambda: condition(predicting(), (0, 1)),
    "transformer after a context": lambda: condition(small(), (0, 2, 1)),
    "metered": lambda: Metered(small()),
    "personas": lambda: personas([predicting(), "exact:coins(0.2)"], weights=[0.3, 0.7]),
    "personas after a context": lambda: condition(personas(["exact:urn", predicting()]), (0, 1)),
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=list(MODELS))
TIGHT = {torch.float64: 1e-12, torch.float32: 2e-5}
"""float32 networks round in every layer; exact models in a few sums."""


def tolerance(model):
    return TIGHT[model.log_predictive(torch.zeros(1, 1, dtype=torch.long)).dtype]


def test_every_kind_of_model_is_here():
    assert set(KINDS.names()) == {"exact", "file", "folder", "hf", "personas", "smollm2"}


@every_model
def test_laws_are_laws_and_advancing_is_predicting(make):
    model = make()
    assert isinstance(model, Model)
    tokens = all_sequences(model.vocab_size, 4)
    laws = model.log_predictive(tokens)
    assert laws.shape == (len(tokens), 5, model.vocab_size)
    assert torch.allclose(laws.exp().sum(-1), torch.ones_like(laws[..., 0]), atol=1e-5)
    state = model.start(len(tokens))
    for place, token in enumerate(tokens.unbind(1)):
        assert torch.allclose(state.log_probs, laws[:, place], atol=tolerance(model))
        law, state = model.advance(state, token)
        assert torch.allclose(law, laws[:, place + 1], atol=tolerance(model))


@every_model
def test_states_fork(make):
    model = make()
    tokens = all_sequences(model.vocab_size, 3)
    state = read_prompts(model, tokens)
    rows = torch.tensor([1, 1, 4])
    after, _ = model.advance(state.select(rows), torch.tensor([0, 1, 0]))
    longer = torch.cat([tokens[rows], torch.tensor([[0], [1], [0]])], 1)
    assert torch.allclose(after, model.log_predictive(longer)[:, -1], atol=tolerance(model))


@every_model
def test_a_context_is_read_before_the_prompt(make):
    """Splitting a context off a prompt changes no law."""
    model = make()
    if isinstance(model, Metered):
        model = model.inner
    base, tokens = model.base, all_sequences(model.vocab_size, 3)
    after = condition(base, (1, 0))
    assert after.context == (1, 0) and after.base is base and after.can == base.can
    whole = torch.cat([torch.tensor([[1, 0]]).expand(len(tokens), -1), tokens], 1)
    found, expected = after.log_predictive(tokens), base.log_predictive(whole)[:, 2:]
    assert torch.allclose(found, expected, atol=tolerance(base))
    assert after.fingerprint != base.fingerprint


@every_model
def test_continuations_are_the_same_by_any_way_to_read_them(make):
    model, horizon = make(), 3
    prompts = all_sequences(model.vocab_size, 3)[1::3]
    state = read_prompts(model, prompts)
    expected = laws_by_levels(model, state, len(prompts), horizon).double()
    assert torch.allclose(expected.exp().sum(-1), torch.ones(len(prompts)).double(), atol=1e-5)
    found = continuation_laws(model, prompts, horizon)
    assert torch.allclose(found, expected, atol=10 * tolerance(model))


@every_model
def test_abilities_are_there_where_they_are_declared(make):
    model, horizon = make(), 3
    prompts = all_sequences(model.vocab_size, 3)[1::4]
    expected = continuation_laws(model, prompts, horizon)
    rows = torch.nn.functional.one_hot(prompts, model.vocab_size).float()
    asked = {
        Can.READ_TREES: lambda: model.shared_log_probs(prompts, horizon),
        Can.ONE_HOTS: lambda: model.continuation_log_probs_of_rows(rows, horizon),
        Can.EMBED: lambda: model.continuation_log_probs_of_embeddings(
            model.embeddings()[prompts], horizon
        ),
    }
    for ability, ask in asked.items():
        if ability in model.can:
            found = ask().detach().double()
            assert torch.allclose(found, expected, atol=10 * tolerance(model)), ability
        else:
            with pytest.raises(NotImplementedError):
                ask()
    if Can.EXACT in model.can:
        logs = model.prior.evidence(prompts)
        assert torch.equal(model.impossible(prompts), logs.isneginf())


class Counting(Model):
    """Counts for itself the tokens it is made to read."""

    def __init__(self, inner):
        self.inner, self.read = inner, 0
        self.vocab_size, self.family, self.name = inner.vocab_size, inner.family, inner.name

    def start(self, batch, capacity=16):
        return self.inner.start(batch, capacity)

    def advance(self, state, tokens):
        self.read += len(tokens)
        return self.inner.advance(state, tokens)


@pytest.mark.parametrize("context", [(), (0, 1, 1)])
def test_the_meter_counts_what_is_read(context):
    counting = Counting(open_model("exact:urn"))
    meter = Metered(condition(counting, context))
    prompts = all_sequences(2, 3)
    continuation_laws(meter, prompts, 3)
    price = meter.tokens_of(3, 3)
    assert price == len(context) + 3 + tree_size(2, 3)
    assert meter.queries.forward_tokens == counting.read == len(prompts) * price
    meter.log_predictive(prompts)
    assert meter.queries.forward_tokens == counting.read


def test_what_fails_for_want_of_memory_is_not_charged():
    class Full(Counting):
        def advance(self, state, tokens):
            if len(tokens) > 4:
                raise RuntimeError("not enough memory: you tried to allocate")
            return super().advance(state, tokens)

    counting = Full(open_model("exact:urn"))
    meter = Metered(counting)
    laws = continuation_laws(meter, all_sequences(2, 3), 2)
    assert torch.allclose(laws, continuation_laws(counting.inner, all_sequences(2, 3), 2))
    assert meter.queries.forward_tokens == 8 * meter.tokens_of(3, 2)


@every_model
def test_goals_are_opened_for_any_model(make):
    model = make()
    goal = open_utility(lambda continuation, before: sum(continuation) + len(before), model)
    assert goal.order == model.order
    assert goal.space == ContextSpace(model.vocab_size, model.order)
