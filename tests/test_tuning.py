"""Latents chosen by held-out likelihood, against enumeration and against models that are known."""

import itertools
import math

import pytest
import torch

from posteer.banks import load_bank, sample
from posteer.banks.tuning import Fit, latents_by, mixture_log_laws, predicted, tune
from posteer.evaluation import estimate_from_bank
from posteer.families.markov.family import MarkovLatents
from posteer.goals.dyck import Dyck
from posteer.models import FunctionModel
from posteer.tokens.contexts import ContextSpace


def by_hand(kernels, sequence, temper, order):
    """`log p(x_t | x_<t)` of the tempered posterior mixture, by sums over latents."""
    found = []
    for t in range(order, len(sequence)):
        weights = []
        for kernel in kernels:
            likelihood = 1.0
            for s in range(order, t):
                context = int("".join(map(str, sequence[s - order : s])) or "0", 2)
                likelihood *= kernel[context][sequence[s]]
            weights.append(likelihood**temper)
        context = int("".join(map(str, sequence[t - order : t])) or "0", 2)
        each = [
            w * kernel[context][sequence[t]] for w, kernel in zip(weights, kernels, strict=True)
        ]
        found.append(math.log(sum(each) / sum(weights)))
    return found


@pytest.mark.parametrize(("order", "temper"), [(0, 1.0), (1, 0.5), (1, 2.0), (2, 1.0)])
def test_the_tempered_mixture_is_that_of_the_definition(order, temper):
    generator = torch.Generator().manual_seed(3)
    raw = torch.rand(5, 2**order, 2, dtype=torch.float64, generator=generator) + 0.05
    latents = MarkovLatents(ContextSpace(2, order), raw / raw.sum(-1, keepdim=True))
    sequences = torch.tensor(list(itertools.product((0, 1), repeat=6)))
    found = predicted(latents, sequences, (temper,))[temper]
    for row in (0, 21, 42, 63):
        wanted = by_hand(latents.kernels.tolist(), sequences[row].tolist(), temper, order)
        assert found[row].tolist() == pytest.approx(wanted, abs=1e-12)
    laws = mixture_log_laws(latents, sequences[:, :-1], temper)
    assert torch.allclose(laws.exp().sum(-1), torch.ones(64, dtype=torch.float64))
    last = laws.gather(1, sequences[:, -1:])[:, 0]
    assert torch.allclose(last, found[:, -1], atol=1e-12)


def chains(n, length, seed):
    """Rollouts of order-1 chains whose rows are uniform."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(n, 2, dtype=torch.float64, generator=generator)
    tokens = torch.randint(2, (n, 1), generator=generator)
    for _ in range(length - 1):
        ones = rows.gather(1, tokens[:, -1:])
        coin = torch.rand(n, 1, dtype=torch.float64, generator=generator)
        tokens = torch.cat([tokens, (coin < ones).long()], 1)
    return tokens


def test_the_choice_is_right_where_it_is_known():
    """Chains of order 1 with uniform rows settle: whole rollouts, order 1, weights as they are."""
    found = tune(chains(128, 96, seed=0), 2)
    assert found.fit.order == 1 and found.fit.length >= 48
    assert 0.75 <= found.fit.temper <= 1.25 and found.fit.smoothing >= 0.25
    assert found.log_likelihood == max(found.by_temper.values())


def test_rollouts_that_forget_are_counted_at_their_beginning():
    """After 16 tokens each goes on as a fair coin: what follows misleads about the beginning, and
    the first 16 alone are predicted here."""
    rest = torch.randint(2, (256, 240), generator=torch.Generator().manual_seed(2))
    sequences = torch.cat([chains(256, 16, seed=1), rest], 1)
    halves = sequences[::2], sequences[1::2]

    def score(length):
        latents = latents_by(Fit(order=1, length=length, smoothing=0.5), halves[0], 2)
        return float(predicted(latents, halves[1][:, :16])[1.0].mean())

    assert score(16) > score(256)


def drifting(tokens):
    """Copies what followed the last token lately, most of the time."""
    ones = torch.full((len(tokens),), 0.5, dtype=torch.float64)
    if tokens.shape[1] > 1:
        recent = tokens[:, -6:]
        after = (recent[:, :-1] == tokens[:, -1:]).double()
        ones = ((after * recent[:, 1:]).sum(1) + 0.3) / (after.sum(1) + 0.6)
    return torch.stack([1 - ones, ones], 1)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    model = FunctionModel(drifting, vocab_size=2, order=1, name="drifting")
    out = tmp_path_factory.mktemp("tuned") / "bank.safetensors"
    return model, sample(model, rollouts=96, length=48, tuned=True, out=out), out


def test_a_tuned_bank_comes_back_from_its_file(bank):
    model, drawn, out = bank
    again = sample(model, rollouts=96, length=48, tuned=True, out=out)
    assert again.reused
    held = load_bank(out)
    assert held.temper == drawn.temper and held.smoothing == drawn.smoothing > 0
    assert torch.equal(held.read.tokens, drawn.read.tokens)
    assert torch.equal(held.read.laws, drawn.read.laws)
    assert torch.equal(held.kernels, drawn.kernels)
    assert held.tokens == 96 * 47 + (64 + 128) * 40


def test_no_more_is_read_than_the_model_can():
    seen = []

    def predict(tokens):
        seen.append(tokens.shape[1])
        return drifting(tokens)

    model = FunctionModel(predict, vocab_size=2, order=1, max_length=20)
    bank = sample(model, rollouts=24, length=21, tuned=True)
    assert max(seen) == 20 and bank.read.tokens.shape == (24 + 128, 20)


def test_what_was_read_is_what_the_model_says(bank):
    model, drawn, _ = bank
    laws = model.log_predictive(drawn.read.tokens.long()).exp()
    assert torch.allclose(laws, drawn.read.laws, atol=1e-12)
    assert torch.equal(drawn.read.tokens[:64], drawn.sequences[:64, :40])


def test_a_banks_estimate_is_tempered(bank):
    _, drawn, _ = bank
    prompt = torch.tensor([[0, 1, 1, 0, 1, 1]])
    latents = drawn.latents
    weights = (drawn.temper * latents.log_likelihood(prompt)).softmax(-1)
    means = latents.mean_utility(Dyck(), prompt, 4)
    wanted = float((weights * means).sum())
    assert float(estimate_from_bank(drawn, "dyck", prompt, 4)[0]) == pytest.approx(wanted)
