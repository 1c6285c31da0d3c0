"""Which urn would give the published figures? The paper's training, looked at along its way.

    python studies/urns.py train --out RUN --seed 0 --device cuda [--minutes 9] [--until 16000]
        [--startless] [--steps 16000]
    python studies/urns.py                      # from docs/records/urns.jsonl

train: the paper's schedule of 100,000 steps, in `RUN/seed-0`; stopped, the same command goes on. At
each of the steps 250, 500, 1,000, 1,500, 2,000, 3,000 and so on, a line of the record: excess risk;
the best J of all 64 prompts of length 6 for every target, with the network read in float32 and
bfloat16, with its start token and without; ESS/L of three fixed prompts over rollouts; what GCG
reaches at length 50 for the targets where no urn came near. Some 7 minutes of an H200 to 8,000.
A GPU does not repeat a training to the last bit: `--run 2` is another one of the same seed. With
`--startless` the network is trained without a start token, and read as it was trained; with
`--steps` on a shorter schedule.
show: how far each is from what is published: means of PPT that no prompt of its 64 reaches; J of
the best prompt of a target, which is published where a method was at rank 1 on every seed (how
many are the same when printed, and the root of the mean square distance); ESS/L; and the distance
of GCG, in the standard errors of the difference.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from corners import PROMPTS, PUBLISHED, moments
from greedy import LONG, READINGS, SHORT, contexts, laws_read, objectives
from places import RECORDS
from running import Options, positive, read_records, run, write_records
from startless import StartlessModel, StartlessTrainer
from tables import heading

from posteer.api.eliciting import elicit_many
from posteer.banks import DrawPlan, draw_bank
from posteer.core.device import pick_device
from posteer.core.errors import require
from posteer.families.registry import open_process
from posteer.models import Metered
from posteer.models.transformer.model import TransformerModel
from posteer.models.transformer.network import Transformer
from posteer.paper.agreement import exact_optimum
from posteer.paper.published import METHODS, TARGETS, VARIANTS, published, utility_of_target
from posteer.tokens.contexts import all_sequences
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS, make_plan

KEPT = RECORDS / "urns.jsonl"
MILESTONES = [250, 500] + [n * 2**power for power in range(7) for n in (1000, 1500)] + [100_000]
SCHEDULE = PRESETS["urn"].steps
GREEDY = ("dyck", "dir-2", "dir-4")
ROUNDING = 0.005


STARTLESS = {
    "float32": READINGS["no start token"],
    "bfloat16": READINGS["bfloat16, no start token"],
}
"""How a network without a start token is read."""


@torch.no_grad()
def best_of_all(network: Transformer, startless: bool = False) -> dict[str, dict[str, Any]]:
    """The best J of all 64 prompts by target, for each way to read the network."""
    prompts, goals = all_sequences(2, SHORT), objectives("urn")
    found: dict[str, dict[str, Any]] = {}
    for name, (coarse, bos, shift) in (STARTLESS if startless else READINGS).items():
        model = TransformerModel(deepcopy(network).cpu(), name, open_process("urn"))
        if coarse:
            model.network.bfloat16()
        laws = laws_read(model, prompts, bos, shift)
        values = {key: goal.of_laws(laws, contexts(prompts, goal)) for key, goal in goals.items()}
        best = {key: round(float(value.max()), 5) for key, value in values.items()}
        leader = prompts[int(values["dyck"].argmax())].tolist()
        found[name] = {"best": best, "dyck_prompt": "".join(map(str, leader))}
    return found


def looked_at(trainer: Trainer, rollouts: int) -> dict[str, Any]:
    """What a line of the record says of the network as it is now."""
    startless = isinstance(trainer, StartlessTrainer)
    kind = StartlessModel if startless else TransformerModel
    model = kind(trainer.network, f"step-{trainer.step}", trainer.prior)
    bank = draw_bank(
        Metered(model), DrawPlan(n_samples=rollouts, rollout_length=trainer.plan.length)
    )
    ess = {key: round(value, 4) for key, value in moments(bank).items()}
    utilities = [utility_of_target(target) for target in GREEDY]
    runs = elicit_many(
        model,
        utilities,
        length=LONG,
        method="gcg",
        seeds=range(10),
        device=str(trainer.device),
        rank=False,
    )
    reached = [round(one.expected_utility, 4) for one in runs]
    excess = None if trainer.excess is None else trainer.excess.overall
    return {
        "seed": trainer.plan.seed,
        "step": trainer.step,
        "excess": excess,
        "rollouts": rollouts,
        "ess": ess,
        "gcg": {target: reached[10 * row : 10 * row + 10] for row, target in enumerate(GREEDY)},
        "readings": best_of_all(trainer.network, startless),
        **({"startless": True} if startless else {}),
        **({"schedule": trainer.plan.steps} if trainer.plan.steps != SCHEDULE else {}),
    }


def stops(until: int, steps: int) -> list[int]:
    """Where a training is looked at: milestones, and the end of a shorter schedule."""
    before = [one for one in MILESTONES if one <= min(until, steps)]
    return before + [steps] * (steps <= until and steps not in before)


def train(given: Any) -> None:
    began = time.monotonic()
    device = pick_device(given.device)
    plan = make_plan("urn", None, {}, {"seed": given.seed, "steps": given.steps})
    require(given.steps > plan.warmup, f"--steps {given.steps}: warming up takes {plan.warmup}")
    known = read_records(given.keep) if given.keep.is_file() else []
    own = (given.startless, given.seed, -given.steps, given.run)
    done = {one["step"] for one in known if _which(one) == own}
    name = f"seed-{given.seed}" + (f"-run-{given.run}" if given.run > 1 else "")
    name += "-startless" if given.startless else ""
    name += f"-of-{given.steps}" if given.steps != SCHEDULE else ""
    kind = StartlessTrainer if given.startless else Trainer
    trainer = kind(plan, given.out / name, device=device, compiled=device != "cpu")
    trainer.log_every = trainer.evaluate_every = MILESTONES[0]
    for stop in [one for one in stops(given.until, given.steps) if trainer.step <= one]:
        left = given.minutes - (time.monotonic() - began) / 60
        if trainer.step < stop:
            trainer.run(max_minutes=left, should_stop=lambda stop=stop: trainer.step >= stop)  # type: ignore[misc]
        if trainer.step < stop:
            print(f"stopped at step {trainer.step}: the same command goes on", flush=True)
            return
        if stop not in done:
            known.append({**looked_at(trainer, given.rollouts), "run": given.run})
            write_records(given.keep, known)
            trainer.network.train()
        if given.models is not None:
            here = given.models / f"{name}-step-{stop}"
            shutil.copytree(trainer.folder.model, here, dirs_exist_ok=True)
        spent = time.monotonic() - began
        print(f"step {trainer.step}, {spent:.0f} s: {trainer.excess}", flush=True)


def _which(one: dict[str, Any]) -> tuple[bool, int, int, int]:
    """The training that a line of the record is of; of a seed's, longer schedules first."""
    schedule = one.get("schedule", SCHEDULE)
    return one.get("startless", False), one["seed"], -schedule, one.get("run", 1)


