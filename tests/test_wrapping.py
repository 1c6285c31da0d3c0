"""Modules, functions of any arrays, objects: plugged in with a line, refused in a line."""

import numpy as np
import pytest
import torch
from torch import nn

import posteer
from posteer.models import Can, FunctionModel, Metered
from posteer.models.continuations import continuation_laws, laws_by_levels, read_prompts
from posteer.tokens.contexts import all_sequences


class Recurrent(nn.Module):
    """Ids to logits, in double precision; dropout while it is trained."""

    def __init__(self, size=5, width=16):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(size, width)
        self.inner = nn.GRU(width, width, batch_first=True)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(width, size)
        self.double()

    def forward(self, ids):
        return self.head(self.drop(self.inner(self.table(ids))[0]))


def plain_laws(network, ids, alphabet, first=None):
    """One history at a time, one beginning at a time."""
    whole = [] if first is None else [first]
    rows = []
    for token in (None, *ids):
        whole += [] if token is None else [alphabet[token]]
        logits = network(torch.tensor([whole]))[0, -1] if whole else torch.zeros(5).double()
        rows.append(logits.detach()[list(alphabet)].log_softmax(-1))
    return torch.stack(rows)


@pytest.mark.parametrize("first", [None, 4])
def test_a_module_from_ids_to_logits(first):
    network, alphabet = Recurrent().eval(), (3, 0, 2)
    model = posteer.wrap(network, first=first, alphabet=list(alphabet))
    assert model.can == Can.READ_TREES | Can.SHARES | Can.ONE_HOTS | Can.EMBED
    tokens = all_sequences(3, 3)[::2]
    expected = torch.stack([plain_laws(network, row.tolist(), alphabet, first) for row in tokens])
    assert torch.allclose(model.log_predictive(tokens), expected, atol=1e-10)
    by_levels = laws_by_levels(model, read_prompts(model, tokens), len(tokens), 3)
    assert torch.allclose(continuation_laws(model, tokens, 3), by_levels, atol=1e-10)
    rows = nn.functional.one_hot(tokens, 3).double().requires_grad_()
    laws = model.continuation_log_probs_of_rows(rows, 3)
    assert torch.allclose(laws, by_levels, atol=1e-10)
    (slope,) = torch.autograd.grad(laws[:, 5].sum(), rows)
    nudged = rows.detach().clone()
    nudged[0, 1, 2] += 1e-6
    rise = (model.continuation_log_probs_of_rows(nudged, 3) - laws).detach()[0, 5] / 1e-6
    assert float(slope[0, 1, 2]) == pytest.approx(float(rise), abs=1e-5)
    found = posteer.elicit(model, "frequency(0.5)", length=3, method="gcg", rank=True)
    assert found.rank is not None and found.cost["backward_tokens"] > 0


class Unsteady(Recurrent):
    def forward(self, ids):
        return super().forward(ids) + torch.rand(()) * torch.arange(5)


class Ahead(Recurrent):
    def forward(self, ids):
        return super().forward(ids.flip(1)).flip(1)


class Flat(Recurrent):
    def forward(self, ids):
        return super().forward(ids)[:, -1]


class Broken(Recurrent):
    def forward(self, ids):
        return super().forward(ids) * torch.nan


class Short(Recurrent):
    def forward(self, ids):
        return super().forward(ids) if ids.shape[1] < 6 else self.positions[ids]


class Trembling(Recurrent):
    """Answers as a processor may that sums in half precision, in another order each time."""

    answers = 0

    def forward(self, ids):
        self.answers += 1
        return super().forward(ids).float() + 0.003 * (self.answers % 2) * torch.arange(5) / 4


