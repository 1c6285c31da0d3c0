"""Causal attention for narrow heads, forward and backward, as Triton kernels.

Libraries' kernels are made for heads of 64 and more; at 32, exponentials and loads bound the time
instead of products. Queries, keys and values come as the projection makes them, one tensor
`[B, T, 3, H, D]`, and their gradients leave as one, so no head is copied. The backward pass goes
over queries once for the gradients of keys and values and once over keys for those of queries: no
sum here depends on the order in which blocks run.

Imported only where Triton and a GPU are; elsewhere `scaled_dot_product_attention` does the same.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)

FORWARD = {"QUERIES": 64, "KEYS": 64, "num_warps": 4, "num_stages": 3}
FOR_KEYS = {"QUERIES": 32, "KEYS": 64, "num_warps": 4, "num_stages": 4}
FOR_QUERIES = {"QUERIES": 64, "KEYS": 32, "num_warps": 4, "num_stages": 4}
"""The fastest of a dozen each on an H200 (`python benchmarks/narrow.py --tune`)."""


@triton.jit
def _rows(first, at, stride, length, WIDTH: tl.constexpr, WHOLE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rows `at` of one head; past the end zeros, where there may be an end."""
    where = first + at[:, None] * stride + tl.arange(0, WIDTH)[None, :]
    if WHOLE:
        return tl.load(where)
    return tl.load(where, mask=at[:, None] < length, other=0.0)


