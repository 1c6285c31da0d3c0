"""Sums over a run's latents, compiled: all that a step of an ascent needs to know of them.

With weights `w`, values `v` and a value `near` what v average to: `sum w`, `sum w (v - near)`,
`sum w^2`, `sum w mu(c)`, and of each edge `sum w s`, `sum w (v - near) s` for the score s. They are
taken lane by lane, block after block, and the lanes last: the same bits for any number of threads.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from posteer.methods.ppt.fused.closed_forms import MOST_STEPS, one_context, two_contexts
from posteer.methods.ppt.fused.compiling import compiled
from posteer.methods.ppt.fused.lanes import (
    BETWEEN_SCALES,
    LANES,
    ONE,
    by_powers,
    by_sweep,
    prefers_powers,
)
from posteer.methods.ppt.fused.philox_lanes import roll_out, uniforms

UNDERFLOW = -1000
"""A weight that many powers of two below the largest is none."""

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.4286068203094172e-06
SHIFTER = 6755399441055744.0
"""1.5 * 2^52: added to a number, it leaves the nearest integer in the last bits."""
MEANS = 3
"""Rows of sums: three scalars, from here one per context, then the edges twice."""
ITERATION, TRANSITIONS, LATENTS, HORIZON = 0, 1, 2, 3
"""Places in a run's whole numbers."""


@compiled
@no_type_check
def exponential(x):
    """exp of a number that is not positive, 0 below -700; in arithmetic that has vector forms."""
    held = x if x > -700.0 else -700.0
    shifted = held * LOG2_E + SHIFTER
    whole = shifted - SHIFTER
    rest = (held - whole * LN2_HIGH) - whole * LN2_LOW
    series = 1.0 + rest * (1.0 / 13.0)
    series = 1.0 + series * rest * (1.0 / 12.0)
    series = 1.0 + series * rest * (1.0 / 11.0)
    series = 1.0 + series * rest * (1.0 / 10.0)
    series = 1.0 + series * rest * (1.0 / 9.0)
    series = 1.0 + series * rest * (1.0 / 8.0)
    series = 1.0 + series * rest * (1.0 / 7.0)
    series = 1.0 + series * rest * (1.0 / 6.0)
    series = 1.0 + series * rest * (1.0 / 5.0)
    series = 1.0 + series * rest * (1.0 / 4.0)
    series = 1.0 + series * rest * (1.0 / 3.0)
    series = 1.0 + series * rest * (1.0 / 2.0)
    series = 1.0 + series * rest
    power = (np.float64(shifted).view(np.int64) + ONE) << 52
    return series * np.int64(power).view(np.float64) if x > -700.0 else 0.0


@compiled
@no_type_check
def integrand(block, averaged, latents, law, whole, draws, rolled, values):
    """What is averaged over a block: mu of each context, and `values`, mu of the prompt."""
    means, worth, key = averaged
    if means.shape[0] == 0:
        uniforms(key, block * LANES, whole[ITERATION], draws)
        roll_out(latents[block], law, worth, whole[HORIZON], draws, rolled, values)
        return rolled
    of_contexts = means[block]
    for i in range(LANES):
        values[i] = 0.0
    for c in range(of_contexts.shape[0]):
        for i in range(LANES):
            values[i] += law[c] * of_contexts[c, i]
    return of_contexts


@compiled
@no_type_check
def add_weighted(weights, values, near, of_contexts, sums):
    """Add a block to the scalars and to the rows of contexts."""
    for i in range(LANES):
        w = weights[i]
        sums[0, i] += w
        sums[1, i] += w * (values[i] - near)
        sums[2, i] += w * w
    for c in range(of_contexts.shape[0]):
        for i in range(LANES):
            sums[MEANS + c, i] += weights[i] * of_contexts[c, i]


@compiled
@no_type_check
def weigh(total, exponent, reference, used, weights, sums):
    """Weights in units of 2^reference, the largest exponent so far, which is returned."""
    largest = np.int64(-(2**62))
    for i in range(LANES):
        largest = max(largest, exponent[i])
    if largest > reference:
        shift = max(reference - largest, np.int64(UNDERFLOW))
        shrink = np.int64((shift + ONE) << 52).view(np.float64)
        shrink = shrink if shift > UNDERFLOW else 0.0
        for row in range(sums.shape[0]):
            for i in range(LANES):
                sums[row, i] *= shrink
        for i in range(LANES):
            sums[2, i] *= shrink
        reference = largest
    for i in range(LANES):
        shift = max(exponent[i] - reference, np.int64(UNDERFLOW))
        unit = np.int64((shift + ONE) << 52).view(np.float64)
        weights[i] = total[i] * unit if shift > UNDERFLOW else 0.0
    for i in range(used, LANES):
        weights[i] = 0.0
    return reference


