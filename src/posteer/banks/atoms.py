"""A prior of finitely many latents as a bank: all of them, each with its weight. Nothing is drawn,
so nothing that is worked out on it has a standard error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from posteer.banks.drawn import Bank, LatentBank, Origin
from posteer.banks.reweighed import LEAST_LOG_WEIGHT
from posteer.core import Float
from posteer.families.atoms.prior import AtomPrior
from posteer.families.markov.family import Lifted, MarkovLatents
from posteer.families.markov.mixtures import FiniteMixture
from posteer.families.protocol import Latents
from posteer.families.registry import fingerprint


@dataclass(frozen=True, eq=False)
class AtomBank(Bank):
    """The latents and their log-weights, those of the posterior where there is a context.

    Kernels that weigh less than 1e-100 of the heaviest are left out, as in `ReweighedBank`.
    `atoms` are the same as latents that read.
    """

    latents: Latents
    log_weights: Float[Tensor, "L"]
    atoms: AtomPrior
    origin: Origin

    exact = True
    observed = None

    @classmethod
    def of(cls, prior: Any) -> AtomBank:
        """All latents of a `FinitePrior` that can matter."""
        atoms = prior.as_atoms()
        latents, log_weights = atoms.latents, atoms.log_weights
        if isinstance(prior, FiniteMixture):
            kept = log_weights > log_weights.max() - LEAST_LOG_WEIGHT
            latents = MarkovLatents(prior.space, prior.kernels[kept])
            log_weights = log_weights[kept]
        origin = Origin(
            source="atoms",
            model="exact",
            fingerprint=fingerprint(prior),
            process=atoms.spec,
            seed=0,
            context=atoms.context,
        )
        return cls(latents, log_weights, atoms, origin)

    @cached_property
    def drawn(self) -> LatentBank:  # type: ignore[override]
        """The latents without their weights."""
        return LatentBank(self.latents, self.origin)

    def lifted(self, order: int, head: tuple[int, ...] = ()) -> Lifted:
        """The latents as kernels of a higher order, their weights in those of first contexts."""
        return self.markov.lifted(order, head, self.log_weights)