@triton.jit
def _head(tensor, length, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where this program's head begins in `[B, T, PARTS, H, D]`."""
    batch = (tl.program_id(1) // HEADS).to(tl.int64)
    return tensor + batch * length * (PARTS * HEADS * WIDTH) + (tl.program_id(1) % HEADS) * WIDTH


@triton.jit
def _look(  # type: ignore[no-untyped-def]
    query, keys, values, at, first, peak, total, mixed, stride, length,
    SCALE: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Softmax so far, of one more block of keys."""
    over = first + tl.arange(0, KEYS)
    key = _rows(keys, over, stride, length, WIDTH, WHOLE)
    value = _rows(values, over, stride, length, WIDTH, WHOLE)
    score = tl.dot(query, tl.trans(key))
    if not WHOLE:
        score = tl.where(at[:, None] >= over[None, :], score, -float("inf"))
    higher = tl.maximum(peak, tl.max(score, 1))
    weight = tl.exp2(score * (SCALE * LOG2_E) - (higher * (SCALE * LOG2_E))[:, None])
    shrink = tl.exp2((peak - higher) * (SCALE * LOG2_E))
    total = total * shrink + tl.sum(weight, 1)
    mixed = tl.dot(weight.to(value.dtype), value, mixed * shrink[:, None])
    return higher, total, mixed


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    qkv, out, normaliser, length, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    SCALE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head, over all keys up to it; long ones first."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    stride = 3 * HEADS * WIDTH
    queries = _head(qkv, length, HEADS, WIDTH, 3)
    keys, values = queries + HEADS * WIDTH, queries + 2 * HEADS * WIDTH
    at = block * QUERIES + tl.arange(0, QUERIES)
    query = _rows(queries, at, stride, length, WIDTH, False)
    peak = tl.full([QUERIES], -float("inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, WIDTH], tl.float32)
    diagonal = block * QUERIES // KEYS * KEYS
    for first in range(0, diagonal, KEYS):
        peak, total, mixed = _look(
            query, keys, values, at, first, peak, total, mixed, stride, length,
            SCALE, WIDTH, KEYS, True,
        )  # fmt: skip
    for first in range(diagonal, tl.minimum((block + 1) * QUERIES, length), KEYS):
        peak, total, mixed = _look(
            query, keys, values, at, first, peak, total, mixed, stride, length,
            SCALE, WIDTH, KEYS, False,
        )  # fmt: skip
    into = _head(out, length, HEADS, WIDTH, 1) + at[:, None] * (HEADS * WIDTH)
    inside = at < length
    mixed = (mixed / total[:, None]).to(out.dtype.element_ty)
    tl.store(into + tl.arange(0, WIDTH)[None, :], mixed, mask=inside[:, None])
    stats = normaliser + tl.program_id(1).to(tl.int64) * length + at
    tl.store(stats, peak * (SCALE * LOG2_E) + tl.log2(total), mask=inside)


@triton.jit
def _inner_products(  # type: ignore[no-untyped-def]
    out, grad, inner, length, HEADS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr
):  # fmt: skip
    """`out . grad` of each query: what softmax's gradient takes off every score."""
    at = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    stride = HEADS * WIDTH
    mixed = _rows(_head(out, length, HEADS, WIDTH, 1), at, stride, length, WIDTH, False)
    above = _rows(_head(grad, length, HEADS, WIDTH, 1), at, stride, length, WIDTH, False)
    product = tl.sum(mixed.to(tl.float32) * above.to(tl.float32), 1)
    tl.store(inner + tl.program_id(1).to(tl.int64) * length + at, product, mask=at < length)


@triton.jit
def _to_keys(  # type: ignore[no-untyped-def]
    queries, grads, stats, inner, key, value, over, first, to_key, to_value, stride, length,
    HEADS: tl.constexpr, SCALE: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """What one block of queries sends back to a block of keys and values."""
    at = first + tl.arange(0, QUERIES)
    query = _rows(queries, at, stride, length, WIDTH, WHOLE)
    above = _rows(grads, at, HEADS * WIDTH, length, WIDTH, WHOLE)
    if WHOLE:
        log_total, product = tl.load(stats + at), tl.load(inner + at)
    else:
        log_total = tl.load(stats + at, mask=at < length, other=0.0)
        product = tl.load(inner + at, mask=at < length, other=0.0)
    score = tl.dot(key, tl.trans(query))
    weight = tl.exp2(score * (SCALE * LOG2_E) - log_total[None, :])
    if not WHOLE:
        weight = tl.where((at[None, :] >= over[:, None]) & (at[None, :] < length), weight, 0.0)
    to_value = tl.dot(weight.to(above.dtype), above, to_value)
    to_score = weight * (tl.dot(value, tl.trans(above)) - product[None, :])
    to_key = tl.dot(to_score.to(query.dtype), query, to_key)
    return to_key, to_value


@triton.jit
def _backward_keys(  # type: ignore[no-untyped-def]
    qkv, grad, normaliser, inner, to_qkv, length, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    SCALE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One block of keys and values of one head, over all queries from it on."""
    block = tl.program_id(0)
    stride = 3 * HEADS * WIDTH
    queries = _head(qkv, length, HEADS, WIDTH, 3)
    grads = _head(grad, length, HEADS, WIDTH, 1)
    stats = normaliser + tl.program_id(1).to(tl.int64) * length
    inner += tl.program_id(1).to(tl.int64) * length
    over = block * KEYS + tl.arange(0, KEYS)
    key = _rows(queries + HEADS * WIDTH, over, stride, length, WIDTH, False)
    value = _rows(queries + 2 * HEADS * WIDTH, over, stride, length, WIDTH, False)
    to_key = tl.zeros([KEYS, WIDTH], tl.float32)
    to_value = tl.zeros([KEYS, WIDTH], tl.float32)
    whole = tl.cdiv((block + 1) * KEYS, QUERIES) * QUERIES  # queries past here see all these keys
    last = tl.maximum(length // QUERIES * QUERIES, whole)
    for first in range(block * KEYS // QUERIES * QUERIES, tl.minimum(whole, length), QUERIES):
        to_key, to_value = _to_keys(
            queries, grads, stats, inner, key, value, over, first, to_key, to_value, stride,
            length, HEADS, SCALE, WIDTH, QUERIES, False,
        )  # fmt: skip
    for first in range(whole, last, QUERIES):
        to_key, to_value = _to_keys(
            queries, grads, stats, inner, key, value, over, first, to_key, to_value, stride,
            length, HEADS, SCALE, WIDTH, QUERIES, True,
        )  # fmt: skip
    for first in range(last, length, QUERIES):
        to_key, to_value = _to_keys(
            queries, grads, stats, inner, key, value, over, first, to_key, to_value, stride,
            length, HEADS, SCALE, WIDTH, QUERIES, False,
        )  # fmt: skip
    into = _head(to_qkv, length, HEADS, WIDTH, 3) + over[:, None] * stride
    into += tl.arange(0, WIDTH)[None, :]
    inside = over[:, None] < length
    narrow = to_qkv.dtype.element_ty
    tl.store(into + HEADS * WIDTH, (to_key * SCALE).to(narrow), mask=inside)
    tl.store(into + 2 * HEADS * WIDTH, to_value.to(narrow), mask=inside)


@triton.jit
def _to_queries(  # type: ignore[no-untyped-def]
    query, above, keys, values, log_total, product, at, first, to_query, stride, length,
    SCALE: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """What one block of keys sends back to a block of queries."""
    over = first + tl.arange(0, KEYS)
    key = _rows(keys, over, stride, length, WIDTH, WHOLE)
    value = _rows(values, over, stride, length, WIDTH, WHOLE)
    weight = tl.exp2(tl.dot(query, tl.trans(key)) * (SCALE * LOG2_E) - log_total[:, None])
    if not WHOLE:
        weight = tl.where(at[:, None] >= over[None, :], weight, 0.0)
    to_score = weight * (tl.dot(above, tl.trans(value)) - product[:, None])
    return tl.dot(to_score.to(key.dtype), key, to_query)


@triton.jit
def _backward_queries(  # type: ignore[no-untyped-def]
    qkv, grad, normaliser, inner, to_qkv, length, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    SCALE: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head, over all keys up to it."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    stride = 3 * HEADS * WIDTH
    queries = _head(qkv, length, HEADS, WIDTH, 3)
    keys, values = queries + HEADS * WIDTH, queries + 2 * HEADS * WIDTH
    at = block * QUERIES + tl.arange(0, QUERIES)
    inside = at < length
    query = _rows(queries, at, stride, length, WIDTH, False)
    grads = _head(grad, length, HEADS, WIDTH, 1)
    above = _rows(grads, at, HEADS * WIDTH, length, WIDTH, False)
    row = tl.program_id(1).to(tl.int64) * length + at
    log_total = tl.load(normaliser + row, mask=inside, other=0.0)
    product = tl.load(inner + row, mask=inside, other=0.0)
    to_query = tl.zeros([QUERIES, WIDTH], tl.float32)
    diagonal = block * QUERIES // KEYS * KEYS
    for first in range(0, diagonal, KEYS):
        to_query = _to_queries(
            query, above, keys, values, log_total, product, at, first, to_query, stride, length,
            SCALE, WIDTH, KEYS, True,
        )  # fmt: skip
    for first in range(diagonal, tl.minimum((block + 1) * QUERIES, length), KEYS):
        to_query = _to_queries(
            query, above, keys, values, log_total, product, at, first, to_query, stride, length,
            SCALE, WIDTH, KEYS, False,
        )  # fmt: skip
    into = _head(to_qkv, length, HEADS, WIDTH, 3) + at[:, None] * stride
    to_query = (to_query * SCALE).to(to_qkv.dtype.element_ty)
    tl.store(into + tl.arange(0, WIDTH)[None, :], to_query, mask=inside[:, None])


def _shape(qkv: Tensor) -> dict[str, Any]:
    heads, width = qkv.shape[-2:]
    return {"HEADS": heads, "WIDTH": width}


@torch.library.custom_op(
    "posteer::narrow_attention", mutates_args=(), schema="(Tensor qkv) -> (Tensor, Tensor)"
)
def forward(qkv: Tensor) -> tuple[Tensor, Tensor]:
    """Mixed values `[B, T, H, D]`, and the logarithm (to base 2) of each query's sum."""
    batch, length, _, heads, width = qkv.shape
    out = qkv.new_empty(batch, length, heads, width)
    normaliser = qkv.new_empty(batch * heads, length, dtype=torch.float32)
    _forward[(triton.cdiv(length, FORWARD["QUERIES"]), batch * heads)](
        qkv, out, normaliser, length, SCALE=width**-0.5, **_shape(qkv), **FORWARD
    )
    return out, normaliser


@forward.register_fake
def _(qkv: Tensor) -> tuple[Tensor, Tensor]:
    batch, length, _, heads, width = qkv.shape
    normaliser = qkv.new_empty(batch * heads, length, dtype=torch.float32)
    return qkv.new_empty(batch, length, heads, width), normaliser


@torch.library.custom_op(
    "posteer::narrow_attention_backward",
    mutates_args=(),
    schema="(Tensor qkv, Tensor out, Tensor normaliser, Tensor grad) -> Tensor",
)
def backward(qkv: Tensor, out: Tensor, normaliser: Tensor, grad: Tensor) -> Tensor:
    """The gradient in `qkv`, from that in what was mixed."""
    batch, length, _, heads, width = qkv.shape
    grad, inner, to_qkv = grad.contiguous(), torch.empty_like(normaliser), torch.empty_like(qkv)
    given = (qkv, grad, normaliser, inner, to_qkv, length)
    shape, scale, programs = _shape(qkv), width**-0.5, batch * heads
    _inner_products[(triton.cdiv(length, 128), programs)](
        out, grad, inner, length, QUERIES=128, **shape
    )
    _backward_keys[(triton.cdiv(length, FOR_KEYS["KEYS"]), programs)](
        *given, SCALE=scale, **shape, **FOR_KEYS
    )
    _backward_queries[(triton.cdiv(length, FOR_QUERIES["QUERIES"]), programs)](
        *given, SCALE=scale, **shape, **FOR_QUERIES
    )
    return to_qkv


@backward.register_fake
def _(qkv: Tensor, out: Tensor, normaliser: Tensor, grad: Tensor) -> Tensor:
    return torch.empty_like(qkv)


def _keep(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> Tensor:
    return backward(*ctx.saved_tensors, grad)


forward.register_autograd(_differentiate, setup_context=_keep)


def attend(qkv: Tensor) -> Tensor:
    """Causal attention within `[B, T, 3, H, D]`, D a power of two from 16 on."""
    mixed: Tensor = forward(qkv.contiguous())[0]
    return mixed
