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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from posteer import __version__
from posteer.banks.drawn import LatentBank, Origin, load_bank
from posteer.banks.parts import Parts, Rollouts
from posteer.banks.probes import Probing, require_laws
from posteer.core import Float, InputError, Progress, require
from posteer.core.device import free_cached, is_out_of_memory
from posteer.core.errors import Interrupted
from posteer.core.limits import DRAW_SECONDS, MOST_TOKENS, N_SAMPLES, ROLLOUT_LENGTH
from posteer.core.randomness import numpy_stream, torch_stream
from posteer.core.spec import shown, within
from posteer.families.protocol import Fittable
from posteer.models.meter import Metered
from posteer.models.protocol import Can, Model

BLOCK = 64
"""Rollouts that share a random stream, and the batch in which a model whose arithmetic depends on
the batch is always run on CPU."""

MOST_NUMBERS = 2**27
"""Probabilities of a whole bank: a gibibyte."""

MOST_AT_ONCE = 2**16
STEPS_OF_UNIFORMS = 128
CHECK_EVERY = 64
SHORTEST_SNAPSHOT = 8

GoOn = Callable[[int], bool]
"""Whether a rollout goes on past so many tokens."""


@dataclass(frozen=True, kw_only=True)
class DrawPlan:
    """What determines the rollouts of a bank, together with the model.

    `context` are observed tokens that every rollout continues; only what follows them is counted.
    Sizes that are `free` were named by nobody: they are the most, and of a model whose speed is not
    known as many are drawn as `seconds` allow (`banks.sizing`). Neither is part of what a plan is.
    """

    n_samples: int = N_SAMPLES
    rollout_length: int = ROLLOUT_LENGTH
    seed: int = 0
    context: tuple[int, ...] = ()
    unvisited: str = "donor"
    keep_tokens: bool = False
    free: tuple[str, ...] = field(default=(), compare=False)
    seconds: float = field(default=DRAW_SECONDS, compare=False)

    def check(self, model: Model) -> Fittable:
        """The family of the latents; what this model cannot do is refused before anything is
        allocated."""
        family: object = model.family
        vocab, longest = model.vocab_size, model.max_length
        if not isinstance(family, Fittable):
            raise InputError(f"{model.name} does not say how latents are read off its rollouts")
        require(self.n_samples >= 2, f"{self.n_samples} latent samples: expected at least 2")
        size = vocab ** (model.order + 1)
        require(
            self.n_samples * size <= MOST_NUMBERS,
            f"{self.n_samples} latents of {size} probabilities each: expected at most "
            f"{MOST_NUMBERS // size}",
        )
        known = getattr(family, "treatments", (self.unvisited,))  # a family may say what it takes
        require(
            self.unvisited in known,
            f"unvisited '{shown(self.unvisited)}': expected one of {', '.join(known)}",
        )
        within(self.rollout_length, "rollouts of", 1, MOST_TOKENS)
        require(
            not self.keep_tokens or self.n_samples * self.rollout_length <= 2 * MOST_NUMBERS,
            f"{self.n_samples} rollouts of {self.rollout_length} tokens are too many to keep: "
            f"expected at most {2 * MOST_NUMBERS} tokens",
        )
        require(
            self.rollout_length > model.order,
            f"rollouts of {self.rollout_length} tokens: expected more than the order {model.order}",
        )
        outside = [token for token in self.context if not 0 <= token < vocab]
        require(
            not outside,
            f"context has the symbol {outside[0] if outside else ''}: expected symbols 0 to "
            f"{vocab - 1}",
        )
        most = math.inf if longest is None else longest + 1 - len(self.context)
        require(
            most > model.order,
            f"a context of {len(self.context)} tokens: {model.name} was trained on positions for "
            f"{longest}, which leaves none to roll out",
        )
        require(
            self.rollout_length <= most,
            f"rollouts of {self.rollout_length} tokens after {len(self.context)} observed: "
            f"{model.name} was trained on positions for {longest} tokens, so at most {most}",
        )
        return family

    def price(self, model: Model) -> int:
        """The most model tokens that a draw takes, whole blocks where only those are read."""
        n = _rounded(self.n_samples, 1 if _runs_any_batch(model, self) else BLOCK)
        drawn = n * (len(self.context) + self.rollout_length - 1)
        if self.unvisited != "predictive":
            return drawn
        return drawn + model.vocab_size**model.order * (len(self.context) + model.order)

    @property
    def snapshot_lengths(self) -> list[int]:
        """Earlier lengths at which counts are kept, to see how frequencies settle."""
        return snapshots_of(self.rollout_length)


