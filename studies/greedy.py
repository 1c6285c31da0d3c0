"""What shapes the published column of GCG: its starts, its gradient, its limit, how J is read.

    python studies/greedy.py starts         # docs/records/gcg-starts.json, a minute
    python studies/greedy.py signs          # from that record
    python studies/greedy.py caps           # docs/records/gcg-caps.json, half an hour on two cores,
                                            # seconds with --device cuda
    python studies/greedy.py evaluations    # docs/records/gcg-evaluations.json, a minute, or many
                                            # where a processor has no products in bfloat16

starts: at m=6 there are 64 starts, and GCG is deterministic from each, so the law of its result
over seeds is enumerated: for each target the prompt each start ends in, and J and rank of all 64.
signs: a flip is proposed where the one-hot gradient favours it. How often does J then rise? On the
trained model, and on exact Bayes relaxed: transition counts of a prompt whose tokens are weights.
caps: J after so many iterations, at m=50, beside the published mean.
evaluations: the best J of all 64 prompts if the network is read in bfloat16, without its start
token, or with a start token that takes up no position; how many of the published figures that no
prompt reaches would then be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from places import RECORDS
from running import Options, read_document, run, write_document
from tables import heading
from torch import Tensor

from posteer.api.eliciting import elicit_many
from posteer.core.limits import ROUNDING_OF_NETWORKS
from posteer.core.randomness import torch_stream
from posteer.evaluation.ranking import PromptLandscape
from posteer.goals.objectives import ExpectedUtility
from posteer.goals.utilities import open_utility
from posteer.models import load
from posteer.models.continuations import continuation_laws
from posteer.models.transformer.model import TransformerModel
from posteer.paper.cells import Cells
from posteer.paper.paired import family_of
from posteer.paper.published import HORIZON, TARGETS, VARIANTS, published, utility_of_target
from posteer.sweeps.results import read_rows
from posteer.tokens.contexts import ContextSpace, all_sequences

SHORT, LONG, ITERATIONS = 6, 50, 12
STARTS, CAPS = RECORDS / "gcg-starts.json", RECORDS / "gcg-caps.json"
EVALUATIONS = RECORDS / "gcg-evaluations.json"
CAPPED = {"urn": ("dyck", "dir-0", "dir-2", "dir-4", "dir-9"), "beta-bernoulli": ("dyck", "q-0.3")}
SHOWN_CAPS = (4, 8, 12, 16, 20)
Laws = Callable[[Tensor], Tensor]
"""From rows of weights over tokens to the log-probabilities of all continuations."""


def objectives(model: str) -> dict[str, ExpectedUtility]:
    """The goals of a model's targets."""
    space = ContextSpace(2, 1 if model == "urn" else 0)
    return {
        target: ExpectedUtility(open_utility(utility_of_target(target), space), 2, HORIZON)
        for target in TARGETS[model]
    }


def contexts(prompts: Tensor, goal: ExpectedUtility) -> Tensor:
    """Where a continuation starts, for a goal that reads that."""
    return prompts[:, -1] if goal.order else torch.zeros(len(prompts), dtype=torch.long)


def slopes(laws: Laws, goal: ExpectedUtility, prompts: Tensor) -> Tensor:
    """The gradient of J in one-hot prompts; the context a goal reads is held fixed."""
    rows = torch.nn.functional.one_hot(prompts, 2).double().requires_grad_()
    value = goal.of_laws(laws(rows), contexts(prompts, goal)).sum()
    return torch.autograd.grad(value, rows)[0]


def flips(prompts: Tensor) -> Tensor:
    """Each prompt with each of its tokens turned: [prompts, places, length]."""
    turned = prompts[:, None].repeat(1, prompts.shape[1], 1)
    places = torch.arange(prompts.shape[1])
    turned[:, places, places] = 1 - turned[:, places, places]
    return turned


def favoured(slope: Tensor, prompts: Tensor) -> Tensor:
    """Places whose other token has the larger gradient: what the paper's GCG proposes."""
    return slope.argmax(-1) != prompts


def ends(values: Tensor, proposed: Tensor, prompts: Tensor) -> list[int]:
    """Where GCG ends from each of all prompts: the best proposed flip while it improves J."""
    powers = 2 ** torch.arange(prompts.shape[1] - 1, -1, -1)
    neighbours = (flips(prompts) * powers).sum(-1)
    reached = []
    for start in range(len(prompts)):
        at = start
        for _ in range(ITERATIONS):
            offered = neighbours[at][proposed[at]]
            if not len(offered):
                break
            best = int(offered[values[offered].argmax()])
            if not values[best] > values[at]:
                break
            at = best
        reached.append(at)
    return reached


