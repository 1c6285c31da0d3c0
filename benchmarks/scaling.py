"""How time and memory of every method without the model grow with m, V, order and L.

    python benchmarks/scaling.py [--quick] [--json FILE] [--figure FILE] [--document FILE]
    python benchmarks/scaling.py --from FILE --only classes --json FILE     # some of them again
    python benchmarks/scaling.py --from FILE --only nothing --figure FILE   # drawn again

From a base point (V=2, order 1, m=50, L=5000, horizon 4, Dyck, independent Dirichlet rows) one
setting varies at a time. Each point has two processes of its own, side by side: one for the
median processor time of a call after a warm-up, one for the peak of memory above what stood after
imports and set-up (measuring.py says how). Scores are of one prompt in a batch, given by counts.

Beside the time stands the floor: the counted bytes, operations and exponentials of the algorithm
(workloads.py) at the rates this machine reaches in the same run. Growth is the exponent over the
last three points, of time and of that floor; in the order it is that of the contexts, V^order. What
a method refuses, or cannot do within 60 s or 4 GiB, is left out and listed.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from measuring import (
    MIB,
    RESOLUTION,
    RETURNING,
    FreshProcesses,
    growth,
    peak_extra_bytes,
    serve,
    timed,
)
from workloads import PEERS, WORKLOADS, Cost, Setting

from posteer.core.errors import InputError
from posteer.core.files import write_atomically
from posteer.core.sealing import check_listed, list_file

LIMIT_SECONDS, LIMIT_BYTES = 60, 4 * 2**30
BUDGET = {True: 0.02, False: 0.5}
"""Seconds of repeats at a point, quick or not."""

AXES: dict[str, tuple[int, ...]] = {
    "m": (10, 50, 100, 1000, 10_000),
    "V": (2, 3, 4, 8, 16),
    "order": (0, 1, 2, 3, 4),
    "L": (500, 1500, 5000, 15_000, 50_000),
}
QUICK: dict[str, tuple[int, ...]] = {"m": (10, 50), "V": (2,), "order": (1,), "L": (5000,)}
MORE: dict[tuple[str, str], tuple[int, ...]] = {("classes, all", "m"): (200,)}
"""Values that only one method gets, where it cannot do the others."""

Point = dict[str, Any]


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Time or memory of one point, in a process of its own."""
    torch.set_num_threads(1)
    setting, prepare = Setting(**question["setting"]), WORKLOADS[question["method"]]
    try:
        if question["what"] == "memory":  # code is loaded by a small call
            small = replace(setting, m=min(setting.m, 10), L=min(setting.L, 2000))
            prepare(small).call()
            return {"extra_bytes": peak_extra_bytes(prepare(setting).call)}
        work = prepare(setting)
    except InputError as error:
        return {"left_out": str(error)}
    taken = timed(work.call, question["budget"])
    cost = work.cost()
    return {
        "seconds": taken.seconds / work.shared_by,
        "wall_seconds": taken.wall_seconds / work.shared_by,
        "repeats": taken.repeats,
        "cost": None if cost is None else asdict(cost),
        "shared_by": work.shared_by,
        "details": work.details(),
    }


def measure(names: list[str], quick: bool) -> list[Point]:
    """All points of some methods; the base point once for all axes."""
    file, points = str(Path(__file__)), []
    rates = machine_rates()
    axes, start = QUICK if quick else AXES, Setting()
    with FreshProcesses(file, {}) as timer, FreshProcesses(file, RETURNING) as weigher:
        for name in names:
            base: Point | None = None
            for axis, values in axes.items():
                stopped = None
                more = () if quick else MORE.get((name, axis), ())
                for value in sorted({*values, *more}):
                    setting = replace(start, **{axis: value})
                    point: Point = {"method": name, "setting": asdict(setting)}
                    if setting == start and base is not None:
                        point = dict(base)
                    elif stopped is not None:
                        point["left_out"] = f"{axis}={stopped} was too much"
                    else:
                        question = point | {"budget": BUDGET[quick]}
                        timer.send(question | {"what": "time"})
                        weigher.send(question | {"what": "memory"})
                        point |= timer.receive() | weigher.receive()
                        if point.get("cost") is not None:
                            point["floor_seconds"] = floor(Cost(**point["cost"]), point, rates)
                        if setting == start:
                            base = point
                    if str(point.get("left_out")).startswith("more than"):
                        stopped = value
                    points.append(point | {"axis": axis, "value": value})
                    print(line(points[-1]), flush=True)
    return points


