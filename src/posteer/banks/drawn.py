"""A bank of latent kernels drawn once and used for every utility, and its file.

One safetensors file: kernels, the counts they were read off, counts at earlier lengths, and in the
metadata where they came from, with a SHA-256 of the tensors. A file that was cut short, altered or
written by something else is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as save_tensors
from torch import Tensor

from posteer.core.errors import InputError, require
from posteer.core.files import write_atomically
from posteer.core.randomness import numpy_stream
from posteer.core.shapes import Float, Int
from posteer.families.markov.kernels import lift, log_likelihood
from posteer.families.markov.priors import Process, fingerprint
from posteer.tokens.contexts import ContextSpace, count_transitions

FORMAT = "posteer-bank-1"

LEAST_LOG_WEIGHT = 230.0
"""How far below the largest a log-weight still counts: exp(-230) is 1e-100."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where the latents of a bank came from and what they cost.

    `source` is `analytic` (drawn from the process) or `rollouts` (predictive Monte Carlo).
    `context` is what the model had observed: empty for a prior, else the bank is a posterior.
    `tokens` is what drawing the bank asked of the model.
    """

    source: str
    model: str
    fingerprint: str
    process: str | None
    seed: int
    rollout_length: int | None = None
    context: tuple[int, ...] = ()
    tokens: int = 0
    seconds: float = 0.0
    device: str = "cpu"
    created: str = ""
    version: str = ""


@dataclass(frozen=True, eq=False)
class LatentBank:
    """Samples of a latent prior or posterior with their provenance.

    `counts` are the transition counts of each rollout, `snapshots` the counts at earlier lengths,
    `unvisited` names the treatment of contexts that a rollout never reached. `first_likelihood` is
    what each latent gives to the tokens of a first context, once lifted to an order above its own.
    `observed` are transitions that came after the bank was drawn: its latents are still to be
    weighed by their likelihood, which whoever weighs them by a prompt's counts does by adding them.
    `drawn` is then the bank as it was, for those who want its prior.
    """

    space: ContextSpace
    kernels: Float[Tensor, "L C V"]
    origin: Origin
    unvisited: str = "none"
    counts: Int[Tensor, "L C V"] | None = None
    snapshots: dict[int, Int[Tensor, "L C V"]] = field(default_factory=dict)
    sequences: Int[Tensor, "L R"] | None = None
    first_likelihood: Float[Tensor, "L C"] | None = None
    observed: Float[Tensor, "C V"] | None = None
    drawn: LatentBank | None = None

    def __len__(self) -> int:
        return len(self.kernels)

    @property
    def tokens(self) -> int:
        return self.origin.tokens

    @property
    def n_unvisited(self) -> int:
        """Rows of kernels that no token was counted for."""
        return 0 if self.counts is None else int((self.counts.sum(-1) == 0).sum())

    def at_order(self, order: int, head: tuple[int, ...] = ()) -> LatentBank:
        """The same latents as kernels of a higher order.

        First contexts that begin with a `head` were read before: transitions within it are no news.
        """
        if order == self.space.order and self.observed is None:
            return self
        require(order >= self.space.order, f"a bank of order {self.space.order} is not of {order}")
        space = ContextSpace(self.space.vocab_size, order)
        firsts = space.decode(torch.arange(space.n_contexts))
        counts = count_transitions(self.space, firsts)
        if len(head) > self.space.order:
            behind = (firsts[:, : len(head)] == torch.tensor(head)).all(-1)[:, None, None]
            known = count_transitions(self.space, torch.tensor(head))
            counts = torch.where(behind, counts - known, counts)
        log_first = log_likelihood(counts, self.kernels)
        if self.observed is not None:
            log_weights = log_likelihood(self.observed[None], self.kernels)[0]
            log_first = log_first + log_weights - log_weights.max()
        return replace(
            self,
            space=space,
            kernels=lift(self.space, self.kernels, order),
            counts=None,
            snapshots={},
            first_likelihood=log_first.exp().T,
            observed=None,
        )

    def having_observed(self, counts: Float[Tensor, "C V"]) -> LatentBank:
        """The bank with a likelihood of these counts to be weighed by, its useless latents gone.

        A latent whose weight is below 1e-100 of the largest is as good as absent, and an exact zero
        would have to be told from rounding wherever logarithms are taken.
        """
        log_weights = log_likelihood(counts[None], self.kernels)[0]
        kept = log_weights > log_weights.max() - LEAST_LOG_WEIGHT
        require(int(kept.sum()) >= 2, "no two latents of the bank can emit the context")
        return LatentBank(
            self.space, self.kernels[kept], self.origin, self.unvisited, observed=counts, drawn=self
        )

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        tensors = {"kernels": self.kernels}
        if self.counts is not None:
            tensors["counts"] = self.counts
        tensors |= {f"counts_at_{length}": counts for length, counts in self.snapshots.items()}
        if self.sequences is not None:
            tensors["sequences"] = self.sequences
        facts = {
            "vocab_size": self.space.vocab_size,
            "order": self.space.order,
            "unvisited": self.unvisited,
            "origin": asdict(self.origin),
        }
        write_atomically(path, pack(tensors, facts))


def pack(tensors: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    """A safetensors file that vouches for its own content."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts, sort_keys=True)
    metadata = {"format": FORMAT, "facts": text, "sha256": _digest(tensors, text)}
    return save_tensors(tensors, metadata)


