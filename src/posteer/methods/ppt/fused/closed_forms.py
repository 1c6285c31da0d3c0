"""Tilts of one and of two contexts in closed form, compiled; the same contract as lanes.py.

One context: `W = first * s^n` with s the sum of its edges. Two contexts: with trace T and
determinant D of the tilted matrix, and `u(k+1) = T u(k) - D u(k-1)` from u(0) = 0 and u(1) = 1,

    M^n = u(n+1) I + u(n) (M - T I)

by Cayley and Hamilton, so a power is two numbers, and its slopes five: `d u(k) / dD` is
`-d u(k-1) / dT`. Both go from k to 2k and 2k + 1 in a few multiplications.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from posteer.methods.ppt.fused.compiling import compiled
from posteer.methods.ppt.fused.lanes import LANES, MOST_BITS, ONE

MOST_STEPS = 400
"""Powers of numbers from 1 to 2 whose squares are numbers, with room for sums of them."""
CANCELLED = np.int64(np.float64(1e-5).view(np.int64))
"""A W that is so much smaller than what it is the difference of is left to powers."""


@compiled
@no_type_check
def one_context(edges, first, steps, total, exponent, slopes, base):
    """As `by_powers`, of one context."""
    tokens = edges.shape[1]
    for i in range(LANES):
        base[i] = edges[0, 0, i]
    for v in range(1, tokens):
        for i in range(LANES):
            base[i] += edges[0, v, i]
    for v in range(tokens):
        for i in range(LANES):
            slopes[0, v, i] = steps / base[i]
    for i in range(LANES):
        shift = (np.float64(base[i]).view(np.int64) >> 52) - ONE
        base[i] *= np.int64((ONE - shift) << 52).view(np.float64)
        exponent[i] = steps * shift
        total[i] = base[i]
    place = 0
    while (steps >> (place + 1)) > 0:
        place += 1
    for turn in range(place - 1, -1, -1):
        more = (steps >> turn) & 1
        for i in range(LANES):
            square = total[i] * total[i]
            total[i] = square * base[i] if more else square
    for i in range(LANES):
        total[i] *= first[0, i]
    return True


@compiled
@no_type_check
def _double(state, more):
    """From k to 2k, or to 2k + 1."""
    for i in range(LANES):
        trace, determinant = state[0, i], state[1, i]
        u, w, u_t, w_t, u_d = state[2, i], state[3, i], state[4, i], state[5, i], state[6, i]
        square, inner = u * u, w - trace * u
        even = u * (w + inner)
        odd = w * w - determinant * square
        even_t = 2.0 * (u_t * inner + u * w_t) - square
        odd_t = 2.0 * (w * w_t - determinant * u * u_t)
        even_d = 2.0 * (u_d * inner - u * u_t)
        if more:
            state[2, i] = odd
            state[3, i] = trace * odd - determinant * even
            state[4, i] = odd_t
            state[5, i] = odd + trace * odd_t - determinant * even_t
            state[6, i] = -even_t
        else:
            state[2, i], state[3, i], state[4, i] = even, odd, even_t
            state[5, i], state[6, i] = odd_t, even_d


@compiled
@no_type_check
def two_contexts(edges, first, steps, total, exponent, slopes, state, factor):
    """As `by_powers`, of two contexts; False where W is lost in a difference."""
    for i in range(LANES):
        a, b, c, d = edges[0, 0, i], edges[0, 1, i], edges[1, 0, i], edges[1, 1, i]
        apart = a - d
        largest = 0.5 * (a + d + np.sqrt(apart * apart + 4.0 * b * c))
        shift = (np.float64(largest).view(np.int64) >> 52) - ONE
        unit = np.int64((ONE - shift) << 52).view(np.float64)
        factor[i] = unit
        exponent[i] = steps * shift
        trace = unit * (a + d)
        state[0, i] = trace
        state[1, i] = unit * unit * (a * d - b * c)
        state[2, i], state[3, i] = 1.0, trace
        state[4, i], state[5, i], state[6, i] = 0.0, 1.0, 0.0
    place = 0
    while (steps >> (place + 1)) > 0:
        place += 1
    for turn in range(place - 1, -1, -1):
        _double(state, (steps >> turn) & 1)
    worst = MOST_BITS
    for i in range(LANES):
        unit = factor[i]
        a, b = unit * edges[0, 0, i], unit * edges[0, 1, i]
        c, d = unit * edges[1, 0, i], unit * edges[1, 1, i]
        upper, lower = first[0, i], first[1, i]
        u, w, u_t, w_t, u_d = state[2, i], state[3, i], state[4, i], state[5, i], state[6, i]
        whole = upper + lower
        beside = upper * (b - d) + lower * (c - a)
        tilt = whole * w + u * beside
        in_trace = whole * w_t + u_t * beside
        in_determinant = u_d * beside - whole * u_t
        worst = min(worst, np.float64(tilt / (whole * w)).view(np.int64))
        share = unit / tilt
        slopes[0, 0, i] = share * (in_trace + in_determinant * d - u * lower)
        slopes[0, 1, i] = share * (u * upper - in_determinant * c)
        slopes[1, 0, i] = share * (u * lower - in_determinant * b)
        slopes[1, 1, i] = share * (in_trace + in_determinant * a - u * upper)
        total[i] = tilt
    return worst >= CANCELLED
