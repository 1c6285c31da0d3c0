"""The mean utility of a Polya urn's continuations: the kernel integrated out, in closed form.

Rows with pseudo-counts `a` emit a continuation that uses edge e `k_e` times and visits context c
`n_c` times with probability

    prod_e a_e (a_e + 1) .. (a_e + k_e - 1)  /  prod_c A_c (A_c + 1) .. (A_c + n_c - 1),

A being the row sums: nothing but its counts matters. So continuations are merged into classes of
equal counts as they grow, together with the state of the utility's automaton, and what is left is a
weight for each class. A million continuations of twenty coin-like tokens make 211 classes.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from posteer.errors import require
from posteer.kernels import ContextSpace
from posteer.shapes import Bool, Float, Int
from posteer.utilities.base import FiniteStateForm, Utility, all_sequences

MOST_CLASSES = 2**16
NUMBERS_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class ContinuationClasses:
    """Classes of continuations from one context, and the sum of the utility over each.

    Row u of `factors` holds 1 for each factor of the class's numerator and -1 for each of its
    denominator; its column says that factor's urn entry (`entry`, edges and then row sums) and how
    often it was drawn before (`drawn`).
    """

    weight: Float[Tensor, "U"]
    entry: Int[Tensor, "D"]
    drawn: Int[Tensor, "D"]
    factors: Tensor

    def means(self, urns: Float[Tensor, "B E"]) -> Float[Tensor, "B"]:
        """Mean utility under urns given by their edges' pseudo-counts and then their row sums."""
        parts = []
        for some in urns.split(max(1, NUMBERS_AT_ONCE // max(len(self.weight), len(self.entry)))):
            logs = (some[:, self.entry] + self.drawn).log().T.contiguous()
            parts.append(self.weight @ torch.sparse.mm(self.factors, logs).exp_())
        return torch.cat(parts)


class UrnMeans:
    """A utility's mean under urns of one space, for continuations of `horizon` tokens."""

    def __init__(self, utility: Utility, space: ContextSpace, horizon: int) -> None:
        self.utility, self.space, self.horizon = utility, space, horizon
        self.wide = ContextSpace(space.vocab_size, max(space.order, utility.order))
        self._known: dict[int, ContinuationClasses | None] = {}

    @cached_property
    def possible(self) -> bool:
        """Whether the classes from every context are few enough."""
        return all(self.classes(start) is not None for start in range(self.wide.n_contexts))

    def classes(self, start: int) -> ContinuationClasses | None:
        """Those that follow a context of `wide`; None if they are too many."""
        if start not in self._known:
            self._known[start] = _classes(self.utility, self.space, self.wide, start, self.horizon)
        return self._known[start]

    def __call__(
        self, pseudo_counts: Float[Tensor, "K M C V"], last: Int[Tensor, "K"]
    ) -> Float[Tensor, "K M"]:
        """Means after K prompts, each under M urns; `last` are contexts of `wide` or wider."""
        last = last % self.wide.n_contexts
        means = pseudo_counts.new_empty(pseudo_counts.shape[:2])
        for start in last.unique().tolist():
            classes = self.classes(start)
            require(
                classes is not None,
                f"{self.utility.name} at horizon {self.horizon}: too many classes of continuations",
            )
            assert classes is not None
            rows = (last == start).nonzero()[:, 0]
            own = pseudo_counts[rows]
            urns = torch.cat([own.flatten(2), own.sum(-1)], -1)
            means[rows] = classes.means(urns.flatten(0, 1)).view(len(rows), -1)
        return means


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Beginnings of continuations, merged: `paths` of them, which have `earned` so much in all."""

    context: Int[Tensor, "n"]
    state: Int[Tensor, "n"]
    counts: Int[Tensor, "n E"]
    paths: Float[Tensor, "n"]
    earned: Float[Tensor, "n"]

    def select(self, kept: Bool[Tensor, "n"]) -> _Nodes:
        """Those that matter; one stays if none does."""
        rows = kept.nonzero()[:, 0] if bool(kept.any()) else torch.zeros(1, dtype=torch.long)
        return _Nodes(
            self.context[rows],
            self.state[rows],
            self.counts[rows],
            self.paths[rows],
            self.earned[rows],
        )

    def merged(self) -> _Nodes:
        key = torch.cat([self.context[:, None], self.state[:, None], self.counts], 1)
        distinct, index = key.unique(dim=0, return_inverse=True)
        nothing = self.paths.new_zeros(len(distinct))
        return _Nodes(
            distinct[:, 0],
            distinct[:, 1],
            distinct[:, 2:],
            nothing.index_add(0, index, self.paths),
            nothing.index_add(0, index, self.earned),
        )


def _classes(
    utility: Utility, space: ContextSpace, wide: ContextSpace, start: int, horizon: int
) -> ContinuationClasses | None:
    vocab, n_edges = space.vocab_size, space.n_contexts * space.vocab_size
    form = utility.finite_state(vocab, horizon)
    if form is None and vocab**horizon > MOST_CLASSES:
        return None
    hopeful = None if form is None else _hopeful(form)
    one = torch.ones(1, dtype=torch.float64)
    nodes = _Nodes(
        torch.tensor([start]),
        torch.tensor([0 if form is None else form.start]),
        torch.zeros(1, n_edges, dtype=torch.long),
        one,
        0 * one,
    )
    for _ in range(horizon):
        token = torch.arange(vocab).repeat(len(nodes.paths))
        parent = torch.arange(len(nodes.paths)).repeat_interleave(vocab)
        context, state, paths = nodes.context[parent], nodes.state[parent], nodes.paths[parent]
        edge = context % space.n_contexts * vocab + token
        counts = nodes.counts[parent]
        counts[torch.arange(len(edge)), edge] += 1
        earned, state_after = nodes.earned[parent], state * vocab + token  # the token tree
        if form is not None:
            reward = form.reward.expand(len(form.final), -1, vocab)
            earned = earned + paths * reward[state, context % reward.shape[1], token]
            state_after = form.step[state, token]
        after = wide.next_context[context, token]
        nodes = _Nodes(after, state_after, counts, paths, earned)
        if hopeful is not None:
            nodes = nodes.select((earned != 0) | hopeful[state_after]).merged()
        if len(nodes.paths) > MOST_CLASSES:
            return None
    if form is None:
        ends = torch.full((vocab**horizon,), start % vocab**utility.order)
        final = utility(all_sequences(vocab, horizon), ends).double()
    else:
        final = form.final
    earned = nodes.earned + nodes.paths * final[nodes.state]
    same = torch.zeros_like(nodes.state)
    whole = _Nodes(same, same, nodes.counts, nodes.paths, earned).merged()
    kept = whole.earned != 0
    if not kept.any():
        kept[0] = True
    return _factored(space, whole.counts[kept], whole.earned[kept])


def _hopeful(form: FiniteStateForm) -> Bool[Tensor, "S"]:
    """States from which anything can still be earned: the rest of a continuation is no matter."""
    earns = form.reward.expand(len(form.final), -1, -1).flatten(1).any(1)
    found = earns | (form.final != 0)
    while True:
        more = found | found[form.step].any(1)
        if bool((more == found).all()):
            return found
        found = more


def _factored(
    space: ContextSpace, counts: Int[Tensor, "U E"], weight: Float[Tensor, "U"]
) -> ContinuationClasses:
    visits = counts.unflatten(1, (space.n_contexts, -1)).sum(-1)
    powers = torch.cat([counts, visits], 1)
    row, entry = powers.nonzero().T
    power = powers[row, entry]
    row, entry = row.repeat_interleave(power), entry.repeat_interleave(power)
    first = power.cumsum(0) - power
    drawn = torch.arange(len(row)) - first.repeat_interleave(power)
    kinds, column = torch.stack([entry, drawn], 1).unique(dim=0, return_inverse=True)
    sign = torch.where(entry < counts.shape[1], 1.0, -1.0).double()
    shape = (len(counts), len(kinds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions remark that invariants go unchecked
        factors = torch.sparse_coo_tensor(torch.stack([row, column]), sign, shape).coalesce()
    return ContinuationClasses(weight, kinds[:, 0], kinds[:, 1], factors)
