"""The sections of docs/RESULTS.md that say how our runs stand beside the published ones."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import greedy
import held_out_banks
import order_one
import statements
import urns
from other_urns import from_urn_to_urn, other_urns
from running import read_document, read_records
from tables import heading

from posteer.banks import DrawPlan
from posteer.banks.shipped import shipped_bank
from posteer.models.shipped import load, model_facts, shipped_models
from posteer.paper.agreement import Outside, Why, pairs
from posteer.paper.cells import Cells
from posteer.paper.claims import FALSE_ALARM, Standing, Verdict
from posteer.paper.joint import Starts
from posteer.paper.power import right
from posteer.sweeps.results import Row, read_rows
from posteer.training.plan import PRESETS
from posteer.views.paper.reasons import said_of
from posteer.views.paper.report import (
    claims_table,
    counts_table,
    joint_table,
    orderings_table,
    outside_tables,
    powers_table,
    unlike_table,
)

NAMES = (
    *("gcg-starts", "gcg-caps", "snapping", "statements", "gcg-evaluations", "order-one"),
    "order-one-many",
)
"""Records that studies keep, one document each."""


@dataclass(frozen=True)
class Beside:
    """Records beside the sweep that its differences from the paper are tested on."""

    other_snapping: Cells | None
    held_out: Cells | None
    other_models: dict[str, Cells]
    urns: list[dict[str, Any]] | None
    starts: dict[str, Any] | None
    caps: dict[str, Any] | None
    snapping: dict[str, Any] | None
    said: dict[str, Any] | None
    evaluations: dict[str, Any] | None
    order_one: dict[str, Any] | None
    many_starts: dict[str, Any] | None

    @classmethod
    def of(cls, folder: Path) -> Beside:
        """Those of a folder of records that are there."""
        runs = (folder / "rollouts-own-context.parquet", folder / held_out_banks.KEPT.name)
        snapped, held_out = (Cells(read_rows(p)) if p.exists() else None for p in runs)
        return cls(
            snapped,
            held_out,
            other_urns(folder),
            read_records(path) if (path := folder / "urns.jsonl").exists() else None,
            *(
                read_document(path) if (path := folder / f"{name}.json").exists() else None
                for name in NAMES
            ),
        )


def unexplained_section(
    cells: Cells, odd: list[Outside], judged: list[Verdict], beside: Beside
) -> list[str]:
    """What a reader should know first."""
    left = [one for one in odd if one.why is Why.UNEXPLAINED]
    open_claims = [v for v in judged if v.standing in (Standing.FAILS, Standing.UNDECIDED)]
    lines = [
        "## What stays unexplained",
        "",
        f"- {len(left)} cells of J, outside three standard errors for no reason that was found "
        "(below, with what was tried).",
        *(
            f"- {v.claim.statement}: {v.ours}, published {v.published}; {said_of(v)}."
            for v in open_claims
        ),
        _ess_line(cells),
    ]
    if beside.snapping is not None:
        shares, ranks = beside.snapping["shares"], beside.snapping["own_context_ranks"]
        one = ranks["ppt-rb-analytic"]
        lines.append(
            "- Dyck on the urn at m=6. With the snapping rule that the analytic rows show, 010101 "
            f"wins on {shares['banks of the prior']:.0%} of banks of the prior, but on "
            f"{shares['bootstraps of it']:.0%} of bootstraps of our rollout bank: our model's "
            "asymmetry decides, not the noise of its bank, and the authors' model must lean the "
            "other way. The other rule finds 010101 from every bank, and does not fit either: it "
            f"gives PPT-RB (A) mean rank {one['ours']:.1f} where {one['published']:.1f} is "
            "published. `python studies/snapping.py`."
        )
    return [*lines, "", unlike_table(left)]


def urns_section(beside: Beside) -> list[str]:
    """Networks along the paper's training, beside its figures."""
    if beside.urns is None:
        return []
    return [
        "## Which urn would give these figures?",
        "",
        "Along the paper's training, three seeds, and one trained without a start token, read in "
        "float32 (`python studies/urns.py` has the other readings; "
        "[LOG](LOG.md#which-urn-would-give-the-published-figures) what follows): means of PPT at "
        "m=6 that none of a network's 64 prompts reaches; J of the best prompt, known where a "
        "method of the paper was at rank 1 on every seed (how many are printed the same, and the "
        "root of the mean square distance); ESS/L of fixed prompts over its rollouts; what GCG "
        "reaches. None fits. The shipped urn, of 100,000 steps, is where exact Bayes is.",
        "",
        *urns.show(beside.urns, ["float32"]),
        "",
    ]


def _ess_line(cells: Cells) -> str:
    rolled = [
        pair
        for pair in pairs(cells, "ess")
        if pair.key[0] == "urn" and not pair.key[3].endswith("-analytic")
    ]
    found = right(rolled, "ess")
    return (
        f"- Mean ESS/L of rollout banks on the urn: {found.of - found.within} of {found.of} cells "
        "are outside. It is a moment of the model's implied prior: the authors' model is another "
        "one. Urns early in training come near, none that is a Bayes filter does "
        "([LOG](LOG.md#where-the-papers-ess-of-rollout-banks-comes-from))."
    )


