"""How long commands take from nothing, beside the import of torch, which is the floor of most.

    python benchmarks/startup.py [--before FOLDER] [--repeats 5]

Seconds are the processor's, of one thread: the least of several, all commands in turn, since other
work on a machine only adds. Modules are compiled to bytecode before, in a folder of the run's own.
The floor of commands that load torch is a process that does `import torch` and nothing else; they
can be below it, since a command spares the garbage collector what it loads (`cli.loading`).
`--before` is the `src` of another checkout, measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from timing import processor

SOURCE = Path(__file__).parent.parent / "src"
TORCH = ["-c", "import torch"]
QUICK = [["-c", "import posteer"], ["-m", "posteer", "--version"], ["-m", "posteer", "--help"]]
ON_TORCH = [
    ["-m", "posteer", *words.split()]
    for words in (
        "methods",
        "elicit --model exact:urn",
        "elicit --model exact:beta-bernoulli",
        "elicit --model urn --length 50",
    )
]


def seconds(source: Path, bytecode: str, arguments: list[str]) -> float:
    """What a process of its own takes of the processor, start and end included."""
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONPYCACHEPREFIX": bytecode}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": ""}
    started = processor()
    subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True, cwd="/"
    )
    return processor() - started


def shown(arguments: list[str]) -> str:
    return " ".join(["python", *arguments] if arguments[0] == "-c" else arguments[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the src of another checkout")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    sources = [SOURCE] if asked.before is None else [asked.before.resolve(), SOURCE]
    with TemporaryDirectory() as bytecode:
        calls = {(TORCH[1], SOURCE): partial(seconds, SOURCE, bytecode, TORCH)}
        for arguments in QUICK + ON_TORCH:
            for source in sources:
                calls[shown(arguments), source] = partial(seconds, source, bytecode, arguments)
        for call in calls.values():
            call()  # compiles
        rounds = [[call() for call in calls.values()] for _ in range(asked.repeats)]
    times = dict(zip(calls, map(min, zip(*rounds, strict=True)), strict=True))
    floor = times[TORCH[1], SOURCE]
    print("| phase | before | s | floor | ratio |\n|---|---|---|---|---|")
    for arguments in [*QUICK, *ON_TORCH]:
        name = shown(arguments)
        before = "" if asked.before is None else f"{times[name, sources[0]]:.2f}"
        taken = times[name, SOURCE]
        over = f"{floor:.2f} | {taken / floor:.2f}" if arguments in ON_TORCH else "| "
        print(f"| {name} | {before} | {taken:.2f} | {over} |")


if __name__ == "__main__":
    main()
