"""Predictions from counts are the transformer's own."""

import pytest
import torch
from networks import small, tokens_of
from torch import nn

from posteer.banks.plans import DrawPlan
from posteer.banks.rollouts import roll_out
from posteer.core.errors import InputError
from posteer.models import Metered, load
from posteer.models.transformer import one_layer as module
from posteer.models.transformer.checkpoint import load_model, save_model
from posteer.models.transformer.model import TransformerModel
from posteer.models.transformer.network import Architecture, Transformer
from posteer.models.transformer.one_layer import OneLayerModel, sees_counts_only


def one_layer(vocab, spread=0.3):
    torch.manual_seed(vocab)
    shape = Architecture(
        vocab_size=vocab, order=0, layers=1, width=32, heads=4, feedforward=48, positions="none"
    )
    network = Transformer(shape)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=spread)
    return OneLayerModel(network, "one layer")


@pytest.mark.parametrize("vocab", [2, 3, 7])
@pytest.mark.parametrize("spread", [0.3, 1.5])
def test_counts_predict_like_attention(vocab, spread):
    """Random weights, small and large: float32 on both sides, logits of order ten."""
    model = one_layer(vocab, spread)
    tokens = tokens_of(model, 6, 90)
    whole = model.log_predictive(tokens)
    state = model.start(6)
    for t in range(90):
        assert (whole[:, t] - state.log_probs).abs().max() < 2e-3 * spread
        law, state = model.advance(state, tokens[:, t])
    assert (whole[:, -1] - law).abs().max() < 2e-3 * spread


def test_double_precision_agrees_to_rounding():
    """In float64 nothing but rounding can differ, so the algebra is exact."""
    model = one_layer(3)
    model.network.double()
    tokens = tokens_of(model, 4, 60)
    rows = nn.functional.one_hot(tokens, 3).double()
    whole = model.network.logits_of_rows(rows).log_softmax(-1)
    state = model.start(4)
    for t in range(60):
        assert (whole[:, t] - state.log_probs).abs().max() < 1e-12
        _, state = model.advance(state, tokens[:, t])


def test_tables_and_direct_evaluation_agree(monkeypatch):
    model = one_layer(2)
    tokens = tokens_of(model, 20, 70)
    by_table = [law for law, _ in walk(model, tokens)]
    monkeypatch.setattr(module, "STATES_OF_A_STEP", 0)
    direct = [law for law, _ in walk(one_layer(2), tokens)]
    assert not model.batch_invariant(70)
    for one, other in zip(by_table, direct, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def walk(model, tokens):
    state = model.start(len(tokens))
    for token in tokens.unbind(1):
        law, state = model.advance(state, token)
        yield law, state


def test_a_prediction_has_the_same_bits_in_any_batch():
    model = one_layer(2)
    assert model.batch_invariant(500)
    tokens = tokens_of(model, 40, 30)
    together = [law for law, _ in walk(model, tokens)]
    alone = [law for law, _ in walk(one_layer(2), tokens[7:8])]
    for one, other in zip(together, alone, strict=True):
        assert torch.equal(one[7:8], other)


def test_states_fork():
    model = one_layer(3)
    state = model.start(2)
    _, state = model.advance(state, torch.tensor([0, 1]))
    forked = state.select(torch.tensor([1, 1, 0]))
    law, _ = model.advance(forked, torch.tensor([2, 0, 1]))
    expected = model.log_predictive(torch.tensor([[1, 2], [1, 0], [0, 1]]))[:, -1]
    assert torch.allclose(law, expected, atol=1e-4)


def test_rollouts_by_counts_are_those_of_the_general_path():
    """The same random numbers, 64 rollouts of 300 tokens on the shipped model: token for token.

    Laws differ by 1e-6 at most, so one of 19,200 tokens falls between them with a chance of 2 %;
    more than three rollouts part with one of a hundred million, on any CPU.
    """
    fast = load("beta-bernoulli")
    assert isinstance(fast, OneLayerModel)
    general = TransformerModel(fast.network, "general", fast.prior)
    plan = DrawPlan(n_samples=64, rollout_length=300, keep_tokens=True)
    one = roll_out(Metered(fast), plan, fast.family, 0, 64).sequences
    other = roll_out(Metered(general), plan, fast.family, 0, 64).sequences
    assert int((one != other).any(1).sum()) <= 3


def test_only_one_layer_without_positions_is_taken_for_one(tmp_path):
    assert not sees_counts_only(small().network)
    assert not sees_counts_only(small("learned", layers=1).network)
    lone = small(layers=1)
    assert sees_counts_only(lone.network)
    for model, kind in ((lone, OneLayerModel), (small(), TransformerModel)):
        save_model(tmp_path / kind.__name__, model.network, {"process": None})
        assert type(load_model(tmp_path / kind.__name__)) is kind


def test_fingerprints_name_architecture_and_weights():
    one, other = small(), small()
    assert one.fingerprint == other.fingerprint
    with torch.no_grad():
        other.network.head.bias[0] += 1e-3
    assert small().fingerprint != TransformerModel(other.network, "changed").fingerprint
    assert small(max_tokens=151).fingerprint != one.fingerprint


def test_max_length_is_what_was_trained():
    assert small().max_length is None
    model = small("learned")
    assert model.max_length == 149
    with pytest.raises(InputError, match="nothing to say past them"):
        model.log_predictive(torch.zeros(1, 150, dtype=torch.long))