def agreement_section(cells: Cells, odd: list[Outside], starts: Starts | None) -> list[str]:
    known = [one for one in odd if one.why is not Why.UNEXPLAINED]
    return [
        "## Agreement",
        "",
        "Two criteria: within three standard errors of the difference, rounding of the printed "
        "figure included (if theirs were ten more runs of ours, 1 cell in 130 would be outside, "
        "by Student's t), and printed the same. Beside each what a comparison that should fail "
        "would get: our figure of one method against the published one of another (all four ways "
        "round), and one constant for all targets of a family. Last, where the paper has two "
        "methods three errors apart: is our figure nearer to its own method's than to the other's?",
        "",
        powers_table(cells),
        "ESS/L passes no better than with methods swapped, and where the paper tells methods "
        "apart ours do not follow: its agreement is no evidence. By method, in brackets what is "
        "printed the same:",
        "",
        counts_table(cells),
        "Pairs of methods in one cell that are published more than three standard errors apart:",
        "",
        orderings_table(cells),
        "### Bias, and joint tests",
        "",
        "How many cells lie below and above the published ones, with a sign test (it takes cells "
        "for independent, which those of one model and one set of seeds are not), and the joint "
        "test of all of them, which keeps what seeds share: if the authors' ten runs were ten "
        "more of ours, how often would the mean or the mean square of all differences be as "
        "large? For GCG at m=6 all 64 starts are enumerated (`python studies/greedy.py starts`); "
        "seeds are drawn 9,999 times, so that p is no smaller than 0.0002. Holm's correction "
        f"within each column; below {FALSE_ALARM:g} in bold: among all such tables of a true "
        "replication, one in twenty would have a bold figure.",
        "",
        joint_table(cells, starts),
        f"### The {len(odd)} cells of J outside three errors",
        "",
        f"Sorted by what was shown; the {len(odd) - len(known)} unexplained ones are on top.",
        "",
        outside_tables(known),
    ]


def claims_section(judged: list[Verdict]) -> list[str]:
    held = Counter(one.standing for one in judged)
    apart = [one for one in judged if not one.published_holds]
    return [
        "## Claims",
        "",
        f"{len(judged)} statements of the paper's prose about its tables, each checked by the "
        "same code on the published figures, which are granted their rounding, and on ours, "
        f"which are not: {held[Standing.HOLDS]} hold, {held[Standing.CHANCE]} differ as chance "
        f"allows (joint test of the cells read, p at least {FALSE_ALARM:g}), "
        f"{held[Standing.SNAPPING] + held[Standing.DIGITS] + held[Standing.CELLS]} differ for a "
        f"reason that was shown, {held[Standing.UNDECIDED]} undecided, {held[Standing.FAILS]} "
        f"do not hold, {len(apart)} the paper's own tables do not bear out.",
        "",
        claims_table(judged),
        "### Where the paper disagrees with its own tables",
        "",
        *(f"- {one.claim.statement}: its table has {one.published}." for one in apart),
        *(f"- {line}" for line in DISAGREEMENTS),
        "",
    ]


DISAGREEMENTS = (
    "GCG is said to be nearer to zero than every PPT variant in every cell (coin, m=50): at q=0.5 "
    "all five are printed -0.07.",
    "The update of A is printed with a minus sign, of a utility that is maximised; app. rho_update "
    "says that the stored objective is its negative.",
)


def statements_section(rows: list[Row], beside: Beside) -> list[str]:
    if beside.said is None:
        return []
    return [
        "## Statements that no table holds",
        "",
        "`python studies/statements.py`; costs are those of the runs above.",
        "",
        *heading("| said | found | |"),
        *statements.lines(beside.said, statements.costs(rows)),
        "",
    ]


def greedy_section(cells: Cells, beside: Beside) -> list[str]:
    if beside.starts is None:
        return []
    lines = [
        "## What shapes the column of GCG",
        "",
        "A flip is proposed where the one-hot gradient favours it. How often is the gradient's "
        "sign that of the true change of J? `python studies/greedy.py signs`; at m=6 all 384 "
        "flips of all 64 prompts, at m=50 all of the ten starts; mean over targets, least and "
        "greatest. On the trained urn it is right about as often as a coin, on Bayes' rule with "
        "relaxed counts nearly always: what GCG reaches hangs on what a network does between "
        "tokens, which training does not fix.",
        "",
        *greedy.show_signs(beside.starts),
        "",
    ]
    if beside.caps is not None:
        lines += [
            "J after so many iterations (m=50; the paper says 100), mean (standard error) of ten "
            "seeds, `python studies/greedy.py caps`. A limit of about eight would bring dir-2 to "
            "what is published, and take all others but Dyck on the coin away from it; nothing "
            "reaches 0.61 for Dyck.",
            "",
            *greedy.show_caps(beside.caps, cells),
            "",
        ]
    if beside.evaluations is not None:
        lines += [
            "And how J is read at m=6, `python studies/greedy.py evaluations`: bfloat16 changes "
            "nothing; read without the start token it was trained with, the network reaches most "
            "of the figures and much that is not published.",
            "",
            *greedy.show_evaluations(beside.evaluations),
            "",
        ]
    return [*lines, *from_urn_to_urn({"urn": cells, **beside.other_models})]


