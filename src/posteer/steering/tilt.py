"""The tilt factor W of a latent under a prompt kernel, and its score, for any order.

`W(kernel; A, rho) = rho^T M^n 1` with `M = A * kernel` over contexts and `n = length - order`
(eq. W_matrix_power). Two algorithms give the same numbers:

* powers: `M^n` by repeated squaring with a logarithmic scale per row, then one reverse pass that
  hands expected transition counts down the same products. About `log2(n) C^3` multiplications.
* sweep: forward and backward messages in log space. About `n C V` exponentials, and valid when
  `A` has zeros, where the score of an unused edge is not recoverable from its expected count.

Latents run along the *last* axis here (`[B, C, V, L]`), so each operation is one contiguous loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from posteer.kernels import ContextSpace, final_context
from posteer.shapes import Float

CHUNK_ELEMENTS = 2**24
"""Working-set size, in numbers, above which the latents are processed in parts."""

SAFE_SCALE = 1e-80
"""Rows of a power are rescaled once one sums to less, so that no product comes near underflow."""

EXPONENTIAL_COST = 14
"""What a float64 exponential costs in multiplications (measured, vectorised CPU)."""


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
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B C V L"]]:
    """`log W` and `d log W / d A` for every run and latent."""
    if algorithm == "auto":
        algorithm = _cheaper_algorithm(space, prompt, steps)
    compute = {"powers": _by_powers, "sweep": _by_sweep}[algorithm]
    n_runs, n_contexts, _, n_latents = latents.shape
    n_products = steps.bit_length() + steps.bit_count()
    stored = {"powers": 2 * n_contexts * n_products, "sweep": steps + 1}[algorithm]
    chunk = max(256, CHUNK_ELEMENTS // (n_runs * n_contexts * stored))
    if chunk >= n_latents:
        return compute(space, prompt, latents, steps)
    parts = [compute(space, prompt, part, steps) for part in latents.split(chunk, dim=-1)]
    return torch.cat([part[0] for part in parts], -1), torch.cat([part[1] for part in parts], -1)


def log_tilt(
    space: ContextSpace, prompt: PromptKernel, latents: Float[Tensor, "B C V L"], steps: int
) -> Float[Tensor, "B L"]:
    """`log W` alone."""
    return tilt_and_score(space, prompt, latents, steps)[0]


def _cheaper_algorithm(space: ContextSpace, prompt: PromptKernel, steps: int) -> str:
    if not bool((prompt.transitions > 0).all()):
        return "sweep"
    n_contexts, vocab = space.n_contexts, space.vocab_size
    products = steps.bit_length() + steps.bit_count()
    powers = products * n_contexts**2 * (3 * n_contexts + EXPONENTIAL_COST)
    sweep = steps * n_contexts * EXPONENTIAL_COST * (3 * vocab + 4)
    return "powers" if powers <= sweep else "sweep"


# --- powers -------------------------------------------------------------------------------------


def _by_powers(
    space: ContextSpace, prompt: PromptKernel, latents: Float[Tensor, "B C V L"], steps: int
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

    starts, log_unit = _weighted_starts(prompt.initial[..., None], power.log_scale)
    total = (starts * power.mantissa.sum(2)).sum(1)

    # Expected number of stretches from context a to context c under the law of prompts weighted
    # by the latent, handed down from the whole prompt to single steps.
    expected = power.mantissa * (starts / total[:, None])[:, :, None]
    single_steps = torch.zeros_like(matrix)
    for product in reversed(products):
        first, second = product.split(expected)
        if product.right is bottom:
            expected = first
            single_steps += second
        else:
            expected = first + second
    single_steps += expected
    return total.log() + log_unit, latents * _along_edges(space, _ratio(single_steps, matrix))


def _weighted_starts(
    initial: Float[Tensor, "B C 1"], log_scale: Tensor | None
) -> tuple[Tensor, Tensor | float]:
    """`initial * exp(log_scale)` in units of its largest entry, and the log of that unit."""
    if log_scale is None:
        return initial, 0.0
    log_unit = log_scale.masked_fill(initial == 0, -torch.inf).amax(1, keepdim=True)
    return initial * (log_scale - log_unit).exp(), log_unit[:, 0]


@dataclass(frozen=True, eq=False)
class _Power:
    """`diag(exp(log_scale)) mantissa`, a power of M; no scale means a scale of one.

    A product keeps its factors for the reverse pass: `mantissa = weighted_left @ right.mantissa`
    up to the scale of its rows.
    """

    mantissa: Float[Tensor, "B C C L"]
    log_scale: Tensor | None = None
    weighted_left: Tensor | None = None
    right: _Power | None = None

    @classmethod
    def product(cls, left: _Power, right: _Power) -> _Power:
        weighted, log_scale = left.mantissa, left.log_scale
        if right.log_scale is not None:
            columns = right.log_scale[:, None].expand_as(weighted)
            top = columns.masked_fill(weighted == 0, -torch.inf).amax(2)
            weighted = weighted * (columns - top[:, :, None]).exp()
            log_scale = top if log_scale is None else log_scale + top
        mantissa = _multiply(weighted, right.mantissa)
        row_sums = mantissa.sum(2)
        if bool(row_sums.min() < SAFE_SCALE):
            mantissa = mantissa / row_sums[:, :, None]
            weighted = weighted / row_sums[:, :, None]
            log_sums = row_sums.log()
            log_scale = log_sums if log_scale is None else log_scale + log_sums
        return cls(mantissa, log_scale, weighted, right)

    def split(self, expected: Float[Tensor, "B C C L"]) -> tuple[Tensor, Tensor]:
        """Expected stretches of the left and of the right factor, given those of the product."""
        assert self.weighted_left is not None and self.right is not None
        share = _ratio(expected, self.mantissa)
        first = self.weighted_left * _multiply(share, self.right.mantissa.transpose(1, 2))
        second = self.right.mantissa * _multiply(self.weighted_left.transpose(1, 2), share)
        return first, second


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """`numerator / denominator`, and 0 where both are 0 because a latent cannot go there."""
    return numerator / denominator.clamp(min=torch.finfo(denominator.dtype).tiny)


def _multiply(
    left: Float[Tensor, "B C C L"], right: Float[Tensor, "B C C L"]
) -> Float[Tensor, "B C C L"]:
    """Matrix product with latents last: C fused multiply-adds over contiguous memory."""
    total = left[:, :, 0, None] * right[:, None, 0]
    for j in range(1, left.shape[2]):
        total.addcmul_(left[:, :, j, None], right[:, None, j])
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
    space: ContextSpace, prompt: PromptKernel, latents: Float[Tensor, "B C V L"], steps: int
) -> tuple[Tensor, Tensor]:
    next_context = space.next_context.to(latents.device)
    incoming = space.incoming.to(latents.device)
    log_edges = prompt.transitions.log()[..., None] + latents.log()
    shape = (latents.shape[0], space.n_contexts, latents.shape[-1])
    backward = [latents.new_zeros(shape)]
    for _ in range(steps):
        backward.append((log_edges + backward[-1][:, next_context]).logsumexp(2))
    forward = prompt.initial.log()[..., None].expand(shape)
    log_w = (forward + backward[-1]).logsumexp(1)
    # A latent that cannot emit any prompt has no score; its weight is zero as well.
    reference = log_w.masked_fill(log_w.isneginf(), torch.inf)[:, None, None]
    flow = torch.zeros_like(latents)
    for step in range(steps):
        remaining = backward[steps - 1 - step]
        flow += (forward[:, :, None] + remaining[:, next_context] - reference).exp()
        edges = (forward[:, :, None] + log_edges).flatten(1, 2)
        forward = edges[:, incoming].logsumexp(2)
    return log_w, latents * flow
