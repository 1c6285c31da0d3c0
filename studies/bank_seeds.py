"""Does it matter which rollouts a bank happens to hold? `auto` on the paper's cells, bank by bank.

    posteer sample --model urn --seed 2 --out banks/urn.2.safetensors       # and so on
    python studies/bank_seeds.py run banks --out docs/records/bank-seeds.jsonl
    python studies/bank_seeds.py show [docs/records/bank-seeds.jsonl]

With a model's shipped bank the search leaves nothing to chance, so runs of other seeds are the same
runs. What chance there is lies in the bank: `run` asks for all targets at both lengths with
`--verify 8`, with both shipped banks and with every bank of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beyond import WITHIN
from other_urns import runs_on_the_shorter
from places import RECORDS
from running import Options, read_records, run
from tables import grouped, heading

from posteer.api.eliciting import elicit_many
from posteer.banks import LatentBank, load_bank
from posteer.banks.shipped import shipped_bank
from posteer.core.errors import InputError, require
from posteer.core.files import write_atomically
from posteer.core.sealing import list_file
from posteer.models import load
from posteer.models.protocol import Model
from posteer.paper.cells import Cells
from posteer.paper.published import METHODS, TARGETS, utility_of_target
from posteer.sweeps.results import read_rows

LENGTHS = (6, 50)


def runs(folder: Path) -> Iterator[dict[str, Any]]:
    """A record for each model, bank, length and target."""
    require(folder.is_dir(), f"{folder}: no such folder of banks")
    given = [load_bank(path) for path in sorted(folder.glob("*.safetensors"))]
    for name, targets in TARGETS.items():
        model = load(name)
        shipped = [shipped_bank(model.fingerprint, kind) for kind in ("tuning", "held-out")]
        others = [bank for bank in given if bank.origin.fingerprint == model.fingerprint]
        for bank in (*filter(None, shipped), *others):
            for length in LENGTHS:
                yield from _runs_of_bank(model, list(targets), bank, length)


def _runs_of_bank(
    model: Model, targets: list[str], bank: LatentBank, length: int
) -> Iterator[dict[str, Any]]:
    utilities = [utility_of_target(target) for target in targets]
    found = elicit_many(model, utilities, length=length, bank=bank, verify=8)
    for target, one in zip(targets, found, strict=True):
        estimator = one.answer.estimator
        yield {
            "model": model.name,
            "bank_seed": bank.origin.seed,
            "length": length,
            "target": target,
            "prompt": "".join(map(str, one.prompt)),
            "expected_utility": one.expected_utility,
            "rank": one.rank,
            "forward_tokens": one.cost["forward_tokens"],
            "estimator": "" if estimator is None else estimator.name,
        }


def summary(records: list[dict[str, Any]]) -> list[str]:
    """By model and length; a cell's spread is from its best bank to its worst."""
    lines = heading(
        "| model | m | banks | cells | same prompt from every bank | spread of J under 1e-3 "
        "| largest spread | runs at rank 1 |"
    )
    for (model, length), cells in _grouped(records).items():
        values = {t: [r["expected_utility"] for r in cell] for t, cell in cells.items()}
        spreads = {t: max(v) - min(v) for t, v in values.items()}
        widest = max(spreads, key=spreads.__getitem__)
        same = sum(len({r["prompt"] for r in cell}) == 1 for cell in cells.values())
        ranks = [r["rank"] for cell in cells.values() for r in cell if r["rank"] is not None]
        first = f"{ranks.count(1)} of {len(ranks)}" if ranks else ""
        banks = len({r["bank_seed"] for cell in cells.values() for r in cell})
        lines.append(
            f"| {model} | {length} | {banks} | {len(cells)} | {same} "
            f"| {sum(s < WITHIN for s in spreads.values())} "
            f"| {spreads[widest]:.5f} ({widest}) | {first} |"
        )
    return lines


def five_methods(paper: Path) -> Cells:
    """Their runs on the paper's models, and on the shorter urn."""
    return Cells([*read_rows(paper), *runs_on_the_shorter(RECORDS)])


def misses(records: list[dict[str, Any]], paper: Cells) -> list[str]:
    """Cells in which some bank does worse than another by more than 1e-3."""
    lines = heading(
        "| model | m | target | best bank | worst | banks as good as the best | best of the five |"
    )
    for (model, length), cells in _grouped(records).items():
        for target, cell in cells.items():
            values = [record["expected_utility"] for record in cell]
            near = sum(value > max(values) - WITHIN for value in values)
            if near < len(values):
                five = (paper.figure((model, target, length, method), "J") for method in METHODS)
                best = max(figure.value for figure in five if figure is not None)
                lines.append(
                    f"| {model} | {length} | {target} | {max(values):.4f} | {min(values):.4f} "
                    f"| {near} of {len(values)} | {best:.4f} |"
                )
    return lines


def _grouped(
    records: list[dict[str, Any]],
) -> dict[tuple[str, int], dict[str, list[dict[str, Any]]]]:
    """By model and length, then by target."""
    groups = grouped(records, lambda record: (record["model"], record["length"]))
    return {key: grouped(own, lambda record: record["target"]) for key, own in groups.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("path", type=Path, nargs="?", help="a folder of banks, or records")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--paper", type=Path, default=RECORDS / "paper.parquet")
    given = parser.parse_args(arguments)
    require(given.paper.exists(), f"{given.paper}: there are no such runs")
    if given.what == "run":
        if given.path is None:
            raise InputError("run: expected a folder of banks")
        lines = [json.dumps(record) + "\n" for record in runs(given.path)]
        if given.out is not None:
            write_atomically(given.out, "".join(lines).encode())
            list_file(given.out)
        records = [json.loads(line) for line in lines]
    else:
        records = read_records(given.path or RECORDS / "bank-seeds.jsonl")
    print("\n".join([*summary(records), "", *misses(records, five_methods(given.paper))]))


if __name__ == "__main__":
    run(main)
