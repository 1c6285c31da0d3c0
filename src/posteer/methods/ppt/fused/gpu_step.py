"""The ascent as a Triton kernel: one program climbs one run, many steps to a launch.

Tables and matrices are tuples of registers: of numbers for the prompt kernel, which under the
linear tilt is a latent of its own as far as powers go, and of blocks of latents. No program waits
for another or for the host. Powers carry no scale here: a run whose latents weigh less than
`LEAST_WEIGHT` in all, as prompts of many hundred tokens do, is left to torch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from posteer.methods.ppt.fused.gpu_matrices import (
    along_paths,
    by_power,
    matrix,
    pushed,
    sum_of,
)
from posteer.methods.ppt.fused.gpu_sums import block_sums, largest_log_weight

LEAST_WEIGHT = tl.constexpr(1e-140)
"""Of all latents together, down to which squares of weights are numbers."""


@triton.jit
def _loaded(start, N: tl.constexpr):
    out = ()
    for k in tl.static_range(N):
        out = out + (tl.load(start + k),)
    return out


@triton.jit
def _kept(start, values, N: tl.constexpr):
    for k in tl.static_range(N):
        tl.store(start + k, values[k])


@triton.jit
def _is_finite(x):
    return (x == x) & (tl.abs(x) < float("inf"))


@triton.jit
def _projected(values, gradient, inside, at: tl.constexpr, N: tl.constexpr, rate, floor):
    """N entries from `at`: a step along the tangent of the simplex, floored and renormalised."""
    mean, size = 0.0 * values[at], 0.0 * values[at]
    for k in tl.static_range(N):
        mean += inside[k] * gradient[at + k]
        size += inside[k]
    mean = mean / size
    raised, whole = (), 0.0 * values[at]
    for k in tl.static_range(N):
        entry = values[at + k] + rate * (gradient[at + k] - mean)
        entry = inside[k] * tl.where(entry < floor, floor, entry)
        raised = raised + (entry,)
        whole += entry
    out = ()
    for k in tl.static_range(N):
        out = out + (raised[k] / whole,)
    return out


@triton.jit
def _moved_logits(table, gradient, logits, means, squares, first, second, rate, V: tl.constexpr):
    """Adam on the logits of an order-0 kernel; `first`, `second` are 0.9 and 0.999 to the number
    of steps."""
    mean = table[0] * gradient[0]
    for v in tl.static_range(1, V):
        mean += table[v] * gradient[v]
    new_means, new_squares, moved = (), (), ()
    for v in tl.static_range(V):
        slope = table[v] * (gradient[v] - mean)
        one = 0.9 * means[v] + 0.1 * slope
        two = 0.999 * squares[v] + 0.001 * slope * slope
        step = rate * (one / (1.0 - first)) / (tl.sqrt(two / (1.0 - second)) + 1e-8)
        new_means, new_squares = new_means + (one,), new_squares + (two,)
        moved = moved + (logits[v] + step,)
    highest = moved[0]
    for v in tl.static_range(1, V):
        highest = tl.maximum(highest, moved[v])
    shares, whole = (), 0.0 * highest
    for v in tl.static_range(V):
        share = tl.exp(moved[v] - highest)
        shares = shares + (share,)
        whole += share
    out = ()
    for v in tl.static_range(V):
        out = out + (shares[v] / whole,)
    return out, moved, new_means, new_squares


@triton.jit
def climb(
    tables,
    starts,
    inside,
    moments,
    reals,
    whole,
    latents,
    logs,
    first,
    means,
    worth,
    keys,
    active,
    surrogates,
    sizes,
    n_latents,
    n_steps,
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
    """Climb one run for `n_steps` steps or until it ends; its state is read first and kept last.

    reals: best, near, factor, rate, floor, tolerance, 0.9^t, 0.999^t. whole: iteration, waited,
    ended, patience, limit.
    """
    row = tl.program_id(0).to(tl.int64)
    run = tl.load(active + row).to(tl.int64)
    base = latents + run * (C * V) * n_latents
    if GEOMETRIC:
        logs += run * (C * V) * n_latents
    first += run * C * n_latents
    means += run * C * n_latents
    worth += run * C * K
    reals += run * 8
    whole += run * 5
    key = tl.load(keys + run)
    table, start = _loaded(tables + run * C * V, C * V), _loaded(starts + run * C, C)
    within = _loaded(inside + run * C, C)
    logits = _loaded(moments + run * 3 * V, V)
    first_moments = _loaded(moments + run * 3 * V + V, V)
    second_moments = _loaded(moments + run * 3 * V + 2 * V, V)
    best, near, factor = tl.load(reals), tl.load(reals + 1), tl.load(reals + 2)
    rate, floor, tolerance = tl.load(reals + 3), tl.load(reals + 4), tl.load(reals + 5)
    decay, slow_decay = tl.load(reals + 6), tl.load(reals + 7)
    iteration, waited, ended = tl.load(whole), tl.load(whole + 1), tl.load(whole + 2)
    patience, limit = tl.load(whole + 3), tl.load(whole + 4)
    every = ()
    for _v in tl.static_range(V):
        every = every + (rate * 0.0 + 1.0,)
    taken = 0
    while (taken < n_steps) & (ended == 0):
        iteration += 1
        law, visits, chain = start, (), matrix(table, C, V)
        for c in tl.static_range(C):
            visits = visits + (0.0 * start[c],)
        for _ in range(STEPS):
            visits = sum_of(visits, law, C)
            law = pushed(law, chain, C)
        counts, largest = (), 0.0 * near
        if GEOMETRIC:
            for k in tl.static_range(C * V):
                counts = counts + (visits[k // V] * table[k],)
            largest = largest_log_weight(
                counts, start, logs, first, n_latents, C, V, HAS_FIRST, BLOCK
            )
        sums = ()
        for _k in tl.static_range(3 + C + 2 * SCORES):
            sums = sums + (tl.zeros([BLOCK], tl.float64),)
        for lo in range(0, n_latents, BLOCK):
            sums = block_sums(
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
                iteration,
                lo,
                n_latents,
                C,
                V,
                K,
                STEPS,
                HIGHEST,
                HORIZON,
                HAS_FIRST,
                GEOMETRIC,
                SCORES,
                BLOCK,
            )
        weight, squares = tl.sum(sums[0], 0), tl.sum(sums[2], 0)
        if weight < LEAST_WEIGHT:
            ended = ended * 0 + 4
        else:
            beyond = tl.sum(sums[1], 0) / weight
            value = near + beyond
            tl.store(surrogates + row * n_steps + taken, value)
            tl.store(sizes + row * n_steps + taken, weight * weight / (squares * n_latents))
            taken += 1
            covariance = ()
            for k in tl.static_range(SCORES):
                centred = tl.sum(sums[3 + C + SCORES + k], 0) - beyond * tl.sum(sums[3 + C + k], 0)
                covariance = covariance + (centred / weight,)
            ends, gains = (), ()
            for c in tl.static_range(C):
                ends = ends + (tl.sum(sums[3 + c], 0) / weight,)
            if GEOMETRIC:  # an edge counts for what leads there too
                for c in tl.static_range(C):
                    gain = 0.0 * weight
                    for v in tl.static_range(V):
                        gain += table[c * V + v] * covariance[c * V + v]
                    gains = gains + (gain,)
                to_go, slopes = along_paths(start, chain, gains, ends, C, STEPS)
            else:
                to_go, slopes = by_power(start, chain, ends, C, STEPS, HIGHEST)
            finite = _is_finite(value)
            gradient, start_gradient = (), ()
            for c in tl.static_range(C):
                for v in tl.static_range(V):
                    gain = covariance[c * V + v]
                    if GEOMETRIC:
                        gain = gain * visits[c]
                    gain = factor * (gain + slopes[c * C + (c * V + v) % C])
                    gradient = gradient + (gain,)
                    finite = finite & _is_finite(gain)
            for c in tl.static_range(C):
                gain = to_go[c]
                if SCORES > C * V:
                    gain += covariance[C * V + c]
                start_gradient = start_gradient + (factor * gain,)
            better = factor * value > best + tolerance
            best = tl.where(better, factor * value, best)
            waited = tl.where(better, 0, waited + 1)
            ended = tl.where(iteration == limit, 2, 0)
            ended = tl.where(waited >= patience, 1, ended)
            ended = tl.where(finite, ended, 3)
            if ended == 0:
                near = value
                if C == 1:
                    decay, slow_decay = 0.9 * decay, 0.999 * slow_decay
                    table, logits, first_moments, second_moments = _moved_logits(
                        table,
                        gradient,
                        logits,
                        first_moments,
                        second_moments,
                        decay,
                        slow_decay,
                        rate,
                        V,
                    )
                else:
                    moved = ()
                    for c in tl.static_range(C):
                        moved = moved + _projected(table, gradient, every, c * V, V, rate, floor)
                    start = _projected(start, start_gradient, within, 0, C, rate, floor)
                    table = moved
    _kept(tables + run * C * V, table, C * V)
    _kept(starts + run * C, start, C)
    _kept(moments + run * 3 * V, logits, V)
    _kept(moments + run * 3 * V + V, first_moments, V)
    _kept(moments + run * 3 * V + 2 * V, second_moments, V)
    tl.store(reals, best)
    tl.store(reals + 1, near)
    tl.store(reals + 6, decay)
    tl.store(reals + 7, slow_decay)
    tl.store(whole, iteration)
    tl.store(whole + 1, waited)
    tl.store(whole + 2, ended)