@compiled
@no_type_check
def linear_sums(table, start, laws, near, latents, first, averaged, whole, out):
    """The sums under the linear tilt; False where torch must take the run."""
    steps, n_latents = whole[TRANSITIONS], whole[LATENTS]
    blocks, contexts, tokens, _ = latents.shape
    last = laws[steps]
    edges = np.empty((contexts, tokens, LANES))
    slopes = np.empty((contexts, tokens, LANES))
    starts = np.empty((contexts, LANES))
    total, weights, values = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    exponent = np.empty(LANES, np.int64)
    sums = np.zeros((out.shape[0], LANES))
    rolled = np.empty((contexts, LANES))
    draws = np.empty((1 + whole[HORIZON] * contexts, LANES))
    closed = contexts <= 2 and steps <= MOST_STEPS
    state = np.empty((7, LANES))
    powers = contexts <= 2 or prefers_powers(contexts, tokens, steps)
    products = 1
    while powers and (steps >> (products // 2)) > 0:
        products += 2
    side = contexts if powers else 0
    stack = np.empty((products, side, side, LANES))
    slope = np.empty((3, side, side, LANES))
    scales = np.empty((products if powers else steps // BETWEEN_SCALES + 1, LANES))
    exponents = np.empty((products, LANES), np.int64)
    messages = np.empty((0 if powers else steps + 1, contexts, LANES))
    ahead = np.empty((2, contexts, LANES))
    reference = np.int64(-(2**40))
    for block in range(blocks):
        kernel = latents[block]
        for c in range(contexts):
            for v in range(tokens):
                for i in range(LANES):
                    edges[c, v, i] = table[c, v] * kernel[c, v, i]
            for i in range(LANES):
                starts[c, i] = start[c]
            if first.shape[0] > 0:
                for i in range(LANES):
                    starts[c, i] *= first[block, c, i]
        held = False
        if closed and contexts == 1:
            held = one_context(edges, starts, steps, total, exponent, slopes, weights)
        elif closed:
            held = two_contexts(edges, starts, steps, total, exponent, slopes, state, weights)
        if not held and powers:
            held = by_powers(
                edges, starts, steps, stack, scales, exponents, slope, total, exponent, slopes
            )
        elif not held:
            held = by_sweep(edges, starts, steps, messages, scales, ahead, total, exponent, slopes)
        if not held:
            return False
        used = min(LANES, n_latents - block * LANES)
        reference = weigh(total, exponent, reference, used, weights, sums)
        of_contexts = integrand(block, averaged, latents, last, whole, draws, rolled, values)
        add_weighted(weights, values, near, of_contexts, sums)
        row = MEANS + contexts
        for c in range(contexts):
            for v in range(tokens):
                for i in range(LANES):
                    score = weights[i] * kernel[c, v, i] * slopes[c, v, i]
                    sums[row, i] += score
                    sums[row + contexts * tokens, i] += score * (values[i] - near)
                row += 1
    total_of_lanes(sums, out)
    return True


@compiled
@no_type_check
def total_of_lanes(sums, out):
    """Each row's lanes together."""
    for row in range(out.shape[0]):
        whole = 0.0
        for i in range(LANES):
            whole += sums[row, i]
        out[row] = whole


@compiled
@no_type_check
def geometric_sums(counts, start, laws, near, latents, logs, firsts, averaged, whole, out):
    """The sums under the geometric tilt, whose score is the log-kernel itself; after the edges'
    come those of first contexts, where latents weigh them."""
    blocks, contexts, tokens, _ = logs.shape
    last, n_latents = laws[whole[TRANSITIONS]], whole[LATENTS]
    log_tilt = np.empty((blocks, LANES))
    weights, values = np.empty(LANES), np.empty(LANES)
    sums = np.zeros((out.shape[0], LANES))
    rolled = np.empty((contexts, LANES))
    draws = np.empty((1 + whole[HORIZON] * contexts, LANES))
    largest = -np.inf
    for block in range(blocks):
        here = log_tilt[block]
        for i in range(LANES):
            here[i] = 0.0
        for c in range(contexts):
            for v in range(tokens):
                for i in range(LANES):
                    here[i] += counts[c, v] * logs[block, c, v, i]
            if firsts.shape[0] > 0:
                for i in range(LANES):
                    here[i] += start[c] * firsts[block, c, i]
        for i in range(n_latents - block * LANES, LANES):
            here[i] = -np.inf
        for i in range(LANES):
            largest = max(largest, here[i])
    for block in range(blocks):
        for i in range(LANES):
            weights[i] = exponential(log_tilt[block, i] - largest)
        of_contexts = integrand(block, averaged, latents, last, whole, draws, rolled, values)
        add_weighted(weights, values, near, of_contexts, sums)
        row = MEANS + contexts
        for c in range(contexts):
            for v in range(tokens):
                for i in range(LANES):
                    score = weights[i] * logs[block, c, v, i]
                    sums[row, i] += score
                    sums[row + contexts * tokens, i] += score * (values[i] - near)
                row += 1
        if firsts.shape[0] > 0:
            row += contexts * tokens
            for c in range(contexts):
                for i in range(LANES):
                    score = weights[i] * firsts[block, c, i]
                    sums[row, i] += score
                    sums[row + contexts, i] += score * (values[i] - near)
                row += 1
    total_of_lanes(sums, out)
