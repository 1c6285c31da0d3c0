"""Trained filters of finitely many latents: `auto` beside searches on the model, and what the wrong
family costs.

    python studies/trained_filters.py [--models mess3-mixture ginc] [--lengths 6 20 50] [--share]
    python studies/trained_filters.py --wrong [--models mess3-mixture]
    python studies/trained_filters.py --diversity [--sequences 512]

`auto --verify 8` on the shipped bank, then gcg, coordinate ascent and a beam, each with `--times`
as many model tokens as its run took; with `--share` also as many as that and its share of the bank,
whose tokens are spread over the runs of the table that it serves. J is exact on the model. `risk`
is what a model loses on exact Bayes, in nats a token (its manifest has it).

`--wrong`: the same model steered by banks that take its latents for something else, its own
estimate beside what the model makes of the prompt; nothing is verified.

`--diversity`: the loss of the models of chains, in nats a token, on fresh sequences of the chains
they were trained on and on sequences of chains that they never met, beside exact Bayes that knows
the former and exact Bayes that knows only how chains are drawn. A model that has memorised its
chains is near the first, one that has not is near the second on both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from running import Options, positive, run
from tables import heading

from posteer import elicit, load, sample
from posteer.banks.shipped import shipped_bank
from posteer.families.registry import open_process
from posteer.models.shipped import shipped_models
from posteer.models.transformer.checkpoint import read_manifest
from posteer.models.transformer.model import TransformerModel
from posteer.results import Elicitation
from posteer.training.data import HeldOut, exact_log_loss
from posteer.training.plan import PRESETS

HORIZONS = {"mess3-mixture": 4, "chains-16": 2, "chains-1024": 2, "ginc": 2}
"""Tokens that follow; gcg differentiates through no more at ten and at twenty tokens."""
UTILITIES = ("dyck", "frequency(0.6)", "frequency(0.0)")
LENGTHS = (6, 20, 50)
RIVALS = ("gcg", "coordinate(restarts=1000)", "beam")
BELIEFS = ("atoms", "hmm(states=3)", "markov(order=0)", "markov(order=1)", "markov(order=2)")
ROLLOUTS = 1000
LEVEL = 1e-6
CHAINS, ALL_CHAINS = ("chains-16", "chains-1024"), "markov(vocab=10,order=1,concentration=0.2)"


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--models", nargs="+", choices=HORIZONS, default=list(HORIZONS))
    parser.add_argument("--utilities", nargs="+", default=list(UTILITIES))
    parser.add_argument("--lengths", nargs="+", type=positive, default=list(LENGTHS))
    parser.add_argument("--times", type=positive, default=10)
    parser.add_argument("--share", action="store_true")
    parser.add_argument("--wrong", action="store_true")
    parser.add_argument("--rollouts", type=positive, default=ROLLOUTS)
    parser.add_argument("--diversity", action="store_true")
    parser.add_argument("--sequences", type=positive, default=512)
    given = parser.parse_args(arguments)
    tasks = [(length, utility) for length in given.lengths for utility in given.utilities]
    if given.diversity:
        first = heading("| model | sequences | loss | of its chains | of all chains |")
        print(*first, *losses_of_chains(given.sequences), sep="\n")
        return
    if given.wrong:
        print(*heading("| model | family | m | utility | surrogate | se | J |"), sep="\n")
        for name in given.models:
            for row in wrong_families(load(name), tasks, given.rollouts):
                print(row, flush=True)
        return
    columns = ["model", "risk", "m", "utility", "auto", "tokens", *RIVALS, "tokens each"]
    columns += ["best of them with the bank's share", "tokens each"] if given.share else []
    print(*heading(f"| {' | '.join(columns)} |"), sep="\n")
    ahead: Counter[str] = Counter()
    for name in given.models:
        model = load(name)
        risk = read_manifest(shipped_models()[name])["excess_risk"]["overall"]
        for one in contests(model, tasks, given.times, given.share):
            print(f"| {name} | {risk:.1e} | {one.row()} |", flush=True)
            ahead.update({"rows": 1, one.standing(one.rivals): 1})
            if one.richer:
                ahead[f"with the bank's share: {one.standing(one.richer)}"] += 1
    print("\n" + ", ".join(f"{what} {n}" for what, n in sorted(ahead.items())))


@dataclass(frozen=True)
class Contest:
    """A task by `auto`, by rivals on so many times the tokens of its run, and by the same on so
    many times those and its share of the bank, if asked."""

    length: int
    utility: str
    found: Elicitation
    rivals: list[Elicitation]
    richer: list[Elicitation]
    budgets: tuple[int, int]

    def standing(self, rivals: list[Elicitation]) -> str:
        """Whether `auto` is ahead of the best of them."""
        ahead = self.found.expected_utility - max(one.expected_utility for one in rivals)
        return "level" if abs(ahead) <= LEVEL else "ahead" if ahead > 0 else "behind"

    def row(self) -> str:
        """Cells of a table."""
        cells = [
            str(self.length),
            self.utility,
            f"{self.found.expected_utility:.5f}",
            f"{self.found.queries.total:,}",
            *(f"{one.expected_utility:.5f}" for one in self.rivals),
            f"{self.budgets[0]:,}",
        ]
        if self.richer:
            best = max(self.richer, key=lambda one: one.expected_utility)
            cells += [f"{best.method.partition('(')[0]} {best.expected_utility:.5f}"]
            cells += [f"{self.budgets[1]:,}"]
        return " | ".join(cells)


def contests(
    model: TransformerModel, tasks: list[tuple[int, str]], times: int, share: bool
) -> Iterator[Contest]:
    """Each task by `auto`, then by its rivals."""
    bank = shipped_bank(model.fingerprint)
    assert bank is not None, f"no bank is shipped for {model.name}"
    horizon = HORIZONS[model.name]
    for length, utility in tasks:
        found = elicit(model, utility, length=length, horizon=horizon, verify=8)
        own = times * found.queries.total
        budgets = own, own + times * bank.tokens // len(tasks)
        rivals, richer = [
            [
                elicit(
                    model,
                    utility,
                    length=length,
                    horizon=horizon,
                    method=rival,
                    max_model_tokens=budget,
                )
                for rival in RIVALS
            ]
            for budget in budgets[: 1 + share]
        ] + [[]] * (not share)
        yield Contest(length, utility, found, rivals, richer, budgets)


def wrong_families(
    model: TransformerModel, tasks: list[tuple[int, str]], rollouts: int
) -> Iterator[str]:
    """Banks of the same rollouts, read as latents of one family and another."""
    for belief in BELIEFS:
        bank = sample(model, rollouts=rollouts, length=model.max_length, family=belief)
        for length, utility in tasks:
            horizon = HORIZONS[model.name]
            found = elicit(model, utility, length=length, horizon=horizon, bank=bank)
            answer = found.answer
            yield (
                f"| {model.name} | {belief} | {length} | {utility} | {answer.surrogate:.4f} | "
                f"{answer.surrogate_standard_error:.4f} | {found.expected_utility:.4f} |"
            )


def losses_of_chains(n: int) -> Iterator[str]:
    """What the models of chains lose on known and on new ones, beside both kinds of exact Bayes."""
    for name in CHAINS:
        model = load(name, "cpu")
        own, every = open_process(PRESETS[name].process), open_process(ALL_CHAINS)
        for what, source in (("of its chains", own), ("of others", every)):
            held = HeldOut(source, n, PRESETS[name].length, 1, torch.device("cpu"))
            found = [
                held.losses(model.network),
                *(exact_log_loss(prior, held.tokens) for prior in (own, every)),
            ]
            yield f"| {name} | {what} | {' | '.join(f'{float(x.mean()):.4f}' for x in found)} |"


if __name__ == "__main__":
    run(main)
