"""Predictive Monte Carlo: what is drawn, what it costs, and what happens when things go wrong."""

import math

import pytest
import torch
from networks import metered, small
from oracles import dirichlet_sequence_probability, sequences

from posteer.banks import DrawPlan, draw_bank, sample
from posteer.banks.checks.statistics import two_sample_ks
from posteer.banks.plans import BLOCK
from posteer.banks.rollouts import roll_out
from posteer.core.errors import InputError
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.markov.unvisited import TREATMENTS
from posteer.families.registry import open_process
from posteer.models import FunctionModel, Metered, open_model
from posteer.tokens.contexts import count_transitions


def kernels_of_counts(model, counts, treatment, seed):
    def law_after(tokens):
        return model.log_predictive(tokens[None])[0, -1].exp()

    stream = numpy_stream(seed, "unvisited")
    return model.family.fit(counts, treatment, stream, law_after).kernels


def test_rollouts_follow_the_exact_predictive():
    """Every sequence of length 5 on the urn, by chi-square; false alarms once in 100,000."""
    bank = sample("exact:urn", rollouts=20_000, length=5, keep_tokens=True)
    found = bank.sequences.tolist()
    observed = dict.fromkeys(sequences(2, 5), 0)
    for row in found:
        observed[tuple(row)] += 1
    concentration = [[0.5, 0.5], [0.5, 0.5]]
    statistic = sum(
        (n - expected) ** 2 / expected
        for row, n in observed.items()
        for expected in [20_000 * dirichlet_sequence_probability(row, concentration, 1, 2)]
    )
    tail = torch.special.gammaincc(torch.tensor(31 / 2), torch.tensor(statistic / 2))
    assert float(tail) > 1e-5


@pytest.mark.parametrize("name", ["urn", "beta-bernoulli", "markov(vocab=3,order=1)"])
def test_the_prior_is_recovered(name):
    """Every row against exact latents counted the same way; KS, false alarms once in 100,000."""
    process = open_process(name)
    space = process.space
    bank = sample(f"exact:{name}", rollouts=3000, length=400, seed=3)
    latents = process.sample(3000, numpy_stream(9, "test"))
    counts = count_transitions(space, latents.roll_out(400, torch_stream(9, "test"))).int()
    exact = kernels_of_counts(metered(f"exact:{name}"), counts, "donor", 9)
    for context in range(space.n_contexts):
        for token in range(space.vocab_size):
            _, p_value = two_sample_ks(bank.kernels[:, context, token], exact[:, context, token])
            assert p_value > 1e-5 / 9


@pytest.mark.slow
def test_the_error_of_counting_shrinks_as_one_over_root_r():
    """Distance of a rollout's frequency to where it ends, at order 0: the exponent is -1/2.

    The end is 32 times as far, so its own error adds 1.6 %; 4,000 rollouts put the exponent's
    standard error near 0.01.
    """
    bank = sample("exact:beta-bernoulli", rollouts=4000, length=4096, seed=1)
    assert sorted(bank.snapshots) == [256, 512, 1024, 2048]
    at = {128: sample("exact:beta-bernoulli", rollouts=4000, length=128, seed=1).counts}
    at |= {256: bank.snapshots[256], 512: bank.snapshots[512]}
    logs = []
    for length, counts in at.items():
        frequency = counts[:, 0, 1] / length
        rest = (bank.counts[:, 0, 1] - counts[:, 0, 1]) / (4096 - length)
        logs.append((math.log(length), 0.5 * math.log(float((frequency - rest).square().mean()))))
    slope = (logs[2][1] - logs[0][1]) / (logs[2][0] - logs[0][0])
    # rest is measured over 4096 - length tokens: var = p(1-p) (1/length + 1/(4096-length))
    expected = 0.5 * math.log((1 / 512 + 1 / 3584) / (1 / 128 + 1 / 3968)) / math.log(4)
    assert slope == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("name", ["exact:urn", "beta-bernoulli", "small"])
@pytest.mark.parametrize("chunk", [1, 50, 64, 100])
def test_a_rollout_is_the_same_in_any_chunk(name, chunk):
    model = Metered(small(vocab=2)) if name == "small" else metered(name)
    plan = DrawPlan(n_samples=100, rollout_length=30, seed=5)
    if chunk == 1:
        plan = DrawPlan(n_samples=10, rollout_length=30, seed=5)
    whole = roll_out(model, plan, model.family, 0, plan.n_samples)
    parts = draw_bank(model, plan, chunk=chunk)
    assert torch.equal(whole.counts, parts.counts)
    fewer = draw_bank(model, DrawPlan(n_samples=7, rollout_length=30, seed=5))
    assert torch.equal(fewer.counts, whole.counts[:7])
    assert not torch.equal(
        draw_bank(model, DrawPlan(n_samples=7, rollout_length=30, seed=6)).counts, fewer.counts
    )


