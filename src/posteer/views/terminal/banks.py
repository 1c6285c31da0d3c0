"""Banks and filter checks in a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from posteer.banks.checks.families import Explained, FamilyCheck
from posteer.banks.checks.moments import Moment
from posteer.banks.checks.power import Power
from posteer.banks.checks.report import ALARM, FilterReport
from posteer.banks.checks.statistics import Interval
from posteer.banks.drawn import LatentBank
from posteer.tokens.prompts import show_prompt
from posteer.views.sentences import answer_text, departure_lines
from posteer.views.terminal.panels import rows_table


def bank_facts(bank: LatentBank, out: str | None) -> dict[str, Any]:
    """What `posteer sample --json` prints of a bank."""
    origin, family = bank.origin, bank.latents.family
    return {
        "family": str(getattr(family, "text", family.name)),
        "model": origin.model,
        "fingerprint": origin.fingerprint,
        "process": origin.process,
        "rollouts": len(bank),
        "length": origin.rollout_length,
        "seed": origin.seed,
        "context": list(origin.context),
        "unvisited": bank.unvisited,
        "unvisited_rows": bank.n_unvisited,
        "tokens": origin.tokens,
        "seconds": origin.seconds,
        "device": origin.device,
        "created": origin.created,
        "out": out,
        "reused": bank.reused,
    }


def show_bank(bank: LatentBank, out: str | None) -> None:
    """Where the latents came from, what they cost, and how they are spread."""
    origin, family = bank.origin, bank.latents.family
    rows = rows_table()
    rows.add_row("latents", f"{len(bank):,} by rollouts of {origin.rollout_length:,} tokens")
    if origin.context:
        context = show_prompt(list(origin.context), family.vocab_size)
        rows.add_row("posterior after", context if len(context) < 60 else f"{context[:57]}...")
    SPREADS.get(family.name, _named)(rows, bank)
    cost = f"{origin.tokens:,} model tokens, {origin.seconds:.1f} s on {origin.device}"
    rows.add_row("cost", cost)
    again = " (nothing was drawn now: the bank was there)" if bank.reused else ""
    rows.add_row("drawn", f"{origin.created}{again}")
    rows.add_row("seed, model", f"{origin.seed}, {origin.fingerprint[:12]}")
    if out is not None:
        rows.add_row("file", out)
    Console().print(Panel(rows, title=Text(f"latent bank of {origin.model}"), expand=False))


def _named(rows: Table, bank: LatentBank) -> None:
    rows.add_row("family", bank.latents.family.name)


def _machines(rows: Table, bank: LatentBank) -> None:
    family: Any = bank.latents.family
    rows.add_row("family", f"hidden Markov models of {family.n_states} states, one a rollout")
    emission = bank.latents.tensors()["operators"].sum(-1)
    sharpest = emission.amax(-1).mean(0).tolist()
    rows.add_row("likeliest token", f"{_list(sharpest)} in the mean, by state")


def _atoms(rows: Table, bank: LatentBank) -> None:
    family: Any = bank.latents.family
    classes = bank.latents.tensors()["classes"]
    shares = classes.bincount(minlength=len(family.prior.atoms)).double() / len(classes)
    rows.add_row("family", f"{len(shares):,} atoms of {bank.origin.process}"[:70])
    rows.add_row("shares", _list(shares.tolist()))
    rows.add_row("known weights", _list(family.prior.log_weights.softmax(0).tolist()))


def _list(values: list[float]) -> str:
    shown = " ".join(f"{value:.3f}" for value in values[:8])
    return shown if len(values) <= 8 else f"{shown} .."


def _kernels(rows: Table, bank: LatentBank) -> None:
    space = bank.space
    share = bank.n_unvisited / (len(bank) * space.n_contexts)
    rows.add_row(
        "unvisited rows", f"{bank.n_unvisited:,} ({share:.2%}), filled by {bank.unvisited}"
    )
    quantiles = bank.kernels.new_tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    for context_number in range(min(space.n_contexts, 8)):
        spread = bank.kernels[:, context_number, -1].quantile(quantiles).tolist()
        text = " ".join(f"{value:.3f}" for value in spread)
        name = (
            f"P({space.vocab_size - 1})"
            if space.order == 0
            else (f"P({space.vocab_size - 1} | {_context(space, context_number)})")
        )
        rows.add_row(name, f"{text}   (5, 25, 50, 75, 95 %)")


SPREADS = {"markov": _kernels, "hmm": _machines, "atoms": _atoms}
"""How the latents of a family are summed up."""


def _context(space: Any, number: int) -> str:
    import torch

    return show_prompt(space.decode(torch.tensor(number)).tolist(), space.vocab_size)


def show_report(report: FilterReport) -> None:
    """One line a check: what was measured, how large, whether beyond chance."""
    kind = f"order {report.order}" if report.family == "markov" else f"{report.family} latents"
    table = Table(title=f"is {report.model} a Bayes filter of {kind}?")
    for column in ("check", "measured", "p"):
        table.add_column(column)
    n_tests = len(report.p_values)
    if report.prior is not None:
        for row in report.prior.rows[:8]:
            exact = row.wasserstein_exact
            table.add_row(
                f"prior of row {row.context}, token {row.token}",
                f"KS {row.ks:.4f}; W1 {row.wasserstein:.4f} "
                f"(exact Bayes {exact[0]:.4f}, {exact[1]:.4f})",
                _p(row.p_value, n_tests * len(report.prior.rows)),
            )
        moments = report.prior.moments
        for moment in moments.suspicious[:2]:
            table.add_row(
                _moment(moment),
                f"{moment.value:.4f}, exact Bayes {moment.exact:.4f} ± {moment.error:.4f}",
                _p(moment.p_value, 2 * n_tests * moments.compared),
            )
    elif report.family == "markov":
        table.add_row("prior", "unknown process: nothing to compare with", "")
    if report.ranks is not None:
        ranks = report.ranks
        for name, p_value in list(ranks.p_values.items())[:8]:
            table.add_row(
                f"calibration of {name}",
                f"{ranks.simulations:,} ranks among {ranks.draws} futures after "
                f"{ranks.observed} tokens",
                _p(p_value, n_tests * len(ranks.p_values)),
            )
    drifts = [] if report.martingale is None else report.martingale.drifts
    for drift in sorted(drifts, key=lambda drift: drift.p_value)[:3]:
        table.add_row(
            f"martingale, row {drift.context}, visit {drift.from_visit} to {drift.to_visit}",
            f"drift {_interval(drift.mean)}, outward {_interval(drift.outward)}",
            _p(drift.p_value, n_tests * len(drifts)),
        )
    swaps = report.exchangeability
    if swaps is not None:
        table.add_row(
            f"{swaps.swaps:.1f} block swaps in {swaps.length} tokens",
            f"size {_interval(swaps.size)} nats (rounding {swaps.rounding:.1g}), "
            f"next token {swaps.next_token:.2g}; lean {_interval(swaps.lean)}, "
            f"matters past {swaps.threshold:g}",
            _p(swaps.p_value, n_tests),
        )
    if report.atoms is not None:
        sharp = report.atoms
        table.add_row(
            f"{sharp.atoms} atoms, {sharp.rollouts:,} rollouts",
            f"largest weight {sharp.sharpness:.3f}, entropy {sharp.entropy:.2g} nats; "
            f"{sharp.sure:.0%} of rollouts told for sure (0.99)",
            _p(sharp.p_value, n_tests),
        )
    for one in [] if report.families is None else report.families.tried:
        table.add_row(
            f"explained by {family_text(one)}",
            f"{one.log_likelihood:.4f} ± {one.error:.4f} nats a token, "
            f"{one.behind:.4f} ± {one.behind_error:.4f} behind the best",
            "",
        )
    if report.convergence is not None:
        known = report.convergence.exact_slope
        beside = "" if known is None else f" (exact Bayes {known:.2f})"
        table.add_row(
            "convergence in length",
            f"changes shrink as R^{_interval(report.convergence.slope)}{beside}",
            "",
        )
    console = Console()
    colour = "green" if not report.alarms else "yellow"
    console.print(Text(f"does {report.model} predict by Bayes' rule over its latents?"))
    console.print(
        Text(answer_text(report.alarms, n_tests, report.departure), style=f"bold {colour}")
    )
    console.print(table)
    console.print(Text(f"{report.verdict} (false alarms: {ALARM:.0%})", style=colour))
    if report.families is not None:
        console.print(Text(families_text(report.families)))
    console.print(Text(power_text(report.power), style="dim"))
    for line in [] if report.departure is None else departure_lines(report.departure):
        console.print(Text(line))


def family_text(one: Explained) -> str:
    """A family, and how many of it share the rollouts."""
    several = one.components > 1 and one.family != "atoms"
    return f"{one.family} x {one.components}" if several else one.family


def families_text(found: FamilyCheck) -> str:
    """Which family explains the rollouts best, in one line."""
    best, rivals = found.best, found.rivals
    figure = f"{best.log_likelihood:.4f} nats a token"
    said = f"rollouts are explained best by {family_text(best)}: {figure}"
    if rivals:
        names = ", ".join(family_text(one) for one in rivals)
        return f"{said}; as well, to two standard errors, by {names}"
    for one in found.tried[1:2]:
        said += f"; {family_text(one)} is {one.behind:.4f} ± {one.behind_error:.4f} behind"
    for name in found.impossible:
        said += f"; {name} cannot have emitted some of them"
    return said


def power_text(power: Power) -> str:
    """How small a departure would have been seen."""
    said = {
        "a lean of {:.2g} under swaps": power.exchangeability,
        "a drift of {:.2g} in a probability": power.martingale,
        "a variance of a row off by {:.0%}": power.prior,
        "a concentration {:.2g} times too large": power.concentration,
        "bins of ranks off by {:.0%}": power.ranks,
    }
    seen = [words.format(value) for words, value in said.items() if value is not None]
    what = ", ".join(seen) or "nothing"
    return (
        f"departures that would be seen with a chance of {power.chance:.0%} at this effort: {what}"
    )


def _moment(moment: Moment) -> str:
    """An entry is a row and a token."""
    row, token = moment.entry
    if moment.other is None:
        return f"mean of row {row}, token {token}, less the prior's"
    if moment.other == moment.entry:
        return f"variance of row {row}, token {token}"
    return f"covariance of rows {row} and {moment.other[0]}, tokens {token} and {moment.other[1]}"


def _interval(interval: Interval) -> str:
    return f"{interval.value:.2g} [{interval.low:.2g}, {interval.high:.2g}]"


def _p(value: float, tests: int) -> Text:
    """Red where the p-value survives correction for the number of tests."""
    return Text(f"{value:.3g}", style="red" if value * tests < ALARM else "")
