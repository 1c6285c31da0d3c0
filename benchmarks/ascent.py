"""One step of the ascent against a straightforward autograd version of the same estimator.

    python benchmarks/ascent.py

The setting is the paper's: length 50, 5,000 latents, ten seeds, the reinforced urn. The peer
builds W by the matrix-vector recursion, forms J_tilt and calls backward, one seed after another;
a second peer does all seeds at once. Both are checked to give our gradient before anything is
timed. How far our step is from the floors set by bandwidth and arithmetic, and how it grows with
the length, the latents and the contexts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from timing import milliseconds
from torch import Tensor

from posteer.banks import draw_analytic
from posteer.families.markov.dirichlet import DirichletRows
from posteer.families.markov.kernels import chain_matrix
from posteer.families.markov.means import utility_of_kernels
from posteer.families.markov.tilt import latents_last
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.ascent import initial_prompts
from posteer.methods.ppt.estimator import ExactMeans, TiltedRuns, estimate
from posteer.tokens.contexts import ContextSpace


class Setting:
    """A batch of runs: banks, means and prompt kernels for each seed."""

    def __init__(self, vocab: int, order: int, length: int, n_latents: int, n_runs: int) -> None:
        self.space = ContextSpace(vocab, order)
        self.steps = length - order
        process = DirichletRows.symmetric(vocab, order, 0.5)
        self.banks = [draw_analytic(process, n_latents, seed).kernels for seed in range(n_runs)]
        utility = open_utility("dyck", self.space)
        self.means = [utility_of_kernels(utility, self.space, bank, 4) for bank in self.banks]
        self.prompts = initial_prompts(self.space, list(range(n_runs)))
        self.latents = torch.stack([latents_last(bank) for bank in self.banks])
        source = ExactMeans(torch.stack(self.means).transpose(1, 2).contiguous())
        self.runs = TiltedRuns(self.space, self.latents, self.steps, source)

    def ours(self) -> Tensor:
        return estimate(self.runs, self.prompts).gradient

    def autograd_per_seed(self) -> Tensor:
        gradients = []
        for run, (bank, means) in enumerate(zip(self.banks, self.means, strict=True)):
            gradients.append(
                self._differentiate(
                    self.prompts.transitions[run], self.prompts.initial[run], bank, means
                )
            )
        return torch.stack(gradients)

    def autograd_batched(self) -> Tensor:
        banks, means = torch.stack(self.banks), torch.stack(self.means)
        return self._differentiate(self.prompts.transitions, self.prompts.initial, banks, means)

    def _differentiate(self, table: Tensor, initial: Tensor, bank: Tensor, means: Tensor) -> Tensor:
        """J_tilt by the recursion rho M^n 1, differentiated by autograd."""
        table = table.clone().requires_grad_()
        matrix = chain_matrix(self.space, table.unsqueeze(-3) * bank)
        walk = chain_matrix(self.space, table)
        law = initial.unsqueeze(-2).expand(bank.shape[:-1])
        last = initial
        for _ in range(self.steps):
            law = torch.einsum("...s,...st->...t", law, matrix)
            last = torch.einsum("...s,...st->...t", last, walk)
        w = law.sum(-1)
        mu = torch.einsum("...lc,...c->...l", means, last)
        surrogate = (w * mu).sum(-1) / w.sum(-1)
        (gradient,) = torch.autograd.grad(surrogate.sum(), table)
        return gradient


def bandwidth() -> float:
    """Bytes a second through a large copy, counting what is read and what is written."""
    source = torch.rand(2**25, dtype=torch.float64)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (1e-3 * milliseconds(lambda: target.copy_(source), 7))


def arithmetic(taken: Callable[..., float] = milliseconds) -> float:
    """Float64 operations a second in a large matrix product."""
    matrix = torch.rand(1500, 1500, dtype=torch.float64)
    return 2 * 1500**3 / (1e-3 * taken(lambda: matrix @ matrix, repeats=5))


def compare() -> None:
    setting = Setting(2, 1, 50, 5000, 10)
    for peer in (setting.autograd_per_seed, setting.autograd_batched):
        torch.testing.assert_close(setting.ours(), peer(), rtol=1e-8, atol=1e-10)
    ours = milliseconds(setting.ours, 15)
    per_seed = milliseconds(setting.autograd_per_seed, 5)
    batched = milliseconds(setting.autograd_batched, 5)
    bytes_read = setting.latents.nbytes * 1.5  # kernels and means, each once
    n_products = setting.steps.bit_length() - 2 + setting.steps.bit_count()
    operations = 6 * n_products * setting.space.n_contexts**3 * setting.latents[:, 0, 0].numel()
    print("length 50, 5,000 latents, ten seeds, urn; one step of all seeds, gradients equal")
    print(f"  posteer                  {ours:9.2f} ms")
    print(f"  autograd, seed by seed   {per_seed:9.2f} ms   {per_seed / ours:5.1f} times ours")
    print(f"  autograd, seeds batched  {batched:9.2f} ms   {batched / ours:5.1f} times ours")
    for what, floor in (
        (f"{bytes_read / 1e6:.1f} MB read once", 1e3 * bytes_read / bandwidth()),
        (f"{operations / 1e6:.1f} M operations", 1e3 * operations / arithmetic()),
    ):
        print(f"  floor: {what:<18}{floor:9.2f} ms   ours / floor {ours / floor:.0f}")


def scaling() -> None:
    base = (2, 1, 50, 5000, 10)
    groups = {
        "length": [(2, 1, m, 5000, 10) for m in (6, 50, 500, 5000, 10_000)],
        "latents": [(2, 1, 50, n, 10) for n in (1250, 5000, 20_000)],
        "contexts": [(2, k, 50, 1000, 10) for k in (0, 1, 2, 3, 4, 6)],
    }
    reference = milliseconds(Setting(*base).ours, 7)
    print(f"\ngrowth, against length 50, 5,000 latents, 2 contexts ({reference:.1f} ms)")
    for name, settings in groups.items():
        print(f"  {name}")
        for vocab, order, length, n_latents, n_runs in settings:
            setting = Setting(vocab, order, length, n_latents, n_runs)
            taken = milliseconds(setting.ours, 3)
            print(
                f"    m {length:>6}  L {n_latents:>6}  C {vocab**order:>3}  {taken:9.1f} ms"
                f"  {taken / reference:7.2f} times the reference"
            )


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    compare()
    scaling()


if __name__ == "__main__":
    main()