def test_running_out_of_memory_halves_the_chunk(monkeypatch):
    from posteer.banks import rollouts as module

    plan = DrawPlan(n_samples=100, rollout_length=30)
    whole = draw_bank(metered("exact:urn"), plan)
    sizes = []

    def tight(model, plan, family, first, count, report):
        sizes.append(count)
        if count > 20:
            raise torch.OutOfMemoryError
        return roll_out(model, plan, family, first, count, report)

    monkeypatch.setattr(module, "roll_out", tight)
    assert torch.equal(draw_bank(metered("exact:urn"), plan).counts, whole.counts)
    assert sizes == [100, 50, 25, 13, 13, 13, 13, 13, 13, 13, 9]
    sizes.clear()
    monkeypatch.setattr(
        module,
        "roll_out",
        lambda *given: (_ for _ in ()).throw(
            RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes")
        ),
    )
    with pytest.raises(InputError, match="1 rollouts of 30 tokens do not fit into memory"):
        draw_bank(metered("exact:urn"), plan)


def test_a_shorter_rollout_begins_a_longer_one():
    long = sample("exact:urn", rollouts=70, length=160, keep_tokens=True)
    short = sample("exact:urn", rollouts=70, length=40, keep_tokens=True)
    assert torch.equal(long.sequences[:, :40], short.sequences)
    assert torch.equal(long.snapshots[40], short.counts)
    assert torch.equal(long.counts, count_transitions(long.space, long.sequences.long()).int())


def test_tokens_are_kept_only_when_asked_for_and_the_cost_is_counted():
    bank = sample("exact:urn", rollouts=30, length=20)
    assert bank.sequences is None
    assert bank.tokens == 30 * 19, "the last token is drawn, not read"
    model = Metered(small(vocab=2))
    drawn = draw_bank(model, DrawPlan(n_samples=30, rollout_length=20))
    assert drawn.tokens == model.queries.forward_tokens == BLOCK * 19, "a whole block is read"


@pytest.mark.parametrize("context", ["0110", "1", "0000000"])
def test_posterior_banks_follow_the_posterior(context):
    """After observed tokens, rollouts of exact Bayes count as its posterior's own latents do."""
    process = open_process("urn")
    space = process.space
    tokens = torch.tensor([int(symbol) for symbol in context])
    bank = sample("exact:urn", rollouts=4000, length=300, context=context, seed=2)
    posterior = process.posterior(count_transitions(space, tokens))
    # moments of the rows: exact for the frequencies too, as E[frequency | latent] = latent
    mean = posterior.concentration / posterior.concentration.sum(-1, keepdim=True)
    visited = bank.counts.sum(-1) > 100
    for row in range(2):
        own = bank.kernels[visited[:, row], row, 1]
        if visited[:, row].double().mean() > 0.99:  # else visits select latents
            error = float(own.std()) / math.sqrt(len(own))
            assert abs(float(own.mean()) - float(mean[row, 1])) < 5 * error + 0.003
    first = bank.counts.sum((1, 2))
    assert bool((first == 300).all()), "with a context the first token is a transition"
    assert bank.origin.context == tuple(tokens.tolist())
    law = float(posterior.predictive(torch.zeros(1, 2, 2).double(), tokens[-1:])[0, 1])
    ones = sample(
        "exact:urn", rollouts=4000, length=2, context=context, seed=2, keep_tokens=True
    ).sequences[:, 0]
    assert abs(float(ones.double().mean()) - law) < 5 * math.sqrt(law * (1 - law) / 4000)


# --- unvisited rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("treatment", TREATMENTS)
def test_treatments_fill_unvisited_rows_and_nothing_else(treatment):
    model = metered("exact:markov(vocab=3,order=1,concentration=0.05)")
    counts = draw_bank(model, DrawPlan(n_samples=200, rollout_length=10)).counts
    kernels = kernels_of_counts(model, counts, treatment, seed=1)
    seen = counts.sum(-1) > 0
    assert torch.equal(kernels[seen], (counts.double() / counts.sum(-1, keepdim=True))[seen])
    filled = kernels[~seen]
    assert len(filled) > 100
    assert torch.allclose(filled.sum(-1), torch.ones(len(filled)).double())
    if treatment in ("uniform", "predictive"):  # by symmetry the predictive is uniform here
        assert torch.allclose(filled, torch.full_like(filled, 1 / 3))
    if treatment == "donor":
        rows = {tuple(row) for row in kernels[seen].tolist()}
        assert all(tuple(row) in rows for row in filled.tolist())
    assert torch.equal(kernels, kernels_of_counts(model, counts, treatment, seed=1))


