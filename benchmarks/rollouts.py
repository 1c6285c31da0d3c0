"""Predictive Monte Carlo: seconds for a bank, against the floor and against the plain path.

    python benchmarks/rollouts.py beta-bernoulli            # CPU: fast path against the general one
    python benchmarks/rollouts.py urn --device cuda [--save FOLDER]

One layer without positions: rollouts by counts against rollouts with a key-value cache, of which a
few are timed and scaled. Otherwise the floor is the cache: each step reads all of it once, at the
rate at which a large copy reads and writes in this run.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from posteer.banks.plans import DrawPlan
from posteer.banks.rollouts import draw_bank, roll_out
from posteer.models import Metered, load
from posteer.models.transformer.model import TransformerModel
from posteer.models.transformer.one_layer import OneLayerModel


def copy_rate() -> float:
    """Bytes a second of a large copy on the GPU, read and written."""
    source = torch.randn(2**30, device="cuda")
    target = torch.empty_like(source)
    for _ in range(2):
        target.copy_(source)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(5):
        target.copy_(source)
    torch.cuda.synchronize()
    return 5 * 2 * source.nbytes / (time.perf_counter() - started)


def cache_bytes(model: TransformerModel, plan: DrawPlan) -> float:
    """What attention must read over a whole draw, the cache being bfloat16."""
    shape, steps = model.network.shape, plan.rollout_length
    per_token = 2 * shape.layers * shape.width * torch.bfloat16.itemsize
    return plan.n_samples * per_token * steps * (steps + 1) / 2


def against_general(model: OneLayerModel, plan: DrawPlan) -> None:
    """The whole bank by counts; a block of it with a key-value cache."""
    general = TransformerModel(model.network, model.name, model.prior)
    started = time.perf_counter()
    bank = draw_bank(Metered(model), plan)
    fast = time.perf_counter() - started
    started = time.perf_counter()
    again = draw_bank(Metered(model), plan)
    warm = time.perf_counter() - started
    block = 64
    started = time.perf_counter()
    part = roll_out(Metered(general), plan, plan.check(general), 0, block)
    slow = (time.perf_counter() - started) * plan.n_samples / block
    assert bank.counts is not None and again.counts is not None
    same = int((bank.counts[:block] == part.counts).flatten(1).all(1).sum())
    print(f"  by counts                 {fast:8.2f} s   (again, tables kept: {warm:.2f} s)")
    print(f"  with a key-value cache    {slow:8.2f} s   {slow / fast:.0f} times, from {block}")
    print(f"  rollouts equal to the token: {same} of {block}")


def against_floor(model: TransformerModel, plan: DrawPlan, save: Path | None, seeds: int) -> None:
    draw_bank(Metered(model), DrawPlan(n_samples=64, rollout_length=64))  # compile, warm up
    rate = copy_rate()
    floor = cache_bytes(model, plan) / rate
    for seed in range(seeds):
        seeded = DrawPlan(n_samples=plan.n_samples, rollout_length=plan.rollout_length, seed=seed)
        torch.cuda.synchronize()
        started = time.perf_counter()
        bank = draw_bank(Metered(model), seeded)
        torch.cuda.synchronize()
        taken = time.perf_counter() - started
        print(
            f"  seed {seed}: {taken:.1f} s, floor {floor:.1f} s at {rate / 1e12:.2f} TB/s: "
            f"{floor / taken:.0%} of it",
            flush=True,
        )
        if save is not None:
            bank.save(save / f"{model.name}-seed{seed}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", default="beta-bernoulli", nargs="?")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rollouts", type=int, default=5000)
    parser.add_argument("--length", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    model = load(given.model, given.device)
    plan = DrawPlan(n_samples=given.rollouts, rollout_length=given.length)
    print(f"{given.model}: {plan.n_samples:,} rollouts of {plan.rollout_length:,} tokens")
    if given.device == "cpu":
        assert isinstance(model, OneLayerModel), "on CPU: a model with one layer and no positions"
        against_general(model, plan)
    else:
        against_floor(model, plan, given.save, given.seeds)


if __name__ == "__main__":
    main()
