"""A mixture of products of Dirichlets, closed under observing transition counts.

`p(kernel) = sum_j pi_j prod_c Dirichlet(kernel[c] | alpha_j[c])`. After counts T the posterior is
of the same kind: parameters `alpha_j + T`, weights `pi_j DM(T | alpha_j)` with

    log DM(T | alpha) = sum_c  lgamma(A_c) - lgamma(A_c + T_c) + sum_v lgamma(alpha_cv + T_cv)
                                                               - lgamma(alpha_cv),

A_c and T_c being the sums of row c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from posteer.core import Float, Int, Spec, require, table
from posteer.families.markov.dirichlet import checked, sample_rows
from posteer.families.markov.mixtures import given_weights
from posteer.families.markov.prior import MarkovPrior
from posteer.tokens.contexts import space_of_table, validated_kernel

DENSITIES_AT_ONCE = 2**22


@dataclass(frozen=True, eq=False)
class DirichletMixture(MarkovPrior):
    """J components; a prior, so an exact model can be made of it."""

    log_weights: Float[Tensor, "J"]
    concentration: Float[Tensor, "J C V"]

    def __len__(self) -> int:
        return len(self.log_weights)

    @property
    def spec(self) -> str:
        weights = self.log_weights.exp().tolist()
        return f"dirichlet-mixture({self.concentration.tolist()},weights={weights})"

    def component_log_densities(self, logs: Float[Tensor, "n C V"]) -> Float[Tensor, "n J"]:
        """`log pi_j + log Dirichlet(kernel | alpha_j)` of kernels given by their logarithms."""
        norm = torch.lgamma(self.concentration.sum(-1)).sum(-1)
        norm = norm - torch.lgamma(self.concentration).sum((-2, -1))
        constant = (norm + self.log_weights)[:, None]
        # latents side by side in memory: sums over components then run along them
        return torch.addmm(constant, (self.concentration - 1).flatten(1), logs.flatten(1).T).T

    def log_density(self, logs: Float[Tensor, "n C V"]) -> Float[Tensor, "n"]:
        """Log-density of kernels given by their logarithms."""
        parts = logs.split(max(1, DENSITIES_AT_ONCE // len(self)))
        return torch.cat([self.component_log_densities(part).logsumexp(-1) for part in parts])

    def to(self, device: torch.device) -> DirichletMixture:
        if self.concentration.device == device:
            return self
        known, concentration = self.log_weights.to(device), self.concentration.to(device)
        return replace(self, log_weights=known, concentration=concentration)

    def component_log_evidence(self, counts: Float[Tensor, "B C V"]) -> Float[Tensor, "B J"]:
        """`log pi_j + log DM(T | alpha_j)`, one component at a time."""
        columns = []
        for log_weight, prior in zip(self.log_weights, self.concentration, strict=True):
            rows = torch.lgamma(prior.sum(-1)) - torch.lgamma((prior + counts).sum(-1))
            entries = torch.lgamma(prior + counts) - torch.lgamma(prior)
            columns.append(log_weight + rows.sum(-1) + entries.sum((-2, -1)))
        return torch.stack(columns).T

    def log_marginal(self, counts: Float[Tensor, "B C V"]) -> Float[Tensor, "B"]:
        return self.component_log_evidence(counts).logsumexp(-1)

    def posterior(self, counts: Float[Tensor, "C V"]) -> DirichletMixture:
        log_weights = self.component_log_evidence(counts[None])[0].log_softmax(0)
        return replace(self, log_weights=log_weights, concentration=self.concentration + counts)

    def predictive(
        self, counts: Float[Tensor, "B C V"], contexts: Int[Tensor, "B"]
    ) -> Float[Tensor, "B V"]:
        weights = self.component_log_evidence(counts).softmax(-1)
        own = counts[torch.arange(len(counts)), contexts]
        rows = own[:, None] + self.concentration[:, contexts].transpose(0, 1)  # [B, J, V]
        return (weights[..., None] * rows / rows.sum(-1, keepdim=True)).sum(1)

    def sample_kernels(self, n: int, stream: np.random.Generator) -> Float[Tensor, "L C V"]:
        weights = self.log_weights.softmax(0).numpy()
        chosen = torch.from_numpy(stream.choice(len(weights), size=n, p=weights))
        return sample_rows(self.concentration[chosen], stream)

    def sample_updated(
        self, counts: Float[Tensor, "n C V"], stream: np.random.Generator, each: int = 1
    ) -> Float[Tensor, "N C V"]:
        """Kernels from the posterior after each table of counts, `each` of them in a row."""
        edges = self.component_log_evidence(counts).softmax(-1).cumsum(-1)[:, :-1]
        uniform = torch.from_numpy(stream.random((each * len(counts), 1)))
        component = (uniform >= edges.repeat_interleave(each, 0)).sum(-1)
        updated = self.concentration[component] + counts.repeat_interleave(each, 0)
        return sample_rows(updated, stream)


def from_spec(spec: Spec) -> DirichletMixture:
    """`dirichlet-mixture([[[..],[..]],..],weights=[..])`: a table of concentrations each."""
    given = spec.take(("components",), components=..., weights=None)
    tables = given["components"]
    require(
        isinstance(tables, list) and len(tables) > 0,
        "dirichlet-mixture: expected a list of tables of concentrations",
    )
    rows = [table(one, "dirichlet-mixture: concentration") for one in tables]
    shapes = {(len(one), len(one[0])) for one in rows}
    require(len(shapes) == 1, f"dirichlet-mixture: tables of different shapes {sorted(shapes)}")
    concentration = torch.tensor(rows, dtype=torch.float64)
    checked(concentration, "dirichlet-mixture")
    n = len(rows)
    weights = given_weights(given["weights"])
    if weights is None:
        weights = torch.full((n,), 1 / n, dtype=torch.float64)
    require(len(weights) == n, f"weights: {len(weights)} given for {n} components")
    space = space_of_table(*shapes.pop(), "dirichlet-mixture")
    log_weights = validated_kernel(weights, "weights").log()
    return DirichletMixture(space, log_weights, concentration)