def test_the_predictive_fill_follows_the_context():
    """Forty zeros name the first kernel of a mixture; its other row is then known."""
    name = "exact:mixture([[0.99,0.01],[0.9,0.1]],[[0.5,0.5],[0.1,0.9]])"
    bank = sample(name, rollouts=20, length=9, context="0" * 40, unvisited="predictive")
    assert bank.n_unvisited > 10
    missing = bank.counts.sum(-1) == 0
    assert torch.allclose(bank.kernels[missing], torch.tensor([0.9, 0.1]).double(), atol=1e-6)


def test_a_row_that_nobody_visited_has_no_donor():
    counts = torch.zeros(4, 2, 2, dtype=torch.int32)
    counts[:, 0, 0] = 9
    kernels = kernels_of_counts(metered("exact:urn"), counts, "donor", seed=0)
    assert bool((kernels[:, 1] == 0.5).all())


# --- any model that predicts ---------------------------------------------------------------------


def polya(tokens):
    ones = tokens.sum(-1, keepdim=True) + 0.5
    p = ones / (tokens.shape[1] + 1)
    return torch.cat([1 - p, p], -1)


def test_a_function_is_enough_to_be_sampled():
    """Polya's urn as a plain function draws the very rollouts of exact Bayes."""
    model = FunctionModel(polya, vocab_size=2, order=0, name="polya")
    bank = sample(model, rollouts=64, length=40)
    assert torch.equal(bank.counts, sample("exact:beta-bernoulli", rollouts=64, length=40).counts)


def test_a_function_in_a_file_is_a_model(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n"
        "def fair(tokens):\n    return torch.full((len(tokens), 3), 1 / 3)\n"
        "fair.vocab_size, fair.order = 3, 1\n"
        "def bare(tokens):\n    return None\n"
    )
    bank = sample(f"{path}:fair", rollouts=64, length=600)
    assert torch.allclose(bank.kernels, torch.full((64, 3, 3), 1 / 3).double(), atol=0.25)
    with pytest.raises(InputError, match="neither a model nor a function with vocab_size"):
        open_model(f"{path}:bare")


@pytest.mark.parametrize(
    ("kind", "says"), [("Mine", "order = 1"), ("Mine(Model)", "family = URN.family")]
)
def test_a_model_in_a_file_is_known_by_what_it_does(kind, says, tmp_path):
    """A plain object, and a model of the package's own kind that names no fingerprint."""
    path, out = tmp_path / "mine.py", tmp_path / "bank.safetensors"
    path.write_text(
        "from posteer.models import Model, open_model\n"
        "URN = open_model('exact:urn')\n"
        f"class {kind}:\n    vocab_size = 2\n    {says}\n"
        "    start, advance = URN.start, URN.advance\n"
        "mine = Mine()\n"
    )
    bank = sample(f"{path}:mine", rollouts=10, length=9, out=out)
    assert torch.equal(bank.counts, sample("exact:urn", rollouts=10, length=9).counts)
    path.write_text(path.read_text() + "# no other\n")
    assert sample(f"{path}:mine", rollouts=10, length=9, out=out).reused
    path.write_text(
        path.read_text().replace("'exact:urn'", "'exact:markov(order=1,concentration=2)'")
    )
    with pytest.raises(InputError, match="has changed since the bank was drawn"):
        sample(f"{path}:mine", rollouts=10, length=9, out=out)


def test_objects_of_one_name_are_told_apart_by_their_class():
    one, other = (type(kind, (Bare,), {"name": "alike"})() for kind in ("One", "Other"))
    assert open_model(one).fingerprint != open_model(other).fingerprint


class Bare:
    """Nothing but what PPT needs."""

    def __init__(self):
        self.inner = open_model("exact:urn")
        self.vocab_size, self.order = self.inner.vocab_size, self.inner.order

    def start(self, batch):
        return self.inner.start(batch)

    def advance(self, state, tokens):
        return self.inner.advance(state, tokens)


