"""Which prompts may be used: tokens by position, fixed ends, banned n-grams, bounds, a predicate.

As text, in the language of specifications, conditions are separated by semicolons:

    first=0;last=1;ban=11,000;count(1)<=10;position(3)=0|1

fixes the first and the last tokens, bans two n-grams, bounds how often 1 occurs, and leaves two
tokens for the third position. Positions count from 1, and from the end as -1, -2 and so on. Tokens
of ten or more are separated by dots inside an n-gram (`ban=12.3`); alternatives by `,` or `|`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from posteer.core import Bool, Int, require
from posteer.core.spec import integer, parse_conditions, shown
from posteer.core.userfiles import users_own
from posteer.tokens.contexts import ContextSpace
from posteer.tokens.vocabularies import Vocabulary

KINDS = ("first", "last", "ban", "count", "position")
EXAMPLE = "first=0;last=1;ban=11,000;count(1)<=10;position(3)=0|1"


@dataclass(frozen=True, kw_only=True)
class AllowedPrompts:
    """Conditions on a prompt, all of which must hold.

    `positions` pairs a position (from 1, or from -1 at the end) with the tokens it may hold;
    `bounds` are `(token, least, most)` occurrences; `predicate` sees the prompt as a tuple.
    """

    vocab_size: int
    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    banned: tuple[tuple[int, ...], ...] = ()
    positions: tuple[tuple[int, tuple[int, ...]], ...] = ()
    bounds: tuple[tuple[int, int, int | None], ...] = ()
    predicate: Callable[[tuple[int, ...]], bool] | None = None

    def __post_init__(self) -> None:
        grams = (self.first, self.last, *self.banned, *(tokens for _, tokens in self.positions))
        for token in (*(t for gram in grams for t in gram), *(t for t, _, _ in self.bounds)):
            self._check_token(token)
        require(all(self.banned), "a banned n-gram is empty")
        for position, tokens in self.positions:
            require(position != 0, "position 0: positions count from 1, or from -1 at the end")
            require(len(tokens) > 0, f"position {position} allows no token")
        for token, least, most in self.bounds:
            require(
                most is None or 0 <= least <= most,
                f"count of {token}: at least {least} and at most {most} cannot both hold",
            )

    def _check_token(self, token: int) -> None:
        require(
            0 <= token < self.vocab_size,
            f"allowed prompts name the token {token}: expected 0 to {self.vocab_size - 1}",
        )

    def allows(self, prompts: Int[Tensor, "K m"]) -> Bool[Tensor, "K"]:
        """Whether each prompt satisfies every condition."""
        return self.violations(prompts) == 0

    def violations(self, prompts: Int[Tensor, "K m"]) -> Int[Tensor, "K"]:
        """How far each prompt is from allowed: tokens out of place, banned n-grams, counts out of
        bounds by how much, and one for a predicate that says no."""
        length = prompts.shape[1]
        mask = self.token_mask(length)
        total = (~mask[torch.arange(length), prompts]).sum(-1)
        for gram in self.banned:
            if len(gram) <= length:
                windows = prompts.unfold(1, len(gram), 1)
                total = total + (windows == torch.tensor(gram)).all(-1).sum(-1)
        for token, least, most in self.bounds:
            total = total + _excess((prompts == token).sum(-1), least, most)
        if self.predicate is not None:
            refused = [not self._predicate_says(tuple(prompt)) for prompt in prompts.tolist()]
            total = total + torch.tensor(refused, dtype=torch.long)
        return total

    def _predicate_says(self, prompt: tuple[int, ...]) -> bool:
        assert self.predicate is not None
        name = getattr(self.predicate, "__name__", "predicate")
        with users_own(f"allowed prompts: {name}", on=f" on {shown(prompt)}"):
            return bool(self.predicate(prompt))

    def token_mask(self, length: int) -> Bool[Tensor, "m V"]:
        """Tokens that the ends and positions leave at each place; refused where none is left."""
        ends = [(i + 1, (token,)) for i, token in enumerate(self.first)]
        ends += [(i - len(self.last), (token,)) for i, token in enumerate(self.last)]
        mask = torch.ones(length, self.vocab_size, dtype=torch.bool)
        for position, tokens in (*ends, *self.positions):
            require(
                abs(position) <= length,
                f"allowed prompts fix position {position}: the prompt has {length} tokens",
            )
            here = torch.zeros(self.vocab_size, dtype=torch.bool)
            here[list(tokens)] = True
            mask[position - 1 if position > 0 else position] &= here
        empty = (~mask.any(-1)).nonzero().flatten().tolist()
        require(not empty, f"no token is allowed at position {empty[0] + 1 if empty else 0}")
        least = sum(least for _, least, _ in self.bounds)
        require(least <= length, f"the counts ask for {least} tokens: the prompt has {length}")
        return mask

    def may_begin(self, prefixes: Int[Tensor, "K t"], length: int) -> Bool[Tensor, "K"]:
        """Whether a beginning breaks nothing yet that the rest of the prompt could not mend."""
        so_far = prefixes.shape[1]
        if so_far == length:
            return self.allows(prefixes)
        mask = self.token_mask(length)[:so_far]
        good = mask[torch.arange(so_far), prefixes].all(-1)
        for gram in self.banned:
            if len(gram) <= so_far:
                windows = prefixes.unfold(1, len(gram), 1)
                good &= ~(windows == torch.tensor(gram)).all(-1).any(-1)
        for token, least, most in self.bounds:
            occurs = (prefixes == token).sum(-1)
            good &= occurs + length - so_far >= least
            if most is not None:
                good &= occurs <= most
        return good

    def context_order(self, order: int, head: int = 0) -> int:
        """How many tokens of each end of a prompt a class must know, at least `order`.

        Behind a head of so many tokens that are no part of the prompt, its first tokens come later,
        and n-grams that reach into the head must be told from those of the prompt.
        """
        longest = max((len(gram) - 1 for gram in self.banned), default=0) if head else 0
        return max(order, head + max(len(self.first), longest), len(self.last))

    def decided_by_counts(self, order: int) -> bool:
        """Whether counts of this order and both ends settle every condition."""
        short = all(len(gram) <= order + 1 for gram in self.banned)
        return short and not self.positions and self.predicate is None

    def class_violations(
        self,
        space: ContextSpace,
        counts: Int[Tensor, "K C V"],
        ends: ContextSpace,
        first: Int[Tensor, "K"],
        last: Int[Tensor, "K"],
        head: int = 0,
    ) -> Int[Tensor, "K"]:
        """`violations` of the prompts of each class, which all violate alike.

        Counts are of `space`, of transitions into tokens of the prompt; `first` and `last` are
        contexts of `ends`, of at least its order. The first `head` tokens of `first` stand before
        the prompt and are not judged.
        """
        heads, tails = ends.decode(first), ends.decode(last)
        total = torch.zeros_like(first)
        for i, token in enumerate(self.first):
            total = total + (heads[:, head + i] != token)
        for i, token in enumerate(reversed(self.last)):
            total = total + (tails[:, tails.shape[1] - 1 - i] != token)
        for gram in self.banned:
            total = total + self._occurrences(space, counts, heads, head, gram)
        for token, least, most in self.bounds:
            uncounted = (heads[:, head : space.order] == token).sum(-1)
            total = total + _excess(counts[:, :, token].sum(-1) + uncounted, least, most)
        return total

    def _occurrences(
        self,
        space: ContextSpace,
        counts: Int[Tensor, "K C V"],
        heads: Int[Tensor, "K k"],
        head: int,
        gram: tuple[int, ...],
    ) -> Int[Tensor, "K"]:
        """An n-gram ends with a counted token, or lies within the first context; one that begins
        in the head is counted there and is none of the prompt's."""
        contexts = space.decode(torch.arange(space.n_contexts))
        body = torch.tensor(gram[:-1], dtype=torch.long)
        ending = (contexts[:, space.order - len(body) :] == body).all(-1)
        found = counts[:, ending, gram[-1]].sum(-1)
        if len(gram) > heads.shape[1]:
            return found
        there = (heads.unfold(1, len(gram), 1) == torch.tensor(gram)).all(-1).long()
        for begin in range(there.shape[1]):
            end = begin + len(gram) - 1
            if begin >= head and end < space.order:
                found = found + there[:, begin]
            elif begin < head and end >= max(head, space.order):
                found = found - there[:, begin]
        return found


