"""How much of the paper's cells does the bank decide? PPT and PPT-RB again from held-out banks.

    posteer sweep --config studies/held_out_banks.toml --out RUN      # at the repository's root
    python studies/held_out_banks.py --keep RUN
    python studies/held_out_banks.py

All seeds of a cell read one bank, so standard errors over seeds leave out what another bank would
change. The same runs, from the same starts, with the same rollouts' random numbers, from the bank
that is shipped beside it: for each model, length and method, how many prompts are the same; how far
means of J and ESS/L move (root mean square over cells) beside the error that is quoted (likewise),
and in how many cells by more than three of it; how many cells of J come within three errors of the
published mean, or leave.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

from places import RECORDS
from running import Options, run
from tables import grouped, heading

from posteer.paper.cells import Cells, Key, compatible
from posteer.paper.published import published
from posteer.sweeps.results import read_facts, read_rows, write_parquet

KEPT = RECORDS / "held-out-banks.parquet"


def show(ours: Cells, other: Cells) -> list[str]:
    """A row for each model, length and method."""
    groups = grouped(other, lambda cell: (cell.key[0], cell.key[2], cell.key[3]))
    shown = heading(
        "| model | m | method | cells | same prompts | J moves (error) | beyond three | "
        "ESS/L moves (error) | beyond three | in, out of three errors |"
    )
    for (model, length, method), cells in groups.items():
        keys = [cell.key for cell in cells]
        prompts = {
            (key, row["seed"]): row["prompt"] for key in keys for row in ours.by_key[key].rows
        }
        same = [row["prompt"] == prompts[c.key, row["seed"]] for c in cells for row in c.rows]
        moves = " | ".join(_moved(ours, other, keys, statistic) for statistic in ("J", "ess"))
        now, then = ([_agrees(of, key) for key in keys] for of in (ours, other))
        came = sum(b and not a for a, b in zip(now, then, strict=True))
        left = sum(a and not b for a, b in zip(now, then, strict=True))
        shown.append(
            f"| {model} | {length} | {method} | {len(keys)} | {sum(same)} of {len(same)} | "
            f"{moves} | {came}, {left} |"
        )
    return shown


def _agrees(cells: Cells, key: Key) -> bool:
    figure = cells.figure(key, "J")
    return figure is not None and compatible(figure, published()[*key, "J"], "J")


def _moved(ours: Cells, other: Cells, keys: list[Key], name: str) -> str:
    pairs = [(ours.figure(key, name), other.figure(key, name)) for key in keys]
    gaps = [abs(b.value - a.value) for a, b in pairs if a is not None and b is not None]
    errors = [a.standard_error or 0.0 for a, b in pairs if a is not None and b is not None]
    beyond = sum(gap > 3 * error + 1e-6 for gap, error in zip(gaps, errors, strict=True))
    moved, error = (math.sqrt(fmean(x**2 for x in some)) for some in (gaps, errors))
    return f"{moved:.4f} ({error:.4f}) | {beyond}"


def main(arguments: list[str] | None = None) -> None:
    parser = Options(__doc__)
    parser.add_argument("--keep", type=Path, help="a sweep to keep as the record")
    given = parser.parse_args(arguments)
    if given.keep is not None:
        write_parquet(read_rows(given.keep), KEPT, read_facts(given.keep))
    cells = (Cells(read_rows(path)) for path in (RECORDS / "paper.parquet", KEPT))
    print("\n".join(show(*cells)))


if __name__ == "__main__":
    run(main)