def machine_rates() -> dict[str, float]:
    """Per second, one thread: bytes copied, operations of a product, exponentials in cache."""
    torch.set_num_threads(1)
    source, numbers, matrix = (torch.rand(n, dtype=torch.float64) for n in (2**24, 2**15, 700**2))
    target, matrix = torch.empty_like(source), matrix.view(700, 700)
    return {
        "bytes_read": 2 * source.nbytes / timed(lambda: target.copy_(source), 1.0).seconds,
        "operations": 2 * 700**3 / timed(lambda: matrix @ matrix, 1.0).seconds,
        "exponentials": len(numbers) / timed(lambda: numbers.exp(), 1.0, 99).seconds,
    }


def floor(cost: Cost, point: Point, rates: dict[str, float]) -> float:
    """Seconds a prompt that the machine needs for what was counted, whichever takes longest."""
    return max(amount / rates[what] for what, amount in asdict(cost).items()) / point["shared_by"]


# --- what is shown ------------------------------------------------------------------------------


def line(point: Point) -> str:
    head = f"{point['method']:<28}{point['axis']:>6}{point['value']:>7,}"
    if "left_out" in point:
        return f"{head}   left out: {point['left_out']}"
    least = point.get("floor_seconds")
    against = f"floor {show_time(least):>9}{point['seconds'] / least:6.0f}x" if least else ""
    details = ", ".join(f"{key} {value}" for key, value in point["details"].items())
    text = f"{head}{show_time(point['seconds']):>10}  {against:<22}{show_memory(point):>9}"
    return f"{text}  {details}".rstrip()


def show_time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if seconds >= size:
            return f"{seconds / size:.{0 if seconds >= 100 * size else 1}f} {unit}"
    return "0 ns"


def show_memory(point: Point) -> str:
    size = point["extra_bytes"]
    return (
        "< 1 MiB" if size < RESOLUTION else f"{size / MIB:.{0 if size >= 9.95 * MIB else 1}f} MiB"
    )


def on_axis(points: list[Point], name: str, axis: str) -> list[Point]:
    """What was measured of a method along an axis, in its order."""
    own = [point for point in points if (point["method"], point["axis"]) == (name, axis)]
    return [point for point in own if "left_out" not in point]


def size_of(point: Point) -> float:
    """Where a point stands on its axis: contexts, not their order, are what grows."""
    return float(
        point["setting"]["V"] ** point["value"] if point["axis"] == "order" else point["value"]
    )


def exponents(own: list[Point]) -> dict[str, float | None]:
    """Of time, of the floor over the same points, of memory where it is above the noise."""
    x = [size_of(point) for point in own]
    seconds = [point["seconds"] for point in own]
    floors = [point.get("floor_seconds", 0.0) for point in own]
    memory = [float(point["extra_bytes"]) for point in own]
    seen = [b if b >= RESOLUTION else 0.0 for b in memory]
    return {"time": growth(x, seconds), "floor": growth(x, floors), "memory": growth(x, seen)}


