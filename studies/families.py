"""Is `auto` as good as rivals that are told the exact J, on every family of latents?

    python studies/families.py [--quick] [--only mess3,rrxor] [--lengths 6 10] [--seconds 600]
    python studies/families.py --only mess3-8 --lengths 20 --nodes 200000 \\
        --method 'bounds(seconds=600)'

A row is a family, a length, a horizon and a utility. Rivals try all prompts where there are at most
2**20 of them (and at most 10 tokens), else they are coordinate ascent from 20 random prompts and a
beam of 64, the better of the two. They score by exact J: a sum over all latents where these are
finitely many, else the tree of all continuations. J in the table, auto's and theirs, is computed
once more by that tree. `gap` is how much better any prompt may be, by proof; `MB` is the most
memory the process held while `auto` ran, about 300 of which are torch. Rows are printed as they are
done; `--seconds` begins none after so many; `--quick` keeps the short lengths of some families.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from running import Options, positive, run
from tables import heading
from torch import Tensor

from posteer.api.eliciting import elicit_batch
from posteer.core.errors import InputError
from posteer.core.randomness import torch_stream
from posteer.core.shapes import Float, Int
from posteer.evaluation.ranking import landscape
from posteer.evaluation.values import expected_utility
from posteer.families.protocol import FinitePrior
from posteer.methods.answers import EXACT
from posteer.methods.climbing.latents import LatentScore
from posteer.methods.direct.coordinate import single_substitutions
from posteer.methods.protocol import Problem, Request, pose
from posteer.results import Elicitation
from posteer.tokens.contexts import all_sequences

Score = Callable[[Int[Tensor, "K m"]], Float[Tensor, "K"]]

ORDERS = (
    "[0.3,0.7]",
    "[[0.2,0.8],[0.5,0.5]]",
    "[[0.9,0.1],[0.4,0.6],[0.1,0.9],[0.7,0.3]]",
)
MODELS = {
    "mess3": "exact:mess3(x=0.15,a=0.6)",
    "mess3-8": "exact:mess3(x=[0.05,0.1,0.2,0.3,0.05,0.1,0.2,0.3],"
    "a=[0.6,0.6,0.6,0.6,0.85,0.85,0.85,0.85])",
    "rrxor": "exact:rrxor",
    "sticky": "exact:sticky(states=3,vocab=2,stay=0.8,sharp=0.9)",
    "random-hmm": "exact:random-hmm(states=3,vocab=3,n=20)",
    "ginc": "exact:ginc(vocab=8,concepts=3,entities=3,properties=3)",
    "chains": "exact:chains(n=8,vocab=10)",
    "orders": f"exact:mixture({','.join(ORDERS)})",
    "coins": "exact:coins(0.1,0.3,0.6,0.9)",
    "kernels": "exact:mixture([[0.9,0.1],[0.2,0.8]],[[0.1,0.9],[0.9,0.1]],[[0.5,0.5],[0.3,0.7]])",
    "context-tree": "exact:context-tree(vocab=2,depth=2)",
    "personas": "personas(exact:urn,exact:coins(0.2,0.7))",
}
UTILITIES = ("dyck", "frequency(0.6)")
BINARY = "reverse-xent([[0.2,0.8],[0.7,0.3]])"
LENGTHS = (6, 10, 20, 50)
QUICK = {"lengths": (6, 24), "names": ("mess3", "rrxor", "sticky", "orders", "coins")}
LONGER_HORIZON = ("rrxor", 8)
"""One family is asked about longer continuations too."""

MOST_TRIED = 2**20
LONGEST_TRIED = 10
MOST_WALKED = 2**20
"""Prompts and continuations of them that are all walked through on the model."""

RESTARTS, WIDTH = 20, 64
BEHIND = 1e-6
"""What `auto` may be behind by."""


@dataclass(frozen=True)
class Case:
    """One row: a family by its name, and what is asked of it."""

    name: str
    utility: str
    length: int
    horizon: int


@dataclass(frozen=True)
class Rival:
    """The best prompt of a search on exact J."""

    name: str
    prompt: Int[Tensor, "m"]
    seconds: float


def cases(names: list[str], lengths: list[int]) -> Iterator[Case]:
    """Families in order, each with its lengths and utilities."""
    for name in names:
        for length in lengths:
            for utility in UTILITIES:
                yield Case(name, utility, length, 4)
            if name in ("rrxor", "orders", "kernels"):
                yield Case(name, BINARY, length, 4)
            if name == LONGER_HORIZON[0]:
                yield Case(name, "dyck", length, LONGER_HORIZON[1])


def exact_score(problem: Problem) -> Score:
    """J of prompts, no estimate."""
    prior = problem.model.prior
    if isinstance(prior, FinitePrior):
        atoms = prior.as_atoms()
        latents, weights = atoms.latents, atoms.log_weights
        return LatentScore(latents, weights, (), problem.expected, problem.horizon, exact=True)
    return lambda prompts: on_the_model(problem, prompts)


def on_the_model(problem: Problem, prompts: Int[Tensor, "K m"]) -> Float[Tensor, "K"]:
    """J by the tree of all continuations."""
    found = expected_utility(problem.model.inner, problem.goal, prompts, problem.horizon)
    return found.expected_utility


def tried(problem: Problem, score: Score) -> Int[Tensor, "m"]:
    """The best of all prompts: by the tree of all continuations where that is small enough."""
    vocab, length = problem.vocab_size, problem.length
    if vocab ** (length + problem.horizon) <= MOST_WALKED:
        found = landscape(problem.model.inner, problem.goal, length, problem.horizon)
        assert found is not None, "few enough"
        return found.best_prompt
    prompts = all_sequences(vocab, length)
    return prompts[int(score(prompts).argmax())]


def ascent(score: Score, vocab: int, length: int) -> Int[Tensor, "m"]:
    """The best end of single substitutions from random prompts, each until none helps."""
    generator = torch_stream(0, "families-starts")
    current = torch.randint(vocab, (RESTARTS, length), generator=generator)
    values = score(current)
    going = torch.arange(RESTARTS)
    while len(going):
        near = torch.stack([single_substitutions(row, vocab) for row in current[going]])
        reached, best = score(near.flatten(0, 1)).view(len(going), -1).max(-1)
        up = reached > values[going]
        values[going[up]] = reached[up]
        current[going[up]] = near[up, best[up]]
        going = going[up]
    return current[int(values.argmax())]


def beam(score: Score, vocab: int, length: int, shortest: int) -> Int[Tensor, "m"]:
    """The best prompt grown from the left, each length's best kept by their own J."""
    kept = all_sequences(vocab, shortest)
    while True:
        kept = kept[score(kept).argsort(descending=True, stable=True)[:WIDTH]]
        if kept.shape[1] == length:
            return kept[0]
        token = torch.arange(vocab).repeat(len(kept))[:, None]
        kept = torch.cat([kept.repeat_interleave(vocab, 0), token], 1)


