"""Goals by name: utilities, each in its own file, and objectives that are no mean of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from posteer.core import Spec, parse_spec, require
from posteer.core.device import undisturbed
from posteer.core.registry import Registry
from posteer.core.spec import shown
from posteer.goals.objectives import ForwardCrossEntropy
from posteer.goals.protocol import Utility
from posteer.goals.user import CallableUtility, from_file

Goal = Utility | ForwardCrossEntropy
"""What is made large."""

UTILITIES: Registry[Callable[[Spec, int], Goal]] = Registry(
    "utility",
    "utilities",
    {
        "dyck": "posteer.goals.dyck:from_spec",
        "frequency": "posteer.goals.frequency:from_spec",
        "reverse-xent": "posteer.goals.reverse_cross_entropy:from_spec",
        "forward-xent": "posteer.goals.objectives:from_spec",
    },
)
"""Each makes a goal of its specification and the size of the vocabulary."""


@runtime_checkable
class Over(Protocol):
    """What a goal is opened for: a model, a family, or a space of contexts."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def order(self) -> int: ...


@undisturbed()
def open_goal(given: str | Goal | Callable[..., float] | Any, over: Over) -> Goal:
    """A goal by name, by `./file.py:function`, as an object, or as a plain function.

    A function of two arguments is given the prompt's last `order` tokens too; one that says
    `reads_names = True` is given the names of tokens.

    >>> from posteer.tokens.contexts import ContextSpace
    >>> open_goal("forward-xent(tau-0.2)", ContextSpace(vocab_size=2, order=1)).name
    'forward-xent(tau-0.2)'
    """
    vocab_size, names = over.vocab_size, getattr(over, "names", ())
    if isinstance(given, str):
        if ".py:" in given:
            return from_file(given, vocab_size, over.order, names)
        code = given.endswith(".py")
        require(
            not code, f"'{shown(given)}': expected a function of that file, {shown(given)}:NAME"
        )
        spec = parse_spec(given)
        return UTILITIES[spec.name](spec, vocab_size)
    if isinstance(given, Utility | ForwardCrossEntropy):
        own = getattr(given, "space", None)
        size = vocab_size if own is None else own.vocab_size
        require(
            size == vocab_size,
            f"{given.name} is for {size} tokens: the model has {vocab_size}",
        )
        return given
    return CallableUtility(given, vocab_size=vocab_size, order=over.order, names=names)


def open_utility(given: str | Utility | Callable[..., float], over: Over) -> Utility:
    """The same for utilities alone, whose mean under a latent is asked for.

    >>> from posteer.tokens.contexts import ContextSpace
    >>> open_utility("frequency(0.3)", ContextSpace(vocab_size=2, order=1)).name
    'frequency(0.3)'
    """
    return expected(open_goal(given, over))


def expected(goal: Goal) -> Utility:
    """A goal as a utility; one that is no mean of a utility is refused."""
    require(
        isinstance(goal, Utility),
        f"{goal.name} is no expected utility, which is what PPT ascends: use gcg, coordinate, "
        "beam, random, exhaustive or a prefix method",
    )
    assert isinstance(goal, Utility)
    return goal