def _excess(count: Int[Tensor, "K"], least: int, most: int | None) -> Int[Tensor, "K"]:
    above = torch.zeros_like(count) if most is None else (count - most).clamp(min=0)
    return above + (least - count).clamp(min=0)


def open_allowed(given: Any, vocabulary: Vocabulary | int) -> AllowedPrompts | None:
    """Conditions as text, as an object, or as a predicate over prompts; None or no text allows all.

    >>> open_allowed(lambda prompt: sum(prompt) == 2, 2).allows(torch.tensor([[0, 1], [1, 1]]))
    tensor([False,  True])
    """
    if given is None or isinstance(given, AllowedPrompts):
        return given
    if isinstance(given, str):
        return parse_allowed(given, vocabulary) if given.strip() else None
    require(callable(given), f"allowed prompts {shown(given)}: expected such as {EXAMPLE}")
    size = vocabulary if isinstance(vocabulary, int) else vocabulary.size
    return AllowedPrompts(vocab_size=size, predicate=given)


def parse_allowed(text: str, vocabulary: Vocabulary | int) -> AllowedPrompts:
    """The text form, as in the module's first lines.

    >>> parse_allowed("first=0;ban=11,000;count(1)<=4", 2).banned
    ((1, 1), (0, 0, 0))
    """
    known = Vocabulary(vocabulary) if isinstance(vocabulary, int) else vocabulary
    ends: dict[str, tuple[int, ...]] = {"first": (), "last": ()}
    banned: list[tuple[int, ...]] = []
    positions: list[tuple[int, tuple[int, ...]]] = []
    bounds: dict[int, tuple[int, int | None]] = {}
    for condition in parse_conditions(text):
        kind, relation, what = condition.spec.name, condition.relation, condition.text
        said = f"allowed prompts: '{shown(what)}'"
        require(kind in KINDS, f"{said}: expected such as {EXAMPLE}")
        numbered = kind in ("count", "position")
        number = condition.spec.arguments
        require(
            len(number) == numbered and not condition.spec.keywords,
            f"{said}: expected {kind}{'(number)' if numbered else ''}=...",
        )
        at = integer(number[0], said) if numbered else 0
        require(
            relation == "=" or kind == "count",
            f"{said}: only counts are compared, expected {kind}=...",
        )
        if kind == "count":
            figure = condition.value
            require(figure.isascii() and figure.isdigit(), f"{said}: expected a whole number")
            require(len(figure) < 19, f"{said}: expected a number of at most 18 digits")
            least, most = bounds.get(at, (0, None))
            wanted = int(condition.value)
            if relation != "<=":
                least = max(least, wanted)
            if relation != ">=":
                most = wanted if most is None else min(most, wanted)
            bounds[at] = (least, most)
            continue
        grams = [
            known.parse(gram, f"row of tokens in allowed prompts '{shown(what)}'", ".")
            for gram in re.split(r"[,|]", condition.value)
        ]
        if kind == "ban":
            banned += grams
        elif kind == "position":
            require(all(len(gram) == 1 for gram in grams), f"{said}: expected tokens")
            positions.append((at, tuple(gram[0] for gram in grams)))
        else:
            require(len(grams) == 1, f"{said}: expected one row of tokens")
            require(not ends[kind], f"allowed prompts: '{kind}' is given twice")
            ends[kind] = grams[0]
    return AllowedPrompts(
        vocab_size=known.size,
        first=ends["first"],
        last=ends["last"],
        banned=tuple(banned),
        positions=tuple(positions),
        bounds=tuple((token, least, most) for token, (least, most) in bounds.items()),
    )
