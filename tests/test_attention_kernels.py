"""The GPU's attention kernels, run on CPU by Triton's interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posteer.models.transformer.network import attend_to_cache

pytest.importorskip("triton")

SOURCE = Path(__file__).parent.parent / "src"

TO_A_CACHE = """
import torch
from posteer.models.transformer.decode import decode
torch.manual_seed(0)
for batch, heads, capacity, width in ((3, 2, 200, 16), (1, 4, 70, 32)):
    query = torch.randn(batch, heads, 1, width)
    keys, values = torch.randn(2, batch, heads, capacity, width)
    for length in (1, 5, 63, 64, 65, capacity):
        for cache in (torch.float32, torch.bfloat16):
            key, value = keys.clone().to(cache), values.clone().to(cache)
            seen = slice(0, length)
            expected = torch.nn.functional.scaled_dot_product_attention(
                query, key[:, :, seen].float(), value[:, :, seen].float()
            )
            key[:, :, length:] = float("nan")  # must not be read
            value[:, :, length:] = float("nan")
            found = decode(query, key, value, length)
            assert torch.allclose(found, expected, atol=1e-5), (length, cache)
print("equal")
"""

FOR_NARROW_HEADS = """
import torch
from posteer.models.transformer.narrow import attend
torch.manual_seed(0)
for length, heads, width in ((1, 2, 16), (50, 2, 32), (64, 1, 32), (130, 1, 16)):
    qkv = torch.randn(2, length, 3, heads, width, requires_grad=True)
    query, key, value = (one.transpose(1, 2) for one in qkv.unbind(2))
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    above = torch.randn(2, length, heads, width)
    (expected_gradient,) = torch.autograd.grad(expected.transpose(1, 2), qkv, above)
    found = attend(qkv)
    (gradient,) = torch.autograd.grad(found, qkv, above)
    assert torch.allclose(found, expected.transpose(1, 2), atol=1e-5), length
    assert torch.allclose(gradient, expected_gradient, atol=1e-5), length
print("equal")
"""


@pytest.mark.parametrize("program", [TO_A_CACHE, FOR_NARROW_HEADS], ids=["cache", "narrow heads"])
def test_the_kernel_is_attention(program):
    """Against torch's own, with its gradient if it has one, at lengths that fill blocks or not."""
    environment = {"TRITON_INTERPRET": "1", "PATH": "", "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert ran.stdout == "equal\n", ran.stderr


def test_the_other_path_reads_narrow_caches_too():
    query = torch.randn(2, 3, 1, 16)
    keys, values = torch.randn(2, 2, 3, 9, 16).bfloat16()
    found = attend_to_cache(query, keys, values, 7)
    assert found.dtype == torch.float32
    weights = (query @ keys[:, :, :7].float().transpose(2, 3) / 4).softmax(-1)
    assert torch.allclose(found, weights @ values[:, :, :7].float(), atol=1e-5)
