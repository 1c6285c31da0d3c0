"""Predictive Monte Carlo: roll a model out and count (paper, app. PMC).

Only `start` and `advance` are asked of the model. Counts are kept as tokens come; the tokens
themselves are not, unless asked for. Rollout r of a seed reads its own column of a random stream,
so it is the same rollout in a chunk of one or of all, and a shorter rollout is the beginning of a
longer one.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from posteer.errors import InputError, require
from posteer.files import write_atomically
from posteer.latents.bank import LatentBank, Origin, load_bank, pack, unpack
from posteer.latents.unvisited import kernels_of_counts
from posteer.models.base import Metered, SequenceModel
from posteer.randomness import torch_stream
from posteer.shapes import Float, Int
from posteer.version import __version__

BLOCK = 64
"""Rollouts that share a random stream, and the batch in which a model whose arithmetic depends on
the batch is always run on CPU."""

UNIFORMS_AT_ONCE = 2**26
CHECK_EVERY = 64

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class DrawPlan:
    """What determines the rollouts of a bank, together with the model.

    `context` are observed tokens that every rollout continues; only what follows them is counted.
    """

    n_samples: int = 5000
    rollout_length: int = 2000
    seed: int = 0
    context: tuple[int, ...] = ()
    unvisited: str = "donor"
    keep_tokens: bool = False

    def check(self, model: SequenceModel) -> None:
        """Refuse what this model cannot do before anything is allocated."""
        space = model.space
        require(self.n_samples >= 2, f"{self.n_samples} latent samples: expected at least 2")
        require(
            self.rollout_length > space.order,
            f"rollouts of {self.rollout_length} tokens: expected more than the order {space.order}",
        )
        outside = [token for token in self.context if not 0 <= token < space.vocab_size]
        require(
            not outside,
            f"context has the symbol {outside[0] if outside else ''}: expected symbols 0 to "
            f"{space.vocab_size - 1}",
        )

        longest = model.max_length
        most = math.inf if longest is None else longest + 1 - len(self.context)
        require(
            self.rollout_length <= most,
            f"rollouts of {self.rollout_length} tokens after {len(self.context)} observed: "
            f"{model.name} was trained on positions for {longest} tokens, so at most {most}",
        )

    @property
    def snapshot_lengths(self) -> list[int]:
        """Earlier lengths at which counts are kept, to see how frequencies settle."""
        halves = {self.rollout_length >> halvings for halvings in (1, 2, 3, 4)}
        return sorted(length for length in halves if length >= 8)


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Counts of some rollouts at the end and at the snapshots, and their tokens if asked for."""

    counts: Int[Tensor, "L C V"]
    snapshots: dict[int, Int[Tensor, "L C V"]]
    sequences: Int[Tensor, "L R"] | None

    def tensors(self) -> dict[str, Tensor]:
        named = {"counts": self.counts}
        named |= {f"counts_at_{length}": counts for length, counts in self.snapshots.items()}
        return named if self.sequences is None else named | {"sequences": self.sequences}

    @staticmethod
    def join(parts: list[dict[str, Tensor]], lengths: list[int]) -> Rollouts:
        def joined(name: str) -> Tensor:
            return torch.cat([part[name] for part in parts])

        return Rollouts(
            joined("counts"),
            {length: joined(f"counts_at_{length}") for length in lengths},
            joined("sequences") if "sequences" in parts[0] else None,
        )


