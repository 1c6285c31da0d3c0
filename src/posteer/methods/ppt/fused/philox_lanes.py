"""Rollouts of a block of latents, compiled: the numbers of `core.counters`, lane by lane."""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from posteer.methods.ppt.fused.compiling import compiled
from posteer.methods.ppt.fused.lanes import LANES

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
FIRST, SECOND = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
GOLDEN, SILVER = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
UNIT = 2.0**-32


@compiled
@no_type_check
def uniforms(key, latent, step, draws):
    """`draws[d, lane]`: the d-th uniform of latents `latent, latent + 1, ...` at a step."""
    for block in range((draws.shape[0] + 3) // 4):
        for i in range(LANES):
            a, b = np.uint64(latent + i), np.uint64(step)
            c, d = np.uint64(block), np.uint64(0)
            low, high = np.uint64(key[0]), np.uint64(key[1])
            for _ in range(10):
                left, right = FIRST * a, SECOND * c
                a, b = (right >> HALF) ^ b ^ low, right & LOW
                c, d = (left >> HALF) ^ d ^ high, left & LOW
                low, high = (low + GOLDEN) & LOW, (high + SILVER) & LOW
            at = 4 * block
            draws[at, i] = np.float64(np.int64(a)) * UNIT
            if at + 1 < draws.shape[0]:
                draws[at + 1, i] = np.float64(np.int64(b)) * UNIT
            if at + 2 < draws.shape[0]:
                draws[at + 2, i] = np.float64(np.int64(c)) * UNIT
            if at + 3 < draws.shape[0]:
                draws[at + 3, i] = np.float64(np.int64(d)) * UNIT


@compiled
@no_type_check
def roll_out(latents, last, worth, horizon, draws, of_contexts, of_prompts):
    """What one continuation from each context is worth to each latent, and the one from a last
    context that is drawn by its law."""
    contexts, tokens = latents.shape[0], latents.shape[1]
    if tokens == 2 and contexts <= 2:
        _roll_out_bits(latents, last, worth, horizon, draws, of_contexts, of_prompts)
        return
    for start in range(contexts):
        for i in range(LANES):
            here, word = start, 0
            for place in range(horizon):
                drawn = draws[1 + place * contexts + start, i]
                token, edge = 0, 0.0
                for v in range(tokens - 1):
                    edge += latents[here, v, i]
                    token += drawn >= edge
                word = word * tokens + token
                here = (here * tokens + token) % contexts
            of_contexts[start, i] = worth[start, word]
    for i in range(LANES):
        ended, edge = 0, 0.0
        for c in range(contexts - 1):
            edge += last[c]
            ended += draws[0, i] >= edge
        of_prompts[i] = of_contexts[ended, i]


@compiled
@no_type_check
def _roll_out_bits(latents, last, worth, horizon, draws, of_contexts, of_prompts):
    """The same for two tokens, each of which is the next context too if there are two: a choice
    between two numbers, which is a vector instruction, in place of a place to be looked up."""
    contexts = latents.shape[0]
    for start in range(contexts):
        for i in range(LANES):
            after_zero, after_one = latents[0, 0, i], latents[contexts - 1, 0, i]
            token, word = start, 0
            for place in range(horizon):
                edge = after_one if token == 1 else after_zero
                token = int(draws[1 + place * contexts + start, i] >= edge)
                word = 2 * word + token
            of_contexts[start, i] = worth[start, word]
    for i in range(LANES):
        at_one = contexts == 2 and draws[0, i] >= last[0]
        of_prompts[i] = of_contexts[contexts - 1, i] if at_one else of_contexts[0, i]
