"""What a latent is: whatever can score a prompt.

A family is a kind of latents. For L latents at once it gives the log-likelihood of prompts and the
mean utility of what follows them; a bank's estimate of J needs no more, so

    J(y) ~ sum_l w_l mu_l(y),    log w_l = log p_l(y) + const

holds for every family. A prior is a law of latents that can be filtered: it predicts the next token
of a history exactly. What a family can do beyond that it declares by offering it: `Counted`,
`Tiltable`, `Fittable`. Methods say which of these they need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from posteer.core.shapes import Float, Int
from posteer.goals.protocol import Utility
from posteer.tokens.conditions import AllowedPrompts
from posteer.tokens.contexts import ContextSpace

NextToken = Callable[[Int[Tensor, "T"]], Float[Tensor, "V"]]
"""The next-token law after a history, where a family needs a model to say it."""


@runtime_checkable
class Family(Protocol):
    """A kind of latents over a vocabulary.

    `order` is how many tokens a latent must have read before it says anything of its own: prompts
    are longer. 0 for latents that speak at once.
    """

    @property
    def name(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def order(self) -> int: ...


@runtime_checkable
class Latents(Protocol):
    """L latents of one family."""

    @property
    def family(self) -> Family: ...

    def __len__(self) -> int: ...

    def log_likelihood(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K L"]:
        """`log p_l(y)` of each prompt under each latent; `-inf` where it is impossible."""

    def mean_utility(
        self, utility: Utility, prompts: Int[Tensor, "K m"], horizon: int
    ) -> Float[Tensor, "K L"]:
        """`mu_l(y)`: the mean utility of what each latent emits after each prompt."""

    def roll_out(
        self, length: int, generator: torch.Generator, head: tuple[int, ...] = ()
    ) -> Int[Tensor, "L T"]:
        """`length` tokens of each latent, going on from a head."""

    def tensors(self) -> dict[str, Tensor]:
        """What the file of a bank holds of them."""


@runtime_checkable
class Belief(Protocol):
    """What a batch of histories has told about the latent."""

    @property
    def log_probs(self) -> Float[Tensor, "B V"]:
        """The exact next-token law of each history."""

    def select(self, rows: Int[Tensor, "K"]) -> Belief:
        """The beliefs of some rows, repeats allowed."""


@runtime_checkable
class Prior(Protocol):
    """A law of latents that can be filtered exactly."""

    @property
    def family(self) -> Family: ...

    @property
    def spec(self) -> str:
        """The prior as text, from which `open_process` makes it again."""

    @property
    def context(self) -> tuple[int, ...]:
        """What it is the posterior of: the tokens that were read before; empty for a prior."""

    def sample(self, n: int, stream: np.random.Generator) -> Latents:
        """Draws of latents."""

    def start(self, batch: int) -> Any:
        """The belief after reading nothing."""

    def observe(self, belief: Any, tokens: Int[Tensor, "B"]) -> Any:
        """The belief after one more token of each history."""

    def evidence(self, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
        """`log p(y)`: the log-probability of each prompt, all latents taken together."""

    def after(self, tokens: tuple[int, ...]) -> Prior:
        """The posterior after these tokens: what follows them is predicted by it."""


@runtime_checkable
class SizedPrior(Protocol):
    """A prior whose beliefs are no tables of contexts by tokens."""

    def width(self, n_tokens: int) -> int:
        """Numbers that the belief of one history of so many tokens takes."""


@runtime_checkable
class FinitePrior(Prior, Protocol):
    """A prior of finitely many latents: all of them are known, with their weights."""

    def as_atoms(self) -> Any:
        """The latents and their weights (`families.atoms.prior.AtomPrior`)."""


@runtime_checkable
class ExactClasses(Protocol):
    """Classes of prompts that an exact filter cannot tell apart, impossible ones left out."""

    sizes: list[int]

    def __len__(self) -> int: ...

    def prompt(self, row: int) -> Int[Tensor, "m"]:
        """One prompt of a class."""

    def beliefs(self, rows: Int[Tensor, "K"]) -> Any:
        """What an exact filter believes after any prompt of these classes."""

    def contexts(self, rows: Int[Tensor, "K"], order: int) -> Int[Tensor, "K"]:
        """The last `order` tokens of their prompts, as a context number."""


@runtime_checkable
class Counted(Protocol):
    """A family whose latents see a prompt through counts that many prompts share."""

    def count(self, tokens: Int[Tensor, "*B T"]) -> Tensor:
        """The sufficient statistic of each sequence."""


@runtime_checkable
class CountedPrior(Protocol):
    """A prior over such a family: it knows the classes of prompts it cannot tell apart."""

    def classes_of_prompts(
        self, length: int, goal_order: int, allowed: AllowedPrompts | None
    ) -> ExactClasses | None:
        """All classes of allowed prompts; None where there are too many or they cannot tell."""

    def classes_can_tell(
        self, length: int, goal_order: int, allowed: AllowedPrompts | None
    ) -> bool:
        """Whether prompts of one class are allowed or not together."""


@runtime_checkable
class Tiltable(Protocol):
    """A family that is tilted by kernels prompts are drawn from, which can then be ascended."""

    @property
    def space(self) -> ContextSpace:
        """The contexts that such kernels are over."""


@runtime_checkable
class Tally(Protocol):
    """What is kept of rollouts as their tokens come."""

    def add(self, tokens: Int[Tensor, "B"]) -> None: ...

    def counts(self) -> Tensor:
        """The statistics so far, a row for each rollout."""


@runtime_checkable
class Fittable(Protocol):
    """A family whose latents can be read off rollouts."""

    def tally(self, n: int, context: tuple[int, ...], device: torch.device) -> Tally:
        """An empty tally of `n` rollouts that continue a context."""

    def fit(
        self, counts: Tensor, treatment: str, stream: np.random.Generator, law_after: NextToken
    ) -> Latents:
        """Latents of statistics; `treatment` names what fills in for what a rollout never met."""

    def latents_of(self, tensors: dict[str, Tensor]) -> Latents:
        """Latents from the tensors of a bank, which may hold more; refused where they are none."""


@runtime_checkable
class FittableAfter(Protocol):
    """A fittable family whose latents read the context that rollouts continue."""

    def fit_after(
        self,
        context: tuple[int, ...],
        counts: Tensor,
        treatment: str,
        stream: np.random.Generator,
    ) -> Latents:
        """Latents of rollouts, where the context has left them."""


@runtime_checkable
class Described(Protocol):
    """A family that vocabulary and order do not describe whole."""

    def facts(self) -> dict[str, Any]:
        """What the files of its banks say besides."""
