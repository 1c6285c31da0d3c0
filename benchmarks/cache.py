"""What bounds rollouts on a GPU: attention of one new token to a key-value cache.

    python benchmarks/cache.py [--batch 5000] [--rollouts 128]

TB/s of one layer of the urn (8 heads of 32) at three lengths, by every way torch has and by our
kernel; then how far the laws read through a bfloat16 cache lie from the float32 forward pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from rollouts import copy_rate
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from posteer.banks import DrawPlan, draw_bank
from posteer.models import Metered, load
from posteer.models.transformer.network import attend_to_cache

HEADS, WIDTH, CAPACITY = 8, 32, 2048
BACKENDS = {
    "torch, cuDNN": SDPBackend.CUDNN_ATTENTION,
    "torch, flash": SDPBackend.FLASH_ATTENTION,
    "torch, efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def milliseconds(call: Callable[[], object], repeats: int = 5) -> float:
    """Median by events on the device, after two calls to warm up."""
    times = []
    for number in range(repeats + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if number >= 2:
            times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def by_products(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Two batched matrix products with a softmax between them."""
    scores = (query @ keys.transpose(2, 3)).float() / WIDTH**0.5
    return scores.softmax(-1).to(values.dtype) @ values


def attention_rates(batch: int) -> None:
    keys, values = torch.randn(
        2, batch, HEADS, CAPACITY, WIDTH, device="cuda", dtype=torch.bfloat16
    )
    query = torch.randn(batch, HEADS, 1, WIDTH, device="cuda")
    narrow = query.bfloat16()
    print(f"a copy reads and writes at {copy_rate() / 1e12:.2f} TB/s")
    for length in (250, 1000, 2000):
        seen = slice(0, length)
        ways: dict[str, Callable[[], Tensor]] = {
            "ours": lambda n=length: attend_to_cache(query, keys, values, n),  # type: ignore[misc]
            "torch, two products": lambda s=seen: by_products(  # type: ignore[misc]
                narrow, keys[:, :, s], values[:, :, s]
            ),
        }
        for name, backend in BACKENDS.items():

            def run(backend: SDPBackend = backend, s: slice = seen) -> Tensor:
                with sdpa_kernel(backend):
                    return scaled_dot_product_attention(narrow, keys[:, :, s], values[:, :, s])

            ways[name] = run
        read = 2 * batch * HEADS * length * WIDTH * keys.itemsize
        for name, way in ways.items():
            print(
                f"  T {length:5}  {name:20} {read / milliseconds(way) / 1e9:6.2f} TB/s", flush=True
            )


@torch.no_grad()
def precision(rollouts: int) -> None:
    model = load("urn", "cuda")
    plan = DrawPlan(n_samples=rollouts, keep_tokens=True, seed=5)
    bank = draw_bank(Metered(model), plan)
    assert bank.sequences is not None
    tokens = bank.sequences.long()[:, : plan.rollout_length - 1].cuda()
    model.narrow_cache = True
    state = model.start(len(tokens), plan.rollout_length)
    laws = [state.log_probs]
    for token in tokens.unbind(1):
        law, state = model.advance(state, token)
        laws.append(law)
    whole = torch.cat([model.log_predictive(some) for some in tokens.split(8)])
    variation = (whole.exp() - torch.stack(laws, 1).exp()).abs().sum(-1) / 2
    print(
        f"total variation to the float32 forward pass over {variation.numel():,} laws: mean "
        f"{float(variation.mean()):.1e}, largest {float(variation.max()):.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--rollouts", type=int, default=128)
    given = parser.parse_args()
    precision(given.rollouts)
    torch.cuda.empty_cache()
    attention_rates(given.batch)


if __name__ == "__main__":
    main()
