"""What a search shows while it works, to whoever watches it:

    with watching(see):
        elicit("urn", "dyck", length=6)

`see` is called with a `Weighed`, an `Ascending` or `Candidates` at a time, in the thread that
searches; what it raises ends the search. Requests are watched one by one: `elicit_many` and others
that solve several at once show nothing. Where nobody watches nothing is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from torch import Tensor

from posteer.core.shapes import Float, Int


@dataclass(frozen=True, eq=False)
class Weighed:
    """Latents that an ascent is going to weigh: their kernels over contexts of the ascent."""

    kernels: Float[Tensor, "L C V"]


@dataclass(frozen=True, eq=False)
class Ascending:
    """A step of an ascent: where the prompt kernel is, and how it weighs the latents."""

    step: int
    most: int
    surrogate: float
    ess_fraction: float
    log_weights: Float[Tensor, "L"]
    transitions: Float[Tensor, "C V"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Hard prompts and what the search makes of them, best first; `tried` so far, in all. With
    `snapped` they are those near the kernel that an ascent ended at."""

    prompts: Int[Tensor, "K m"]
    values: Float[Tensor, "K"]
    tried: int
    snapped: bool = False

    @classmethod
    def best(
        cls,
        prompts: Int[Tensor, "K m"],
        values: Float[Tensor, "K"],
        *,
        most: int = 10,
        snapped: bool = False,
    ) -> Candidates:
        """The best of all that were tried."""
        order = values.argsort(descending=True, stable=True)[:most]
        return cls(prompts[order], values[order], len(prompts), snapped)


Seen = Weighed | Ascending | Candidates
Watcher = Callable[[Seen], None]

_watching: ContextVar[Watcher | None] = ContextVar("watching", default=None)


@contextmanager
def watching(watcher: Watcher | None) -> Iterator[None]:
    """Show it all that is searched inside, in this thread; None shows it to nobody."""
    token = _watching.set(watcher)
    try:
        yield
    finally:
        _watching.reset(token)


def watcher_now() -> Watcher | None:
    """Who watches, if anybody does."""
    return _watching.get()