def bank_section(cells: Cells, beside: Beside) -> list[str]:
    """What one bank for all seeds leaves out of the errors."""
    if beside.held_out is None:
        return []
    return [
        "## What the bank decides",
        "",
        "All seeds of PPT and PPT-RB read one bank, so errors over seeds leave out what another "
        "would change. The same runs from the bank that is held out, `python "
        "studies/held_out_banks.py`: how many prompts are the same; how far the means of cells "
        "move, beside the error that is quoted (both root mean squares), and how many by more than "
        "three of it; how many cells of J come within three errors of the published mean or leave.",
        "",
        *held_out_banks.show(cells, beside.held_out),
        "",
    ]


def order_one_section(beside: Beside) -> list[str]:
    if beside.order_one is None:
        return []
    lines = [
        "## Other readings of the update at order 1",
        "",
        "Distance to the published mean, least and greatest ESS/L of PPT-RB (A) on the urn, summed "
        "over the targets tried; the bank replaced by nodes that integrate the prior. "
        "`python studies/order_one.py`. All runs on this page took it as stated.",
        "",
        *order_one.show(beside.order_one),
        "",
    ]
    if beside.many_starts is not None:
        lines += [
            "With more starts at m=50 (in brackets the standard error of a mean of ten; J on "
            "exact Bayes; `python studies/order_one.py --many`): ESS/L is too low as stated, and "
            "fits where the gradient of A goes through the tilt alone, without the term of the "
            "last context. But J then does not fit: neither reading gives both.",
            "",
            *order_one.show_many(beside.many_starts),
            "",
        ]
    return lines


def in_sample_section() -> list[str]:
    return [
        "## Chosen by looking at the published figures",
        "",
        "These are left open by the paper and were set to what fits its tables best, so that "
        "agreement in what they touch is no independent evidence:",
        "",
        "- Adam, its rate 0.1 and the limit of 5,000 steps at order 0: by the distance to 120 "
        "published ESS figures of the coin and J of tau=0.1 at m=50 (`python "
        "studies/readings.py`). Touches all PPT cells of the coin.",
        "- The generator behind the matrices dir-0 to dir-9 (torch's, in float32; the paper gives "
        "seeds alone): the one whose targets have the published J. Touches all dir cells.",
        "- The candidate score of snapping, `optimum-context`: by J and rank of Dyck on the urn "
        "([LOG](LOG.md#readings-what-j_tilt-of-a-candidate-means-in-snapping)). Touches all PPT "
        "cells.",
        "",
    ]


def models_section(rows: list[Row]) -> list[str]:
    """How long the models were trained, beside the paper's; those that were judged, by weights."""
    shipped, lines = shipped_models(), []
    for name, print_ in sorted({(row["model"], row["model_fingerprint"]) for row in rows}):
        if name not in shipped or load(name, "cpu").fingerprint != print_:
            lines.append(f"The model `{name}` of these runs is not one that is shipped now.")
            continue
        known = model_facts(shipped[name])
        planned, asked = known["planned_steps"], PRESETS[name].steps
        done, risk = int(str(known["steps"])), known["excess_risk"]
        short = (
            ""
            if done == asked
            else (
                f", of the paper's {asked:,}, on a schedule of {planned:,}: **not the paper's "
                "training**"
            )
        )
        known_risk = risk if isinstance(risk, dict) else {}
        overall, error = (known_risk.get(k, math.nan) for k in ("overall", "overall_error"))
        lines.append(
            f"`{name}` was trained for {done:,} steps{short}. Its excess risk is {overall:.1e} "
            f"({error:.0e}) nats a token. {_bank_said(print_)}"
        )
    return lines


def _bank_said(fingerprint: str) -> str:
    """How large the bank of a model is, beside the paper's."""
    bank, plan = shipped_bank(fingerprint), DrawPlan()
    if bank is None:
        return "No bank of it is shipped."
    size = f"{len(bank):,} rollouts of {bank.origin.rollout_length:,} tokens"
    if (len(bank), bank.origin.rollout_length) == (plan.n_samples, plan.rollout_length):
        return f"Its bank is of {size}, as the paper's."
    return (
        f"Its bank is of {size}, **fewer than the paper's {plan.n_samples:,} of "
        f"{plan.rollout_length:,}** ([PAPER](PAPER.md#done-otherwise))."
    )
