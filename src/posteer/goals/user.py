"""Any Python callable as a utility: `function(continuation)` or `function(continuation, context)`.

The function gets plain tuples of ints, or of tokens' names where it says `reads_names = True`, and
returns a number. It is called once per distinct continuation (and context), so a slow judge is not
asked the same question twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from posteer.core import Float, Int, require
from posteer.core.spec import shown
from posteer.core.userfiles import Home, object_from_file, users_own
from posteer.goals.protocol import FiniteStateForm
from posteer.tokens.contexts import ContextSpace

MOST_UTILITY = 1e100
"""Utilities are squared and added up: larger ones would overflow on the way to their error."""

REMEMBERED = 100_000
"""Answers kept; enough for every continuation of any horizon that is enumerated."""


class CallableUtility:
    """A user's function, with its answers remembered and checked.

    A function of two arguments also gets the prompt's last `order` tokens.
    """

    def __init__(
        self,
        function: Callable[..., float] | Any,
        *,
        vocab_size: int,
        order: int = 0,
        name: str = "",
        home: Home | None = None,
        names: tuple[str, ...] = (),
    ) -> None:
        self.function, self._home = function, home
        self.name = name or getattr(function, "__name__", "utility")
        self._reads_context = _number_of_arguments(function, self.name) == 2
        by_name = bool(getattr(function, "reads_names", False))
        self._names = names or tuple(map(str, range(vocab_size))) if by_name else ()
        self.order = order if self._reads_context else 0
        self.space = ContextSpace(vocab_size, self.order)
        self._answers: dict[tuple[tuple[int, ...], int], float] = {}

    def __call__(
        self, continuations: Int[Tensor, "*B N"], contexts: Int[Tensor, "*B"]
    ) -> Float[Tensor, "*B"]:
        rows = torch.cat([continuations, contexts[..., None]], -1).flatten(0, -2).cpu()
        distinct, position = rows.unique(dim=0, return_inverse=True)
        answers = [self._ask(tuple(row[:-1]), row[-1]) for row in distinct.tolist()]
        values = torch.tensor(answers, dtype=torch.float64)[position]
        return values.view(contexts.shape).to(continuations.device)

    def _ask(self, continuation: tuple[int, ...], context: int) -> float:
        key = (continuation, context)
        if key not in self._answers:
            if len(self._answers) >= REMEMBERED:  # long horizons ask ever new questions
                self._answers.clear()
            arguments: tuple[Any, ...] = (self._told(continuation),)
            if self._reads_context:
                tokens = self.space.decode(torch.tensor(context)).tolist()
                arguments = (*arguments, self._told(tuple(tokens)))
            self._answers[key] = self._checked(arguments)
        return self._answers[key]

    def _told(self, tokens: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(self._names[token] for token in tokens) if self._names else tokens

    def _checked(self, arguments: tuple[Any, ...]) -> float:
        said = shown(", ".join(str(argument) for argument in arguments))
        with users_own(f"utility {self.name}", self._home, on=f" on {said}"):
            value = float(self.function(*arguments))
        require(
            abs(value) <= MOST_UTILITY,
            f"utility {self.name} returned {value} on {said}: expected a number of at most "
            f"{MOST_UTILITY:g} in size",
        )
        return value

    def finite_state(self, vocab_size: int, horizon: int) -> FiniteStateForm | None:
        return None


def _number_of_arguments(function: Callable[..., float] | Any, name: str) -> int:
    good = callable(function)
    require(good, f"utility {shown(function)}: expected a name such as dyck, or a function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    require(
        len(positional) in (1, 2),
        f"utility {name} takes {len(positional)} arguments: expected (continuation) or "
        "(continuation, context)",
    )
    return len(positional)


def from_file(
    text: str, vocab_size: int, order: int, names: tuple[str, ...] = ()
) -> CallableUtility:
    """`./file.py:function`."""
    function, home = object_from_file(text)
    return CallableUtility(
        function, vocab_size=vocab_size, order=order, name=text, home=home, names=names
    )
