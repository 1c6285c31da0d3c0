"""The tilt factor W of a latent under a prompt kernel, and its score, for any order.

`W(kernel; A, rho) = rho^T M^n 1` with `M = A * kernel` over contexts and `n = length - order`
(eq. W_matrix_power). Two algorithms give the same numbers:

* powers: `M^n` by repeated squaring with a logarithmic scale per row, then one reverse pass down
  the same products. About `3 log2(n) C^3` multiply-adds.
* sweep: forward and backward messages in log space. About `n C V` exponentials, and valid when
  `A` has zeros, where the score of an unused edge is not recoverable from its expected count.

Latents run along the *last* axis here (`[B, C, V, L]`), so each operation is one contiguous loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from posteer.core.shapes import Float
from posteer.families.markov.kernels import final_context
from posteer.tokens.contexts import ContextSpace

CHUNK_ELEMENTS = 2**24
"""Working-set size, in numbers, above which the latents are processed in parts."""

Tilt = Literal["linear", "geometric"]
"""linear: the mean likelihood of the kernel's prompts, this file. geometric: the exponential of
their mean log-likelihood, geometric.py. docs/TILTS.md compares them."""

SAFE_SCALE = 1e-100
"""Rows of a power are rescaled once one sums to less, so that no product comes near underflow."""

EXPONENTIAL_COST = 7
"""What one of the sweep's exponentials costs in the powers' multiply-adds (measured on CPU)."""


@dataclass(frozen=True, eq=False)
class PromptKernel:
    """kappa = (A, rho), the Markov law prompts are drawn from; B of them at once."""

    transitions: Float[Tensor, "B C V"]
    initial: Float[Tensor, "B C"]

    def to(self, device: torch.device | str) -> PromptKernel:
        return PromptKernel(self.transitions.to(device), self.initial.to(device))

    def final_context(self, space: ContextSpace, steps: int) -> Float[Tensor, "B C"]:
        """nu(A, rho): the law of the prompt's last context."""
        return final_context(space, self.transitions, self.initial, steps)


def latents_last(kernels: Float[Tensor, "L C V"]) -> Float[Tensor, "C V L"]:
    """A bank's kernels in the layout of this module."""
    return kernels.permute(1, 2, 0).contiguous()


