"""Records as HTML tables. Every text is escaped: names may come from anybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape
from math import isnan
from typing import Any

from posteer.banks.checks.report import FilterReport
from posteer.banks.drawn import LatentBank
from posteer.methods.cautions import Doubt
from posteer.results import Comparison, Elicitation, Judged, Judgement
from posteer.tokens.prompts import show_prompt
from posteer.views.sentences import (
    IN_SHORT,
    answer_text,
    certificate_text,
    choice_text,
    proof_text,
)
from posteer.views.terminal.banks import bank_facts

Rows = Iterable[tuple[str, object]]


@singledispatch
def html_of(record: Any) -> str:
    """A record as a table."""
    return f"<pre>{escape(repr(record))}</pre>"


def facts(title: str, rows: Rows) -> str:
    """A title over names and their values; what is None is left out.

    >>> facts("a < b", [("x", 1), ("y", None)])
    '<table><caption>a &lt; b</caption><tr><th>x</th><td>1</td></tr></table>'
    """
    lines = [
        f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
        for name, value in rows
        if value is not None
    ]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A title over rows of cells."""

    def line(cells: Sequence[object], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{escape(title)}</caption>{line(heads, 'th')}{body}</table>"


def _spread(value: float | None, error: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.4f}" if error is None else f"{value:.4f} ± {error:.4f}"


def _standing(judged: Judged) -> Rows:
    exact = f"{judged.expected_utility:.6g} (exact)"
    sampled = _spread(judged.expected_utility, judged.standard_error)
    yield "expected utility", exact if judged.exact else sampled
    if judged.rank is not None:
        yield "rank", f"{judged.rank:,} of {judged.n_prompts or 0:,}"
        yield "optimum", f"{judged.optimum:.6g}"
    if judged.bound is not None:
        yield "proven bound", f"{judged.bound:.6g}"
    for one in judged.warnings:
        yield "warning", IN_SHORT[one.kind]


@html_of.register
def _(found: Elicitation) -> str:
    asked, answer, judged = found.asked, found.answer, found.judged
    known = judged.bound is not None
    doubted = any(one.kind is Doubt.MODEL_IS_NO_SUCH_FILTER for one in judged.warnings)
    proof, certificate = answer.proof, answer.certificate
    ess, cost = answer.ess_fraction, found.cost
    rows: list[tuple[str, object]] = [
        ("prompt", show_prompt(found.prompt, asked.vocabulary)),
        *_standing(judged),
        ("surrogate", _spread(answer.surrogate, answer.surrogate_standard_error)),
        ("held-out latents", _spread(answer.held_out_surrogate, answer.held_out_standard_error)),
        ("ESS", None if ess is None else f"{ess:.1%} of the latents"),
        ("Pareto k-hat", None if answer.pareto_k is None else f"{answer.pareto_k:.2f}"),
        ("method", None if answer.choice is None else choice_text(answer.choice)),
        ("proof", proof and proof_text(proof, answer.stop_reason, known)),
        ("certificate", certificate and certificate_text(certificate, doubted, known)),
        ("steps", None if answer.steps is None else f"{answer.steps:,} ({answer.stop_reason})"),
        (
            "model tokens",
            f"{cost['forward_tokens']:,} forward, {cost['backward_tokens']:,} backward",
        ),
        ("bank tokens", f"{cost['bank_tokens']:,}" if cost["bank_tokens"] else None),
        ("seconds", f"{found.seconds:.2f}"),
    ]
    where = f"{asked.model}, length {asked.length}, horizon {asked.horizon}"
    return facts(f"{asked.utility} from {where}: {asked.method}, seed {asked.seed}", rows)


@html_of.register
def _(found: Judgement) -> str:
    prompt = ("prompt", show_prompt(found.prompt, found.vocabulary))
    title = f"{found.utility} from {found.model}, horizon {found.horizon}"
    return facts(title, [prompt, *_standing(found.judged)])


@html_of.register
def _(found: Comparison) -> str:
    first = found.methods[0].runs[0]
    rows = [
        (
            *(one.method, f"{one.mean:.4f}"),
            "" if isnan(one.standard_error) else f"{one.standard_error:.4f}",
            f"{one.best.judged.expected_utility:.4f}",
            "" if one.mean_rank is None else f"{one.mean_rank:.1f}",
            *(f"{one.tokens:,.0f}", f"{one.bank_tokens:,}", f"{one.seconds:.2f}"),
        )
        for one in found.methods
    ]
    heads = ("method", "mean J", "standard error", "best J", "mean rank", "tokens a run")
    title = f"{first.asked.utility} from {first.asked.model}, length {first.asked.length}"
    return table(title, (*heads, "bank tokens", "seconds"), rows)


@html_of.register
def _(bank: LatentBank) -> str:
    known = bank_facts(bank, None).items()
    rows = [(name, value) for name, value in known if isinstance(value, str | int | float)]
    return facts(f"{len(bank):,} latents of {bank.origin.model}", rows)


@html_of.register
def _(report: FilterReport) -> str:
    rows: list[tuple[str, object]] = [
        ("answer", answer_text(report.alarms, len(report.p_values), report.departure)),
        ("verdict", report.verdict),
    ]
    rows += [(f"{name}, p", f"{p:.3g}") for name, p in report.p_values.items()]
    return facts(f"Is {report.model} a Bayes filter?", rows)
