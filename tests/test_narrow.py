"""The GPU's attention for narrow heads, run on CPU by Triton's interpreter."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

SOURCE = Path(__file__).parent.parent / "src"

PROGRAM = """
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


def test_the_kernel_is_attention_with_its_gradient():
    """Against torch's own, at lengths that fill blocks and that don't."""
    environment = {"TRITON_INTERPRET": "1", "PATH": "", "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert ran.stdout == "equal\n", ran.stderr
