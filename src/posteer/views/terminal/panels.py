"""What people see in a terminal: panels, a sparkline, a progress bar for long work."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from posteer.banks.drawn import LatentBank
from posteer.core.device import pick_device
from posteer.core.progress import Progress as Report
from posteer.methods.cautions import MOST_PARETO_K, Doubt, weighs
from posteer.results import Elicitation, Judged, Judgement, Question
from posteer.tokens.prompts import show_prompt
from posteer.tokens.vocabularies import Vocabulary
from posteer.training.loop import Progress as TrainingProgress
from posteer.training.loop import Trainer
from posteer.training.plan import TrainingPlan
from posteer.views.sentences import (
    certificate_text,
    choice_text,
    doubt_text,
    estimator_text,
    proof_text,
    share_text,
    verified_text,
)

PATIENCE_SECONDS = 1.0
SECONDS_BETWEEN_LINES = 15.0
BARS = "▁▂▃▄▅▆▇█"


@contextmanager
def delayed_progress() -> Iterator[Report]:
    """A progress bar on standard error once work has taken longer than a second, however long its
    first step takes; where that is no terminal, a line now and then, whether or not it reports."""
    screen = Console(stderr=True)
    started = time.monotonic()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} at most"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,  # a log is for what ended, in one line
    )
    tasks: dict[str, TaskID] = {}
    shown, lock, over = threading.Event(), threading.Lock(), threading.Event()
    latest = "at work"

    def tell() -> None:
        while not over.wait(SECONDS_BETWEEN_LINES):
            screen.print(f"{latest}, {time.monotonic() - started:.0f} s")

    def show() -> None:
        with lock:
            if tasks and not shown.is_set():
                shown.set()
                bar.start()

    def report(what: str, done: int, at_most: int) -> None:
        nonlocal latest
        latest = f"{what}: {done:,} of at most {at_most:,}"
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=at_most)
        bar.update(tasks[what], completed=done, total=at_most)
        if time.monotonic() - started >= PATIENCE_SECONDS:
            show()

    # what was reported early and then takes long is shown all the same
    late = threading.Timer(min(PATIENCE_SECONDS, threading.TIMEOUT_MAX), show)
    late.daemon = True
    late.start()
    if not screen.is_terminal:
        threading.Thread(target=tell, daemon=True).start()
    try:
        yield report
    finally:
        over.set()
        late.cancel()
        with lock:
            if bar.live.is_started:
                bar.stop()
            shown.set()


def show_elicitation(found: Elicitation, console: Console | None = None) -> None:
    """The prompt, how good it is, and how far to trust the search that found it."""
    asked, answer = found.asked, found.answer
    rows = _rows_of_prompt(found.prompt, found.judged, asked, asked.allowed)
    if answer.surrogate is not None:
        error, snapped = answer.surrogate_standard_error, answer.snapped_surrogate
        after = "" if snapped is None else f", {snapped:.4f} once snapped"
        name = "soft prefix" if error is None else "surrogate"
        departure = _red(found.judged, Doubt.MODEL_IS_NO_SUCH_FILTER, "\n")
        departure += _red(found.judged, Doubt.MODEL_DEPARTS, "\n")
        departure += _red(found.judged, Doubt.SURROGATE_IS_OFF, "\n")
        spread = "" if error is None else f" ± {error:.4f}" if error else " (exact)"
        rows.add_row(name, f"{answer.surrogate:.4f}{spread}{after}{departure}")
    if answer.held_out_surrogate is not None:
        error = answer.held_out_standard_error or 0.0
        rows.add_row("held-out latents", f"{answer.held_out_surrogate:.4f} ± {error:.4f}")
    if answer.ess_fraction is not None:
        rows.add_row("ESS / L", f"{answer.ess_fraction:.3f}{_red(found.judged, Doubt.LOW_ESS)}")
    if answer.pareto_k is not None:
        warning = _red(found.judged, Doubt.HIGH_PARETO_K)
        rows.add_row("Pareto k-hat", _k_text(answer.pareto_k, weighs(answer)) + warning)
    if answer.surrogate_history:
        low, high = min(answer.surrogate_history), max(answer.surrogate_history)
        rows.add_row("ascent", f"{sparkline(answer.surrogate_history)}  {low:.3f} to {high:.3f}")
    elif len(answer.history) > 1:
        values = [step.value for step in answer.history]
        rows.add_row("search", f"{sparkline(values)}  to {values[-1]:.3f}")
    if answer.steps is not None:
        rows.add_row("steps", f"{answer.steps} ({answer.stop_reason})")
    if answer.choice is not None:
        rows.add_row("method", Text(choice_text(answer.choice)))
    if answer.estimator is not None:
        rows.add_row("estimator", Text(estimator_text(answer.estimator)))
    if answer.verified is not None:
        rows.add_row("verified", verified_text(answer.verified))
    known = found.judged.bound is not None  # of exact models alone
    if answer.certificate is not None:
        doubted = Doubt.MODEL_IS_NO_SUCH_FILTER in {one.kind for one in found.judged.warnings}
        rows.add_row("certificate", certificate_text(answer.certificate, doubted, known))
    elif answer.proof is not None:
        rows.add_row("proof", proof_text(answer.proof, answer.stop_reason, known))
    other = doubt_text(found.judged.warnings, Doubt.BANK_MISMATCH_ALLOWED)
    if other:
        rows.add_row("bank", Text(other, style="red"))
    if found.bank is not None:
        rows.add_row("bank", _bank_text(found.bank, found.drawn.settings))
    rows.add_row("model queries", _cost_text(found.cost))
    rows.add_row("time", f"{found.seconds:.2f} s")
    title = f"{asked.utility} from {asked.model} · {asked.method} · horizon {asked.horizon}"
    (console or Console()).print(Panel(rows, title=Text(title), expand=False))


def show_judgement(judged: Judgement, console: Console | None = None) -> None:
    """A given prompt's utility, optimum and rank."""
    rows = _rows_of_prompt(judged.prompt, judged.judged, judged)
    title = f"{judged.utility} from {judged.model} · horizon {judged.horizon}"
    (console or Console()).print(Panel(rows, title=Text(title), expand=False))