REFUSED = {
    "training": (Recurrent(), "is in training mode"),
    "changes its answer": (Unsteady().eval(), "Unsteady changes its answer"),
    "looks ahead": (Ahead().eval(), "Ahead looks ahead"),
    "shape": (Flat().eval(), r"returned logits of shape \(1, 5\): expected \(1, 1, tokens\)"),
    "no numbers": (Broken().eval(), "logits that are no numbers"),
    "a word": (lambda tokens: "x", "expected its vocab_size"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=list(REFUSED))
def test_what_is_no_model_is_refused(given, said):
    with pytest.raises(posteer.InputError, match=said):
        posteer.wrap(given)


def test_what_counts_as_the_same_answer_hangs_on_the_weights():
    """Laws come in float32 from weights of any kind: it is these that say how fine they are."""
    for kind in (torch.float64, torch.float32, torch.float16):
        with pytest.raises(posteer.InputError, match="Trembling changes its answer"):
            posteer.wrap(Trembling().eval().to(kind))
    posteer.wrap(Trembling().eval().bfloat16())


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_who_looks_ahead_is_found_out_in_any_precision(kind):
    with pytest.raises(posteer.InputError, match="Ahead looks ahead"):
        posteer.wrap(Ahead().eval().to(kind))


def test_a_module_that_fails_later_is_named():
    model = posteer.wrap(Short().eval(), alphabet=[0, 1])
    with pytest.raises(posteer.InputError, match="Short raised AttributeError"):
        posteer.evaluate(model, "dyck", "010101")


def polya(tokens, arrays=torch):
    """The rule of Jeffreys after every beginning, of torch's or numpy's arrays."""
    length = tokens.shape[1]
    one = arrays.cat if arrays is torch else np.concatenate
    nothing = tokens[:, :0].sum(1)[:, None]
    ones = one([nothing, tokens.cumsum(1)], 1)
    p = (ones + 0.5) / (arrays.arange(length + 1) + 1.0)
    return arrays.stack([1 - p, p], -1)


WAYS = {
    "torch, last": (lambda tokens: polya(tokens)[:, -1], {}),
    "torch, all": (polya, {"all_positions": True}),
    "numpy, last": (lambda tokens: polya(tokens, np)[:, -1], {"arrays": "numpy"}),
    "numpy, all, few shapes": (
        lambda tokens: polya(tokens, np),
        {"arrays": "numpy", "all_positions": True, "pad": True},
    ),
    "logits": (lambda tokens: polya(tokens).log() + 3, {"all_positions": True, "gives": "logits"}),
    "lists": (lambda tokens: polya(tokens)[:, -1].tolist(), {}),
}


@pytest.mark.parametrize(("function", "how"), WAYS.values(), ids=list(WAYS))
def test_functions_of_any_arrays_say_the_same(function, how):
    exact = posteer.open_model("exact:beta-bernoulli")
    model = posteer.wrap(function, vocab_size=2, order=0, **how)
    tokens = all_sequences(2, 5)[::3]
    assert torch.allclose(model.log_predictive(tokens), exact.log_predictive(tokens), atol=1e-12)
    expected = continuation_laws(exact, tokens, 3)
    meter = Metered(model)
    assert torch.allclose(continuation_laws(meter, tokens, 3), expected, atol=1e-12)
    assert meter.queries.forward_tokens == len(tokens) * meter.tokens_of(5, 3)
    assert (Can.READ_TREES in model.can) == bool(how.get("all_positions"))


def test_few_shapes_are_sent_where_each_is_compiled():
    shapes = set()

    def compiled(tokens):
        shapes.add(tokens.shape)
        return polya(tokens, np)

    how = {"arrays": "numpy", "all_positions": True, "pad": True}
    model = posteer.wrap(compiled, vocab_size=2, order=0, **how)
    bank = posteer.sample(model, rollouts=100, length=60)
    found = posteer.elicit(model, "dyck", length=6, bank=bank, verify=4, rank=True)
    assert found.rank is not None
    assert len(shapes) <= 12, "powers of two of rows and of lengths, not one for every token"


def test_what_a_function_declares_is_known_of_it():
    prior = posteer.open_process("beta-bernoulli")
    said = {"prior": prior, "max_length": 20, "fingerprint": "x", "all_positions": True}
    model = posteer.wrap(polya, vocab_size=2, order=0, **said)
    assert model.prior is prior and model.max_length == 20 and model.fingerprint == "x"
    found = posteer.elicit(model, "dyck", length=4, method="classes-analytic(samples=50)")
    assert found.rank is not None
    with pytest.raises(posteer.InputError, match="reads 20 tokens, expected length"):
        posteer.elicit(model, "dyck", length=20)
    with pytest.raises(posteer.InputError, match="unknown 'max_lenght': did you mean max_length"):
        posteer.wrap(polya, vocab_size=2, max_lenght=20)
    with pytest.raises(posteer.InputError, match="gives odds: expected probabilities or logits"):
        posteer.wrap(polya, vocab_size=2, gives="odds")
    with pytest.raises(posteer.InputError, match="of another vocabulary than 3"):
        posteer.wrap(polya, vocab_size=3, prior=prior)


def wrong_functions():
    state = torch.Generator().manual_seed(0)

    def changing(tokens):
        p = torch.rand(len(tokens), 1, generator=state)
        return torch.cat([p, 1 - p], 1)

    return {
        "changes its answer": (changing, {}),
        "looks ahead": (lambda t: polya(t.flip(1)).flip(1), {"all_positions": True}),
        "returned shape": (lambda t: polya(t)[:, -1, :1], {}),
        "logits that are no numbers": (lambda t: polya(t)[:, -1] * torch.nan, {"gives": "logits"}),
        "expected probabilities that sum to 1": (lambda t: polya(t)[:, -1] * torch.nan, {}),
    }


@pytest.mark.parametrize("said", wrong_functions())
def test_functions_that_are_no_models_are_refused(said):
    function, how = wrong_functions()[said]
    model = posteer.wrap(function, vocab_size=2, order=0, **how)
    with pytest.raises(posteer.InputError, match=said):
        posteer.evaluate(model, "dyck", "0101")


def test_a_function_of_jax():
    jax = pytest.importorskip("jax")

    @jax.jit
    def predict(tokens):
        ones = jax.numpy.pad(tokens, ((0, 0), (1, 0))).cumsum(1)
        p = (ones + 0.5) / (jax.numpy.arange(ones.shape[1]) + 1.0)
        return jax.numpy.stack([1 - p, p], -1)

    model = posteer.wrap(predict, vocab_size=2, order=0, all_positions=True)
    assert model.calling.pad and model.calling.arrays == "numpy"
    exact = posteer.evaluate("exact:beta-bernoulli", "dyck", "01011")
    found = posteer.evaluate(model, "dyck", "01011")
    assert found.expected_utility == pytest.approx(exact.expected_utility, abs=1e-6)


def test_functions_made_by_hand_are_not_asked_twice():
    asked = []

    def counting(tokens):
        asked.append(len(tokens))
        return polya(tokens)[:, -1]

    FunctionModel(counting, vocab_size=2, order=0).start(3)
    assert asked == [3]


def test_utilities_see_names_where_they_ask_for_them():
    model = posteer.wrap(lambda t: polya(t)[:, -1], vocab_size=2, order=1, alphabet="H,T")

    def heads(continuation, before):
        assert set(continuation) | set(before) <= {"H", "T"}
        return continuation.count("H") + 10 * (before[-1] == "T")

    heads.reads_names = True
    found = posteer.evaluate(model, heads, "HHT", horizon=2)
    expected = posteer.evaluate(model, lambda y, c: y.count(0) + 10 * c[-1], "HHT", horizon=2)
    assert found.expected_utility == pytest.approx(expected.expected_utility)


def test_a_module_without_a_tokenizer_has_names_for_all_its_tokens():
    model = posteer.wrap(Recurrent().eval(), alphabet="A,C,G,T,-")
    assert model.vocabulary.show([0, 3, 4]) == "AT-" and model.alphabet.ids == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("alphabet", "said"),
    [
        ("A,C", r"of 2 names: Recurrent has 5 tokens.*a tokenizer.*one for each, or ids.*'#0,#1'"),
        ("A", "of 1 name: Recurrent has 5 tokens"),
        ("#0,C", "of 'C' and ids: Recurrent has 5 tokens"),
        (["AB", "C,", "D", "E", "F"], "a comma separates names"),
    ],
)
def test_names_for_some_tokens_alone_are_refused_with_what_to_do(alphabet, said):
    with pytest.raises(posteer.InputError, match=said):
        posteer.wrap(Recurrent().eval(), alphabet=alphabet)
    steered = posteer.wrap(Recurrent().eval(), alphabet="#0,#1")  # as the refusal says
    assert steered.vocab_size == 2 and steered.alphabet.ids == (0, 1)
    mixed = posteer.wrap(Recurrent().eval(), alphabet="A,1,2,3,4")
    assert mixed.names == ("A", "1", "2", "3", "4")


