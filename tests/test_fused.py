"""Kernels against the torch path: the same ascents to rounding, step by step.

Quick tests run kernels as they are written: the CPU's in Python, the GPU's in Triton's interpreter.
"""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from posteer.methods.ppt.fused.compiling import written_in

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
KERNELS = SOURCE / "posteer" / "methods" / "ppt" / "fused"

PROGRAM = """
import sys
import warnings
from dataclasses import replace

import torch
from examples import batch, random_kernels

from posteer.core.counters import key_of
from posteer.families.markov.means import utility_of_kernels
from posteer.goals.utilities import open_utility
from posteer.methods.ppt.ascent import AscentSettings, ascend, initial_prompts
from posteer.methods.ppt.estimator import ExactMeans, SingleRollouts, TiltedRuns
from posteer.methods.ppt.fused.ascending import ascend_fused, kernels_for
from posteer.tokens.contexts import ContextSpace

device = sys.argv[1]
assert kernels_for(torch.device(device))


def compare(vocab, order, steps, tilt="linear", rolls=False, latents=70, taken=3, runs=2,
            first=None, text="dyck", mask=None, tolerance=1e-9, settings=None):
    space = ContextSpace(vocab, order)
    kernels = [random_kernels(space, latents, seed, 0.5) for seed in range(runs)]
    tables = torch.stack([batch(own, 1)[0] for own in kernels]).to(device)
    utility = open_utility(text, space)
    means = torch.stack([utility_of_kernels(utility, space, own, 4).T for own in kernels])
    source = ExactMeans(means.contiguous().to(device))
    if rolls:
        keys = torch.tensor([key_of(seed, "rollouts") for seed in range(runs)]).to(device)
        source = SingleRollouts(space, tables, [utility] * runs, 4, keys)
    shape = (runs, space.n_contexts, latents)
    given = torch.rand(shape, dtype=torch.float64).to(device) if first else None
    posed = TiltedRuns(space, tables, steps, source, tilt, given)
    start = initial_prompts(space, list(range(runs)), mask).to(device)
    settings = settings or AscentSettings(max_steps=taken)
    expected = ascend(posed, start, settings, None, mask)
    found = ascend_fused(posed, start, settings, None, mask)
    for run, (one, other) in enumerate(zip(found, expected, strict=True)):
        moved = (other.prompt.transitions - start.transitions[run]).abs().max()
        assert moved > 1e-6, "a run that stands still shows no slope"
        assert (one.steps, one.stop_reason) == (other.steps, other.stop_reason)
        for name in ("surrogate_history", "ess_history", "surrogate", "standard_error", "log_tilt"):
            ours, theirs = (torch.as_tensor(getattr(run, name)).cpu() for run in (one, other))
            assert torch.allclose(ours, theirs, rtol=tolerance, atol=1e-12), (vocab, order, name)
        for name in ("transitions", "initial"):
            ours, theirs = (getattr(run.prompt, name).cpu() for run in (one, other))
            assert torch.allclose(ours, theirs, rtol=tolerance, atol=1e-12), (vocab, order, name)
        assert len(one.seconds_history) == one.steps
"""

CASES = """
for tilt in ("linear", "geometric"):
    compare(2, 1, 49, tilt)
    compare(2, 0, 50, tilt, text="frequency(0.9)")
    compare(3, 1, 7, tilt, rolls=True)
    compare(2, 2, 6, tilt, rolls=True, first=True)
compare(2, 1, 5, rolls=True)
compare(2, 0, 5, rolls=True, text="frequency(0.9)")
compare(2, 3, 9)  # contexts enough that a sweep is cheaper than powers
compare(4, 1, 5, latents=64)
compare(2, 1, 401, latents=64, runs=1)  # by powers, with scales
compare(2, 1, 2000, latents=5, runs=1, taken=2, tolerance=1e-8)
compare(2, 3, 40, latents=5, runs=1, taken=2, first=True)
mask = torch.tensor([[True, False], [True, True]])
compare(2, 1, 5, mask=mask)
compare(2, 1, 5, text="frequency(0.9)", settings=AscentSettings(patience=2, tolerance=10.0))
print("equal")
"""

EXTREMES = """
# Rows of a latent that never meet, and drift apart beyond what doubles hold: torch takes the run.
space = ContextSpace(2, 1)
apart = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).double()
posed = TiltedRuns(space, batch(apart, 1), 3000, ExactMeans(torch.ones(1, 2, 1).double()))
start = initial_prompts(space, [0])
settings = AscentSettings(max_steps=2)
expected, found = ascend(posed, start, settings), ascend_fused(posed, start, settings)
assert torch.allclose(found[0].prompt.transitions, expected[0].prompt.transitions, atol=1e-12)
broken = torch.ones(1, 2, 1).double()
broken[0, 0, 0] = torch.nan
(run,) = ascend_fused(replace(posed, source=ExactMeans(broken), n_transitions=5), start, settings)
assert (run.stop_reason, run.steps) == ("diverged", 1)
print("equal")
"""


def run(cases, device="cpu", **environment):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM + cases, device],
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": f"{SOURCE}:{TESTS}", **environment},
    )
    assert ran.stdout == "equal\n", ran.stderr


