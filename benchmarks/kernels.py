"""A step of the ascent by torch and by the kernels of a device, under both tilts.

    python benchmarks/kernels.py --device cuda [--runs 310] [--latents 5000] [--length 50]
    python benchmarks/kernels.py --steps 20

Ten banks of the prior, taken in turns by the runs; vocabularies and orders of up to four contexts.
What 20 steps take by torch and 2,000 by kernels (`--steps`): a call of two more, less one of two,
so that what is set up before and read back after is in neither. The largest difference between
surrogates of the first 20 steps is printed, of all runs. The first call compiles, or finds what was
compiled before: how long it took is printed beside.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import torch
from ascent import Setting

from posteer.core.device import pick_device
from posteer.families.markov.tilt import Tilt
from posteer.methods.ppt.ascent import Ascent, AscentSettings, ascend, initial_prompts
from posteer.methods.ppt.estimator import ExactMeans, TiltedRuns
from posteer.methods.ppt.fused.ascending import ascend_fused

SPACES = ((2, 1), (2, 2), (3, 1), (4, 1))
TILTS: tuple[Tilt, ...] = ("linear", "geometric")
BANKS = 10
FEW, BY_TORCH, BY_KERNELS = 2, 20, 2000


def posed(setting: Setting, tilt: Tilt, n_runs: int, device: str) -> TiltedRuns:
    known, turns = setting.runs, torch.arange(n_runs) % BANKS
    latents, means = known.latents[turns].to(device), torch.stack(setting.means)[turns]
    source = ExactMeans(means.transpose(1, 2).contiguous().to(device))
    return TiltedRuns(known.space, latents, known.n_transitions, source, tilt)


def timed(runs: TiltedRuns, by: str, steps: int) -> tuple[float, list[Ascent]]:
    """Seconds of so many steps, and where they led."""
    start = initial_prompts(runs.space, list(range(len(runs)))).to(runs.device)
    settings = AscentSettings(max_steps=steps, patience=steps + 1)
    began = perf_counter()
    found = (ascend if by == "torch" else ascend_fused)(runs, start, settings)
    return perf_counter() - began, found  # what is found lies on the host: nothing is under way


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=int, default=310)
    parser.add_argument("--latents", type=int, default=5000)
    parser.add_argument("--length", type=int, default=50)
    parser.add_argument("--steps", type=int, default=BY_KERNELS)
    given = parser.parse_args()
    device = str(pick_device(given.device))
    print("| V | order | tilt | torch, ms a step | kernels | ratio | first call, s | apart |")
    print("|---|---|---|---|---|---|---|---|")
    for vocab, order in SPACES:
        setting = Setting(vocab, order, given.length, given.latents, BANKS)
        for tilt in TILTS:
            runs = posed(setting, tilt, given.runs, device)
            first, _ = timed(runs, "kernels", FEW)
            timed(runs, "torch", FEW)
            slow, expected = timed(runs, "torch", FEW + BY_TORCH)
            fast, found = timed(runs, "kernels", FEW + given.steps)
            slow = 1e3 * (slow - timed(runs, "torch", FEW)[0]) / BY_TORCH
            fast = 1e3 * (fast - timed(runs, "kernels", FEW)[0]) / given.steps
            apart = max(
                abs(ours - theirs)
                for one, other in zip(found, expected, strict=True)
                for ours, theirs in zip(
                    one.surrogate_history, other.surrogate_history, strict=False
                )
            )
            print(
                f"| {vocab} | {order} | {tilt} | {slow:.2f} | {fast:.3f} | {slow / fast:.0f} "
                f"| {first:.1f} | {apart:.0e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
