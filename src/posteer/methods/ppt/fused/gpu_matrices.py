"""Small matrices as tuples of registers, in Triton: products, powers and slopes back through them.

An entry is a number of one run or a block of latents; the same code serves both.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sum_of(left, right, N: tl.constexpr):
    """Entry by entry."""
    out = ()
    for k in tl.static_range(N):
        out = out + (left[k] + right[k],)
    return out


@triton.jit
def product(left, right, N: tl.constexpr):
    """`left @ right` of N x N tuples."""
    out = ()
    for a in tl.static_range(N):
        for b in tl.static_range(N):
            entry = left[a * N] * right[b]
            for k in tl.static_range(1, N):
                entry += left[a * N + k] * right[k * N + b]
            out = out + (entry,)
    return out


@triton.jit
def slope_of_left(slope, right, N: tl.constexpr):
    """`slope @ right^T`."""
    out = ()
    for a in tl.static_range(N):
        for b in tl.static_range(N):
            entry = slope[a * N] * right[b * N]
            for k in tl.static_range(1, N):
                entry += slope[a * N + k] * right[b * N + k]
            out = out + (entry,)
    return out


@triton.jit
def add_slope_of_right(total, left, slope, N: tl.constexpr):
    """`total + left^T @ slope`."""
    out = ()
    for a in tl.static_range(N):
        for b in tl.static_range(N):
            entry = total[a * N + b]
            for k in tl.static_range(N):
                entry += left[k * N + a] * slope[k * N + b]
            out = out + (entry,)
    return out


@triton.jit
def matrix(edges, C: tl.constexpr, V: tl.constexpr):
    """Edges by the context they lead to."""
    out = ()
    for a in tl.static_range(C):
        for b in tl.static_range(C):
            entry = edges[0] * 0.0
            for v in tl.static_range(V):
                if (a * V + v) % C == b:
                    entry += edges[a * V + v]
            out = out + (entry,)
    return out


@triton.jit
def pushed(law, matrix, C: tl.constexpr):
    """A law over contexts one step later."""
    out = ()
    for b in tl.static_range(C):
        share = law[0] * matrix[b]
        for a in tl.static_range(1, C):
            share += law[a] * matrix[a * C + b]
        out = out + (share,)
    return out


@triton.jit
def along_paths(law, chain, gains, ends, C: tl.constexpr, STEPS: tl.constexpr):
    """What paths of so many edges are worth, from each first context: what edges gain on the way,
    by the context they leave, and what the last context does. And the slope of their worth from
    the first law in each entry of the matrix, gains held fixed."""
    slopes, visits, to_go = (), (), ends
    for a in tl.static_range(C):
        visits = visits + (law[a] * 0.0,)
        for _b in tl.static_range(C):
            slopes = slopes + (law[a] * 0.0,)
    for _ in range(STEPS):  # an edge taken before is one further from the end
        before, slopes = slope_of_left(slopes, chain, C), ()
        later, to_go = to_go, ()
        for a in tl.static_range(C):
            ahead = gains[a]
            for b in tl.static_range(C):
                ahead += chain[a * C + b] * later[b]
                slopes = slopes + (before[a * C + b] + visits[a] * gains[b] + law[a] * ends[b],)
            to_go = to_go + (ahead,)
        visits = sum_of(visits, law, C)
        law = pushed(law, chain, C)
    return to_go, slopes


@triton.jit
def powers(bottom, C: tl.constexpr, STEPS: tl.constexpr, HIGHEST: tl.constexpr):
    """Every power on the way to `bottom^STEPS`, the last of them first."""
    stack = (bottom,)
    for turn in tl.static_range(HIGHEST):
        stack = (product(stack[0], stack[0], C),) + stack
        if (STEPS >> (HIGHEST - 1 - turn)) & 1:
            stack = (product(stack[0], bottom, C),) + stack
    return stack


@triton.jit
def back(stack, slope, C: tl.constexpr, STEPS: tl.constexpr, HIGHEST: tl.constexpr):
    """The slope of the last power becomes that of the first."""
    bottom = stack[len(stack) - 1]
    of_bottom = ()
    for k in tl.static_range(C * C):
        of_bottom = of_bottom + (slope[k] * 0.0,)
    below = stack[1:]
    for place in tl.static_range(HIGHEST):
        if (STEPS >> place) & 1:
            of_bottom = add_slope_of_right(of_bottom, below[0], slope, C)
            slope = slope_of_left(slope, bottom, C)
            below = below[1:]
        of_left = slope_of_left(slope, below[0], C)
        slope = add_slope_of_right(of_left, below[0], slope, C)
        below = below[1:]
    out = ()
    for k in tl.static_range(C * C):
        out = out + (of_bottom[k] + slope[k],)
    return out


@triton.jit
def by_power(law, chain, ends, C: tl.constexpr, STEPS: tl.constexpr, HIGHEST: tl.constexpr):
    """As `along_paths` where edges gain nothing: fewer products, more to compile."""
    stack = powers(chain, C, STEPS, HIGHEST)
    top, slope, to_go = stack[0], (), ()
    for a in tl.static_range(C):
        ahead = top[a * C] * ends[0]
        for b in tl.static_range(1, C):
            ahead += top[a * C + b] * ends[b]
        to_go = to_go + (ahead,)
        for b in tl.static_range(C):
            slope = slope + (law[a] * ends[b],)
    slopes = back(stack, slope, C, STEPS, HIGHEST)
    return to_go, slopes