def draw_bank(
    model: Metered,
    plan: DrawPlan,
    out: Path | None = None,
    *,
    chunk: int | None = None,
    progress: Progress | None = None,
) -> LatentBank:
    """Roll out and count, `chunk` rollouts at a time (as many as the memory takes by default, and
    fewer once it turns out to take less).

    With `out`, finished chunks are kept beside it: the same call goes on after an interruption and
    returns the finished bank if it is there already.
    """
    plan.check(model)
    key = _key(model.fingerprint, plan)
    if out is not None and out.exists():
        bank = load_bank(out)
        if _key_of(bank) != key:
            raise InputError(f"{out} holds another draw: choose another name, or remove it")
        return bank
    started, before = time.perf_counter(), model.queries.forward_tokens
    store = _Parts(out, key)
    part = min(
        chunk or model.batch_limit(len(plan.context) + plan.rollout_length),
        max(1, UNIFORMS_AT_ONCE // plan.rollout_length),
        plan.n_samples,
    )
    require(part >= 1, f"chunk {chunk}: expected at least 1 rollout")
    while (gap := next(store.missing(plan.n_samples, part), None)) is not None:
        first, count = gap

        def report(done: int, first: int = first, count: int = count) -> None:
            if progress is not None:
                all_done = first * plan.rollout_length + count * done
                progress("rolling out", all_done, plan.n_samples * plan.rollout_length)

        began = time.perf_counter(), model.queries.forward_tokens
        try:
            rollouts = roll_out(model, plan, first, count, report)
        except torch.OutOfMemoryError:
            if part == 1:
                raise
            part = (part + 1) // 2  # a rollout is the same in any chunk: go on with smaller ones
            torch.cuda.empty_cache()
            continue
        spent = model.queries.forward_tokens - began[1]
        store.keep(first, count, rollouts, time.perf_counter() - began[0], spent)
    rollouts, seconds, spent = store.all(plan)
    kernels = kernels_of_counts(model, rollouts.counts, plan.unvisited, plan.seed)
    spent += model.queries.forward_tokens - before - store.spent_now
    origin = Origin(
        source="rollouts",
        model=model.name,
        fingerprint=model.fingerprint,
        process=None if model.process is None else model.process.spec,
        seed=plan.seed,
        rollout_length=plan.rollout_length,
        context=plan.context,
        tokens=spent,
        seconds=round(seconds + time.perf_counter() - started - store.seconds_now, 3),
        device=str(getattr(model.inner, "device", "cpu")),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
    )
    bank = LatentBank(
        model.space,
        kernels,
        origin,
        plan.unvisited,
        rollouts.counts,
        rollouts.snapshots,
        rollouts.sequences,
    )
    if out is not None:
        bank.save(out)
        store.clear()
    return bank


def _key(fingerprint: str, plan: DrawPlan) -> str:
    text = json.dumps(asdict(plan), sort_keys=True)
    return hashlib.sha256(f"{fingerprint} {text}".encode()).hexdigest()


def _key_of(bank: LatentBank) -> str:
    """The key of the plan that made a bank."""
    origin = bank.origin
    plan = DrawPlan(
        n_samples=len(bank),
        rollout_length=origin.rollout_length or 0,
        seed=origin.seed,
        context=origin.context,
        unvisited=bank.unvisited,
        keep_tokens=bank.sequences is not None,
    )
    return _key(origin.fingerprint, plan)


class _Parts:
    """Finished chunks of a draw: in a folder beside the bank, or in memory without one."""

    def __init__(self, out: Path | None, key: str) -> None:
        self.folder = None if out is None else out.with_name(f"{out.name}.parts")
        self.key = key
        self.seconds_now, self.spent_now = 0.0, 0
        self.held: dict[tuple[int, int], tuple[dict[str, Tensor], float, int]] = {}
        if self.folder is not None and self.folder.is_dir():
            for path in sorted(self.folder.glob("*.safetensors")):
                self._read(path)

    def _read(self, path: Path) -> None:
        try:
            tensors, facts = unpack(path)
        except InputError:
            path.unlink()  # cut short by a crash of the machine: drawn again
            return
        require(
            facts["key"] == self.key,
            f"{self.folder} holds an unfinished draw with other settings: remove it, or choose "
            "another --out",
        )
        at = (facts["first"], facts["count"])
        self.held[at] = (tensors, facts["seconds"], facts["tokens"])

    def missing(self, total: int, size: int) -> Iterator[tuple[int, int]]:
        """Ranges of rollouts that no chunk holds yet, at most `size` at a time."""
        at = 0
        for first, count in [*sorted(self.held), (total, 0)]:
            while at < first:
                n = min(size, first - at)
                yield at, n
                at += n
            at = first + count

    def keep(self, first: int, count: int, done: Rollouts, seconds: float, tokens: int) -> None:
        tensors = {name: tensor.cpu() for name, tensor in done.tensors().items()}
        self.held[first, count] = (tensors, seconds, tokens)
        self.seconds_now += seconds
        self.spent_now += tokens
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            facts = {
                "key": self.key,
                "first": first,
                "count": count,
                "seconds": seconds,
                "tokens": tokens,
            }
            name = f"{first:09d}-{first + count:09d}.safetensors"
            write_atomically(self.folder / name, pack(tensors, facts))

    def all(self, plan: DrawPlan) -> tuple[Rollouts, float, int]:
        """Everything joined in order, with the seconds and tokens all of it took."""
        parts = [self.held[at] for at in sorted(self.held)]
        rollouts = Rollouts.join([part[0] for part in parts], plan.snapshot_lengths)
        return rollouts, sum(part[1] for part in parts), sum(part[2] for part in parts)

    def clear(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def roll_out(
    model: Metered,
    plan: DrawPlan,
    first: int,
    count: int,
    report: Callable[[int], None] | None = None,
) -> Rollouts:
    """Rollouts `first` to `first + count` of a plan.

    On CPU a model that is not batch-invariant always reads the same whole blocks, so that what a
    rollout is does not depend on the chunk; the extra ones are dropped.
    """
    device = torch.device(getattr(model.inner, "device", "cpu"))
    longest = len(plan.context) + plan.rollout_length
    if device.type != "cpu" or model.batch_invariant(longest):
        return _roll_block(model, plan, _uniforms(plan, first, count), report)
    parts = []
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        begin, end = max(first, block * BLOCK), min(first + count, (block + 1) * BLOCK)

        def scaled(done: int, begin: int = begin, end: int = end) -> None:
            if report is not None:
                share = (begin - first) * plan.rollout_length + (end - begin) * done
                report(share // count)

        whole = _roll_block(model, plan, _uniforms(plan, block * BLOCK, BLOCK), scaled)
        wanted = slice(begin - block * BLOCK, end - block * BLOCK)
        parts.append({name: tensor[wanted] for name, tensor in whole.tensors().items()})
    return Rollouts.join(parts, plan.snapshot_lengths)


def _uniforms(plan: DrawPlan, first: int, count: int) -> Float[Tensor, "R L"]:
    """The random numbers of some rollouts, one column each."""
    blocks = range(first // BLOCK, -(-(first + count) // BLOCK))
    columns = [
        torch.rand(
            plan.rollout_length,
            BLOCK,
            dtype=torch.float64,
            generator=torch_stream(plan.seed, "rollouts", block),
        )
        for block in blocks
    ]
    offset = first - blocks.start * BLOCK
    return torch.cat(columns, 1)[:, offset : offset + count]


def _roll_block(
    model: Metered,
    plan: DrawPlan,
    uniforms: Float[Tensor, "R L"],
    report: Callable[[int], None] | None,
) -> Rollouts:
    """All columns at once, one token at a time, never waiting for the device."""
    space, n = model.space, uniforms.shape[1]
    state = model.start(n, len(plan.context) + plan.rollout_length)
    device = state.log_probs.device
    uniforms = uniforms.to(device)
    contexts = torch.zeros(n, dtype=torch.long, device=device)
    for symbol in plan.context:
        tokens = torch.full((n,), symbol, device=device)
        _, state = model.advance(state, tokens)
        contexts = (contexts * space.vocab_size + tokens) % space.n_contexts
    known = len(plan.context)
    size = space.n_contexts * space.vocab_size
    counts = torch.zeros(n, size, dtype=torch.int32, device=device)
    ones = torch.ones(n, 1, dtype=torch.int32, device=device)
    off = torch.zeros(n, device=device)
    snapshots, kept = {}, []
    for done in range(1, plan.rollout_length + 1):
        law = state.log_probs.exp().cumsum(-1)
        off = torch.maximum(off, (law[:, -1] - 1).abs())
        tokens = (uniforms[done - 1, :, None] >= law[:, :-1]).sum(-1)
        edges = contexts * space.vocab_size + tokens
        if known >= space.order:
            counts.scatter_add_(1, edges[:, None], ones)
        contexts = edges % space.n_contexts
        known += 1
        if plan.keep_tokens:
            kept.append(tokens.to(torch.int32).cpu())
        if done in plan.snapshot_lengths:
            snapshots[done] = counts.view(n, space.n_contexts, -1).cpu().clone()
        if done % CHECK_EVERY == 0 or done == plan.rollout_length:
            _require_laws(model, float(off.max()), done)
        if done < plan.rollout_length:
            _, state = model.advance(state, tokens)
        if report is not None:
            report(done)
    sequences = torch.stack(kept, 1) if plan.keep_tokens else None
    return Rollouts(counts.view(n, space.n_contexts, -1).cpu(), snapshots, sequences)


def _require_laws(model: Metered, worst: float, done: int) -> None:
    """Refuse a model whose next-token laws are not laws."""
    require(
        not math.isnan(worst),
        f"{model.name} returned a next-token law that is not a number within {done} tokens: "
        "no bank is written",
    )
    require(
        worst < 1e-3,
        f"{model.name} returned a next-token law that sums to 1 only within {worst:.2g} "
        f"within {done} tokens: expected probabilities that sum to 1; no bank is written",
    )
