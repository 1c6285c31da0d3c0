"""Whole ascents of one run, compiled: sums, both gradient terms, the update and when to stop."""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from posteer.methods.ppt.fused.compiling import compiled, entry
from posteer.methods.ppt.fused.inputs import AT_LIMIT, DIVERGED, LEFT_TO_TORCH, RUNNING, STUCK
from posteer.methods.ppt.fused.sums import (
    ITERATION,
    LATENTS,
    MEANS,
    TRANSITIONS,
    geometric_sums,
    linear_sums,
)

BEST, NEAR, FACTOR, RATE, FLOOR, TOLERANCE = 0, 1, 2, 3, 4, 5
WAITED, ENDED, PATIENCE, LIMIT = 4, 5, 6, 7
"""Places in a run's numbers, and in its whole numbers beyond those that sums read."""


@compiled
@no_type_check
def chain(table, start, laws):
    """The law of the context after each step of a prompt."""
    contexts, tokens = table.shape
    for c in range(contexts):
        laws[0, c] = start[c]
    for step in range(laws.shape[0] - 1):
        for c in range(contexts):
            laws[step + 1, c] = 0.0
        for c in range(contexts):
            for v in range(tokens):
                laws[step + 1, (c * tokens + v) % contexts] += laws[step, c] * table[c, v]


@compiled
@no_type_check
def back_along_chain(table, laws, rewards, ahead, gradient):
    """Gradients of what the prompt's edges earn and its last context is worth: in the table,
    which is added, and in the start, which replaces the values of last contexts, `ahead`."""
    contexts, tokens = table.shape
    before = np.empty(contexts)
    for step in range(laws.shape[0] - 2, -1, -1):
        for c in range(contexts):
            before[c] = 0.0
            for v in range(tokens):
                gain = rewards[c, v] + ahead[(c * tokens + v) % contexts]
                gradient[c, v] += laws[step, c] * gain
                before[c] += table[c, v] * gain
        for c in range(contexts):
            ahead[c] = before[c]


@compiled
@no_type_check
def project_along(values, gradient, inside, rate, floor):
    """One row: a step along the tangent of its simplex, floored and renormalised."""
    mean, size, whole = 0.0, 0, 0.0
    for k in range(len(values)):
        if inside[k]:
            mean += gradient[k]
            size += 1
    mean /= size
    for k in range(len(values)):
        raised = max(values[k] + rate * (gradient[k] - mean), floor)
        values[k] = raised if inside[k] else 0.0
        whole += values[k]
    for k in range(len(values)):
        values[k] /= whole


@compiled
@no_type_check
def move_logits(table, gradient, moments, rate, iteration):
    """Adam on the logits of the one row of an order-0 kernel."""
    tokens = table.shape[1]
    if iteration == 1:
        for v in range(tokens):
            moments[0, v] = np.log(table[0, v])
    mean, highest, whole = 0.0, -np.inf, 0.0
    for v in range(tokens):
        mean += table[0, v] * gradient[0, v]
    for v in range(tokens):
        slope = table[0, v] * (gradient[0, v] - mean)
        moments[1, v] = 0.9 * moments[1, v] + 0.1 * slope
        moments[2, v] = 0.999 * moments[2, v] + 0.001 * slope**2
        first = moments[1, v] / (1.0 - 0.9**iteration)
        second = moments[2, v] / (1.0 - 0.999**iteration)
        moments[0, v] += rate * first / (np.sqrt(second) + 1e-8)
        highest = max(highest, moments[0, v])
    for v in range(tokens):
        table[0, v] = np.exp(moments[0, v] - highest)
        whole += table[0, v]
    for v in range(tokens):
        table[0, v] /= whole


@compiled
@no_type_check
def restore(kept, kept_start, table, start):
    """Where a kernel is no longer one of numbers, the last that was."""
    contexts, tokens = table.shape
    finite = True
    for c in range(contexts):
        for v in range(tokens):
            finite &= np.isfinite(table[c, v])
    if not finite:
        for c in range(contexts):
            start[c] = kept_start[c]
            for v in range(tokens):
                table[c, v] = kept[c, v]