def sparkline(values: list[float], width: int = 40) -> str:
    """A line of block characters, one per stretch of the series."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    width = min(width, len(finite))
    picked = [finite[round(i * (len(finite) - 1) / max(width - 1, 1))] for i in range(width)]
    low, high = min(picked), max(picked)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in picked)


def _rows_of_prompt(
    prompt: list[int], judged: Judged, asked: Question | Judgement, allowed: str | None = None
) -> Table:
    """A prompt, its utility, and how that stands among all prompts."""
    rows = rows_table()
    if asked.text:
        rows.add_row("text", Text(asked.text))
    if asked.context:
        rows.add_row("context", show_prompt(asked.context, asked.vocabulary))
    rows.add_row("prompt", _prompt_text(prompt, asked.vocabulary))
    rows.add_row("expected utility", _utility_text(judged))
    which = "all prompts" if allowed is None else "allowed prompts"
    rows.add_row("optimum", _optimum_text(judged, which))
    if judged.best_prompt not in (None, prompt) and judged.rank != 1:
        rows.add_row("best prompt", show_prompt(judged.best_prompt, asked.vocabulary))
    rows.add_row("rank", _rank_text(judged.rank, judged.n_prompts))
    if judged.alphabet_share is not None:
        small = _red(judged, Doubt.SMALL_ALPHABET_SHARE)
        rows.add_row("alphabet holds", share_text(judged.alphabet_share) + small)
    if allowed is not None:
        rows.add_row("allowed", Text(allowed))
    return rows


def rows_table() -> Table:
    """Two columns: what, and its figure."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold", no_wrap=True)
    rows.add_column(overflow="fold")
    return rows


def _prompt_text(prompt: list[int], known: Vocabulary) -> Text:
    return Text(show_prompt(prompt, known), style="bold green")


def _utility_text(result: Judged) -> str:
    if result.exact:
        return f"{_figure(result.expected_utility)} (exact)"
    alike = doubt_text(result.warnings, Doubt.ALL_ROLLOUTS_ALIKE)
    if alike:
        return f"{result.expected_utility:.4f} ({alike})"
    return f"{result.expected_utility:.4f} ± {result.standard_error:.4f} (Monte Carlo)"


