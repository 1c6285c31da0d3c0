"""The bank's estimate of hard prompts against weighing by hand."""

import itertools
import math

import pytest
import torch
from examples import random_kernels
from oracles import context_number, kernel_probability, mean_utility, value_of

from posteer.banks import LatentBank, Origin, draw_analytic
from posteer.families.markov.means import utility_of_kernels
from posteer.goals.utilities import open_utility
from posing import posed
from posteer.methods.scorers.protocol import BankScorer, HardScorer, score_classes
from posteer.models import Metered, open_model
from posteer.tokens.contexts import ContextSpace, all_sequences, count_transitions

ORIGIN = Origin(source="analytic", model="", fingerprint="", process=None, seed=0)


@pytest.mark.parametrize(("vocab", "order", "length"), [(2, 0, 4), (2, 1, 5), (2, 2, 5), (3, 1, 4)])
def test_estimate_error_and_ess_of_every_prompt(vocab, order, length):
    space = ContextSpace(vocab, order)
    kernels = random_kernels(space, 7)
    means = utility_of_kernels(open_utility("dyck", space), space, kernels, 4)
    prompts = all_sequences(vocab, length)
    scores = score_classes(
        kernels, means, count_transitions(space, prompts).long(), space.suffix(prompts)
    )
    for row, prompt in enumerate(prompts.tolist()):
        weights = [kernel_probability(prompt, k, order, vocab, order) for k in kernels.tolist()]
        tail = tuple(prompt[length - order :])
        utilities = [
            mean_utility(value_of("dyck")(tail), k, tail, order, vocab, 4) for k in kernels.tolist()
        ]
        total = sum(weights)
        value = sum(w * u for w, u in zip(weights, utilities, strict=True)) / total
        error = math.sqrt(
            sum((w / total * (u - value)) ** 2 for w, u in zip(weights, utilities, strict=True))
        )
        assert float(scores.value[row]) == pytest.approx(value, abs=1e-12)
        assert float(scores.standard_error[row]) == pytest.approx(error, abs=1e-12)
        ess = total**2 / sum(w * w for w in weights) / 7
        assert float(scores.ess_fraction[row]) == pytest.approx(ess, rel=1e-10)


def test_chunks_change_nothing(monkeypatch):
    space = ContextSpace(2, 1)
    kernels, prompts = random_kernels(space, 50), all_sequences(2, 6)
    means = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)).double()
    counts, last = count_transitions(space, prompts).long(), space.suffix(prompts)
    whole = score_classes(kernels, means, counts, last)
    monkeypatch.setattr("posteer.methods.scorers.protocol.CHUNK_ELEMENTS", 120)
    parts = score_classes(kernels, means, counts, last)
    assert torch.allclose(whole.value, parts.value, rtol=1e-13)
    assert torch.allclose(whole.standard_error, parts.standard_error, rtol=1e-11)


def test_lifted_latents_and_latents_of_their_own_order_agree():
    """Beta-Bernoulli with a Markov target: counts of order 0, means from contexts of order 1."""
    own = ContextSpace(2, 0)
    bank = LatentBank(own, random_kernels(own, 20), ORIGIN)
    lifted = bank.at_order(1)
    utility = open_utility("reverse-xent(dir-4)", own)
    means = utility_of_kernels(utility, lifted.space, lifted.kernels, 4)
    prompts = all_sequences(2, 5)
    last = lifted.space.suffix(prompts)
    narrow = score_classes(bank.kernels, means, count_transitions(own, prompts).long(), last)
    wide = score_classes(
        lifted.kernels,
        means,
        count_transitions(lifted.space, prompts).long(),
        last,
        prompts[:, 0],
        lifted.first_likelihood,
    )
    assert torch.allclose(narrow.value, wide.value, rtol=1e-12)
    assert torch.allclose(narrow.ess_fraction, wide.ess_fraction, rtol=1e-10)


def test_classes_that_no_latent_can_emit():
    stays = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).double().repeat(2, 1, 1)
    counts = torch.tensor([[[3, 0], [0, 0]], [[1, 1], [0, 1]]])
    scores = score_classes(stays, torch.ones(2, 2).double(), counts, torch.tensor([0, 1]))
    assert scores.value.tolist() == [1.0, -math.inf]
    assert scores.ess_fraction.tolist() == [1.0, 0.0]


def test_the_standard_error_of_a_difference_over_many_banks():
    """Two prompts, 400 banks: the spread of the difference is what one bank says it is, to 15%.

    The relative error of a standard deviation of 400 draws is 3.5%; the estimate itself varies.
    """
    model = Metered(open_model("exact:urn"))
    problem = posed(model, open_utility("dyck", model.family.space), 6, 4, 0)
    prompts = torch.tensor([[0, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 1]])
    counts, last = (
        count_transitions(model.family.space, prompts).long(),
        model.family.space.suffix(prompts),
    )
    found = []
    for seed in range(400):
        scorer = BankScorer.of(draw_analytic(model.prior, 500, seed), problem)
        assert isinstance(scorer, HardScorer)
        found.append(scorer.difference(counts, last))
    differences, errors = (torch.tensor(figures) for figures in zip(*found, strict=True))
    assert float(errors.mean()) == pytest.approx(float(differences.std()), rel=0.15)
    values = scorer(counts, prompts[:, 0], last)
    assert float(values.value[0] - values.value[1]) == pytest.approx(found[-1][0])
    alone = values.standard_error.square().sum().sqrt()
    assert found[-1][1] < float(alone) * 1.5


def test_latents_are_weighed_once_for_every_order_of_the_tokens():
    space = ContextSpace(3, 0)
    kernels = random_kernels(space, 9)
    orders = torch.tensor(list(itertools.permutations([0, 0, 1, 2])))
    scores = score_classes(
        kernels,
        torch.rand(9, 1, generator=torch.Generator().manual_seed(1)).double(),
        count_transitions(space, orders).long(),
        torch.zeros(len(orders), dtype=torch.long),
    )
    assert float(scores.value.max() - scores.value.min()) < 1e-14
    assert context_number((), 3) == 0