def unpack(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `pack` wrote, or a line that says what is wrong with the file."""
    require(path.is_file(), f"{path}: no such bank")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError) as error:
        raise InputError(f"{path} is not a bank, or is cut short: {error}") from error
    require(metadata.get("format") == FORMAT, f"{path} is a safetensors file but not a bank")
    whole = metadata.get("sha256") == _digest(tensors, metadata.get("facts", ""))
    require(whole, f"{path} is damaged: its SHA-256 is not the one it was written with")
    return tensors, json.loads(metadata["facts"])


def _digest(tensors: dict[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def load_bank(path: str | Path) -> LatentBank:
    """A bank from its file, verified."""
    path = Path(path)
    tensors, facts = unpack(path)
    try:
        origin = dict(facts["origin"])
        bank = LatentBank(
            ContextSpace(facts["vocab_size"], facts["order"]),
            tensors["kernels"],
            Origin(**origin | {"context": tuple(origin["context"])}),
            facts["unvisited"],
            tensors.get("counts"),
            {
                int(name.removeprefix("counts_at_")): counts
                for name, counts in tensors.items()
                if name.startswith("counts_at_")
            },
            tensors.get("sequences"),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a whole bank: {error}") from error
    expected = (bank.space.n_contexts, bank.space.vocab_size)
    fits = bank.kernels.ndim == 3 and tuple(bank.kernels.shape[1:]) == expected
    require(fits, f"{path}: kernels of shape {tuple(bank.kernels.shape)}: expected L x {expected}")
    require(len(bank) >= 2, f"{path}: {len(bank)} latents, expected at least 2")
    return bank


def draw_analytic(
    process: Process,
    n_samples: int,
    seed: int,
    held_out: bool = False,
    context: tuple[int, ...] = (),
) -> LatentBank:
    """Kernels drawn from the process itself: the paper's (analytic) variants.

    `held_out` draws others for the same seed, to check what was tuned on the first. A process that
    is a posterior names the `context` it is the posterior of.
    """
    require(n_samples >= 2, f"{n_samples} latent samples: expected at least 2")
    purpose = "held-out-analytic-bank" if held_out else "analytic-bank"
    kernels = process.sample_kernels(n_samples, numpy_stream(seed, purpose))
    origin = Origin(
        source="analytic",
        model="exact",
        fingerprint=fingerprint(process),
        process=process.spec,
        seed=seed,
        context=context,
    )
    return LatentBank(process.space, kernels, origin)
