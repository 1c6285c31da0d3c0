"""The GPU's attention kernel, run on CPU by Triton's interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from posteer.models.transformer.network import attend_to_cache

pytest.importorskip("triton")

SOURCE = Path(__file__).parent.parent / "src"

PROGRAM = """
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


def test_the_kernel_is_attention():
    environment = {"TRITON_INTERPRET": "1", "PATH": "", "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert ran.stdout == "equal\n", ran.stderr


def test_the_other_path_reads_narrow_caches_too():
    query = torch.randn(2, 3, 1, 16)
    keys, values = torch.randn(2, 2, 3, 9, 16).bfloat16()
    found = attend_to_cache(query, keys, values, 7)
    assert found.dtype == torch.float32
    weights = (query @ keys[:, :, :7].float().transpose(2, 3) / 4).softmax(-1)
    assert torch.allclose(found, weights @ values[:, :, :7].float(), atol=1e-5)
