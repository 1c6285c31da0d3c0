"""What a prompt kernel makes of a block of latents, compiled: tilts, and slopes of their edges.

A block holds `LANES` latents side by side (`[C, V, LANES]`), so that each innermost loop is a few
vector instructions on what the first cache holds. Numbers carry a power of two per lane in place
of a logarithm: nothing here takes a logarithm or an exponential. `edges = A * kernel`.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from posteer.methods.ppt.fused.compiling import compiled

LANES = 64
SAFE_BITS = np.int64(np.float64(1e-100).view(np.int64))
"""Rows of a power that sum to less than 1e-100 are rescaled, as in families.markov.tilt. Bits of
positive numbers are ordered as the numbers are, and minima of integers are vector instructions."""
MOST_BITS = np.int64(0x7FEFFFFFFFFFFFFF)
ONE = np.int64(1023)
"""The exponent of 1.0."""
BETWEEN_SCALES = 8
"""Steps of a sweep. Each leaves at least the kernel's floor, a millionth: 1e-48 in so many."""
DISAGREEMENT = 1e-9
"""Between both ends of a sweep: more, and doubles could not hold what lay between."""


@compiled
@no_type_check
def prefers_powers(contexts, tokens, steps):
    """Powers of a matrix or a sweep along the prompt, by counted multiplications."""
    products = 0
    while (steps >> products) > 1:
        products += 1
    for place in range(products):
        products += (steps >> place) & 1
    return products * contexts**2 <= steps * tokens


# --- powers: M^n by repeated squaring, then one reverse pass down the same products -------------


@compiled
@no_type_check
def _product(left, right, out):
    """`out = left @ right`, and the bits of its least row sum."""
    n = left.shape[0]
    least = MOST_BITS
    if n == 2:
        for i in range(LANES):
            a, b, c, d = left[0, 0, i], left[0, 1, i], left[1, 0, i], left[1, 1, i]
            p, q, r, s = right[0, 0, i], right[0, 1, i], right[1, 0, i], right[1, 1, i]
            w, x, y, z = a * p + b * r, a * q + b * s, c * p + d * r, c * q + d * s
            out[0, 0, i], out[0, 1, i], out[1, 0, i], out[1, 1, i] = w, x, y, z
            upper, lower = np.float64(w + x).view(np.int64), np.float64(y + z).view(np.int64)
            least = min(least, min(upper, lower))
        return least
    for a in range(n):
        for b in range(n):
            for i in range(LANES):
                out[a, b, i] = left[a, 0, i] * right[0, b, i]
            for k in range(1, n - 1, 2):
                for i in range(LANES):
                    first = left[a, k, i] * right[k, b, i]
                    out[a, b, i] += first + left[a, k + 1, i] * right[k + 1, b, i]
            if n % 2 == 0:
                for i in range(LANES):
                    out[a, b, i] += left[a, n - 1, i] * right[n - 1, b, i]
    return _least_row(out)


@compiled
@no_type_check
def _least_row(power):
    n = power.shape[0]
    least = MOST_BITS
    for a in range(n):
        for i in range(LANES):
            total = 0.0
            for b in range(n):
                total += power[a, b, i]
            least = min(least, np.float64(total).view(np.int64))
    return least


@compiled
@no_type_check
def _rescale(power, factor, exponent):
    """Bring each lane's largest entry near one; its factor and exponent are noted."""
    n = power.shape[0]
    for i in range(LANES):
        largest = np.float64(0.0)
        for a in range(n):
            for b in range(n):
                largest = max(largest, power[a, b, i])
        shift = (np.float64(largest).view(np.int64) >> 52) - ONE
        exponent[i] += shift
        factor[i] = np.int64((ONE - shift) << 52).view(np.float64)
        for a in range(n):
            for b in range(n):
                power[a, b, i] *= factor[i]


@compiled
@no_type_check
def _slope_of_left(slope, right, out):
    """`out = slope @ right^T`."""
    n = slope.shape[0]
    for a in range(n):
        for b in range(n):
            for i in range(LANES):
                out[a, b, i] = slope[a, 0, i] * right[b, 0, i]
            for k in range(1, n):
                for i in range(LANES):
                    out[a, b, i] += slope[a, k, i] * right[b, k, i]