def test_kernels_as_written_ascend_as_torch_does():
    run(CASES + EXTREMES.replace('print("equal")', ""), POSTEER_KERNELS="python")


GPU_CASES = """
compare(2, 1, 49, latents=150, taken=2)
compare(2, 0, 5, rolls=True, text="frequency(0.9)")
compare(2, 1, 5, rolls=True, mask=torch.tensor([[True, False], [True, True]]))
compare(2, 1, 5, "geometric")
compare(2, 0, 5, "geometric", rolls=True, text="frequency(0.9)")
"""

MORE_GPU_CASES = """
mask = torch.tensor([[True, False], [True, True]])
compare(2, 1, 49, "geometric", latents=150, taken=2, mask=mask)
compare(3, 1, 7, "geometric", rolls=True)
compare(2, 2, 6, "geometric", rolls=True, first=True)
compare(4, 1, 5, "geometric", rolls=True, first=True, taken=2)
compare(3, 1, 7, rolls=True)
compare(2, 2, 6, rolls=True, first=True)
compare(2, 1, 5, text="frequency(0.9)", settings=AscentSettings(patience=2, tolerance=10.0))
"""


def test_the_gpus_kernel_ascends_as_torch_does():
    pytest.importorskip("triton")
    run(GPU_CASES + 'print("equal")', POSTEER_KERNELS="triton", TRITON_INTERPRET="1")


@pytest.mark.slow
def test_the_gpus_kernel_with_more_contexts_and_at_its_ends():
    pytest.importorskip("triton")
    cases = MORE_GPU_CASES + EXTREMES
    run(cases, POSTEER_KERNELS="triton", TRITON_INTERPRET="1")


COMPILING = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from posteer.methods.ppt.fused.gpu_step import climb

WHOLE = dict.fromkeys(("whole", "active"), "*i32") | dict.fromkeys(("n_latents", "n_steps"), "i32")


def compiled(contexts, steps, geometric, first, horizon):
    words = 2**horizon if horizon else 0
    fixed = {"C": contexts, "V": 2, "K": words, "STEPS": steps, "HORIZON": horizon}
    fixed |= {"HIGHEST": steps.bit_length() - 1, "HAS_FIRST": first, "GEOMETRIC": geometric}
    fixed |= {"SCORES": 2 * contexts + (contexts if geometric and first else 0), "BLOCK": 128}
    kinds = WHOLE | {"keys": "*i64"} | dict.fromkeys(fixed, "constexpr")
    signature = {name: kinds.get(name, "*fp64") for name in climb.arg_names}
    source = ASTSource(climb, signature, constexprs=fixed)
    made = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert ".visible .entry climb" in made.asm["ptx"]


compiled(2, 49, False, False, 0)
compiled(1, 50, False, False, 4)
compiled(2, 5, True, True, 4)
compiled(4, 48, True, False, 0)
print("equal")
"""


def test_the_gpus_kernel_compiles_where_there_is_no_gpu(tmp_path):
    """What the interpreter takes and the compiler refuses would be seen on a GPU alone."""
    pytest.importorskip("triton")
    run(COMPILING, TRITON_CACHE_DIR=str(tmp_path), POSTEER_KERNELS="triton")


@pytest.mark.slow
def test_on_a_gpu_it_is_compiled_and_does_so_too():
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    run(GPU_CASES + MORE_GPU_CASES + 'print("equal")', "cuda")


@pytest.mark.slow
def test_compiled_kernels_do_too_on_any_number_of_threads(tmp_path):
    if find_spec("numba") is None:
        pytest.skip("numba is not installed")
    threads = """
runs = []
for n_threads in (1, 3):
    torch.set_num_threads(n_threads)
    found = ascend_fused(*POSED)
    runs.append([one.surrogate_history for one in found])
assert runs[0] == runs[1]
print("equal")
"""
    posed = """
space = ContextSpace(2, 1)
tables = torch.stack([batch(random_kernels(space, 500, seed, 0.5), 1)[0] for seed in range(4)])
means = torch.rand(4, 2, 500, dtype=torch.float64)
POSED = (TiltedRuns(space, tables, 49, ExactMeans(means)), initial_prompts(space, [0, 1, 2, 3]),
         AscentSettings(max_steps=30))
"""
    cases = (CASES + EXTREMES).replace('print("equal")', "") + posed + threads
    run(cases, NUMBA_CACHE_DIR=str(tmp_path), HOME=str(tmp_path))
    kept = tmp_path / written_in(KERNELS)
    assert any(kept.rglob("*.nbi")), "compiled code is kept, by what it was compiled of"


def test_kernels_written_otherwise_find_nothing_compiled_of_these(tmp_path):
    """Whichever of their files changed: an entry holds all that it calls."""
    shutil.copytree(KERNELS, tmp_path / "same")
    assert written_in(tmp_path / "same") == written_in(KERNELS)
    for path in KERNELS.glob("*.py"):
        other = tmp_path / path.stem
        shutil.copytree(KERNELS, other)
        (other / path.name).write_text(path.read_text() + "\n")
        assert written_in(other) != written_in(KERNELS)