def bayes_counts(order: int) -> Laws:
    """Exact Bayes of the paper's two models on prompts of weights, by relaxed counts.

    A transition counts for the product of its two weights; the last token weighs the row the first
    continuation token is predicted from. On hard prompts this is the exact predictive.
    """
    every = all_sequences(2, HORIZON)

    def laws(rows: Tensor) -> Tensor:
        if order == 0:
            counts, last = rows.sum(1)[:, None], torch.ones(len(rows), 1, dtype=rows.dtype)
        else:
            counts, last = torch.einsum("bta,btv->bav", rows[:, :-1], rows[:, 1:]), rows[:, -1]
        found = []
        for tokens in every.tolist():
            held, weight, logs = counts, last, torch.zeros(len(rows), dtype=rows.dtype)
            for token in tokens:
                predicted = (held[:, :, token] + 0.5) / (held.sum(-1) + 1)
                logs = logs + (weight * predicted).sum(-1).log()
                added = torch.zeros_like(held)
                added[:, :, token] = weight
                held = held + added
                if order:
                    weight = torch.zeros_like(weight)
                    weight[:, token] = 1.0
            found.append(logs)
        return torch.stack(found, -1)

    return laws


def network_laws(model: TransformerModel) -> Laws:
    return lambda rows: model.continuation_log_probs_of_rows(rows.float(), HORIZON)


def agreeing(slope: Tensor, values: Tensor, turned: Tensor, prompts: Tensor) -> float:
    """In what share of flips the gradient's sign is that of the true change of J."""
    own = slope.gather(-1, prompts[..., None])[..., 0]
    other = slope.gather(-1, 1 - prompts[..., None])[..., 0]
    change = turned - values[:, None]
    told = change.abs() > 1e-6
    return float(((other > own) == (change > 0))[told].double().mean())


def measured(name: str, length: int, prompts: Tensor) -> dict[str, dict[str, Any]]:
    """Of each target: J of these prompts, their proposals, and how often gradients are right."""
    model, order = load(name, "cpu"), 1 if name == "urn" else 0
    relaxed, trained = bayes_counts(order), network_laws(model)
    turned = flips(prompts)
    flat = turned.flatten(0, 1)
    hard = {
        "trained": lambda tokens: continuation_laws(model, tokens, HORIZON).double(),
        "bayes": lambda tokens: relaxed(torch.nn.functional.one_hot(tokens, 2).double()),
    }
    soft = {"trained": trained, "bayes": relaxed}
    known = {kind: (law(prompts), law(flat)) for kind, law in hard.items()}
    found: dict[str, dict[str, Any]] = {}
    for target, goal in objectives(name).items():
        facts: dict[str, Any] = {}
        for kind, (at, near) in known.items():
            values = goal.of_laws(at, contexts(prompts, goal))
            others = goal.of_laws(near, contexts(flat, goal)).view(len(prompts), length)
            slope = slopes(soft[kind], goal, prompts)
            facts[f"signs_{kind}"] = round(agreeing(slope, values, others, prompts), 4)
            if kind == "trained":
                facts["values"], facts["proposed"] = values, favoured(slope, prompts)
        found[target] = facts
    return found


def starts() -> dict[str, Any]:
    """The record of all starts at m=6, and of gradients at both lengths."""
    record: dict[str, Any] = {}
    for name in TARGETS:
        every = all_sequences(2, SHORT)
        seeds = [torch_stream(seed, "gcg-start") for seed in range(10)]
        drawn = torch.cat([torch.randint(2, (1, LONG), generator=seed) for seed in seeds])
        long = measured(name, LONG, drawn)
        targets = {}
        for target, facts in measured(name, SHORT, every).items():
            field = PromptLandscape(facts["values"], [1] * 64, every[0], ROUNDING_OF_NETWORKS)
            targets[target] = {
                "ends": ends(facts["values"], facts["proposed"], every),
                "expected_utility": [round(float(value), 7) for value in facts["values"]],
                "rank": [field.rank(float(value)) for value in facts["values"]],
                "signs": {
                    f"{kind} m={m}": some[f"signs_{kind}"]
                    for m, some in ((SHORT, facts), (LONG, long[target]))
                    for kind in ("trained", "bayes")
                },
            }
        record[name] = {"fingerprint": load(name, "cpu").fingerprint, "targets": targets}
    return record


def show_signs(record: dict[str, Any]) -> list[str]:
    """By model, length and family: the mean over targets, and from the least to the greatest."""
    columns = "| model | m | family | targets | trained model | exact Bayes, relaxed |"
    lines = heading(columns)
    for name, known in record.items():
        families: dict[str, list[dict[str, float]]] = {}
        for target, facts in known["targets"].items():
            families.setdefault(family_of(target), []).append(facts["signs"])
        for m in (SHORT, LONG):
            for family, several in families.items():
                shown = []
                for kind in ("trained", "bayes"):
                    shares = [one[f"{kind} m={m}"] for one in several]
                    shown.append(f"{fmean(shares):.0%} ({min(shares):.0%} to {max(shares):.0%})")
                lines.append(f"| {name} | {m} | {family} | {len(several)} | {' | '.join(shown)} |")
    return lines


def caps(device: str) -> dict[str, Any]:
    """J by iteration of some targets at m=50, ten seeds."""
    record: dict[str, Any] = {}
    for name, targets in CAPPED.items():
        utilities = [utility_of_target(target) for target in targets]
        method = f"gcg(steps={max(SHOWN_CAPS)})"
        runs = elicit_many(
            name, utilities, length=LONG, method=method, seeds=range(10), device=device
        )
        for row, target in enumerate(targets):
            some = runs[10 * row : 10 * row + 10]
            record.setdefault(name, {})[target] = [
                [round(step.value, 5) for step in one.answer.history] for one in some
            ]
    return record