def rival_of(problem: Problem) -> Rival:
    """All prompts where they can be tried, else the better of ascent and beam."""
    started = time.perf_counter()
    score, vocab, length = exact_score(problem), problem.vocab_size, problem.length
    if length <= LONGEST_TRIED and vocab**length <= MOST_TRIED:
        return Rival("all", tried(problem, score), time.perf_counter() - started)
    shortest = max(problem.model.order, problem.goal.order, 0) + 1
    ends = torch.stack([ascent(score, vocab, length), beam(score, vocab, length, shortest)])
    best = int(score(ends).argmax())
    return Rival(("ascent", "beam")[best], ends[best], time.perf_counter() - started)


def forget_peak() -> None:
    """Begin to measure the most memory anew, where the system can."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> str:
    """The most memory that was held since, in MB."""
    if not Path("/proc/self/status").exists():
        return ""
    lines = Path("/proc/self/status").read_text().splitlines()
    return f"{int(next(line for line in lines if line.startswith('VmHWM')).split()[1]) // 1024}"


def row(case: Case, method: str, nodes: int | None) -> tuple[str, float]:
    """A line of the table, and how far `auto` is ahead."""
    asked = Request(
        model=MODELS[case.name],
        utility=case.utility,
        length=case.length,
        horizon=case.horizon,
        method=method,
        nodes=nodes,
    )
    forget_peak()
    (found,), held = elicit_batch([asked]), peak()
    (problem,) = pose([asked])
    rival = rival_of(problem)
    both = torch.stack([torch.tensor(found.prompt), rival.prompt])
    value, other = on_the_model(problem, both).tolist()
    line = (
        f"| {case.name} | {problem.vocab_size} | {case.horizon} | {case.length} | {case.utility} "
        f"| {value:.6f} | {rival.name} {other:.6f} | {value - other:+.1e} | {gap_of(found)} "
        f"| {found.seconds:.1f} | {held} | {rival.seconds:.1f} |"
    )
    return line, value - other


def gap_of(found: Elicitation) -> str:
    """What is proven: that all prompts or classes were tried, or a gap and its nodes."""
    proof, certificate = found.proof, found.certificate
    if certificate is not None and certificate.estimator == EXACT:
        return f"0, all {certificate.count:,} {certificate.scope.value}"
    if proof is None:
        return "none"
    return f"{max(proof.gap, 0.0):.1g}, {proof.nodes:,} nodes"


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true", help="a few rows")
    parser.add_argument("--only", default="", help=f"of {', '.join(MODELS)}, by commas")
    parser.add_argument("--lengths", type=positive, nargs="+")
    parser.add_argument("--seconds", type=positive, help="begin no row after so many")
    parser.add_argument("--nodes", type=positive, help="as in `posteer elicit`")
    parser.add_argument("--method", default="auto")
    given = parser.parse_args(arguments)
    names = [name.strip() for name in given.only.split(",") if name.strip()]
    for name in names:
        if name not in MODELS:
            raise InputError(f"{name}: expected one of {', '.join(MODELS)}")
    names = names or list(QUICK["names"] if given.quick else MODELS)
    lengths = given.lengths or list(QUICK["lengths"] if given.quick else LENGTHS)
    started, differences = time.perf_counter(), []
    print(
        *heading(
            f"| family | V | N | m | utility | J of {given.method.partition('(')[0]} | rival's "
            "| ahead by | gap | seconds | MB | rival's seconds |"
        ),
        sep="\n",
    )
    for case in cases(names, lengths):
        if given.seconds is not None and time.perf_counter() - started > given.seconds:
            break
        line, ahead = row(case, given.method, given.nodes)
        differences.append(ahead)
        print(line, flush=True)
    behind = sum(one < -BEHIND for one in differences)
    ahead = sum(one > BEHIND for one in differences)
    print(
        f"\n{len(differences)} rows: ahead by more than {BEHIND:g} in {ahead}, behind in {behind}"
    )


if __name__ == "__main__":
    run(main)
