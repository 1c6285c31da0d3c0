"""A record in a terminal: the prompt, how good it is, how sure that is, what it cost; the rest."""

from __future__ import annotations

import math

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from posteer.banks.drawn import LatentBank
from posteer.methods.cautions import MOST_PARETO_K, Doubt, weighs
from posteer.results import Elicitation, Judged, Judgement, Question
from posteer.tokens.prompts import show_prompt
from posteer.tokens.vocabularies import Vocabulary
from posteer.views.sentences import (
    certificate_text,
    choice_text,
    cost_text,
    departure_text,
    doubt_text,
    estimator_text,
    proof_text,
    share_text,
    sure_lines,
    verified_text,
)
from posteer.views.terminal.panels import rows_table

BARS = "▁▂▃▄▅▆▇█"


def show_elicitation(
    found: Elicitation, console: Console | None = None, verbose: bool = False
) -> None:
    """The prompt, how good it is, how sure that is and what it cost; `verbose`, all the figures."""
    asked = found.asked
    rows = _rows_of_prompt(found.prompt, found.judged, asked, asked.allowed)
    sure = Text("\n").join(Text(line) for line in sure_lines(found))
    for one in found.judged.warnings:
        sure.append("\n" if sure else "")
        sure.append(doubt_text([one], one.kind), style="red")
    if sure:
        rows.add_row("how sure", sure)
    rows.add_row("cost", cost_text(found.cost))
    rows.add_row("time", f"{found.seconds:.2f} s")
    if verbose:
        _add_details(rows, found)
    title = f"{asked.utility} from {asked.model} · {asked.method} · horizon {asked.horizon}"
    more = None if verbose else "--verbose shows all figures"
    (console or Console()).print(Panel(rows, title=Text(title), subtitle=more, expand=False))


def show_details(found: Elicitation) -> None:
    """All the figures of a record."""
    show_elicitation(found, verbose=True)


def _add_details(rows: Table, found: Elicitation) -> None:
    """What the search believed, how it went, and why it went that way."""
    answer = found.answer
    if answer.surrogate is not None:
        error, snapped = answer.surrogate_standard_error, answer.snapped_surrogate
        after = "" if snapped is None else f", {snapped:.4f} once snapped"
        name = "soft prefix" if error is None else "surrogate"
        spread = "" if error is None else f" ± {error:.4f}" if error else " (exact)"
        rows.add_row(name, f"{answer.surrogate:.4f}{spread}{after}")
    if answer.held_out_surrogate is not None:
        error = answer.held_out_standard_error or 0.0
        rows.add_row("held-out latents", f"{answer.held_out_surrogate:.4f} ± {error:.4f}")
    if answer.ess_fraction is not None:
        rows.add_row("ESS / L", f"{answer.ess_fraction:.3f}")
    if answer.pareto_k is not None:
        rows.add_row("Pareto k-hat", _k_text(answer.pareto_k, weighs(answer)))
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
    if found.bank is not None:
        rows.add_row("bank", _bank_text(found.bank, found.drawn.settings))
    if found.departure is not None:
        rows.add_row("check", departure_text(found.departure))
    rows.add_row("model queries", _cost_text(found.cost))


def show_judgement(judged: Judgement, console: Console | None = None) -> None:
    """A given prompt's utility, optimum and rank."""
    rows = _rows_of_prompt(judged.prompt, judged.judged, judged)
    for one in judged.judged.warnings:
        rows.add_row("how sure", Text(doubt_text([one], one.kind), style="red"))
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
    if judged.rank is not None and judged.n_prompts is not None:
        rows.add_row("rank", f"{judged.rank:,} of {judged.n_prompts:,}")
    if judged.alphabet_share is not None:
        rows.add_row("alphabet holds", share_text(judged.alphabet_share))
    if allowed is not None:
        rows.add_row("allowed", Text(allowed))
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
        return "unknown: the expected utility is sampled"
    if judged.unasked is not None:
        return f"not looked for: {which} take {judged.unasked:,} model tokens (--rank)"
    return "unknown: there are too many prompts to try all"


def _figure(value: float) -> str:
    """Six decimals, unless they would show nothing of it."""
    return f"{value:.3e}" if 0 < abs(value) < 1e-4 else f"{value:.6f}"


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
    when = "kept from an earlier call" if bank.reused else "drawn for this"
    drawn = f"{len(bank):,} rollouts of {bank.origin.rollout_length:,} tokens, {when}"
    return drawn if settings is None else f"{drawn}, sizes by speed: {settings} draws the same"
