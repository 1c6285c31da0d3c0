"""What enters as a probability is one: laws of models, kernels of banks, values of goals."""

import itertools
import math
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from examples import bank_of
from networks import small

import posteer
from posteer.banks.drawn import load_bank
from posteer.core.errors import InputError
from posteer.evaluation import estimate_from_bank, expected_utility, landscape
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.family import MarkovFamily, MarkovLatents
from posteer.methods.answers import StopReason
from posteer.models import FunctionModel, Metered, Model, open_model
from posteer.models.transformer.model import TransformerModel
from posteer.sweeps.configuration import config_from
from posteer.sweeps.execution import run_sweep
from posteer.sweeps.results import read_histories, read_sweep
from posteer.sweeps.store import RunStore
from posteer.tokens.contexts import ContextSpace

NAN = math.nan


class State:
    def __init__(self, law):
        self.log_probs = law

    def select(self, rows):
        return State(self.log_probs[rows])


class Coin:
    """A user's object: the same law after any history, as it is given."""

    vocab_size, order = 2, 0

    def __init__(self, law, first=None):
        self.law, self.first = (
            torch.as_tensor(law),
            torch.as_tensor(law if first is None else first),
        )

    def start(self, batch):
        return State(self.first.log().expand(batch, -1))

    def advance(self, state, tokens):
        law = self.law.log().expand(len(tokens), -1)
        return law, State(law)


class OwnModel(Model):
    """The same as a subclass of ours, which nothing is wrapped around."""

    vocab_size, probed = 2, False
    family = MarkovFamily(ContextSpace(2, 0))

    def __init__(self, coin):
        self.coin = coin

    def start(self, batch, capacity=16):
        return self.coin.start(batch)

    def advance(self, state, tokens):
        return self.coin.advance(state, tokens)


def sick():
    model = small(vocab=2)
    with torch.no_grad():
        model.network.head.bias[0] = NAN
    return model


