"""Attention of one new token to a cache, as a Triton kernel: bound by reading the cache once.

Imported only where Triton and a GPU are; elsewhere `scaled_dot_product_attention` does the same.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _decode(  # type: ignore[no-untyped-def]
    query, keys, values, out, length, capacity, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """One program reads the cache of one head of one history, softmax on the fly."""
    row = tl.program_id(0).to(tl.int64)
    across = tl.arange(0, WIDTH)
    asked = tl.load(query + row * WIDTH + across).to(tl.float32) * scale
    highest = -float("inf")
    total = 0.0
    mixed = tl.zeros([WIDTH], tl.float32)
    for first in range(0, length, BLOCK):
        at = first + tl.arange(0, BLOCK)
        seen = at < length
        where = row * capacity * WIDTH + at[:, None] * WIDTH + across[None, :]
        key = tl.load(keys + where, mask=seen[:, None], other=0.0).to(tl.float32)
        value = tl.load(values + where, mask=seen[:, None], other=0.0).to(tl.float32)
        score = tl.where(seen, tl.sum(key * asked[None, :], 1), -float("inf"))
        peak = tl.maximum(highest, tl.max(score, 0))
        weight = tl.exp(score - peak)
        shrink = tl.exp(highest - peak)
        mixed = mixed * shrink + tl.sum(weight[:, None] * value, 0)
        total = total * shrink + tl.sum(weight, 0)
        highest = peak
    tl.store(out + row * WIDTH + across, mixed / total)


def decode(query: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
    """`query [B, H, 1, D]` against the first `length` of `keys, values [B, H, T, D]`.

    D must be a power of two; caches may be of a narrower type than the query and the result.
    """
    batch, heads, capacity, width = keys.shape
    out = query.new_empty(query.shape)
    _decode[(batch * heads,)](
        query.contiguous(),
        keys,
        values,
        out,
        length,
        capacity,
        width**-0.5,
        WIDTH=width,
        BLOCK=64,
        num_warps=2,
        num_stages=2,
    )
    return out