@compiled
@no_type_check
def _add_slope_of_right(left, slope, out):
    """`out += left^T @ slope`."""
    n = slope.shape[0]
    for a in range(n):
        for b in range(n):
            for k in range(n):
                for i in range(LANES):
                    out[a, b, i] += left[k, a, i] * slope[k, b, i]


@compiled
@no_type_check
def _back_through_square(power, slope, factor):
    """The slope of a square becomes that of its root, 2 x 2."""
    for i in range(LANES):
        a, b, c, d = power[0, 0, i], power[0, 1, i], power[1, 0, i], power[1, 1, i]
        f = factor[i]
        p, q = f * slope[0, 0, i], f * slope[0, 1, i]
        r, s = f * slope[1, 0, i], f * slope[1, 1, i]
        slope[0, 0, i] = p * a + q * b + a * p + c * r
        slope[0, 1, i] = p * c + q * d + a * q + c * s
        slope[1, 0, i] = r * a + s * b + b * p + d * r
        slope[1, 1, i] = r * c + s * d + b * q + d * s


@compiled
@no_type_check
def _back_through_step(left, bottom, slope, of_bottom, factor):
    """The slope of a power becomes that of the power less one step, 2 x 2."""
    for i in range(LANES):
        f = factor[i]
        p, q = f * slope[0, 0, i], f * slope[0, 1, i]
        r, s = f * slope[1, 0, i], f * slope[1, 1, i]
        a, b, c, d = left[0, 0, i], left[0, 1, i], left[1, 0, i], left[1, 1, i]
        of_bottom[0, 0, i] += a * p + c * r
        of_bottom[0, 1, i] += a * q + c * s
        of_bottom[1, 0, i] += b * p + d * r
        of_bottom[1, 1, i] += b * q + d * s
        a, b, c, d = bottom[0, 0, i], bottom[0, 1, i], bottom[1, 0, i], bottom[1, 1, i]
        slope[0, 0, i] = p * a + q * b
        slope[0, 1, i] = p * c + q * d
        slope[1, 0, i] = r * a + s * b
        slope[1, 1, i] = r * c + s * d


@compiled
@no_type_check
def _back(left, bottom, square, slope, of_bottom, factor, other):
    n = slope.shape[0]
    if n == 2:
        if square:
            _back_through_square(left, slope, factor)
        else:
            _back_through_step(left, bottom, slope, of_bottom, factor)
        return
    for a in range(n):
        for b in range(n):
            for i in range(LANES):
                slope[a, b, i] *= factor[i]
    if square:
        _slope_of_left(slope, left, other)
        _add_slope_of_right(left, slope, other)
    else:
        _add_slope_of_right(left, slope, of_bottom)
        _slope_of_left(slope, bottom, other)
    for a in range(n):
        for b in range(n):
            for i in range(LANES):
                slope[a, b, i] = other[a, b, i]


