"""Sums over blocks of latents, in Triton: what sums.py takes on a CPU, under either tilt.

A block weighs its latents, scores each weight and adds both to sums that each lane keeps for
itself. The linear tilt weighs by powers of a matrix, and its score is the slope of log W in the
table; the geometric one by expected counts, in units of the largest weight of all, and its score is
what an edge adds to log W each time it is taken: the log-kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from posteer.methods.ppt.fused.gpu_matrices import back, matrix, powers

NO_WEIGHT = tl.constexpr(1e-250)
"""A latent that weighs less has no say, lest its slopes overflow."""


@triton.jit
def _rolled_out(
    kernel,
    law,
    worth,
    key,
    latent,
    step,
    C: tl.constexpr,
    V: tl.constexpr,
    K: tl.constexpr,
    HORIZON: tl.constexpr,
):
    """What one continuation from each context is worth to each latent, and the one from a last
    context drawn by its law: the numbers of core.counters."""
    drawn = ()
    for block in tl.static_range((HORIZON * C + 4) // 4):
        zero = latent * 0
        words = tl.philox(key, latent, zero + step, zero + block, zero)
        for word in tl.static_range(4):
            drawn = drawn + (words[word].to(tl.uint32).to(tl.float64) * 2.3283064365386963e-10,)
    of_contexts = ()
    for start in tl.static_range(C):
        here, said = latent * 0 + start, latent * 0
        for place in tl.static_range(HORIZON):
            uniform = drawn[1 + place * C + start]
            token, edge = latent * 0, uniform * 0.0
            for v in tl.static_range(V - 1):
                share = kernel[v]
                for c in tl.static_range(1, C):
                    share = tl.where(here == c, kernel[c * V + v], share)
                edge += share
                token += (uniform >= edge).to(tl.int32)
            said = said * V + token
            here = (here * V + token) % C
        of_contexts = of_contexts + (tl.load(worth + start * K + said),)
    value, edge = of_contexts[0], drawn[0] * 0.0
    for c in tl.static_range(1, C):
        edge += law[c - 1]
        value = tl.where(drawn[0] >= edge, of_contexts[c], value)
    return value, of_contexts


@triton.jit
def _averaged(
    kernel,
    law,
    means,
    worth,
    key,
    latent,
    there,
    step,
    n_latents,
    C: tl.constexpr,
    V: tl.constexpr,
    K: tl.constexpr,
    HORIZON: tl.constexpr,
):
    """What is averaged over a block: mu of the prompt, and of each context."""
    if HORIZON > 0:
        value, of_contexts = _rolled_out(kernel, law, worth, key, latent, step, C, V, K, HORIZON)
    else:
        value, of_contexts = kernel[0] * 0.0, ()
        for c in tl.static_range(C):
            mean = tl.load(means + c * n_latents + latent, mask=there, other=0.0)
            of_contexts = of_contexts + (mean,)
            value += law[c] * mean
    return value, of_contexts


@triton.jit
def _weighed_linearly(
    kernel,
    table,
    start,
    first,
    latent,
    there,
    n_latents,
    C: tl.constexpr,
    V: tl.constexpr,
    STEPS: tl.constexpr,
    HIGHEST: tl.constexpr,
    HAS_FIRST: tl.constexpr,
):
    """Weights of a block under the linear tilt, and their scores by edge."""
    edges = ()
    for k in tl.static_range(C * V):
        edges = edges + (table[k] * kernel[k],)
    starts = ()
    for c in tl.static_range(C):
        if HAS_FIRST:
            given = tl.load(first + c * n_latents + latent, mask=there, other=1.0)
            starts = starts + (start[c] * given,)
        else:
            starts = starts + (edges[0] * 0.0 + start[c],)
    stack = powers(matrix(edges, C, V), C, STEPS, HIGHEST)
    top = stack[0]
    total = edges[0] * 0.0
    for a in tl.static_range(C):
        row = top[a * C]
        for b in tl.static_range(1, C):
            row += top[a * C + b]
        total += starts[a] * row
    total = tl.where(total < NO_WEIGHT, 0.0, total)
    slope = ()
    for a in tl.static_range(C):
        share = tl.where(total > 0.0, starts[a] / total, 0.0)
        for _b in tl.static_range(C):
            slope = slope + (share,)
    of_matrix = back(stack, slope, C, STEPS, HIGHEST)
    weight = tl.where(there, total, 0.0)
    scores = ()
    for c in tl.static_range(C):
        for v in tl.static_range(V):
            score = weight * kernel[c * V + v] * of_matrix[c * C + (c * V + v) % C]
            scores = scores + (score,)
    return weight, scores


@triton.jit
def _log_weight(
    counts,
    start,
    logs,
    first,
    latent,
    there,
    n_latents,
    C: tl.constexpr,
    V: tl.constexpr,
    HAS_FIRST: tl.constexpr,
):
    """log W of a block under the geometric tilt, and its terms: logarithms by edge, then those of
    first contexts where latents weigh them."""
    term = tl.load(logs + latent, mask=there, other=0.0)
    terms, total = (term,), counts[0] * term
    for k in tl.static_range(1, C * V):
        term = tl.load(logs + k * n_latents + latent, mask=there, other=0.0)
        terms = terms + (term,)
        total += counts[k] * term
    if HAS_FIRST:
        for c in tl.static_range(C):
            term = tl.load(first + c * n_latents + latent, mask=there, other=0.0)
            terms = terms + (term,)
            total += start[c] * term
    return tl.where(there, total, float("-inf")), terms


@triton.jit
def largest_log_weight(
    counts,
    start,
    logs,
    first,
    n_latents,
    C: tl.constexpr,
    V: tl.constexpr,
    HAS_FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of all latents, under the geometric tilt."""
    largest = tl.full([BLOCK], float("-inf"), tl.float64)
    for lo in range(0, n_latents, BLOCK):
        latent = lo + tl.arange(0, BLOCK)
        there = latent < n_latents
        log_weight, _terms = _log_weight(
            counts, start, logs, first, latent, there, n_latents, C, V, HAS_FIRST
        )
        largest = tl.maximum(largest, log_weight)
    return tl.max(largest, 0)