@compiled
@no_type_check
def finish_step(state, out, through_edges, laws, gradient, ahead, surrogates, sizes, taken):
    """From sums over latents to the next kernel; whether the run goes on.

    `through_edges` is true where the score of an edge is what the prompt earns by it, so that it
    counts for what leads there too: the geometric tilt.
    """
    table, start, inside, moments, kept, kept_start, reals, whole = state
    contexts, tokens = table.shape
    edges, row = contexts * tokens, MEANS + contexts
    beyond = out[1] / out[0]
    value = reals[NEAR] + beyond if out[0] > 0.0 else -np.inf
    surrogates[taken] = value
    sizes[taken] = out[0] ** 2 / (out[2] * whole[LATENTS]) if out[0] > 0.0 else 0.0
    rewards = np.zeros((contexts, tokens))
    for c in range(contexts):
        ahead[c] = out[MEANS + c] / out[0]
        for v in range(tokens):
            covariance = (out[row + edges] - beyond * out[row]) / out[0]
            rewards[c, v] = covariance if through_edges else 0.0
            gradient[c, v] = 0.0 if through_edges else covariance
            row += 1
    back_along_chain(table, laws, rewards, ahead, gradient)
    if through_edges:
        for c in range(contexts):
            ahead[c] += (out[row + edges + contexts + c] - beyond * out[row + edges + c]) / out[0]
    finite = np.isfinite(value)
    for c in range(contexts):
        ahead[c] *= reals[FACTOR]
        for v in range(tokens):
            gradient[c, v] *= reals[FACTOR]
            finite &= np.isfinite(gradient[c, v])
    whole[WAITED] += 1
    if value * reals[FACTOR] > reals[BEST] + reals[TOLERANCE]:
        reals[BEST] = value * reals[FACTOR]
        whole[WAITED] = 0
    if not finite:
        whole[ENDED] = DIVERGED
        restore(kept, kept_start, table, start)
    elif whole[WAITED] >= whole[PATIENCE]:
        whole[ENDED] = STUCK
    elif whole[ITERATION] == whole[LIMIT]:
        whole[ENDED] = AT_LIMIT
    if whole[ENDED] != RUNNING:
        return False
    reals[NEAR] = value
    for c in range(contexts):
        kept_start[c] = start[c]
        for v in range(tokens):
            kept[c, v] = table[c, v]
    if contexts == 1:
        move_logits(table, gradient, moments, reals[RATE], whole[ITERATION])
    else:
        every = np.ones(tokens, np.bool_)
        for c in range(contexts):
            project_along(table[c], gradient[c], every, reals[RATE], reals[FLOOR])
        project_along(start, ahead, inside, reals[RATE], reals[FLOOR])
    return True


@entry
@no_type_check
def advance_linear(state, latents, first, averaged, surrogates, sizes):
    """Ascend one run under the linear tilt for as many steps as its histories have room for, or
    until it ends; how many steps it took. A run that ends keeps the kernel it ended at."""
    table, start, whole = state[0], state[1], state[7]
    contexts, tokens = table.shape
    laws = np.empty((whole[TRANSITIONS] + 1, contexts))
    out = np.zeros(MEANS + contexts + 2 * contexts * tokens)
    gradient, ahead = np.empty((contexts, tokens)), np.empty(contexts)
    for taken in range(len(surrogates)):
        whole[ITERATION] += 1
        chain(table, start, laws)
        near = state[6][NEAR]
        if not linear_sums(table, start, laws, near, latents, first, averaged, whole, out):
            whole[ENDED] = LEFT_TO_TORCH
            return taken
        if not finish_step(state, out, False, laws, gradient, ahead, surrogates, sizes, taken):
            return taken + 1
    return len(surrogates)


@entry
@no_type_check
def advance_geometric(state, latents, logs, log_first, averaged, surrogates, sizes):
    """The same under the geometric tilt."""
    table, start, whole = state[0], state[1], state[7]
    contexts, tokens = table.shape
    laws = np.empty((whole[TRANSITIONS] + 1, contexts))
    out = np.zeros(MEANS + contexts + 2 * contexts * tokens + 2 * contexts)
    gradient, ahead = np.empty((contexts, tokens)), np.empty(contexts)
    counts = np.empty((contexts, tokens))
    for taken in range(len(surrogates)):
        whole[ITERATION] += 1
        chain(table, start, laws)
        for c in range(contexts):
            visits = 0.0
            for step in range(whole[TRANSITIONS]):
                visits += laws[step, c]
            for v in range(tokens):
                counts[c, v] = visits * table[c, v]
        near = state[6][NEAR]
        geometric_sums(counts, start, laws, near, latents, logs, log_first, averaged, whole, out)
        if not finish_step(state, out, True, laws, gradient, ahead, surrogates, sizes, taken):
            return taken + 1
    return len(surrogates)