def _optimum_text(judged: Judged, which: str) -> str:
    if judged.optimum is not None:
        gap = judged.optimum - judged.expected_utility
        missed = f", missed by {_figure(gap)}" if judged.rank != 1 else ""
        return f"{_figure(judged.optimum)} over {which}{missed}"
    if not judged.exact:
        return "unknown: J is sampled"
    if judged.unasked is not None:
        return f"not looked for: {which} take {judged.unasked:,} model tokens (--rank)"
    return "unknown: too many prompts to enumerate"


def _figure(value: float) -> str:
    """Six decimals, unless they would show nothing of it."""
    return f"{value:.3e}" if 0 < abs(value) < 1e-4 else f"{value:.6f}"


def _red(judged: Judged, kind: Doubt, before: str = "  ") -> str:
    """A warning of a record, if it has one of this kind."""
    text = doubt_text(judged.warnings, kind)
    return f"{before}[red]{text}[/red]" if text else ""


def _rank_text(rank: int | None, n_prompts: int | None) -> str:
    if rank is None or n_prompts is None:
        return "unknown"
    return f"{rank:,} of {n_prompts:,}"


def _k_text(value: float, used: bool) -> str:
    if math.isnan(value):
        return "not enough distinct weights to say"
    if not used:
        return f"{value:.2f} of plain weights, which are not used"
    return f"{value:.2f}" + (" (below 0.7 is good)" if value <= MOST_PARETO_K else "")


def _cost_text(cost: dict[str, int]) -> str:
    asked = f"{cost['forward_tokens']:,} forward, {cost['backward_tokens']:,} backward tokens"
    bank = f"; bank {cost['bank_tokens']:,}" if cost["bank_tokens"] else ""
    return f"{asked}{bank}; judging {cost['judging_tokens']:,}"


def _bank_text(bank: LatentBank, settings: str | None) -> str:
    drawn = f"{len(bank):,} rollouts of {bank.origin.rollout_length:,} tokens, drawn for this"
    return drawn if settings is None else f"{drawn}, sizes by speed: {settings} draws the same"


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for a clean stop; a second one interrupts at once."""
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt("the same command goes on from its last checkpoint")
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch_training(
    plan: TrainingPlan,
    out: Path,
    device: str,
    max_minutes: float,
    checkpoints: tuple[int, float],
    quiet: bool,
) -> dict[str, Any]:
    """Train with a live bar on standard error; returns how it ended. Checkpoints come after so many
    steps or seconds."""
    device = pick_device(device)
    screen = Console(stderr=True, quiet=quiet)
    bar = Progress(
        TextColumn("{task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        console=screen,
    )
    with stop_on_signals() as should_stop:
        trainer = Trainer(
            plan,
            out,
            device=device,
            compiled=device != "cpu",
            checkpoint_every=checkpoints[0],
            checkpoint_seconds=checkpoints[1],
            warn=lambda text: screen.print(Text(text, style="yellow")),
        )
        task = bar.add_task("starting", total=plan.steps, completed=trainer.step)
        told = [-math.inf]

        def report(now: TrainingProgress) -> None:
            excess = "" if now.excess is None else f" · excess {now.excess.overall:.1e}"
            text = f"loss {now.loss:.4f}{excess} · {now.tokens_per_second:,.0f} tokens/s"
            bar.update(task, completed=now.step, description=text)
            if not screen.is_terminal and time.monotonic() - told[-1] >= SECONDS_BETWEEN_LINES:
                told.append(time.monotonic())
                screen.print(f"{now.step}/{plan.steps} steps: {text}", highlight=False)

        trainer.report = report
        with bar:
            outcome = trainer.run(max_minutes=max_minutes, should_stop=should_stop)
    endings = {
        "finished": f"finished; the model is in {out / 'model'}",
        "stopped": "stopped; the same command goes on from here",
        "diverged": "the loss is not a number or exploded; the last good checkpoint is kept",
    }
    screen.print(f"step {outcome.step}: {endings[outcome.status]}")
    last = trainer.records[-1] if trainer.records else None
    return {"status": outcome.status, "step": outcome.step, "excess_risk": last}
