"""Records on matplotlib axes: those that are given, or new ones of whatever backend is in use."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from posteer.banks.checks.report import ALARM, FilterReport
from posteer.banks.drawn import LatentBank
from posteer.core.errors import InputError
from posteer.core.randomness import torch_stream
from posteer.families.markov.family import MarkovFamily
from posteer.results import Comparison, Elicitation, trajectory
from posteer.tokens.contexts import ContextSpace
from posteer.views.figures.compare import draw_runs

ROWS_SHOWN = 4
WRITTEN = 200
"""Tokens that a latent writes for its point."""
SMALL = 1e-4
"""A p-value below it is drawn there."""


def pyplot() -> Any:
    """pyplot with the backend that is in use: in a notebook the notebook's."""
    try:
        from matplotlib import pyplot as found
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install 'posteer[plot]'") from error
    return found


@singledispatch
def plot_of(record: Any, axes: Any = None) -> Any:
    """A record on axes."""
    raise InputError(f"there is no plot of a {type(record).__name__}")


def _axes(axes: Any) -> Any:
    return pyplot().subplots()[1] if axes is None else axes


@plot_of.register
def _(found: Elicitation, axes: Any = None) -> Any:
    """Surrogate or best value by step, J of the prompt, and the optimum where it is known."""
    axes = _axes(axes)
    asked, answer, judged = found.asked, found.answer, found.judged
    climbed = answer.surrogate_history
    values = climbed or [step.value for step in answer.history]
    if values:
        name = "surrogate" if climbed else "best value so far"
        axes.plot(range(1, len(values) + 1), values, ".-", markersize=3, label=name)
    axes.axhline(judged.expected_utility, color="tab:orange", label="J of the prompt")
    if judged.optimum is not None:
        axes.axhline(judged.optimum, color="black", linestyle=":", label="optimum")
    axes.set(title=f"{asked.utility} from {asked.model}: {asked.method}", xlabel="step", ylabel="J")
    axes.legend()
    return axes


@plot_of.register
def _(found: Comparison, axes: Any = None) -> Any:
    """Best value against model tokens, one line a seed."""
    axes = _axes(axes)
    for number, summary in enumerate(found.methods):
        runs = [trajectory(run, found.amortised_over) for run in summary.runs]
        draw_runs(axes, runs, f"C{number % 10}", summary.method)
    if found.optimum is not None:
        axes.axhline(found.optimum, color="black", linestyle=":", label="optimum")
    axes.set(xscale="log", xlabel="model tokens (bank shared)", ylabel="expected utility")
    axes.legend()
    return axes


@plot_of.register
def _(bank: LatentBank, axes: Any = None) -> Any:
    """Two tokens and one to look back at: a square. Else the last token's chance in each row. Of
    latents that are no kernels, what they write."""
    axes = _axes(axes)
    axes.set_title(f"{len(bank):,} latents of {bank.origin.model}")
    if not isinstance(bank.latents.family, MarkovFamily):
        return _written(bank, axes)
    space, kernels = bank.space, bank.kernels.numpy()
    token = space.vocab_size - 1
    if space == ContextSpace(2, 1):
        axes.scatter(kernels[:, 0, 1], kernels[:, 1, 1], s=4, alpha=0.4)
        axes.set(xlabel="P(1 | 0)", ylabel="P(1 | 1)", aspect="equal")
    else:
        for context in range(min(space.n_contexts, ROWS_SHOWN)):
            axes.hist(kernels[:, context, token], 50, histtype="step", label=f"row {context}")
        axes.set(xlabel=f"P({token})", ylabel="latents")
        axes.legend()
    return axes


def _written(bank: LatentBank, axes: Any) -> Any:
    """A text of each latent: how often it has the last token, and how often a token repeats."""
    tokens = bank.latents.roll_out(WRITTEN, torch_stream(0, "plot of a bank"))
    last = bank.latents.family.vocab_size - 1
    share = (tokens == last).double().mean(1)
    repeats = (tokens[:, 1:] == tokens[:, :-1]).double().mean(1)
    axes.scatter(share.numpy(), repeats.numpy(), s=4, alpha=0.4)
    axes.set(xlabel=f"share of token {last}", ylabel="share of tokens that repeat")
    return axes


@plot_of.register
def _(report: FilterReport, axes: Any = None) -> Any:
    """A p-value for each check, and the line below which one of them is beyond chance."""
    axes, found = _axes(axes), report.p_values
    axes.barh(list(found), [max(p, SMALL) for p in found.values()])
    axes.axvline(ALARM / max(1, len(found)), color="black", linestyle=":", label="beyond chance")
    axes.set(xscale="log", xlim=(SMALL / 2, 1), xlabel="p-value", title=report.model)
    axes.legend()
    return axes
