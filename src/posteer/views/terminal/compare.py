"""A comparison of methods in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from posteer.methods.cautions import Doubt
from posteer.results import Comparison
from posteer.tokens.prompts import show_prompt
from posteer.views.sentences import warned_text


def show_comparison(found: Comparison) -> None:
    """One row a method; tokens are a run's, a bank's cost is shared by so many utilities."""
    first = found.methods[0].runs[0]
    n = len(found.methods[0].runs)
    title = f"{first.utility} from {first.model} · length {first.length} · {n} seed{'s' * (n > 1)}"
    table = Table(title=Text(title))
    table.add_column("method", overflow="fold")
    for column in ("mean", "best", "rank", "tokens", "bank", "s"):
        table.add_column(column, justify="right", no_wrap=True)
    top = max(summary.mean for summary in found.methods)
    for summary in found.methods:
        error = summary.standard_error
        mean = f"{summary.mean:.4f}" + ("" if error != error else f" ({error:.4f})")
        rank = "" if summary.mean_rank is None else f"{summary.mean_rank:.1f}"
        shared = summary.bank_tokens / found.amortised_over
        table.add_row(
            Text(summary.method),
            f"[bold]{mean}[/bold]" if summary.mean >= top - 1e-3 else mean,
            f"{summary.best.expected_utility:.4f}",
            rank,
            f"{summary.tokens:,.0f}",
            f"{shared:,.0f}" if summary.bank_tokens else "",
            f"{summary.seconds:.2f}",
        )
    console = Console()
    console.print(table)
    best = max(found.methods, key=lambda summary: summary.best.expected_utility).best
    prompt = show_prompt(best.prompt, best.vocabulary)
    console.print(Text(f"best prompt: {prompt} by {best.method}, {best.expected_utility:.6f}"))
    for summary in found.methods:
        for kind, runs in summary.warnings.items():
            text = warned_text(Doubt(kind), runs, n)
            console.print(Text(f"{summary.method}: {text}", style="red"))
    for method, why in found.refused.items():
        console.print(Text(f"{method} was left out: {why}", style="yellow"))
    if found.optimum is not None:
        which = "all prompts" if found.methods[0].runs[0].allowed is None else "allowed prompts"
        console.print(f"optimum over {which}: {found.optimum:.6f}")
    if any(summary.bank_tokens for summary in found.methods):
        console.print(f"bank: what drawing it cost, shared by {found.amortised_over} utilities")
    for method, others in found.break_even().items():
        for other, runs in others.items():
            console.print(
                Text(f"{method}: its bank costs less than {other} from {runs:,} utilities on")
            )
