"""The filter checks as a figure: one panel each."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import torch

from posteer.banks.checks.departure import Departure
from posteer.banks.checks.exchangeability import ExchangeabilityCheck
from posteer.banks.checks.martingale import MartingaleCheck
from posteer.banks.checks.report import FilterReport
from posteer.banks.drawn import LatentBank
from posteer.core import require
from posteer.core.randomness import numpy_stream
from posteer.families.markov.family import MarkovFamily, kernels_of
from posteer.families.protocol import Family, Prior
from posteer.families.registry import open_process
from posteer.views.figures.canvas import canvas, save
from posteer.views.sentences import departure_lines

ROWS_SHOWN = 4


def draw_checks(report: FilterReport, bank: LatentBank, out: Path) -> None:
    """Prior, calibration, martingale, exchangeability and convergence."""
    drifts, swaps = report.martingale, report.exchangeability
    require_drawable(bank.latents.family)
    assert drifts is not None and swaps is not None
    pyplot = canvas()
    figure, panels = pyplot.subplots(2, 3, figsize=(13, 7.5))
    panels = panels.flatten()
    _prior(panels[0], bank)
    if report.ranks is None and report.departure is not None:
        _gaps(panels[1], report.departure)
    else:
        _ranks(panels[1], report)
    _martingale(panels[2], drifts)
    _swaps(panels[3], swaps)
    _convergence(panels[4], report)
    panels[5].axis("off")
    words = "\n".join(f"{name}: p = {p:.3g}" for name, p in report.p_values.items())
    lines = [report.verdict]
    if report.departure is not None:
        lines += departure_lines(report.departure)
    verdict = "\n".join(textwrap.fill(line, 56) for line in lines)
    small = {"fontsize": "small"} if len(lines) > 1 else {}
    panels[5].text(0, 1.0, f"{report.model}\n\n{words}\n\n{verdict}", va="top", **small)
    save(figure, out)


def require_drawable(family: Family) -> None:
    """Refuse a figure of latents that are no Markov kernels."""
    markov = isinstance(family, MarkovFamily)
    words = f"--figure: of {family.name} latents nothing is drawn: expected Markov ones"
    require(markov, words)


def known_prior(bank: LatentBank) -> Prior | None:
    """The prior a bank names, conditioned on the bank's context."""
    origin = bank.origin
    return None if origin.process is None else open_process(origin.process).after(origin.context)


def _prior(panel: Any, bank: LatentBank) -> None:
    prior = known_prior(bank)
    edges = torch.linspace(0, 1, 51).numpy()
    token = bank.space.vocab_size - 1
    exact = None
    if prior is not None:
        drawn = kernels_of(prior.sample(200_000, numpy_stream(0, "figure")))
        exact = drawn[..., token].numpy()
    for context in range(min(bank.space.n_contexts, ROWS_SHOWN)):
        own = bank.kernels[:, context, token].numpy()
        line = panel.hist(own, edges, density=True, histtype="step", label=f"row {context}")
        if exact is not None:
            colour = line[2][0].get_edgecolor()
            panel.hist(exact[:, context], edges, density=True, alpha=0.15, color=colour)
    panel.set(title="implied prior (filled: known)", xlabel=f"P({token})", yscale="log")
    panel.legend()


def _ranks(panel: Any, report: FilterReport) -> None:
    panel.set(title="calibration: ranks of what happened", xlabel="rank")
    if report.ranks is None:
        panel.text(0.5, 0.5, "process unknown", ha="center")
        return
    ranks = report.ranks
    n_ranks = ranks.draws + 1
    expected = ranks.simulations / n_ranks
    spread = 1.96 * (expected * (1 - 1 / n_ranks)) ** 0.5
    panel.axhspan(expected - spread, expected + spread, alpha=0.15, color="grey")
    for name, values in list(ranks.ranks.items())[:ROWS_SHOWN]:
        seen = torch.bincount(torch.tensor(values), minlength=n_ranks)
        panel.step(range(n_ranks), seen, where="mid", label=name)
    panel.legend()


def _gaps(panel: Any, found: Departure) -> None:
    """How far the model's law is from others, in nats per token."""
    gaps = {
        "mixture": found.mixture,
        "unweighed": found.unweighed,
        "best latent": found.fixed,
        "mixture,\nrandom": found.on_prompts,
        "corrected,\nrandom": found.corrected,
    }
    values = [gap.value for gap in gaps.values()]
    errors = [gap.high - gap.value for gap in gaps.values()]
    panel.bar(range(len(gaps)), values, yerr=errors, color="C0", alpha=0.7)
    panel.set_xticks(range(len(gaps)), list(gaps), fontsize="x-small")
    panel.set(title="from the model's law, nats a token")


def _martingale(panel: Any, check: MartingaleCheck) -> None:
    panel.set(title="martingale: outward drift to twice the visits", xlabel="visit")
    drifts = check.drifts
    if not drifts:
        panel.text(0.5, 0.5, "no change of mind to test", ha="center")
        return
    for context in sorted({drift.context for drift in drifts})[:ROWS_SHOWN]:
        own = [d for d in drifts if d.context == context and d.token == drifts[0].token]
        values = [drift.outward.value for drift in own]
        errors = [drift.outward.high - drift.outward.value for drift in own]
        panel.errorbar(
            [drift.from_visit * (1 + 0.06 * context) for drift in own],
            values,
            errors,
            fmt="o",
            markersize=3,
            label=f"row {context}",
        )
    panel.axhline(0, color="black", linewidth=0.8)
    panel.set_xscale("log")
    panel.legend()


def _swaps(panel: Any, check: ExchangeabilityCheck) -> None:
    if check.differences:
        panel.hist(check.differences, 40)
    panel.set(title="exchangeability: block swaps", xlabel="log-probability lost by swapping, nats")


def _convergence(panel: Any, report: FilterReport) -> None:
    panel.set(title="change of frequencies when R doubles", xlabel="R")
    settled = report.convergence
    if settled is None or min(settled.moves) <= 0:
        panel.text(0.5, 0.5, "no earlier counts in this bank", ha="center")
        return
    panel.loglog(settled.lengths, settled.moves, "o-", label="this bank")
    if settled.exact is not None:
        panel.loglog(settled.lengths, settled.exact, "x--", label="exact Bayes")
    start = settled.moves[0] * settled.lengths[0] ** 0.5
    panel.loglog(
        settled.lengths, [start / at**0.5 for at in settled.lengths], ":", label="1 / sqrt(R)"
    )
    panel.set_xticks(settled.lengths, [str(at) for at in settled.lengths], minor=False)
    panel.set_xticks([], minor=True)
    panel.legend()