def show_caps(record: dict[str, Any], whole: Cells) -> list[str]:
    """Mean (standard error) after so many iterations, and with the paper's limit of 2m."""
    shown = " | ".join(f"{cap}" for cap in SHOWN_CAPS)
    lines = heading(f"| model | target | published | {shown} | {2 * LONG} |")
    for name, targets in record.items():
        for target, runs in targets.items():
            cells = []
            for cap in SHOWN_CAPS:  # a history begins with the start
                cells.append(_mean([history[min(cap, len(history) - 1)] for history in runs]))
            key = (name, target, LONG, "gcg")
            cell, theirs = whole.get(key), published()[*key, "J"]
            cells.append("" if cell is None else _mean(cell.values("J")))
            figure = f"{theirs.value:.2f} ({theirs.standard_error or 0.0:.2f})"
            lines.append(f"| {name} | {target} | {figure} | {' | '.join(cells)} |")
    return lines


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.2f} ({stdev(values) / len(values) ** 0.5:.2f})"


def laws_read(model: TransformerModel, prompts: Tensor, bos: bool, shift: int) -> Tensor:
    """Log-probabilities of all continuations, with or without a start token, from a position on."""
    network, every = model.network, all_sequences(2, HORIZON)
    tokens = torch.cat([prompts.repeat_interleave(len(every), 0), every.repeat(len(prompts), 1)], 1)
    if bos:
        tokens = torch.cat([torch.full((len(tokens), 1), 2), tokens], 1)
    x = network.tokens(tokens)
    if network.positions is not None:
        places = (torch.arange(tokens.shape[1]) + shift).clamp(min=0)
        x = x + network.positions.weight[places]
    for block in network.blocks:
        x = block(x)
    logs = network.head(network.norm(x)).float().log_softmax(-1)
    said = logs[:, -HORIZON - 1 : -1].gather(2, tokens[:, -HORIZON:, None])[..., 0].sum(-1)
    return said.double().view(len(prompts), len(every))


READINGS = {
    "float32": (False, True, 0),
    "bfloat16": (True, True, 0),
    "no start token": (False, False, 0),
    "no start token, positions from 1": (False, False, 1),
    "start token without a position of its own": (False, True, -1),
    "bfloat16, no start token": (True, False, 0),
}


@torch.no_grad()
def evaluations() -> dict[str, Any]:
    """The best J of all 64 prompts of each target, by how the network is read."""
    prompts, goals = all_sequences(2, SHORT), objectives("urn")
    record: dict[str, Any] = {}
    for name, (coarse, bos, shift) in READINGS.items():
        model = load("urn", "cpu")
        if coarse:
            model.network.bfloat16()
        laws = laws_read(model, prompts, bos, shift)
        best: dict[str, Any] = {}
        for target, goal in goals.items():
            values = goal.of_laws(laws, contexts(prompts, goal))
            best[target] = round(float(values.max()), 5)
            if target == "dyck":
                best["prompt"] = "".join(map(str, prompts[int(values.argmax())].tolist()))
        record[name] = best
    return record


def show_evaluations(record: dict[str, Any]) -> list[str]:
    """How many published means no prompt reaches, and how far the best of both are apart."""
    lines = heading(
        "| read as | published means of PPT above the best of 64 prompts | best published to best "
        "of 64, mean distance | the best prompt for Dyck |"
    )
    for name in READINGS:
        best, over, total, gaps = record[name], 0, 0, []
        for target in TARGETS["urn"]:
            theirs = [published()["urn", target, SHORT, k, "J"].value for k in VARIANTS]
            over, total = over + sum(v - 0.005 > best[target] for v in theirs), total + len(theirs)
            gaps.append(abs(max(theirs) - best[target]))
        dyck = f"{best['prompt']}, {best['dyck']:.2f}"
        lines.append(f"| {name} | {over} of {total} | {fmean(gaps):.3f} | {dyck} |")
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("part", choices=("starts", "signs", "caps", "evaluations"))
    parser.add_argument("--from", dest="known", type=Path, help="a record made before")
    parser.add_argument("--paper", type=Path, default=RECORDS / "paper.parquet")
    parser.add_argument("--device", default="cpu", help="for caps")
    given = parser.parse_args(arguments)
    if given.part == "starts":
        write_document(STARTS, starts())
        given.part = "signs"
    if given.part == "signs":
        print("\n".join(show_signs(read_document(given.known or STARTS))))
    elif given.part == "caps":
        whole = Cells(read_rows(given.paper))
        record = caps(given.device) if given.known is None else read_document(given.known)
        if given.known is None:
            write_document(CAPS, record)
        print("\n".join(show_caps(record, whole)))
    else:
        record = evaluations()
        write_document(EVALUATIONS, record)
        print("\n".join(show_evaluations(record)))


if __name__ == "__main__":
    run(main)
