"""From an optimised prompt kernel to a hard prompt (paper, app. hard_prompt).

For every starting context: expected visits, Hamilton rounding to edge counts, an Eulerian path on
them or on their single-edge repairs. At order 0 the counts are rounded to the largest remainder
and its floor/ceil neighbours (floor and ceil themselves when the vocabulary is binary). The
candidate with the highest surrogate wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from posteer.core.limits import NUMBERS_IN_PASSING
from posteer.core.shapes import Bool, Float, Int
from posteer.core.weights import weighted_mean
from posteer.families.markov.family import Lifted
from posteer.families.markov.kernels import expected_visits
from posteer.families.markov.tilt import PromptKernel, latents_last, log_tilt
from posteer.families.markov.walks import (
    eulerian_walk,
    greedy_walk,
    largest_remainder,
    may_be_walks,
)
from posteer.methods.scorers.protocol import log_weights_of, score_classes
from posteer.tokens.contexts import ContextSpace

CandidateScore = Literal["own-context", "optimum-context", "own-kernel"]
"""What "J_tilt of a candidate" means; the paper does not say (docs/LOG.md compares them).

own-context: weights by the candidate's likelihood, utility from its own last context. This is the
  importance-sampling estimate of the candidate's expected utility, and the default.
optimum-context: the same weights, utility averaged over the optimum's law of the last context.
own-kernel: the surrogate at the candidate's empirical transition table, started where it starts.
"""


@dataclass(frozen=True, eq=False)
class Candidates:
    """Walks that could be the hard prompt."""

    tokens: Int[Tensor, "K m"]
    counts: Int[Tensor, "K C V"]
    starts: Int[Tensor, "K"]

    def select(self, rows: Bool[Tensor, "K"]) -> Candidates:
        return Candidates(self.tokens[rows], self.counts[rows], self.starts[rows])


def snap(
    lifted: Lifted,
    prompt: PromptKernel,
    means: Float[Tensor, "L C"],
    length: int,
    score: CandidateScore = "own-context",
) -> tuple[Int[Tensor, "m"], float]:
    """The best hard prompt near one prompt kernel, and its surrogate."""
    return choose(lifted, prompt, propose(lifted.space, prompt, length), means, score)


def choose(
    lifted: Lifted,
    prompt: PromptKernel,
    candidates: Candidates,
    means: Float[Tensor, "L C"],
    score: CandidateScore,
) -> tuple[Int[Tensor, "m"], float]:
    """The best of some candidates, and its surrogate."""
    values = score_candidates(lifted, prompt, candidates, means, score)
    best = int(values.argmax())
    return candidates.tokens[best], float(values[best])


def propose(
    space: ContextSpace,
    prompt: PromptKernel,
    length: int,
    first_contexts: Bool[Tensor, "C"] | None = None,
) -> Candidates:
    """All candidates of one prompt kernel, from every context it may start in.

    `length` includes the head of a prompt that has one, and so do the candidates' tokens.
    """
    steps = length - space.order
    transitions = prompt.transitions[0]
    counts, starts, walks = [], [], []
    every = torch.ones(space.n_contexts, dtype=torch.bool)
    begins = (every if first_contexts is None else first_contexts).nonzero().flatten().tolist()
    for start in begins:
        rounded = rounded_counts(space, transitions, start, steps)
        for variant, walk in _walks_near(space, transitions, rounded, start, steps):
            counts.append(variant)
            starts.append(start)
            walks.append(walk)
    if not walks:  # no count table near the optimum is a walk: follow the tables greedily
        for start in begins:
            rounded = rounded_counts(space, transitions, start, steps)
            walk = greedy_walk(space, rounded, start, steps)
            counts.append(_counts_of_walk(space, walk, start))
            starts.append(start)
            walks.append(walk)
    start_index = torch.tensor(starts)
    tails = torch.tensor(walks, dtype=torch.long)
    tokens = torch.cat([space.decode(start_index), tails], -1)
    return Candidates(tokens, torch.stack(counts), start_index)


def rounded_counts(
    space: ContextSpace, transitions: Float[Tensor, "C V"], start: int, steps: int
) -> Int[Tensor, "C V"]:
    """Edge multiplicities: expected visits rounded to `steps` in all, each row to its visits."""
    initial = torch.zeros(space.n_contexts, dtype=transitions.dtype)
    initial[start] = 1.0
    visits = expected_visits(space, transitions, initial, steps).tolist()
    per_row = largest_remainder(visits, steps)
    rows = [
        largest_remainder([share * total for share in row], total)
        for row, total in zip(transitions.tolist(), per_row, strict=True)
    ]
    return torch.tensor(rows)


def _walks_near(
    space: ContextSpace,
    transitions: Float[Tensor, "C V"],
    rounded: Int[Tensor, "C V"],
    start: int,
    steps: int,
) -> list[tuple[Tensor, list[int]]]:
    """The rounded counts as a walk, else their single-edge repairs; at order 0 both."""
    if space.order == 0:
        variants = torch.cat([rounded[None], _floor_ceil_swaps(transitions, rounded, steps)])
    else:
        walk = _walk(space, rounded, start)
        if walk is not None:
            return [(rounded, walk)]
        variants = single_edge_swaps(rounded)
    possible = may_be_walks(space, variants, torch.full((len(variants),), start))
    found = []
    for variant in variants[possible].unbind(0):
        walk = _walk(space, variant, start)
        if walk is not None:
            found.append((variant, walk))
    return found


def _walk(space: ContextSpace, counts: Int[Tensor, "C V"], start: int) -> list[int] | None:
    if not bool(may_be_walks(space, counts[None], torch.tensor([start]))):
        return None
    return eulerian_walk(space, counts, start)


def single_edge_swaps(counts: Int[Tensor, "C V"]) -> Int[Tensor, "K C V"]:
    """Every table with one unit moved to another token of the same context."""
    variants = []
    for context, token in counts.nonzero().tolist():
        for other in range(counts.shape[1]):
            if other != token:
                variant = counts.clone()
                variant[context, token] -= 1
                variant[context, other] += 1
                variants.append(variant)
    return torch.stack(variants)


def _floor_ceil_swaps(
    transitions: Float[Tensor, "C V"], rounded: Int[Tensor, "C V"], steps: int
) -> Int[Tensor, "K C V"]:
    """Swaps that keep every count at the floor or the ceiling of its share."""
    shares = transitions * steps
    swaps = single_edge_swaps(rounded)
    near = (swaps >= (shares + 1e-9).floor()) & (swaps <= (shares - 1e-9).ceil())
    return swaps[near.all(-1).all(-1)]


def _counts_of_walk(space: ContextSpace, tokens: list[int], start: int) -> Int[Tensor, "C V"]:
    counts = torch.zeros(space.n_contexts, space.vocab_size, dtype=torch.long)
    context = start
    for token in tokens:
        counts[context, token] += 1
        context = int(space.next_context[context, token])
    return counts


def score_candidates(
    lifted: Lifted,
    prompt: PromptKernel,
    candidates: Candidates,
    means: Float[Tensor, "L C"],
    score: CandidateScore,
) -> Float[Tensor, "K"]:
    """The surrogate of each candidate; `-inf` for one that no latent can emit."""
    space, kernels = lifted.space, lifted.kernels
    if score == "own-context":
        last = space.suffix(candidates.tokens)
        return score_classes(lifted, means, candidates.counts, last, candidates.starts).value
    steps = candidates.tokens.shape[1] - space.order
    parts = []
    rows = torch.arange(len(candidates.tokens))
    for part in rows.split(max(1, NUMBERS_IN_PASSING // len(kernels))):
        counts, starts = candidates.counts[part].double(), candidates.starts[part]
        if score == "own-kernel":
            log_weights, values = _at_own_kernels(lifted, counts, starts, means, steps)
        else:
            log_weights = log_weights_of(lifted, counts, starts)
            values = prompt.final_context(space, steps).expand(len(part), -1) @ means.T
        parts.append(weighted_mean(log_weights, values).value)
    return torch.cat(parts)


def _at_own_kernels(
    lifted: Lifted,
    counts: Float[Tensor, "K C V"],
    starts: Int[Tensor, "K"],
    means: Float[Tensor, "L C"],
    steps: int,
) -> tuple[Tensor, Tensor]:
    space, kernels, first_likelihood = lifted.space, lifted.kernels, lifted.first_likelihood
    totals = counts.sum(-1, keepdim=True)
    table = torch.where(totals > 0, counts / totals.clamp(min=1), 1 / space.vocab_size)
    initial = torch.nn.functional.one_hot(starts, space.n_contexts).double()
    own = PromptKernel(table, initial)
    latents = latents_last(kernels).expand(len(counts), -1, -1, -1)
    first = None if first_likelihood is None else first_likelihood.T.expand(len(counts), -1, -1)
    return log_tilt(space, own, latents, steps, first), own.final_context(space, steps) @ means.T
