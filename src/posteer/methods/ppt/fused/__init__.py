"""Ascents as one fused step: for each run and latent the whole recursion, then sums over latents,
the update and the rules by which a run ends, many steps in one call.

`estimator.py` and `ascent.py` say what is computed and stay the reference; the kernels here give
the same numbers to rounding. On a CPU they are compiled by numba (`pip install 'posteer[fast]'`),
on a GPU by Triton, which comes with torch. Without them, and for what they do not serve, torch
does the work.
"""
