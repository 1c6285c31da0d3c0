"""One table of the phases of posteer: measured, the floor, their ratio, and peers in the same run.

    python benchmarks/table.py [--device cuda] [--only ascent]

A floor is the counted arithmetic at the rate of a large matrix product (latents stay in the caches
from step to step); of a start it is the import of torch. Peers compute the same and
are checked to before anything is timed. The least of several times is shown, on a CPU the
processor's (all threads together), since other work on a machine only adds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from ascent import Setting, arithmetic
from peers import installed
from search import LENGTH, direct, ours
from startup import SOURCE, TORCH, seconds
from timing import least_milliseconds, processor
from torch import Tensor

from posteer.core.counters import key_of
from posteer.families.markov.tilt import Tilt
from posteer.goals.dyck import Dyck
from posteer.goals.utilities import open_utility
from posteer.methods.direct.coordinate import single_substitutions
from posteer.methods.direct.field import Field
from posteer.methods.ppt.ascent import Ascent, AscentSettings, ascend
from posteer.methods.ppt.estimator import ExactMeans, SingleRollouts, TiltedRuns, estimate
from posteer.methods.ppt.fused.ascending import ascend_fused, climb_of, kernels_for
from posteer.methods.protocol import Request, pose
from posteer.models import load

STEPS = 20


@dataclass
class Row:
    """A phase; times in milliseconds."""

    phase: str
    measured: float
    floor: float | None
    peers: dict[str, float]
    missing: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        floor = "" if self.floor is None else f"{self.floor:.2f}"
        over = "" if self.floor is None else f"{self.measured / self.floor:.1f}"
        peers = "; ".join(
            f"{name} {taken:.2f} ({taken / self.measured:.1f}x)"
            for name, taken in self.peers.items()
        )
        return f"| {self.phase} | {self.measured:.2f} | {floor} | {over} | {peers} |"


def ascents(device: torch.device) -> Iterator[Row]:
    """A step of all runs: by kernels, by torch, by autograd."""
    n_runs = 10 if device.type == "cpu" else 310
    multiplied = arithmetic(partial(least, device=torch.device("cpu")))
    cases: list[tuple[str, int, Tilt, bool]] = [
        ("linear, urn", 2, "linear", False),
        ("linear, urn, rollouts", 2, "linear", True),
        ("linear, V=4", 4, "linear", False),
        ("geometric, urn", 2, "geometric", False),
    ]
    for name, vocab, tilt, rolls in cases:
        setting = Setting(vocab, 1, 50, 5000, n_runs)
        runs = replace(setting.runs, tilt=tilt, logs=None)
        if rolls:
            runs = replace(runs, source=rollouts_of(setting))
        runs, prompts = on(runs, device), setting.prompts.to(device)
        settings = AscentSettings(max_steps=STEPS, patience=10**6)
        agree(ascend_fused(runs, prompts, settings), ascend(runs, prompts, settings))
        measured = least(partial(synchronised, device, estimate, runs, prompts), device)
        peers = {}
        if kernels_for(device) and (device.type == "cpu" or tilt == "linear"):
            endless = replace(settings, max_steps=10**6)
            climb = climb_of(runs, prompts, endless, torch.ones(n_runs).double(), None)
            climbing = partial(synchronised, device, climb.advance, range(n_runs), STEPS)
            peers = {"torch": measured}
            measured = least(climbing, device) / STEPS
        if tilt == "linear" and not rolls and device.type == "cpu" and vocab == 2:
            torch.testing.assert_close(
                setting.ours(), setting.autograd_batched(), rtol=1e-8, atol=1e-10
            )
            peers["autograd"] = least(setting.autograd_batched, device, 3)
        floor = None
        if device.type == "cpu" and not rolls:
            n_latents = setting.latents[:, 0, 0].numel()
            floor = 1e3 * n_latents * operations(setting, tilt) / multiplied
        yield Row(f"ascent, a step of {n_runs} runs: {name}", measured, floor, peers)


def operations(setting: Setting, tilt: Tilt) -> int:
    """Multiplications and additions for a latent, of the least algorithm known here."""
    edges, contexts = setting.latents[0, :, :, 0].numel(), setting.space.n_contexts
    sums = 2 * (3 + contexts + 3 * edges)
    if tilt == "geometric":
        return 2 * edges + 30 + sums  # and an exponential
    if contexts == 2:
        return 36 * (setting.steps.bit_length() - 1) + 70 + sums  # closed_forms.py
    products = setting.steps.bit_length() - 2 + setting.steps.bit_count()
    return 6 * products * contexts**3 + sums


def rollouts_of(setting: Setting) -> SingleRollouts:
    n_runs = len(setting.latents)
    utility = open_utility("dyck", setting.space)
    keys = torch.tensor([key_of(seed, "benchmark") for seed in range(n_runs)])
    return SingleRollouts(setting.space, setting.latents, [utility] * n_runs, 4, keys)


def on(runs: TiltedRuns, device: torch.device) -> TiltedRuns:
    source = runs.source
    if isinstance(source, SingleRollouts):
        source = replace(source, latents=source.latents.to(device), keys=source.keys.to(device))
    elif isinstance(source, ExactMeans):
        source = ExactMeans(source.means.to(device))
    return replace(runs, latents=runs.latents.to(device), source=source, logs=None)


def agree(found: list[Ascent], expected: list[Ascent]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            Tensor(one.surrogate_history), Tensor(other.surrogate_history), rtol=1e-8, atol=1e-10
        )


def least(call: Callable[[], object], device: torch.device, repeats: int = 9) -> float:
    return least_milliseconds(call, repeats, processor if device.type == "cpu" else perf_counter)


def synchronised(device: torch.device, call: Callable[..., object], *given: object) -> None:
    call(*given)
    if device.type == "cuda":
        torch.cuda.synchronize()


def gcg(device: torch.device) -> Iterator[Row]:
    """An iteration on the urn: the gradient and 25 candidates."""
    model = load("urn", str(device))
    field = Field(pose([Request(model=model, utility=Dyck(), length=LENGTH, horizon=4)]))
    prompt = torch.randint(2, (LENGTH,), generator=torch.Generator().manual_seed(0))
    candidates = single_substitutions(prompt, 2)[:25]
    expected = ours(field, prompt, candidates)
    peers: dict[str, Callable[[], Tensor]] = {}
    missing: list[str] = []
    if device.type == "cpu":
        found, missing = installed(model)
        peers["16 sequences a candidate"] = lambda: direct(model, prompt, candidates)
        peers |= {f"{name}, no gradient": partial(by, candidates) for name, by in found.items()}
    times = {}
    for name, peer in peers.items():
        assert torch.allclose(peer(), expected, atol=1e-5), name
        started = processor()  # warm by now
        peer()
        times[name] = 1e3 * (processor() - started)
    taken = least(partial(synchronised, device, ours, field, prompt, candidates), device, 3)
    yield Row(f"GCG, an iteration at length {LENGTH}, 25 candidates", taken, None, times, missing)


def starts(_device: torch.device) -> Iterator[Row]:
    """A whole command, whose floor is the import of torch; `startup.py` has more of them."""
    with TemporaryDirectory() as bytecode:
        floor, taken = (
            1e3 * min([seconds(SOURCE, bytecode, arguments) for _ in range(4)][1:])
            for arguments in (TORCH, ["-m", "posteer", "elicit", "--model", "exact:urn"])
        )
    yield Row("start: posteer elicit --model exact:urn", taken, floor, {})


PHASES = {"ascent": ascents, "gcg": gcg, "start": starts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=PHASES)
    given = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {given.device}\n")
    print("| phase | ms | floor | ratio | peers in the same run |\n|---|---|---|---|---|")
    left_out: list[str] = []
    for name, rows in PHASES.items():
        if given.only in (None, name):
            for row in rows(torch.device(given.device)):
                print(row, flush=True)
                left_out += row.missing
    print("".join(f"\n{line}" for line in left_out))


if __name__ == "__main__":
    main()
