"""Attention for narrow heads on a GPU: block sizes, beside torch's kernels and the floor.

    python benchmarks/narrow.py [--batch 64] [--length 2000] [--heads 8] [--width 32]

The floor of each pass is the larger of its matrix products at the rate of a large one in this run,
and its exponentials at 16 a clock and multiprocessor.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from training import matrix_rate, require_gpu

SIZES = [(16, 128), (32, 64), (32, 128), (64, 32), (64, 64), (64, 128), (128, 32), (128, 64)]
SETTINGS = [(4, 2), (4, 3), (4, 4), (8, 3)]


def milliseconds(work: Callable[[], object]) -> float:
    import triton

    return float(triton.testing.do_bench(work, warmup=10, rep=60, return_mode="median"))


def fastest(blocks: dict[str, int], work: Callable[[], object]) -> tuple[float, dict[str, int]]:
    """Of all block sizes; those that do not fit the chip are passed over."""
    found: list[tuple[float, dict[str, int]]] = []
    shipped = dict(blocks)
    for (queries, keys), (warps, stages) in itertools.product(SIZES, SETTINGS):
        tried = {"QUERIES": queries, "KEYS": keys, "num_warps": warps, "num_stages": stages}
        blocks.update(tried)
        try:
            found.append((milliseconds(work), tried))
        except (RuntimeError, ValueError) as error:
            print(f"  {tried}: {type(error).__name__}")
    blocks.update(shipped)
    return min(found, key=lambda one: one[0])


def peer(backend: SDPBackend, qkv: torch.Tensor, above: torch.Tensor) -> tuple[float, float]:
    query, key, value = (one.transpose(1, 2) for one in qkv.detach().requires_grad_().unbind(2))

    def forward() -> torch.Tensor:
        return scaled_dot_product_attention(query, key, value, is_causal=True)

    with sdpa_kernel(backend):
        mixed, given = forward(), (query, key, value)
        back = above.transpose(1, 2)
        return milliseconds(forward), milliseconds(
            lambda: torch.autograd.grad(mixed, given, back, retain_graph=True)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, size in (("batch", 64), ("length", 2000), ("heads", 8), ("width", 32)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--tune", action="store_true", help="try all block sizes; minutes")
    asked = parser.parse_args()
    require_gpu()
    from posteer.models.transformer import narrow

    sizes: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    qkv = torch.randn(asked.batch, asked.length, 3, asked.heads, asked.width, **sizes)
    above = torch.randn(asked.batch, asked.length, asked.heads, asked.width, **sizes)
    out, normaliser = narrow.forward(qkv)
    passes: dict[str, Callable[[], object]] = {
        "forward": lambda: narrow.forward(qkv),
        "backward": lambda: narrow.backward(qkv, out, normaliser, above),
    }
    scores = asked.batch * asked.heads * asked.length**2 / 2
    chip = torch.cuda.get_device_properties(0)
    exponentials = scores / (16 * chip.multi_processor_count * chip.clock_rate * 1e3)
    rate = matrix_rate()
    for label, work in passes.items():
        products = 2 if label == "forward" else 5
        floor = 1e3 * max(exponentials, products * 2 * scores * asked.width / rate)
        took = milliseconds(work)
        print(f"{label}: {took:.3f} ms, floor {floor:.3f}, {took / floor:.1f} times")
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        there, back = peer(backend, qkv, above)
        print(f"{backend.name}: forward {there:.3f} ms, backward {back:.3f} ms")
    if asked.tune:
        for blocks, work in (
            (narrow.FORWARD, passes["forward"]),
            (narrow.FOR_KEYS, passes["backward"]),
            (narrow.FOR_QUERIES, passes["backward"]),
        ):
            print(*fastest(blocks, work))


if __name__ == "__main__":
    main()