@compiled
@no_type_check
def by_powers(edges, first, steps, powers, factors, exponents, slope, total, exponent, slopes):
    """`W = total * 2^exponent` and `d log W / d edge` of each lane.

    False where rows lie further apart than doubles can say; torch has a scale for each row.
    """
    contexts, tokens = edges.shape[0], edges.shape[1]
    bottom = powers[0]
    for a in range(contexts):
        for b in range(contexts):
            for i in range(LANES):
                bottom[a, b, i] = 0.0
    for i in range(LANES):
        exponents[0, i] = 0
        total[i] = 0.0
    for c in range(contexts):
        for v in range(tokens):
            to = (c * tokens + v) % contexts
            for i in range(LANES):
                bottom[c, to, i] += edges[c, v, i]
    highest = 0
    while (steps >> (highest + 1)) > 0:
        highest += 1
    made = 0
    for place in range(highest - 1, -1, -1):
        for kind in range(1 + ((steps >> place) & 1)):
            right = made if kind == 0 else 0
            least = _product(powers[made], powers[right], powers[made + 1])
            for i in range(LANES):
                factors[made + 1, i] = 1.0
                exponents[made + 1, i] = exponents[made, i] + exponents[right, i]
            made += 1
            if least < SAFE_BITS:
                _rescale(powers[made], factors[made], exponents[made])
                if _least_row(powers[made]) < SAFE_BITS:
                    return False
    top, here, of_bottom, other = powers[made], slope[0], slope[1], slope[2]
    for a in range(contexts):
        for b in range(contexts):
            for i in range(LANES):
                total[i] += first[a, i] * top[a, b, i]
    for a in range(contexts):
        for b in range(contexts):
            for i in range(LANES):
                here[a, b, i] = first[a, i] / total[i] if total[i] > 0.0 else 0.0
                of_bottom[a, b, i] = 0.0
    for i in range(LANES):
        exponent[i] = exponents[made, i]
    for place in range(highest):
        for kind in range((steps >> place) & 1, -1, -1):
            _back(powers[made - 1], bottom, kind == 0, here, of_bottom, factors[made], other)
            made -= 1
    for c in range(contexts):
        for v in range(tokens):
            to = (c * tokens + v) % contexts
            for i in range(LANES):
                slopes[c, v, i] = of_bottom[c, to, i] + here[c, to, i]
    return True


# --- sweep: messages along the prompt, there and back -------------------------------------------


@compiled
@no_type_check
def by_sweep(edges, first, steps, messages, factors, ahead, total, exponent, slopes):
    """The same, a step at a time; False where both ends disagree about W."""
    contexts, tokens = edges.shape[0], edges.shape[1]
    for i in range(LANES):
        exponent[i] = 0
        total[i] = 0.0
    for c in range(contexts):
        for i in range(LANES):
            messages[0, c, i] = first[c, i]
    for step in range(steps):
        here, there = messages[step], messages[step + 1]
        for c in range(contexts):
            for i in range(LANES):
                there[c, i] = 0.0
        for c in range(contexts):
            for v in range(tokens):
                to = (c * tokens + v) % contexts
                for i in range(LANES):
                    there[to, i] += here[c, i] * edges[c, v, i]
        if (step + 1) % BETWEEN_SCALES == 0:
            _rescale_message(there, factors[step // BETWEEN_SCALES], exponent)
    for c in range(contexts):
        for i in range(LANES):
            total[i] += messages[steps, c, i]
    now, before = ahead[0], ahead[1]
    for c in range(contexts):
        for i in range(LANES):
            now[c, i] = 1.0 / total[i] if total[i] > 0.0 else 0.0
        for v in range(tokens):
            for i in range(LANES):
                slopes[c, v, i] = 0.0
    for step in range(steps - 1, -1, -1):
        if (step + 1) % BETWEEN_SCALES == 0:
            factor = factors[step // BETWEEN_SCALES]
            for c in range(contexts):
                for i in range(LANES):
                    now[c, i] *= factor[i]
        here = messages[step]
        for c in range(contexts):
            for i in range(LANES):
                before[c, i] = 0.0
            for v in range(tokens):
                to = (c * tokens + v) % contexts
                for i in range(LANES):
                    slopes[c, v, i] += here[c, i] * now[to, i]
                    before[c, i] += edges[c, v, i] * now[to, i]
        now, before = before, now
    agree = True
    for i in range(LANES):
        whole = 0.0
        for c in range(contexts):
            whole += first[c, i] * now[c, i]
        agree &= not (total[i] > 0.0) or abs(whole - 1.0) < DISAGREEMENT
    return agree


@compiled
@no_type_check
def _rescale_message(message, factor, exponent):
    for i in range(LANES):
        largest = np.float64(0.0)
        for c in range(message.shape[0]):
            largest = max(largest, message[c, i])
        shift = (np.float64(largest).view(np.int64) >> 52) - ONE
        shift = shift if largest > 0.0 else np.int64(0)
        exponent[i] += shift
        factor[i] = np.int64((ONE - shift) << 52).view(np.float64)
        for c in range(message.shape[0]):
            message[c, i] *= factor[i]