DOORS = {
    "elicit": lambda model: posteer.elicit(model, "dyck", length=3, method="coordinate"),
    "evaluate": lambda model: posteer.evaluate(model, "dyck", "010"),
    "value": lambda model: expected_utility(model, "dyck", "010", 4),
    "shared": lambda model: expected_utility(model, "dyck", "010", 4, sharing=True),
    "sampled": lambda model: expected_utility(model, "dyck", "010", 20, n_rollouts=10),
    "landscape": lambda model: landscape(model, "dyck", 3, 4),
    "sample": lambda model: posteer.sample(model, rollouts=4, length=8),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_network_of_no_numbers_is_refused_at_every_door(door):
    with pytest.raises(InputError, match="not a number"):
        DOORS[door](sick())


class Sickening(TransformerModel):
    """Its weights are no numbers in the passes that gradients are taken of, and only there."""

    def continuation_log_probs_of_rows(self, rows, horizon):
        with ill(self.network):
            return super().continuation_log_probs_of_rows(rows, horizon)

    def continuation_log_probs_of_embeddings(self, embedded, horizon):
        with ill(self.network):
            return super().continuation_log_probs_of_embeddings(embedded, horizon)


@contextmanager
def ill(network):
    network.head.bias.data[0] = NAN
    yield
    network.head.bias.data[0] = 0.0


@pytest.mark.parametrize("method", ["gcg", "simplex-pt", "real-pt", "soft-pt"])
def test_laws_that_gradients_are_taken_of_are_looked_at(method):
    model = Sickening(small(vocab=2).network, "sickening")
    with pytest.raises(InputError, match="not a number"):
        posteer.elicit(model, "dyck", length=3, method=method, device="cpu")


class Precipice(TransformerModel):
    """The laws of a network whose slope in an embedding is no number."""

    def continuation_log_probs_of_embeddings(self, embedded, horizon):
        laws = super().continuation_log_probs_of_embeddings(embedded, horizon)
        return laws + 0.0 * (embedded - embedded.detach()).abs().sqrt().sum()


def test_a_prefix_whose_slope_is_no_number_has_diverged():
    model = Precipice(small(vocab=2).network, "precipice")
    found = posteer.elicit(model, "dyck", length=3, method="soft-pt", device="cpu")
    assert found.answer.stop_reason is StopReason.DIVERGED
    assert len(found.answer.history) == 2  # one step, and the judgement of what it began with
    assert math.isfinite(found.expected_utility)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("made", [Coin, lambda law: OwnModel(Coin(law))])
@pytest.mark.parametrize(
    ("law", "complaint"),
    [
        ([0.9, 0.9], "sums to 1 only within 0.8"),
        ([0.5005, 0.5], "sums to 1 only within 0.0005"),
        ([NAN, 0.5], "not a number"),
        ([-0.5, 1.5], "not a number"),
        ([math.inf, 0.0], "sums to 1 only within inf"),
        ([0.0, 0.0], "sums to 1 only within 1"),
    ],
)
def test_what_is_no_law_is_refused_at_every_door(law, complaint, made, door):
    with pytest.raises(InputError, match=complaint):
        DOORS[door](made(law))


def test_the_first_law_is_looked_at_too():
    with pytest.raises(InputError, match=r"within 0\.8"):
        posteer.evaluate(Coin([0.5, 0.5], first=[0.9, 0.9]), "dyck", "010")


def test_functions_whose_laws_miss_one_by_more_than_rounding_are_refused():
    off = FunctionModel(lambda tokens: [[0.5005, 0.5]] * len(tokens), vocab_size=2, order=0)
    with pytest.raises(InputError, match=r"returned \[0.5005, 0.5\] after 0 tokens"):
        posteer.evaluate(off, "dyck", "010")


def ones_mean(p, horizon=4):
    """E[share of ones ** 2] by enumeration, p normalised."""
    p = np.asarray(p, dtype=float) / np.sum(np.asarray(p, dtype=float))
    every = itertools.product((0, 1), repeat=horizon)
    return sum(np.prod(p[list(y)]) * (sum(y) / horizon) ** 2 for y in every)


def share_squared(y):
    return (sum(y) / len(y)) ** 2


@pytest.mark.parametrize("law", [[0.3, 0.700004], [0.3, 0.7], [0.0, 0.999995]])
@pytest.mark.parametrize(
    "made",
    [
        lambda law: Coin(torch.tensor(law, dtype=torch.float64)),
        lambda law: FunctionModel(lambda x: [law] * len(x), vocab_size=2, order=0),
    ],
)
def test_rounding_is_taken_back(made, law):
    found = posteer.evaluate(made(law), share_squared, "010").expected_utility
    assert found == pytest.approx(ones_mean(law), abs=1e-14)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_laws_in_fewer_bits_are_laws(kind):
    held = torch.tensor([0.3, 0.7], dtype=torch.float64).log().to(kind)
    coin = Coin([0.3, 0.7])
    coin.start = lambda batch: State(held.expand(batch, -1))
    coin.advance = lambda _, tokens: (
        held.expand(len(tokens), -1),
        State(held.expand(len(tokens), -1)),
    )
    found = posteer.evaluate(coin, share_squared, "010").expected_utility
    assert found == pytest.approx(ones_mean(held.double().exp()), abs=1e-6)


def test_laws_that_need_no_correction_keep_their_bits():
    model = small(vocab=2)
    tokens = torch.tensor([[0, 1, 1], [1, 0, 0]])

    class Plain:
        vocab_size, order = 2, 1
        start, advance = model.start, model.advance

    own = Metered(open_model(Plain())).log_predictive(tokens)
    state = model.start(2, 3)
    laws = [state.log_probs]
    for token in tokens.unbind(1):
        law, state = model.advance(state, token)
        laws.append(law)
    assert torch.equal(own, torch.stack(laws, 1))


class Odd:
    """A utility object that is no number on one continuation."""

    name, order = "odd", 0

    def __init__(self, value):
        self.value = value

    def __call__(self, continuations, contexts):
        some = continuations.sum(-1).double()
        return torch.where(some == 0, self.value, some)

    def finite_state(self, vocab_size, horizon):
        return None


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
@pytest.mark.parametrize("horizon", [3, 20])
def test_a_goal_that_is_no_number_fails_the_run(value, horizon):
    with pytest.raises(InputError, match=r"odd is (nan|-?inf): expected a finite number"):
        posteer.evaluate("exact:urn", Odd(value), "000", horizon=horizon)


RIGID = "exact:mixture([[0,1],[0.5,0.5]],[[0.5,0.5],[1,0]])"
"""Either a 0 or a 1 is never repeated: after 11 nor is 0, and half of what sym-0.5 does is not."""


def test_a_forward_cross_entropy_of_minus_infinity_is_no_value_but_a_last_place():
    goal = {"model": RIGID, "utility": "forward-xent(sym-0.5)", "horizon": 2}
    with pytest.raises(InputError, match=r"is -inf \(the target does what the model"):
        posteer.evaluate(**goal, prompt="0110")
    undecided = posteer.evaluate(**goal, prompt="0101")  # twice as likely under the first kernel
    assert undecided.expected_utility == pytest.approx((math.log(1 / 2) + 3 * math.log(1 / 6)) / 4)
    assert undecided.rank == 1 and undecided.n_prompts == 14  # 0011 and 1100 cannot be
    with pytest.raises(InputError, match="expected a finite number"):
        landscape("exact:coins(0.0,1.0)", "forward-xent(tau-0.3)", 3, 2)


def test_a_sweep_fails_runs_of_minus_infinity_and_ends(tmp_path):
    goal = {"utilities": "forward-xent(sym-0.5)", "horizons": 2, "lengths": 4, "seeds": 1}
    named = {"models": [RIGID, "exact:coins(0.0,1.0)"], "methods": "beam", "name": "rigid"}
    ended = run_sweep(config_from({**named, **goal}, "test"), tmp_path / "out", device="cpu")
    assert ended.finished and ended.statuses == {"done": 1, "failed": 1}
    rows = read_sweep(tmp_path / "out").rows
    assert {row["model"]: row["rank"] for row in rows} == {RIGID: 1, "exact:coins(0.0,1.0)": None}
    histories = read_histories(tmp_path / "out")
    assert min(value for one in histories.values() for value in one.get("value", [0])) == -math.inf


SICK = """
import torch
class State:
    def __init__(self, law, read): self.log_probs, self.read = law, read
    def select(self, rows): return State(self.log_probs[rows], self.read)
class Kind:
    vocab_size, order = 2, 0
    def start(self, batch): return State(torch.full((batch, 2), 0.5).log(), 0)
    def advance(self, state, tokens):
        law = torch.full((len(tokens), 2), 0.5 if state.read < 8 else float("nan")).log()
        return law, State(law, state.read + 1)
model = Kind()
"""


def test_a_sweep_counts_such_runs_as_failed_without_a_rank(tmp_path):
    (tmp_path / "sick.py").write_text(SICK)
    named = {"models": f"{tmp_path}/sick.py:model", "utilities": "dyck", "methods": "coordinate"}
    config = config_from({**named, "name": "sick", "lengths": [8], "seeds": 1}, "test")
    ended = run_sweep(config, tmp_path / "out", device="cpu")
    assert ended.statuses == {"failed": 1}
    assert "not a number" in next(iter(ended.errors))
    store = RunStore(tmp_path / "out")
    (record,), _ = store.records(store.names())
    assert record["result"] is None


# --- banks ---------------------------------------------------------------------------------------

URN = DirichletRows.symmetric(2, 1, 1.0)


def rolled_out():
    return posteer.sample("exact:urn", rollouts=64, length=32, keep_tokens=True)


def spoiled(how):
    bank = rolled_out()
    kernels = how(bank.kernels.clone())
    return replace(bank, latents=MarkovLatents(bank.space, kernels))


def put(value):
    def into(kernels):
        kernels[3, 1, 0] = value
        return kernels

    return into


BAD = {
    "nan": put(NAN),
    "infinite": put(math.inf),
    "negative": put(-0.25),
    "zero": lambda kernels: kernels * (torch.arange(64) != 3)[:, None, None],
    "threefold": lambda kernels: 3 * kernels,
    "off": lambda kernels: kernels * 1.001,
    "whole": lambda kernels: kernels.round().long().clamp(0, 0) + 1,
}


@pytest.mark.parametrize("how", BAD)
def test_latents_that_are_no_kernels_are_refused_from_files_and_as_objects(how, tmp_path):
    bank = rolled_out()
    if how == "whole":
        latents = forced(bank.latents, kernels=BAD[how](bank.kernels))
        bad = replace(bank, latents=latents)
    else:
        bad = spoiled(BAD[how])
    bad.save(tmp_path / "bad.safetensors")
    for given in (tmp_path / "bad.safetensors", bad):
        with pytest.raises(InputError, match=r"not a distribution|expected floats"):
            posteer.elicit("exact:urn", "dyck", length=4, method="classes", bank=given)
        with pytest.raises(InputError, match=r"not a distribution|expected floats"):
            estimate_from_bank(given, "dyck", "0101", 4)


PARTS = {
    "short": lambda bank: {"counts": bank.counts[:-1]},
    "wide": lambda bank: {"counts": torch.cat([bank.counts, bank.counts], 2)},
    "below 0": lambda bank: {"counts": -bank.counts},
    "snapshot": lambda bank: {"snapshots": {at: one[1:] for at, one in bank.snapshots.items()}},
    "tokens": lambda bank: {"sequences": bank.sequences + 2},
}


def forced(made, **changes):
    """A copy with what the annotations of these tests would not let it be made of."""
    copy = replace(made)
    for name, value in changes.items():
        object.__setattr__(copy, name, value)
    return copy


@pytest.mark.parametrize("how", PARTS)
def test_parts_of_a_bank_that_do_not_belong_together_are_refused(how, tmp_path):
    bank = rolled_out()
    bad = forced(bank, **PARTS[how](bank))
    bad.save(tmp_path / "bad.safetensors")
    for given in (tmp_path / "bad.safetensors", bad):
        with pytest.raises(InputError, match=r"latents|one for each latent|below 0|tokens past 1"):
            posteer.elicit("exact:urn", "dyck", length=4, method="classes", bank=given)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_banks_in_fewer_bits_are_read_into_float64(kind, tmp_path):
    bank = bank_of(URN, 200)
    narrow = replace(bank, latents=MarkovLatents(bank.space, bank.kernels.to(kind)))
    narrow.save(tmp_path / "narrow.safetensors")
    read = load_bank(tmp_path / "narrow.safetensors")
    assert read.kernels.dtype == torch.float64
    assert torch.allclose(read.kernels.sum(-1), torch.ones(200, 2).double(), rtol=0, atol=1e-15)
    bound = torch.finfo(kind).eps
    assert float((read.kernels - bank.kernels).abs().max()) <= bound
    J = [float(estimate_from_bank(one, "dyck", "0101", 4)[0]) for one in (bank, read, narrow)]
    assert J[1] == J[2] and J[0] == pytest.approx(J[1], abs=40 * bound)


def test_a_sound_bank_is_the_same_to_the_bit(tmp_path):
    bank = rolled_out()
    bank.save(tmp_path / "bank.safetensors")
    read = load_bank(tmp_path / "bank.safetensors")
    assert torch.equal(read.kernels, bank.kernels) and torch.equal(read.counts, bank.counts)
