"""Tuned banks, checks and asking that adapts on a small random Llama: SmolLM2's architecture."""

import pytest
import torch
from language import llama, tokenizer

import posteer
from posteer.banks.checks.departure import check_departure

LENGTH = 6
EACH = LENGTH + 2 + 4 + 8
"""Tokens that J of one prompt takes at horizon 4."""


@pytest.fixture(scope="module")
def model():
    network = llama(torch.float32)
    network.lm_head.weight.data *= 8  # so that what it read matters
    words = {"tokenizer": tokenizer(), "alphabet": " H, T", "text": "A coin:"}
    return posteer.wrap(network, **words, name="small")


@pytest.fixture(scope="module")
def bank(model):
    return posteer.sample(model, rollouts=96, length=24, tuned=True)


def test_a_check_says_how_far_it_is_and_a_bank_what_it_took(model, bank):
    """Rollouts, and histories that are read, which bring the mixture nearer to the model."""
    found = check_departure(model, bank)
    assert found.mixture.value > 0
    assert found.corrected.value < found.on_prompts.value < found.on_prompts.high
    assert 0 < found.alphabet_share < 1
    assert bank.tokens == 96 * 23 + (64 + 128) * 23


def test_asking_that_adapts_finds_what_all_prompts_tell(model, bank):
    """Eight questions of 64; among the first 3, which 8 of 64 at random are once in 3 times."""
    found = posteer.elicit(
        model, "dyck", length=LENGTH, bank=bank, verify=8, max_model_tokens=8 * EACH, rank=True
    )
    assert found.rank <= 3 and found.judged.n_prompts == 2**LENGTH
    assert found.answer.verified.rounds >= 1
    assert found.cost["forward_tokens"] <= 8 * EACH


@pytest.mark.slow
def test_a_first_call_draws_checks_and_verifies(model):
    """As `posteer elicit --model smollm2 --length 12 --verify 6` does, within a budget."""
    found = posteer.elicit(model, "dyck", length=12, verify=6, max_model_tokens=24_000, rank=False)
    assert "tuned=1" in found.choice.method and found.departure is not None
    assert found.answer.verified.compared == 6
    spent = found.cost["forward_tokens"] + found.cost["drawn_tokens"]
    assert spent <= 24_000