def test_start_and_advance_are_enough():
    bank = sample(Bare(), rollouts=70, length=40)
    assert torch.equal(bank.counts, sample("exact:urn", rollouts=70, length=40).counts)
    from posteer.api.eliciting import elicit

    found = elicit(
        Bare(), "dyck", length=5, method="ppt-rb(samples=100,rollout-length=50,steps=20)"
    )
    assert len(found.prompt) == 5
    with pytest.raises(InputError, match="has no 'advance'"):
        sample(type("Half", (), {"vocab_size": 2, "start": None})(), rollouts=9, length=9)


@pytest.mark.parametrize(
    ("predict", "complaint"),
    [
        (lambda tokens: torch.full((len(tokens), 2), math.nan), "sum to 1"),
        (lambda tokens: torch.full((len(tokens), 2), 0.4), "sum to 1"),
        (lambda tokens: torch.tensor([[1.5, -0.5]]).expand(len(tokens), 2), "sum to 1"),
        (lambda tokens: torch.full((len(tokens), 3), 1 / 3), "returned shape"),
        (lambda tokens: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_functions_that_give_no_law_are_refused(predict, complaint, tmp_path):
    model = FunctionModel(predict, vocab_size=2, order=0, name="broken")
    with pytest.raises(InputError, match=f"broken.*{complaint}"):
        sample(model, rollouts=10, length=10, out=tmp_path / "bank.safetensors")
    assert not (tmp_path / "bank.safetensors").exists()


class Sick:
    """Exact Bayes until a token count, then what `fault` makes of its laws."""

    def __init__(self, fault, after):
        self.inner = open_model("exact:urn")
        self.fault, self.after = fault, after
        self.name, self.space, self.prior = "sick", self.inner.family.space, None
        self.fingerprint, self.max_length = "sick", None
        self.batch_limit, self.batch_invariant = self.inner.batch_limit, lambda n: True
        self.log_predictive = self.inner.log_predictive

    def start(self, batch, capacity=16):
        return SickState(self.inner.start(batch), 0, self)

    def advance(self, state, tokens):
        _, inner = self.inner.advance(state.inner, tokens)
        after = SickState(inner, state.read + 1, self)
        return after.log_probs, after


class SickState:
    def __init__(self, inner, read, model):
        self.inner, self.read, self.model = inner, read, model

    @property
    def log_probs(self):
        law = self.inner.log_probs
        return self.model.fault(law) if self.read >= self.model.after else law

    def select(self, rows):
        return SickState(self.inner.select(rows), self.read, self.model)


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (lambda law: law + math.nan, "not a number"),
        (lambda law: law + 0.1, "sums to 1 only within 0.1"),
    ],
)
@pytest.mark.parametrize("after", [3, 90])
def test_laws_that_go_wrong_midway_stop_the_draw(fault, complaint, after, tmp_path):
    out = tmp_path / "bank.safetensors"
    with pytest.raises(InputError, match=complaint):
        sample(Sick(fault, after), rollouts=10, length=100, out=out)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"rollouts": 1}, "at least 2"),
        ({"length": 1}, "more than the order 1"),
        ({"context": "012"}, "context has the symbol '2'"),
        ({"device": "cpu:abc"}, "expected auto, cpu or cuda"),
        ({"out": "."}, "is a folder"),
        ({"context": [0, 5]}, "symbol 5"),
        ({"unvisited": "magic"}, "expected one of donor"),
        ({"chunk": 0}, "chunk 0"),
        ({"device": "tpu"}, "expected auto, cpu or cuda"),
        ({"out": "/nowhere/at/all/bank"}, "there is no folder"),
    ],
)
def test_bad_draws_are_refused(settings, complaint):
    with pytest.raises(InputError, match=complaint):
        sample("exact:urn", **{"rollouts": 10, "length": 10, **settings})


def test_rollouts_longer_than_the_trained_positions_are_refused_at_once():
    with pytest.raises(InputError, match="positions for 1999 tokens, so at most 2000"):
        sample("urn", rollouts=10**6, length=2001)
    with pytest.raises(InputError, match=r"after 4 observed.*at most 1996"):
        sample("urn", rollouts=10, length=2000, context="0110")
    with pytest.raises(InputError, match="leaves none to roll out"):
        sample("urn", rollouts=10, length=2000, context="01" * 1000)
    model = Metered(small("learned", vocab=2, max_tokens=20))
    assert len(draw_bank(model, DrawPlan(n_samples=5, rollout_length=20))) == 5
