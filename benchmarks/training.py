"""Training steps per second on a GPU, against the floor of counted operations.

    python benchmarks/training.py [urn] [beta-bernoulli] [--steps 60]

The floor counts the multiply-adds of forward and backward (three times the forward, attention's
backward 2.5 times, causal halves counted) at the rate a large bfloat16 matrix product reaches in
this run. Our attention for narrow heads and torch's backends are timed in the same run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from posteer.models.transformer.network import Attention
from posteer.training.loop import Trainer
from posteer.training.plan import PRESETS, TrainingPlan

BACKENDS = {
    "ours": None,
    "torch": None,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
}
NO_KERNEL = ("_has_kernel", lambda *_: False)


def require_gpu() -> None:
    """End in one line where nothing can be measured."""
    if not torch.cuda.is_available():
        sys.exit("needs a GPU that torch sees (CUDA): nothing is measured here")


def operations(plan: TrainingPlan) -> float:
    """Floating-point operations of one training step."""
    shape, tokens = plan.architecture, plan.batch * plan.length
    per_layer = 2 * (4 * shape.width**2 + 2 * shape.width * shape.feedforward)
    linear = 3 * tokens * (shape.layers * per_layer + 2 * shape.width * shape.vocab_size)
    attention = 3.5 * shape.layers * plan.batch * 2 * plan.length**2 * shape.width
    return linear + attention


def matrix_rate() -> float:
    """Operations a second of a large bfloat16 product."""
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        matrix @ matrix
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(10):
        matrix @ matrix
    torch.cuda.synchronize()
    return 10 * 2 * 8192**3 / (time.perf_counter() - started)


def steps_per_second(plan: TrainingPlan, backend: SDPBackend | None, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(plan, Path(folder), device="cuda", compiled=True, held_out=2)
        with sdpa_kernel(backend) if backend is not None else nullcontext():
            for step in range(1, 11):
                trainer.train_step(step)
            torch.cuda.synchronize()
            started = time.perf_counter()
            for step in range(11, 11 + steps):
                trainer.train_step(step)
            torch.cuda.synchronize()
    return steps / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=["urn", "beta-bernoulli"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--attention", default=",".join(BACKENDS), help="which to time")
    given = parser.parse_args()
    require_gpu()
    torch.set_float32_matmul_precision("high")
    rate = matrix_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {rate / 1e12:.0f} TFLOP/s")
    for name in given.presets:
        plan = PRESETS[name]
        floor = rate / operations(plan)
        print(f"{name}: {operations(plan) / 1e12:.2f} TFLOP a step, at most {floor:.0f} steps/s")
        for label in given.attention.split(","):
            backend = BACKENDS[label]
            torch.compiler.reset()
            started = time.perf_counter()
            only = nullcontext() if label == "ours" else patch.object(Attention, *NO_KERNEL)
            try:
                with only:
                    measured = steps_per_second(plan, backend, given.steps)
            except RuntimeError as error:
                print(f"  {label:>8}: {str(error).splitlines()[0]}")
                continue
            took = time.perf_counter() - started
            print(
                f"  {label:>8}: {measured:6.1f} steps/s, {measured / floor:.2f} of the floor"
                f" (set-up and timing {took:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