@cache
def found_bests() -> dict[str, float]:
    """J of the best of all prompts on the authors' network, by target: what is published where one
    of their methods was at rank 1 on every seed."""
    known: dict[str, float] = {}
    for target, method in product(TARGETS["urn"], METHODS):
        rank = published().get(("urn", target, SHORT, method, "rank"))
        if rank is not None and rank.value == 1.0:
            value = published()["urn", target, SHORT, method, "J"].value
            assert known.setdefault(target, value) == value, "a target has one best J"
    return known


def distances(one: dict[str, Any], reading: str) -> dict[str, float]:
    """Of one network, read in one way, from the published figures."""
    ess = fmean(abs(one["ess"][name] - float(PUBLISHED[name])) for name in PROMPTS)
    return {**from_bests(one["readings"][reading]["best"]), "ess": ess}


def from_bests(best: Mapping[str, float]) -> dict[str, float]:
    """How far the best J of all 64 prompts of each target is from what is published."""
    over, total = 0, 0
    for target in TARGETS["urn"]:
        theirs = [published()["urn", target, SHORT, method, "J"].value for method in VARIANTS]
        over, total = over + sum(v - ROUNDING > best[target] for v in theirs), total + len(theirs)
    apart = [best[target] - value for target, value in found_bests().items()]
    same = sum(abs(gap) <= ROUNDING + 1e-9 for gap in apart)
    size = fmean(gap**2 for gap in apart) ** 0.5
    return {"over": over, "total": total, "same": same, "apart": size}