def tilt_and_score(
    space: ContextSpace,
    prompt: PromptKernel,
    latents: Float[Tensor, "B C V L"],
    steps: int,
    algorithm: str = "auto",
    first_likelihood: Float[Tensor, "B C L"] | None = None,
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B C V L"]]:
    """`log W` and `d log W / d A` for every run and latent.

    `first_likelihood` is the probability each latent gives to the tokens of the first context,
    where it gives any: latents of a lower order than the prompt kernel do.
    """
    if algorithm == "auto":
        algorithm = cheaper_algorithm(space, prompt, steps)
    compute = {"powers": _by_powers, "sweep": _by_sweep}[algorithm]
    n_runs, n_contexts, _, n_latents = latents.shape
    n_products = steps.bit_length() + steps.bit_count()
    stored = {"powers": 2 * n_contexts * n_products, "sweep": steps + 1}[algorithm]
    chunk = max(256, CHUNK_ELEMENTS // (n_runs * n_contexts * stored))
    first = prompt.initial[..., None]
    if first_likelihood is not None:
        first = first * first_likelihood
    if chunk >= n_latents:
        return compute(space, prompt, latents, first, steps)
    firsts = first.expand(-1, -1, n_latents).split(chunk, dim=-1)
    parts = [
        compute(space, prompt, part, start, steps)
        for part, start in zip(latents.split(chunk, dim=-1), firsts, strict=True)
    ]
    return torch.cat([part[0] for part in parts], -1), torch.cat([part[1] for part in parts], -1)


def log_tilt(
    space: ContextSpace,
    prompt: PromptKernel,
    latents: Float[Tensor, "B C V L"],
    steps: int,
    first_likelihood: Float[Tensor, "B C L"] | None = None,
) -> Float[Tensor, "B L"]:
    """`log W` alone."""
    return tilt_and_score(space, prompt, latents, steps, "auto", first_likelihood)[0]


def cheaper_algorithm(space: ContextSpace, prompt: PromptKernel, steps: int) -> str:
    """Powers of a matrix or a sweep along the prompt, by counted operations."""
    if not bool((prompt.transitions > 0).all()):
        return "sweep"
    n_contexts, n_products = space.n_contexts, steps.bit_length() + steps.bit_count()
    powers = n_products * n_contexts**3
    sweep = steps * n_contexts * (3 * space.vocab_size + 4) * EXPONENTIAL_COST
    return "powers" if powers <= sweep else "sweep"


# --- powers -------------------------------------------------------------------------------------


def _by_powers(
    space: ContextSpace,
    prompt: PromptKernel,
    latents: Float[Tensor, "B C V L"],
    first: Float[Tensor, "B C #L"],
    steps: int,
) -> tuple[Tensor, Tensor]:
    matrix = _tilted_matrix(space, prompt.transitions[..., None] * latents)
    bottom = power = _Power(matrix)
    products = []
    for bit in f"{steps:b}"[1:]:  # left-to-right exponentiation: square, and multiply at a one
        power = _Power.product(power, power)
        products.append(power)
        if bit == "1":
            power = _Power.product(power, bottom)
            products.append(power)

    starts, log_unit = _weighted_starts(first, power.log_scale)
    total = (starts * power.mantissa.sum(2)).sum(1)

    # d log W / d (each power), from the whole prompt down to single steps
    slope = (starts / total[:, None])[:, :, None].expand_as(matrix)
    of_bottom = torch.zeros_like(matrix)
    for product in reversed(products):
        if product.right is bottom:
            product.add_slope_of_right(slope, of_bottom)
            slope = product.slope_of_left(slope)
        else:
            slope = product.add_slope_of_right(slope, product.slope_of_left(slope))
    return total.log() + log_unit, latents * _along_edges(space, of_bottom + slope)


def _weighted_starts(
    initial: Float[Tensor, "B C #L"], log_scale: Tensor | None
) -> tuple[Tensor, Tensor | float]:
    """`initial * exp(log_scale)` in units of its largest entry, and the log of that unit."""
    if log_scale is None:
        return initial, 0.0
    log_scale = log_scale.masked_fill(initial == 0, -torch.inf)
    log_unit = log_scale.amax(1, keepdim=True)
    return initial * (log_scale - log_unit).exp(), log_unit[:, 0]


@dataclass(frozen=True, eq=False)
class _Power:
    """`diag(exp(log_scale)) mantissa`, a power of M; no scale means a scale of one.

    A product keeps what its reverse pass needs: `mantissa = weighted_left @ right.mantissa` with
    `weighted_left = left.mantissa * factor`. Scales are constants there, since any would do.
    """

    mantissa: Float[Tensor, "B C C L"]
    log_scale: Tensor | None = None
    weighted_left: Tensor | None = None
    factor: Tensor | None = None
    right: _Power | None = None

    @classmethod
    def product(cls, left: _Power, right: _Power) -> _Power:
        weighted, log_scale, factor = left.mantissa, left.log_scale, None
        if right.log_scale is not None:
            columns = right.log_scale[:, None].expand_as(weighted)
            top = columns.masked_fill(weighted == 0, -torch.inf).amax(2)
            # Columns a row cannot reach may lie far above its own scale: their factor is 0.
            reach = (columns - top[:, :, None]).masked_fill(weighted == 0, -torch.inf)
            factor = reach.exp()
            weighted = weighted * factor
            log_scale = top if log_scale is None else log_scale + top
        mantissa = _multiply(weighted, right.mantissa)
        row_sums = mantissa.sum(2)
        if bool(row_sums.min() < SAFE_SCALE):
            shrink = 1 / row_sums[:, :, None]
            mantissa, weighted = mantissa * shrink, weighted * shrink
            factor = shrink.expand_as(weighted) if factor is None else factor * shrink
            log_sums = row_sums.log()
            log_scale = log_sums if log_scale is None else log_scale + log_sums
        return cls(mantissa, log_scale, weighted, factor, right)

    def slope_of_left(self, slope: Float[Tensor, "B C C L"]) -> Float[Tensor, "B C C L"]:
        assert self.right is not None and self.weighted_left is not None
        of_left = _multiply(slope, self.right.mantissa.transpose(1, 2))
        if self.factor is None:
            return of_left
        # What a latent cannot do has no slope; left alone it could overflow and meet a zero.
        return torch.where(self.weighted_left == 0, 0.0, of_left * self.factor)

    def add_slope_of_right(
        self, slope: Float[Tensor, "B C C L"], total: Float[Tensor, "B C C L"]
    ) -> Float[Tensor, "B C C L"]:
        assert self.weighted_left is not None
        return _multiply(self.weighted_left.transpose(1, 2), slope, total)


def _multiply(
    left: Float[Tensor, "B C C L"],
    right: Float[Tensor, "B C C L"],
    total: Float[Tensor, "B C C L"] | None = None,
) -> Float[Tensor, "B C C L"]:
    """`total + left @ right` with latents last: C fused multiply-adds over contiguous memory."""
    for j in range(left.shape[2]):
        column, row = left[:, :, j, None], right[:, None, j]
        total = column * row if total is None else total.addcmul_(column, row)
    assert total is not None
    return total


def _tilted_matrix(
    space: ContextSpace, edges: Float[Tensor, "B C V L"]
) -> Float[Tensor, "B C C L"]:
    """Edges gathered by the context they lead to."""
    if space.order == 1:
        return edges
    n_contexts = space.n_contexts
    contexts = torch.arange(n_contexts, device=edges.device)
    matrix = edges.new_zeros(len(edges), n_contexts, n_contexts, edges.shape[-1])
    for v in range(space.vocab_size):
        matrix[:, contexts, space.next_context[:, v].to(edges.device)] += edges[:, :, v]
    return matrix


def _along_edges(space: ContextSpace, matrix: Float[Tensor, "B C C L"]) -> Float[Tensor, "B C V L"]:
    """The entry of the context pair that each edge connects."""
    if space.order == 1:
        return matrix
    contexts = torch.arange(space.n_contexts, device=matrix.device)[:, None]
    return matrix[:, contexts, space.next_context.to(matrix.device)]


# --- sweep --------------------------------------------------------------------------------------


def _by_sweep(
    space: ContextSpace,
    prompt: PromptKernel,
    latents: Float[Tensor, "B C V L"],
    first: Float[Tensor, "B C #L"],
    steps: int,
) -> tuple[Tensor, Tensor]:
    next_context = space.next_context.to(latents.device)
    incoming = space.incoming.to(latents.device)
    log_edges = prompt.transitions.log()[..., None] + latents.log()
    shape = (latents.shape[0], space.n_contexts, latents.shape[-1])
    backward = [latents.new_zeros(shape)]
    for _ in range(steps):
        backward.append((log_edges + backward[-1][:, next_context]).logsumexp(2))
    forward = first.log().expand(shape)
    log_w = (forward + backward[-1]).logsumexp(1)
    # A latent that cannot emit any prompt has no score; its weight is zero as well.
    reference = log_w.masked_fill(log_w.isneginf(), torch.inf)[:, None, None]
    flow = torch.zeros_like(latents)
    for step in range(steps):
        remaining = backward[steps - 1 - step]
        flow += (forward[:, :, None] + remaining[:, next_context] - reference).exp()
        edges = (forward[:, :, None] + log_edges).flatten(1, 2)
        forward = edges[:, incoming].logsumexp(2)
    # An edge the latent never takes has no score, however large the flow it would open.
    return log_w, latents * flow.masked_fill(latents == 0, 0.0)
