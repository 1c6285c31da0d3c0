"""Predictive Monte Carlo: roll a model out and count (paper, app. PMC).

Only `start` and `advance` are asked of the model. Counts are kept as tokens come; the tokens
themselves are not, unless asked for. Rollout r of a seed reads its own column of a random stream,
so it is the same rollout in a chunk of one or of all, and a shorter rollout is the beginning of a
longer one.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from posteer import __version__
from posteer.banks.drawn import LatentBank, Origin, load_bank
from posteer.banks.parts import Parts, Rollouts
from posteer.banks.plans import (
    BLOCK,
    DrawPlan,
    key_of,
    longest,
    plan_of,
    rounded,
    runs_any_batch,
    snapshots_of,
)
from posteer.banks.probes import Probing, require_laws
from posteer.banks.reading import histories_of, read_laws
from posteer.banks.tuning import tuned
from posteer.core import Float, InputError, Progress, require
from posteer.core.device import free_cached, is_out_of_memory, undisturbed
from posteer.core.errors import Interrupted
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.families.protocol import Fittable, FittableAfter
from posteer.models.meter import Metered
from posteer.models.protocol import Can

MOST_AT_ONCE = 2**16
STEPS_OF_UNIFORMS = 128
CHECK_EVERY = 64

GoOn = Callable[[int], bool]
"""Whether a rollout goes on past so many tokens."""


@undisturbed()
def draw_bank(
    model: Metered,
    plan: DrawPlan,
    out: Path | None = None,
    *,
    chunk: int | None = None,
    progress: Progress | None = None,
    exclusive: bool = True,
) -> LatentBank:
    """Roll out and count, `chunk` rollouts at a time (as many as the memory takes by default, and
    fewer once it turns out to take less).

    With `out`, finished chunks are kept beside it: the same call goes on after an interruption and
    returns the finished bank if it is there already. It locks them, unless the caller has seen to
    it that nobody else draws.
    """
    family = plan.check(model)
    parts = Parts(out, key_of(model.fingerprint, plan), exclusive)
    bank = bank_there(model, plan, parts)
    if bank is not None:
        return bank
    with going_on(model, plan, parts):
        draw_missing(model, plan, family, parts, chunk, progress)
        return kept_bank(model, plan, family, parts, out, progress)


def bank_there(
    model: Metered, plan: DrawPlan, parts: Parts, free: tuple[str, ...] = ()
) -> LatentBank | None:
    """The finished bank of a plan, if there is one; sizes that are free may be any."""
    if parts.out is None or not parts.out.exists():
        return None
    bank = load_bank(parts.out)
    made = plan_of(bank)
    wanted = plan.of_sizes({size: getattr(made, size) for size in free})
    if not (bank.names(model) and made == wanted):
        raise InputError(f"{parts.out} holds another draw: choose another name, or remove it")
    require_laws(bank.probe, model, plan.context, _otherwise(parts))
    parts.clear()  # of a run that stopped between the bank and its tidying up
    return replace(bank, reused=True)


@contextmanager
def going_on(model: Metered, plan: DrawPlan, parts: Parts) -> Iterator[None]:
    """With the parts of the same draw, by the same model; Ctrl-C says what is kept."""
    with parts:
        require_laws(parts.probe(), model, plan.context, _otherwise(parts))
        try:
            yield
        except KeyboardInterrupt as stop:
            raise Interrupted(parts.folder, parts.n_held, plan.n_samples) from stop


def _otherwise(parts: Parts) -> str:
    return f"choose another name than {parts.out}, or remove it"


def kept_bank(
    model: Metered,
    plan: DrawPlan,
    family: Fittable,
    parts: Parts,
    out: Path | None,
    progress: Progress | None = None,
) -> LatentBank:
    """What the parts hold as a bank, in its file where one is asked for."""
    bank = _assemble(model, plan, family, parts, progress)
    if out is not None:
        bank.save(out)
        parts.clear()
    return bank


@contextmanager
def _narrow_cache(model: Metered) -> Iterator[None]:
    """Let a model that can keep its cache in half the bytes: reading it bounds the speed."""
    if Can.NARROW not in model.can:
        yield
        return
    before, model.narrow_cache = model.narrow_cache, True
    try:
        yield
    finally:
        model.narrow_cache = before


def draw_missing(
    model: Metered,
    plan: DrawPlan,
    family: Fittable,
    parts: Parts,
    chunk: int | None,
    progress: Progress | None,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Chunk by chunk what is not there yet."""
    least = 1 if runs_any_batch(model, plan) else BLOCK
    part = rounded(chunk or model.batch_limit(longest(plan)), least)
    part = min(part, MOST_AT_ONCE, rounded(plan.n_samples, least))
    while (gap := next(parts.missing(plan.n_samples, part), None)) is not None:
        first, count = gap

        def report(done: int, first: int = first, count: int = count) -> None:
            if progress is not None:
                all_done = first * plan.rollout_length + count * done
                progress("rolling out", all_done, plan.n_samples * plan.rollout_length)

        started, before = clock(), model.queries.forward_tokens
        try:
            with model.attempt(), _narrow_cache(model):
                rollouts = roll_out(model, plan, family, first, count, report)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            require(
                part > least,
                f"{least} rollouts of {plan.rollout_length:,} tokens do not fit into memory: "
                "expected shorter ones",
            )
            part = rounded((part + 1) // 2, least)  # a rollout is the same in any chunk
            free_cached()
            continue
        spent = model.queries.forward_tokens - before
        parts.keep(first, count, rollouts, clock() - started, spent)


def _assemble(
    model: Metered,
    plan: DrawPlan,
    family: Fittable,
    parts: Parts,
    progress: Progress | None = None,
) -> LatentBank:
    """Everything drawn, as one bank that says where it came from."""
    rollouts, seconds, spent = parts.all(plan.snapshot_lengths)
    require(len(rollouts.counts) == plan.n_samples, f"{parts.folder}: parts of another draw")
    before = model.queries.forward_tokens

    def law_after(tokens: Tensor) -> Tensor:
        whole = torch.cat([torch.tensor(plan.context, dtype=torch.long), tokens])
        return model.log_predictive(whole[None])[0, -1].double().exp().cpu()

    stream = numpy_stream(plan.seed, "unvisited")
    if isinstance(family, FittableAfter):
        latents = family.fit_after(plan.context, rollouts.counts, plan.unvisited, stream)
    else:
        latents = family.fit(rollouts.counts, plan.unvisited, stream, law_after)
    origin = Origin(
        source="rollouts",
        model=model.name,
        fingerprint=model.fingerprint,
        process=None if model.prior is None else model.prior.spec,
        seed=plan.seed,
        rollout_length=plan.rollout_length,
        context=plan.context,
        tokens=spent + model.queries.forward_tokens - before,
        seconds=round(seconds, 3),
        device=str(model.device),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        version=__version__,
        family=plan.family,
    )
    bank = LatentBank(
        latents,
        origin,
        plan.unvisited,
        rollouts.counts,
        rollouts.snapshots,
        rollouts.sequences,
        rollouts.probe,
    )
    return _tuned(model, plan, bank, progress) if plan.tuned else bank


def _tuned(
    model: Metered, plan: DrawPlan, bank: LatentBank, progress: Progress | None
) -> LatentBank:
    """Latents that predict the rollouts best, and what the model says along some histories."""
    assert bank.sequences is not None, "a tuned bank keeps its tokens"
    before = model.queries.forward_tokens
    histories = histories_of(bank.sequences, model.vocab_size, plan.seed)
    read = read_laws(model, plan.context, histories, progress)
    tokens = bank.origin.tokens + model.queries.forward_tokens - before
    origin = replace(bank.origin, tokens=tokens)
    return tuned(replace(bank, read=read, origin=origin), plan.seed)[0]


def roll_out(
    model: Metered,
    plan: DrawPlan,
    family: Fittable,
    first: int,
    count: int,
    report: Callable[[int], None] | None = None,
    go_on: GoOn | None = None,
) -> Rollouts:
    """Rollouts `first` to `first + count` of a plan; those of one block may be asked to `go_on`.

    On CPU a model that is not batch-invariant always reads the same whole blocks, so that what a
    rollout is does not depend on the chunk; the extra ones are dropped.
    """
    if runs_any_batch(model, plan):
        return _roll_block(model, plan, family, _Uniforms(plan, first, count), report, go_on)
    parts = []
    for block in range(first // BLOCK, -(-(first + count) // BLOCK)):
        begin, end = max(first, block * BLOCK), min(first + count, (block + 1) * BLOCK)

        def scaled(done: int, begin: int = begin, end: int = end) -> None:
            if report is not None:
                share = (begin - first) * plan.rollout_length + (end - begin) * done
                report(share // count)

        uniforms = _Uniforms(plan, block * BLOCK, BLOCK)
        whole = _roll_block(model, plan, family, uniforms, scaled, go_on)
        wanted = slice(begin - block * BLOCK, end - block * BLOCK)
        parts.append({name: tensor[wanted] for name, tensor in whole.tensors().items()})
    return Rollouts.join(parts, list(whole.snapshots))


class _Uniforms:
    """The random numbers of some rollouts, one column each, a few steps at a time."""

    def __init__(self, plan: DrawPlan, first: int, count: int) -> None:
        blocks = range(first // BLOCK, -(-(first + count) // BLOCK))
        self.streams = [torch_stream(plan.seed, "rollouts", block) for block in blocks]
        offset = first - blocks.start * BLOCK
        self.columns = slice(offset, offset + count)
        self.first, self.count = first, count

    def steps(self, n: int) -> Float[Tensor, "n L"]:
        parts = [
            torch.rand(n, BLOCK, dtype=torch.float64, generator=stream) for stream in self.streams
        ]
        return torch.cat(parts, 1)[:, self.columns]


def _roll_block(
    model: Metered,
    plan: DrawPlan,
    family: Fittable,
    uniforms: _Uniforms,
    report: Callable[[int], None] | None,
    go_on: GoOn | None,
) -> Rollouts:
    """All columns at once, one token at a time, never waiting for the device."""
    n = uniforms.count
    halvings = 4 if go_on is None else plan.rollout_length.bit_length()
    counted_at = snapshots_of(plan.rollout_length, halvings)
    state = model.start(n, len(plan.context) + plan.rollout_length)
    device = state.log_probs.device
    waiting: list[Tensor] = []
    for symbol in plan.context:
        _, state = model.advance(state, torch.full((n,), symbol, device=device))
    tally = family.tally(n, plan.context, device)
    snapshots, kept = {}, []
    probing = Probing(model, uniforms.first, n)
    for done in range(1, plan.rollout_length + 1):
        law = state.log_probs.exp()
        probing.law(law)
        law = law.cumsum(-1)
        if not waiting:
            ahead = min(STEPS_OF_UNIFORMS, plan.rollout_length - done + 1)
            waiting = list(uniforms.steps(ahead).to(device).flip(0).unbind(0))
        tokens = (waiting.pop()[:, None] >= law[:, :-1]).sum(-1)
        tally.add(tokens)
        probing.read(tokens)
        if plan.keep_tokens:
            kept.append(tokens.to(torch.int32).cpu())
        last = done == plan.rollout_length or not (go_on is None or go_on(done))
        if done in counted_at and not last:
            snapshots[done] = tally.counts()
        if done % CHECK_EVERY == 0 or last:
            model.check_laws()
        if report is not None:
            report(done)
        if last:
            break
        _, state = model.advance(state, tokens)
    sequences = torch.stack(kept, 1) if plan.keep_tokens else None
    earlier = {length: snapshots[length] for length in snapshots_of(done)}
    return Rollouts(tally.counts(), earlier, sequences, probing.probe())