def greedy_distance(one: dict[str, Any]) -> float:
    """The mean distance of GCG's means from the published ones, in their standard errors."""
    found = []
    for target, reached in one["gcg"].items():
        theirs = published()["urn", target, LONG, "gcg", "J"]
        spread = torch.tensor(reached, dtype=torch.float64).std() / len(reached) ** 0.5
        error = float(((theirs.standard_error or 0.0) ** 2 + spread**2 + ROUNDING**2 / 3) ** 0.5)
        found.append(abs(fmean(reached) - theirs.value) / error)
    return fmean(found)


def show(lines: list[dict[str, Any]], readings: Sequence[str] = tuple(READINGS)) -> list[str]:
    """A row for each network and reading; those of one network share ESS/L and GCG."""
    bests = found_bests()
    shown = heading(
        "| seed | step | excess risk | read as | published means of PPT that no prompt reaches | "
        f"best prompts' J as published, of {len(bests)} (apart) | Dyck, best of 64 | "
        "ESS/L of zeros, ones, 0101.. | GCG at m=50: Dyck, dir-2, dir-4 | its distance in errors |"
    )
    theirs = [published()["urn", target, LONG, "gcg", "J"].value for target in GREEDY]
    shown.append(
        f"| | | | published | | | {bests['dyck']:.2f} | {', '.join(PUBLISHED.values())} | "
        f"{', '.join(f'{value:.2f}' for value in theirs)} | |"
    )
    exact = exact_optimum("urn", SHORT)
    far = from_bests(exact)
    shown.append(
        f"| | | 0 | exact Bayes | {far['over']} of {far['total']} | "
        f"{far['same']} ({far['apart']:.2f}) | {exact['dyck']:.2f} | | | |"
    )
    for one in sorted(lines, key=lambda one: (_which(one), one["step"])):
        startless, seed, schedule, run = _which(one)
        said = f"{seed}, run {run}" if run > 1 else str(seed)
        said += ", no start token" if startless else ""
        said += f", schedule of {-schedule:,}" if schedule != -SCHEDULE else ""
        reached = ", ".join(f"{fmean(one['gcg'][target]):.2f}" for target in GREEDY)
        ess = ", ".join(f"{one['ess'][name]:.2f}" for name in PROMPTS)
        for reading in (name for name in readings if name in one["readings"]):
            facts = one["readings"][reading]
            far = distances(one, reading)
            dyck = f"{facts['dyck_prompt']}, {facts['best']['dyck']:.2f}"
            same = f"{ess} | {reached} | {greedy_distance(one):.1f}"
            shown.append(
                f"| {said} | {one['step']:,} | {one['excess']:.1e} | {reading} | "
                f"{far['over']} of {far['total']} | {far['same']} ({far['apart']:.2f}) | {dyck} | "
                f"{same if reading == 'float32' else ' | | '} |"
            )
    return shown


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("part", choices=("show", "train"), nargs="?", default="show")
    parser.add_argument("--keep", type=Path, default=KEPT, help="the record")
    parser.add_argument("--out", type=Path, default=Path("runs/urns"), help="folder of trainings")
    parser.add_argument("--models", type=Path, help="keep the model of each of those steps here")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=positive, default=1, help="another training of this seed")
    parser.add_argument("--startless", action="store_true", help="trained without a start token")
    parser.add_argument("--steps", type=positive, default=SCHEDULE, help="of the schedule")
    parser.add_argument("--until", type=positive, default=MILESTONES[-1])
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--rollouts", type=positive, default=1000)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    if given.part == "train":
        train(given)
    else:
        print("\n".join(show(read_records(given.keep))))


if __name__ == "__main__":
    run(main)
