"""The models there are, and what each can do, in a terminal."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from posteer.views.sentences import ABLE, EXAMPLES


def show_models(facts: list[dict[str, Any]]) -> None:
    """One row per shipped model; excess risk in nats per token above exact Bayes."""
    table = Table(title="shipped models")
    for column in ("name", "tokens", "order", "parameters", "steps", "excess risk"):
        table.add_column(column, no_wrap=True)
    for fact in facts:
        risk = fact["excess_risk"] or {"overall": math.nan, "overall_error": math.nan}
        table.add_row(
            str(fact["name"]),
            str(fact["vocab_size"]),
            str(fact["order"]),
            f"{fact['parameters']:,}",
            f"{fact['steps']:,}",
            f"{risk['overall']:.1e} ± {risk['overall_error']:.0e}",
        )
    Console().print(table)


def show_abilities(facts: list[dict[str, Any]], kinds: list[dict[str, Any]]) -> None:
    """What each shipped model can do; then every way to name another, and what that can."""
    table = Table(title="what they can do")
    for column in ("model", "can", "for example"):
        table.add_column(column, overflow="fold")
    for fact in facts:
        table.add_row(str(fact["name"]), _in_words(fact["can"]), f"--model {fact['name']}")
    for kind in kinds:
        missing = ", ".join(kind["missing"])
        able = _in_words(kind["can"])
        if missing:
            able += f" (not here: {missing} missing, pip install 'posteer[llm]')"
        table.add_row(Text(kind["kind"]), Text(able), Text(EXAMPLES.get(kind["kind"], "")))
    Console().print(table)


def _in_words(can: list[str]) -> str:
    return "; ".join(ABLE[one] for one in can) or "predict the next token"
