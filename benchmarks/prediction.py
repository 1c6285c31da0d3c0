"""Prediction of the shipped urn model on CPU, against the same weights in torch's own encoder.

    python benchmarks/prediction.py [--model urn]

64 prompts of 54 tokens: what evaluating all continuations of a length-50 prompt asks for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from timing import milliseconds
from torch import Tensor, nn

from posteer.models import load
from posteer.models.transformer.network import Block, Transformer


def as_torch_encoder(network: Transformer) -> Callable[[Tensor], Tensor]:
    """The same function through `torch.nn.TransformerEncoder`, weights shared."""
    shape = network.shape
    layer = nn.TransformerEncoderLayer(
        shape.width,
        shape.heads,
        shape.feedforward,
        dropout=0.0,
        activation="gelu",
        batch_first=True,
        norm_first=True,
    )
    encoder = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False).eval()
    for ours, theirs in zip(network.blocks, encoder.layers, strict=True):
        assert isinstance(ours, Block) and isinstance(theirs, nn.TransformerEncoderLayer)
        theirs.self_attn.in_proj_weight = nn.Parameter(ours.attention.qkv.weight)
        theirs.self_attn.in_proj_bias = nn.Parameter(ours.attention.qkv.bias)
        theirs.self_attn.out_proj.load_state_dict(ours.attention.out.state_dict())
        theirs.norm1.load_state_dict(ours.attention_norm.state_dict())
        theirs.norm2.load_state_dict(ours.feedforward_norm.state_dict())
        theirs.linear1.load_state_dict(ours.up.state_dict())
        theirs.linear2.load_state_dict(ours.down.state_dict())

    @torch.no_grad()
    def log_predictive(tokens: Tensor) -> Tensor:
        bos = tokens.new_full((len(tokens), 1), shape.vocab_size)
        x = network.tokens(torch.cat([bos, tokens], 1))
        if network.positions is not None:
            x = x + network.positions.weight[: x.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        x = encoder(x, mask=mask, is_causal=True)
        return network.head(network.norm(x)).log_softmax(-1)

    return log_predictive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="urn")
    given = parser.parse_args()
    model = load(given.model)
    peer = as_torch_encoder(model.network)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(model.vocab_size, (64, 54), generator=generator)
    torch.testing.assert_close(model.log_predictive(tokens), peer(tokens), rtol=1e-3, atol=1e-4)
    ours = milliseconds(lambda: model.log_predictive(tokens))
    theirs = milliseconds(lambda: peer(tokens))
    threads = torch.get_num_threads()
    print(f"{given.model}: 64 prompts of 54 tokens, {threads} threads, outputs equal")
    print(f"  posteer                      {ours:8.1f} ms")
    print(f"  torch.nn.TransformerEncoder  {theirs:8.1f} ms   {theirs / ours:.2f} times ours")


if __name__ == "__main__":
    main()