def snapshots_of(length: int, halvings: int = 4) -> list[int]:
    """A length halved so many times, while a snapshot there tells something."""
    halves = {length >> times for times in range(1, halvings + 1)}
    return sorted(half for half in halves if half >= SHORTEST_SNAPSHOT)


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
    family = plan.check(model)
    key = key_of(model.fingerprint, plan)
    otherwise = f"choose another name than {out}, or remove it"
    if out is not None and out.exists():
        bank = load_bank(out)
        if not (bank.names(model) and _plan_of(bank) == plan):
            raise InputError(f"{out} holds another draw: choose another name, or remove it")
        require_laws(bank.probe, model, plan.context, otherwise)
        Parts(out, key).clear()  # of a run that stopped between the bank and its tidying up
        return replace(bank, reused=True)
    with Parts(out, key) as parts, told_if_interrupted(parts, plan):
        require_laws(parts.probe(), model, plan.context, otherwise)
        draw_missing(model, plan, family, parts, chunk, progress)
        return kept_bank(model, plan, family, parts, out)


def kept_bank(
    model: Metered, plan: DrawPlan, family: Fittable, parts: Parts, out: Path | None
) -> LatentBank:
    """What the parts hold as a bank, in its file where one is asked for."""
    bank = _assemble(model, plan, family, parts)
    if out is not None:
        bank.save(out)
        parts.clear()
    return bank


@contextmanager
def told_if_interrupted(parts: Parts, plan: DrawPlan) -> Iterator[None]:
    """Ctrl-C says what is kept."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(parts.folder, parts.n_held, plan.n_samples) from stop


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
    least = 1 if _runs_any_batch(model, plan) else BLOCK
    part = _rounded(chunk or model.batch_limit(_longest(plan)), least)
    part = min(part, MOST_AT_ONCE, _rounded(plan.n_samples, least))
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
            part = _rounded((part + 1) // 2, least)  # a rollout is the same in any chunk
            free_cached()
            continue
        spent = model.queries.forward_tokens - before
        parts.keep(first, count, rollouts, clock() - started, spent)


def _assemble(model: Metered, plan: DrawPlan, family: Fittable, parts: Parts) -> LatentBank:
    """Everything drawn, as one bank that says where it came from."""
    rollouts, seconds, spent = parts.all(plan.snapshot_lengths)
    require(len(rollouts.counts) == plan.n_samples, f"{parts.folder}: parts of another draw")
    before = model.queries.forward_tokens

    def law_after(tokens: Tensor) -> Tensor:
        whole = torch.cat([torch.tensor(plan.context, dtype=torch.long), tokens])
        return model.log_predictive(whole[None])[0, -1].double().exp().cpu()

    stream = numpy_stream(plan.seed, "unvisited")
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
    )
    return LatentBank(
        latents,
        origin,
        plan.unvisited,
        rollouts.counts,
        rollouts.snapshots,
        rollouts.sequences,
        rollouts.probe,
    )


def _longest(plan: DrawPlan) -> int:
    return len(plan.context) + plan.rollout_length


def _rounded(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _runs_any_batch(model: Model, plan: DrawPlan) -> bool:
    """Whether a rollout is the same in any batch, or on a device where that is not promised."""
    return model.device.type != "cpu" or model.batch_invariant(_longest(plan))


def key_of(fingerprint: str, plan: DrawPlan) -> str:
    """Equal for draws of the same rollouts."""
    settings = asdict(plan)
    del settings["free"], settings["seconds"]
    text = json.dumps(settings, sort_keys=True)
    return hashlib.sha256(f"{fingerprint} {text}".encode()).hexdigest()


def _plan_of(bank: LatentBank) -> DrawPlan:
    """The plan that made a bank."""
    origin = bank.origin
    return DrawPlan(
        n_samples=len(bank),
        rollout_length=origin.rollout_length or 0,
        seed=origin.seed,
        context=origin.context,
        unvisited=bank.unvisited,
        keep_tokens=bank.sequences is not None,
    )


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
    if _runs_any_batch(model, plan):
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
    off = torch.zeros(n, device=device)
    snapshots, kept = {}, []
    probing = Probing(model, uniforms.first, n)
    for done in range(1, plan.rollout_length + 1):
        law = state.log_probs.exp()
        probing.law(law)
        law = law.cumsum(-1)
        off = torch.maximum(off, (law[:, -1] - 1).abs())
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
            _require_laws(model, float(off.max()), done)
        if report is not None:
            report(done)
        if last:
            break
        _, state = model.advance(state, tokens)
    sequences = torch.stack(kept, 1) if plan.keep_tokens else None
    earlier = {length: snapshots[length] for length in snapshots_of(done)}
    return Rollouts(tally.counts(), earlier, sequences, probing.probe())


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
