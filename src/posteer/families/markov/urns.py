"""The mean utility of a Polya urn's continuations: the kernel integrated out, in closed form.

Rows with pseudo-counts `a` emit a continuation that uses edge e `k_e` times and visits context c
`n_c` times with probability

    prod_e a_e (a_e + 1) .. (a_e + k_e - 1)  /  prod_c A_c (A_c + 1) .. (A_c + n_c - 1),

A being the row sums: nothing but its counts matters. So continuations are merged into classes of
equal counts as they grow, together with the state of the utility's automaton. A million
continuations of twenty coin-like tokens make 211 classes. The probability of a class is that of any
shorter one it grew from times one ratio (a_e + k_e) / (A_c + n_c), and few ratios are distinct.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.core import Bool, Float, Int, require
from posteer.goals.protocol import FiniteStateForm, Utility
from posteer.tokens.contexts import ContextSpace, all_sequences

MOST_CLASSES = 2**16
MOST_COUNTS = 2**26
"""Counts of classes that are grown at a time, before equal ones are merged."""

NUMBERS_AT_ONCE = 2**19


@dataclass(frozen=True, eq=False)
class ContinuationClasses:
    """Classes of continuations from one context, each a token longer than some shorter class.

    Ratio r is that of entry `edge[r]` of an urn, drawn `drawn[r]` times before, to its row sum
    `row[r]`, drawn `visits[r]` times before. A step names the parent of each class of one length
    and the ratio that leads from there; `last` holds the utility, summed over each whole class, at
    its parent and its ratio.
    """

    edge: Int[Tensor, "R"]
    drawn: Int[Tensor, "R"]
    row: Int[Tensor, "R"]
    visits: Int[Tensor, "R"]
    steps: list[tuple[Tensor, Tensor]]
    last: Tensor

    def __len__(self) -> int:
        return self.last.values().numel()

    def means(self, urns: Float[Tensor, "B C V"]) -> Float[Tensor, "B"]:
        """Mean utility under urns given by their pseudo-counts."""
        edges = urns.flatten(1).T.contiguous()
        rows = urns.sum(-1).T.contiguous()
        at_once = max(1, NUMBERS_AT_ONCE // max(len(self.edge), self.last.shape[0]))
        parts = zip(edges.split(at_once, 1), rows.split(at_once, 1), strict=True)
        return torch.cat([self._means(*part) for part in parts])

    def to(self, device: torch.device) -> ContinuationClasses:
        if self.edge.device == device:
            return self
        return ContinuationClasses(
            edge=self.edge.to(device),
            drawn=self.drawn.to(device),
            row=self.row.to(device),
            visits=self.visits.to(device),
            steps=[(parent.to(device), ratio.to(device)) for parent, ratio in self.steps],
            last=self.last.to(device),
        )

    def _means(self, edges: Float[Tensor, "E B"], rows: Float[Tensor, "C B"]) -> Float[Tensor, "B"]:
        ratios = edges[self.edge] + self.drawn[:, None]
        ratios /= rows[self.row] + self.visits[:, None]
        chance = torch.ones_like(edges[:1])
        for parent, ratio in self.steps:
            chance = chance[parent].mul_(ratios[ratio])
        return torch.sparse.mm(self.last, ratios).mul_(chance).sum(0)


class UrnMeans:
    """A utility's mean under urns of one space, for continuations of `horizon` tokens."""

    def __init__(self, utility: Utility, space: ContextSpace, horizon: int) -> None:
        self.utility, self.space, self.horizon = utility, space, horizon
        self.wide = ContextSpace(space.vocab_size, max(space.order, utility.order))
        self._known: dict[int, ContinuationClasses | None] = {}
        self._moved: dict[tuple[int, torch.device], ContinuationClasses] = {}

    def possible(self, last: Int[Tensor, "K"]) -> bool:
        """Whether the classes from these contexts, of `wide` or wider, are few enough."""
        starts = (last % self.wide.n_contexts).unique().tolist()
        return all(self.classes(start) is not None for start in starts)

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
            place = (start, means.device)
            if place not in self._moved:
                self._moved[place] = classes.to(means.device)
            own = self._moved[place].means(pseudo_counts[rows].flatten(0, 1))
            means[rows] = own.view(len(rows), -1)
        return means


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Beginnings of continuations, merged: `paths` of them, which have `earned` so much in all, and
    of which one is a token more than the shorter node `parent`."""

    context: Int[Tensor, "n"]
    state: Int[Tensor, "n"]
    counts: Int[Tensor, "n E"]
    paths: Float[Tensor, "n"]
    earned: Float[Tensor, "n"]
    parent: Int[Tensor, "n"]

    def select(self, kept: Bool[Tensor, "n"]) -> _Nodes:
        """Those that matter; one stays if none does."""
        rows = kept.nonzero()[:, 0] if bool(kept.any()) else torch.zeros(1, dtype=torch.long)
        return _Nodes(
            self.context[rows],
            self.state[rows],
            self.counts[rows],
            self.paths[rows],
            self.earned[rows],
            self.parent[rows],
        )

    def merged(self) -> _Nodes:
        key = torch.cat([self.context[:, None], self.state[:, None], self.counts], 1)
        distinct, index = key.unique(dim=0, return_inverse=True)
        nothing = self.paths.new_zeros(len(distinct))
        parent = self.parent.new_zeros(len(distinct))
        return _Nodes(
            distinct[:, 0],
            distinct[:, 1],
            distinct[:, 2:],
            nothing.index_add(0, index, self.paths),
            nothing.index_add(0, index, self.earned),
            parent.scatter_reduce(0, index, self.parent, "amin", include_self=False),
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
        torch.zeros(1, dtype=torch.long),
    )
    grown = [nodes]
    for _ in range(horizon):
        token = torch.arange(vocab).repeat(len(nodes.paths))
        parent = torch.arange(len(nodes.paths)).repeat_interleave(vocab)
        context, state, paths = nodes.context[parent], nodes.state[parent], nodes.paths[parent]
        edge = context % space.n_contexts * vocab + token
        if len(edge) * n_edges > MOST_COUNTS:
            return None
        counts = nodes.counts[parent]
        counts[torch.arange(len(edge)), edge] += 1
        earned, state_after = nodes.earned[parent], state * vocab + token  # the token tree
        if form is not None:
            reward = form.reward.expand(len(form.final), -1, vocab)
            earned = earned + paths * reward[state, context % reward.shape[1], token]
            state_after = form.step[state, token]
        after = wide.next_context[context, token]
        nodes = _Nodes(after, state_after, counts, paths, earned, parent)
        if hopeful is not None:
            nodes = nodes.select((earned != 0) | hopeful[state_after]).merged()
        overflown = not bool((nodes.paths.isfinite() & nodes.earned.isfinite()).all())
        if overflown or len(nodes.paths) > MOST_CLASSES:
            return None
        grown.append(nodes)
    if form is None:
        ends = torch.full((vocab**horizon,), start % vocab**utility.order)
        final = utility(all_sequences(vocab, horizon), ends).double()
    else:
        final = form.final
    earned = nodes.earned + nodes.paths * final[nodes.state]
    same = torch.zeros_like(nodes.state)
    grown[-1] = _Nodes(same, same, nodes.counts, nodes.paths, earned, nodes.parent).merged()
    return _linked(space, grown)


def _hopeful(form: FiniteStateForm) -> Bool[Tensor, "S"]:
    """States from which anything can still be earned: the rest of a continuation is no matter."""
    earns = form.reward.expand(len(form.final), -1, -1).flatten(1).any(1)
    found = earns | (form.final != 0)
    while True:
        more = found | found[form.step].any(1)
        if bool((more == found).all()):
            return found
        found = more


def _linked(space: ContextSpace, grown: list[_Nodes]) -> ContinuationClasses:
    """The classes that earn anything and those they descend from, with the ratios between them."""
    earns = grown[-1].earned != 0
    if not earns.any():
        earns[0] = True
    kept = [earns.nonzero()[:, 0]]
    parents, kinds = [], []
    for shorter, longer in zip(grown[-2::-1], grown[:0:-1], strict=True):
        ancestors, parent = longer.parent[kept[-1]].unique(return_inverse=True)
        before = shorter.counts[longer.parent[kept[-1]]]
        edge = (longer.counts[kept[-1]] - before).argmax(-1)
        row = edge // space.vocab_size
        drawn = before.gather(1, edge[:, None])[:, 0]
        visits = before.unflatten(1, (space.n_contexts, -1)).sum(-1).gather(1, row[:, None])[:, 0]
        parents.append(parent)
        kinds.append(torch.stack([edge, drawn, row, visits]))
        kept.append(ancestors)
    table, column = torch.cat(kinds, 1).unique(dim=1, return_inverse=True)
    ratios = column.split([len(parent) for parent in parents])
    steps = list(zip(parents, ratios, strict=True))
    shape, earned = (len(kept[1]), table.shape[1]), grown[-1].earned[kept[0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions remark that invariants go unchecked
        last = torch.sparse_coo_tensor(torch.stack(steps[0]), earned, shape).coalesce()
    edge, drawn, row, visits = table
    return ContinuationClasses(edge, drawn, row, visits, steps[:0:-1], last)
