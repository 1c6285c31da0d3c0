"""Small transformers with weights large enough to matter, and what is asked of them."""

import pytest
import torch
from posing import posed_together
from torch import nn

from posteer.models import Metered, open_model
from posteer.models.transformer.model import TransformerModel
from posteer.models.transformer.network import Architecture, Transformer


def small(positions="none", vocab=3, **changes):
    torch.manual_seed(0)
    sizes = {"layers": 2, "width": 32, "heads": 4, "feedforward": 48, "max_tokens": 150}
    shape = Architecture(vocab_size=vocab, order=1, positions=positions, **{**sizes, **changes})
    network = Transformer(shape)
    for parameter in network.parameters():  # away from the small initial weights
        nn.init.normal_(parameter, std=0.3)
    return TransformerModel(network, "small")


def tokens_of(model, n=5, length=120):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(model.vocab_size, (n, length), generator=generator)


def problems_of(model, utility="dyck", length=6, seeds=(0, 1, 2), horizon=4, **more):
    return posed_together(model, [utility], length, horizon, seeds, **more)


TIE = 1e-5
"""float32 log-probabilities of a few tokens, read in another batch, differ by less; prompts whose
values do are tied, and which of them a search finds is for rounding to say."""


def same_or_tied(one, other):
    """Answers of one search in two batch shapes: the same prompt for the same tokens, or a tie."""
    if one.prompt.tolist() == other.prompt.tolist():
        return one.queries == other.queries
    return abs(one.history[-1].value - other.history[-1].value) < TIE


def metered(name):
    return Metered(open_model(name))


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 1
    else:
        data = data[: len(data) // 2]
    path.write_bytes(bytes(data))


def run_until(trainer, step):
    """A training that dies before it has taken a step."""
    loss = trainer.loss

    def dies(tokens):
        if trainer.step == step:
            raise KeyboardInterrupt
        return loss(tokens)

    trainer.loss = dies
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