def test_names_for_some_tokens_of_a_function_are_refused_with_what_to_do():
    def even(tokens):
        return torch.full((len(tokens), 4), 0.25)

    with pytest.raises(posteer.InputError, match="2 names: even has 4 tokens, expected one for ea"):
        posteer.wrap(even, vocab_size=4, alphabet="A,C")
    commas = posteer.wrap(even, vocab_size=4, alphabet=[",", ".", "!", "?"])
    assert commas.vocabulary.parse(".,") == (1, 0), "a comma alone is a name"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"first": "a"}, "first 'a': expected a whole number"),
        ({"first": -1}, "first -1: expected at least 0"),
        ({"order": "x"}, "order 'x': expected a whole number"),
        ({"max_length": 1.5}, "max_length 1.5: expected a whole number"),
        ({"max_length": 0}, "max_length 0: expected at least 1"),
        ({"embedding": 5}, "embedding 5: expected a part of the network"),
        ({"tokenizer": 5}, "tokenizer 5: expected one with encode and decode"),
        ({"foo": 1}, "unknown 'foo': expected one of max_length"),
        (
            {"vocab_size": 5, "prior": "urn"},
            r"prior .*urn.*: expected such as posteer.open_process",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(given, said):
    with pytest.raises(posteer.InputError, match=said):
        posteer.wrap(Recurrent().eval(), **given)


def test_a_name_is_not_wrapped():
    with pytest.raises(posteer.InputError, match=r"'urn' is a name: posteer\.open_model opens it"):
        posteer.wrap("urn")
