"""Latent banks and the diagnostics of importance weights."""

from posteer.latents.bank import LatentBank, draw_analytic, draw_by_rollouts
from posteer.latents.importance import ess_fraction, normalise, pareto_k

__all__ = [
    "LatentBank",
    "draw_analytic",
    "draw_by_rollouts",
    "ess_fraction",
    "normalise",
    "pareto_k",
]