@triton.jit
def block_sums(
    sums,
    table,
    start,
    law,
    near,
    counts,
    largest,
    base,
    logs,
    first,
    means,
    worth,
    key,
    step,
    lo,
    n_latents,
    C: tl.constexpr,
    V: tl.constexpr,
    K: tl.constexpr,
    STEPS: tl.constexpr,
    HIGHEST: tl.constexpr,
    HORIZON: tl.constexpr,
    HAS_FIRST: tl.constexpr,
    GEOMETRIC: tl.constexpr,
    SCORES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """What a block of latents adds: `sum w`, `sum w (v - near)`, `sum w^2`, `sum w mu(c)`, all
    scores, and all of them times `v - near`."""
    latent = lo + tl.arange(0, BLOCK)
    there = latent < n_latents
    kernel = ()
    for k in tl.static_range(C * V):
        kernel = kernel + (tl.load(base + k * n_latents + latent, mask=there, other=1.0 / V),)
    if GEOMETRIC:
        log_weight, terms = _log_weight(
            counts, start, logs, first, latent, there, n_latents, C, V, HAS_FIRST
        )
        weight = tl.exp(log_weight - largest)
        scores = ()
        for k in tl.static_range(SCORES):
            scores = scores + (weight * terms[k],)
    else:
        weight, scores = _weighed_linearly(
            kernel,
            table,
            start,
            first,
            latent,
            there,
            n_latents,
            C,
            V,
            STEPS,
            HIGHEST,
            HAS_FIRST,
        )
    value, of_contexts = _averaged(
        kernel, law, means, worth, key, latent, there, step, n_latents, C, V, K, HORIZON
    )
    beyond = value - near
    new = (sums[0] + weight, sums[1] + weight * beyond, sums[2] + weight * weight)
    for c in tl.static_range(C):
        new = new + (sums[3 + c] + weight * of_contexts[c],)
    for k in tl.static_range(SCORES):
        new = new + (sums[3 + C + k] + scores[k],)
    for k in tl.static_range(SCORES):
        new = new + (sums[3 + C + SCORES + k] + scores[k] * beyond,)
    return new
