"""Why cells and statements differ from the paper, in words, each with the command that tests it."""

from __future__ import annotations

from collections.abc import Sequence

from posteer.paper.agreement import Outside, Why
from posteer.paper.claims import Standing, Verdict
from posteer.paper.layouts import heading
from posteer.paper.presets import PAPERS_SNAPPING
from posteer.paper.published import VARIANTS, Figure, utility_of_target

SHOWN = {
    Why.NO_PROMPT: (
        "The published mean is above the best J of all prompts of that length, on our model (where "
        "all were tried) and on exact Bayes: no way of choosing prompts could match it. The "
        "authors' transformer differs from Bayes there; ours does not, or less."
    ),
    Why.NO_PROMPT_HERE: (
        "The published mean is above the best J of all 64 prompts on our model, not on exact "
        "Bayes: our model is off as well."
    ),
    Why.JUDGED: (
        "Every run found the best prompt, theirs and ours: what differs is J of it, and so the "
        "model."
    ),
    Why.MODELS: (
        "Other urns moved it as far: `urn-16k`, and for GCG two more of 16,000 steps from other "
        "seeds, whose weights are in `studies/models`. They are outside in cells where ours is not."
    ),
    Why.SNAPPING: (
        "Scored by its own last context in snapping, the same ascent ends in the best prompt. That "
        "does not settle it: below."
    ),
    Why.UNEXPLAINED: "Nothing that was tried explains these.",
}
_BEST = "--utility '{utility}' --length {length} --method exhaustive"
TESTS = {
    Why.NO_PROMPT: f"posteer elicit --model exact:{{model}} {_BEST}",
    Why.NO_PROMPT_HERE: f"posteer elicit --model {{model}} {_BEST}",
    Why.JUDGED: f"posteer elicit --model {{model}} {_BEST}",
    Why.MODELS: (
        "posteer compare --model {nearest} --utility '{utility}' --length {length} --seeds 10 "
        "--methods '{variant}'"
    ),
    Why.SNAPPING: (
        "posteer elicit --model {model} --utility {utility} --length {length} --method {method}"
    ),
}
"""What to type to see it; of a cell that no reason was found for, nothing."""

VERDICTS = {
    Standing.HOLDS: "holds",
    Standing.BETTER: "holds on ours; the paper's own table does not say so",
    Standing.NEITHER: "holds on neither: the paper's own table does not say so",
    Standing.CHANCE: "differs, as chance allows",
    Standing.SNAPPING: "differs by the snapping rule: scored by their own last context, {figure}",
    Standing.DIGITS: "differs in last digits: J is within {gap:.4f} of the best prompt's",
    Standing.CELLS: "differs by {cells} of its cells, outside for a reason: {kinds}",
    Standing.UNDECIDED: "differs; chance is not ruled out after correction",
    Standing.FAILS: "does not hold",
}


def command_of(one: Outside) -> str | None:
    """The command that tests why a cell is outside."""
    model, target, length, method = one.pair.key
    command = TESTS.get(one.why)
    return command and command.format(
        model=model,
        utility=utility_of_target(target),
        length=length,
        method=method,
        variant=f"{method}({PAPERS_SNAPPING})" if method in VARIANTS else method,
        nearest=one.nearest,
    )


def said_of(verdict: Verdict) -> str:
    """A verdict in words, with the joint test where there was one."""
    found = dict(verdict.found)
    kinds = found.get("kinds")
    if isinstance(kinds, Sequence):
        found["kinds"] = ", ".join(map(str, kinds))
    words = VERDICTS[verdict.standing].format(**found)
    if verdict.joint is None or verdict.adjusted is None:
        return words
    law = "all 64 starts" if verdict.joint.enumerated else "our seeds"
    p, adjusted = p_value(verdict.joint.p), p_value(verdict.adjusted)
    return f"{words} (joint p {p}, {adjusted} after Holm; {law})"


def p_value(value: float) -> str:
    """With the digits it deserves."""
    return f"{value:.2f}" if value >= 0.095 else f"{value:.1g}"


def with_error(figure: Figure) -> str:
    """A mean and its standard error, both as the tables print them."""
    error = figure.standard_error
    return f"{figure.value:.2f}" + ("" if error is None else f" ({error:.2f})")


def cell_of(one: Outside) -> list[str]:
    """A cell outside as a row: where, what is published, what is ours, by how much."""
    model, target, length, method = one.pair.key
    means = [with_error(one.pair.theirs), with_error(one.pair.ours)]
    return [model, str(length), target, heading(method), *means, f"{one.in_errors:+.1f}"]


def evidence(one: Outside) -> str:
    """The figures behind a reason."""
    said = []
    if one.best is not None:
        said.append(f"best of 64 {one.best:.2f}")
    if one.bayes is not None and one.why is not Why.MODELS:
        said.append(f"exact Bayes {one.bayes:.2f}")
    if one.elsewhere:
        where = "own context" if one.why is Why.SNAPPING else "other urns"
        said.append(f"{where} {', '.join(map(with_error, one.elsewhere))}")
    return "; ".join(said)
