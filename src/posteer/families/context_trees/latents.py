"""L context trees with a law at each leaf: read in as many steps as the tree is deep.

Nodes of all trees are numbered together. `below[i]` is the first of node i's children, one for each
older token in turn; or, for a leaf, `-1 - row` of its law.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from posteer.core import Float, Int, require
from posteer.core.limits import NUMBERS_IN_PASSING
from posteer.families.context_trees.closure import Trees, descend, tree_values
from posteer.families.context_trees.law import TreeFamily
from posteer.families.reading import MeanAfter, ReadingLatents
from posteer.goals.protocol import Utility


@dataclass(frozen=True, eq=False)
class TreeReading:
    """The last tokens of each history as a context, of `read` tokens while they are few."""

    latents: TreeLatents
    log_likelihood: Float[Tensor, "B L"]
    contexts: Int[Tensor, "B"]
    read: int

    @property
    def log_probs(self) -> Float[Tensor, "B L V"]:
        latents, family = self.latents, self.latents.family
        if self.read < family.depth:
            shape = (*self.log_likelihood.shape, family.vocab_size)
            return -latents.laws.new_full(shape, family.vocab_size).log()
        contexts, row = self.contexts.unique(return_inverse=True)
        return latents.laws[latents.leaves(contexts)].log()[row]

    def select(self, rows: Int[Tensor, "K"]) -> TreeReading:
        return replace(self, log_likelihood=self.log_likelihood[rows], contexts=self.contexts[rows])


@dataclass(frozen=True, eq=False)
class TreeLatents(ReadingLatents):
    """Trees by their roots, after a head: tokens that were read before any prompt."""

    kind: TreeFamily
    roots: Int[Tensor, "L"]
    below: Int[Tensor, "N"]
    laws: Float[Tensor, "M V"]
    head: tuple[int, ...] = ()

    @property
    def family(self) -> TreeFamily:
        return self.kind

    def __len__(self) -> int:
        return len(self.roots)

    @property
    def width(self) -> int:
        return len(self) * (1 + self.family.vocab_size)

    def leaves(self, contexts: Int[Tensor, "U"]) -> Int[Tensor, "U L"]:
        """The row of the law that each tree has for each context."""
        return descend(self.family, self.below, self.roots, contexts[:, None])

    def start(self, batch: int) -> TreeReading:
        silent = self.laws.new_zeros(batch, len(self))
        empty = TreeReading(self, silent, torch.zeros(batch, dtype=torch.long), 0)
        return self._after(empty, self.head)

    def _after(self, reading: TreeReading, head: tuple[int, ...]) -> TreeReading:
        """What was read before has no likelihood, but is remembered."""
        vocab, depth = self.family.vocab_size, self.family.depth
        context, read = reading.contexts, min(reading.read + len(head), depth)
        for token in head:
            context = (context * vocab + token) % vocab**depth
        return replace(reading, contexts=context, read=read)

    def observe(self, reading: TreeReading, tokens: Int[Tensor, "B"]) -> TreeReading:
        vocab, depth = self.family.vocab_size, self.family.depth
        edges = reading.contexts * vocab + tokens
        total = reading.log_likelihood
        if reading.read == depth:
            known, row = edges.unique(return_inverse=True)
            total = total + self._log_chance(known)[row]
        return TreeReading(self, total, edges % vocab**depth, min(reading.read + 1, depth))

    def read(self, prompts: Int[Tensor, "K m"]) -> TreeReading:
        """All prompts at once: each edge is looked up once, however many prompts use it."""
        vocab, depth = self.family.vocab_size, self.family.depth
        head = torch.tensor([self.head[max(0, len(self.head) - depth) :]], dtype=torch.long)
        whole = torch.cat([head.expand(len(prompts), -1), prompts], 1)
        n_steps = whole.shape[1] - depth
        if n_steps <= 0:
            return super().read(prompts)
        contexts = torch.zeros(len(whole), n_steps + 1, dtype=torch.long)
        for place in range(depth):
            contexts = contexts * vocab + whole[:, place : place + n_steps + 1]
        edges = contexts[:, :-1] * vocab + whole[:, depth:]
        total = self.laws.new_zeros(len(whole), len(self))
        for some in edges.split(max(1, NUMBERS_IN_PASSING // total.numel()), 1):
            known, row = some.unique(return_inverse=True)
            total += embedding_bag(row, self._log_chance(known), mode="sum")
        return TreeReading(self, total, contexts[:, -1], depth)

    def _log_chance(self, edges: Int[Tensor, "E"]) -> Float[Tensor, "E L"]:
        """Of tokens after contexts, `context * V + token`, under each tree."""
        vocab = self.family.vocab_size
        return self.laws[self.leaves(edges // vocab), (edges % vocab)[:, None]].log()

    def mean_after(self, utility: Utility, horizon: int) -> MeanAfter:
        distinct, place = self.roots.unique(return_inverse=True)
        trees = Trees(self.family, distinct, self.below, self.laws)
        parts = list(tree_values(trees, utility, horizon))
        n_contexts = self.family.vocab_size**utility.order

        def mean(reading: TreeReading, contexts: Int[Tensor, "B"]) -> Float[Tensor, "B L"]:
            require(
                reading.read == self.family.depth,
                f"{reading.read} tokens read: expected at least {self.family.depth}",
            )
            known, row = (reading.contexts * n_contexts + contexts).unique(return_inverse=True)
            found = [part.after(known // n_contexts, known % n_contexts) for part in parts]
            return torch.cat(found, 1)[:, place][row]

        return mean

    def pick(self, rows: Int[Tensor, "K"]) -> TreeLatents:
        return replace(self, roots=self.roots[rows])

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        device, family = generator.device, self.family
        below, laws = self.below.to(device), self.laws.to(device)
        roots = self.roots.to(device)
        reading = self._after(self.start(1), head)
        context = reading.contexts.to(device).expand(len(self))
        tokens = torch.zeros(len(self), length, dtype=torch.long, device=device)
        for place in range(length):
            uniform = torch.rand(len(self), 1, dtype=laws.dtype, generator=generator, device=device)
            if reading.read + place < family.depth:  # the random first context of the process
                drawn = (uniform[:, 0] * family.vocab_size).long()
            else:
                law = laws[descend(family, below, roots, context)]
                drawn = (uniform >= law.cumsum(-1)[:, :-1]).sum(-1)
            tokens[:, place] = drawn
            context = (context * family.vocab_size + drawn) % family.vocab_size**family.depth
        return tokens

    def tensors(self) -> dict[str, Tensor]:
        return {"roots": self.roots, "below": self.below, "laws": self.laws}