def table(points: list[Point]) -> list[str]:
    """A row for each method: the base point, then growth and the last point of each axis."""
    names = list(dict.fromkeys(point["method"] for point in points))
    lines = [
        "| | base | over its floor | m | V | contexts | L |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in names:
        base = next(p for p in on_axis(points, name, "m") if p["value"] == Setting().m)
        least = base.get("floor_seconds")
        cells = [name, f"{show_time(base['seconds'])}, {show_memory(base)}"]
        cells.append(f"{base['seconds'] / least:.0f}x" if least else "")
        cells += [cell(on_axis(points, name, axis)) for axis in AXES]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def cell(own: list[Point]) -> str:
    """`0.2 (0.1) to 12 ms, 0.2 to 5 MiB at 10,000`: exponents, the floor's in brackets."""
    if len(own) < 2:
        return "base only"
    found, last = exponents(own), own[-1]
    time = f"{found['time']:.1f}" + (
        f" ({found['floor']:.1f})" if found["floor"] is not None else ""
    )
    memory = "" if found["memory"] is None else f"{found['memory']:.1f} to "
    where = f"order {last['value']}" if last["axis"] == "order" else f"{last['value']:,}"
    return (
        f"{time} to {show_time(last['seconds'])}; {memory}{show_memory(last)} at {where}".replace(
            "-0.0", "0.0"
        )
    )


def ratios(points: list[Point]) -> list[str]:
    """Naive peers against what they are peers of, at the base and at the end of each axis."""
    lines = []
    for peer, ours in PEERS.items():
        shown = {}
        for axis in AXES:
            other = {p["value"]: p["seconds"] for p in on_axis(points, peer, axis)}
            both = [p for p in on_axis(points, ours, axis) if p["value"] in other]
            based = [p for p in both if Setting(**p["setting"]) == Setting()]
            for point in [*based, *both[-1:]]:
                name = "base" if point in based else f"{axis}={point['value']:,}"
                shown[name] = f"{name} {other[point['value']] / point['seconds']:.1f}"
        if shown:
            lines.append(f"- {peer}, times as long as {ours}: {', '.join(shown.values())}.")
    return lines


def left_out(points: list[Point]) -> list[str]:
    """What has no figure, and why: along each axis from the first such value on."""
    lines = []
    for name in dict.fromkeys(point["method"] for point in points):
        own = [p for p in points if p["method"] == name and "left_out" in p]
        first = {p["axis"]: p for p in reversed(own)}
        every = [
            f"{axis} from {first[axis]['value']:,}, {first[axis]['left_out']}" for axis in first
        ]
        if every:
            lines.append(f"- {name}: {'; '.join(sorted(every))}.")
    return lines


def write_between(file: Path, mark: str, lines: list[str]) -> None:
    """Replace what a document holds between `<!-- mark -->` and `<!-- /mark -->`."""
    before, _, rest = file.read_text().partition(f"<!-- {mark} -->\n")
    _, end, after = rest.partition(f"<!-- /{mark} -->")
    assert end, f"{file} has no marks for {mark}"
    file.write_text(f"{before}<!-- {mark} -->\n" + "\n".join(lines) + f"\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--from", dest="known", type=Path, help="points measured before")
    parser.add_argument("--only", default="", help="measure methods with this in their names")
    parser.add_argument("--json", type=Path, help="write the points")
    parser.add_argument("--figure", type=Path, help="draw the curves")
    parser.add_argument("--document", type=Path, help="renew its tables")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(answer, LIMIT_SECONDS, LIMIT_BYTES)
        return
    if given.known is not None:
        check_listed(given.known)
    known = [] if given.known is None else json.loads(given.known.read_text())
    names = [name for name in WORKLOADS if given.only in name]
    fresh = measure(names, given.quick) if names else []
    kept = [point for point in known if point["method"] not in names]
    points = sorted(kept + fresh, key=lambda point: list(WORKLOADS).index(point["method"]))
    shown = {"table": table(points), "peers": ratios(points), "left-out": left_out(points)}
    for mark, lines in shown.items():
        print("", *lines, sep="\n")
        if given.document is not None:
            write_between(given.document, mark, lines)
    if given.json is not None:
        rows = ",\n".join(json.dumps(point) for point in points)
        write_atomically(given.json, f"[\n{rows}\n]\n".encode())
        list_file(given.json)
    if given.figure is not None:
        from scaling_figure import draw

        draw(points, given.figure)


if __name__ == "__main__":
    main()
