"""Latent banks, predictive Monte Carlo, and the diagnostics of importance weights."""

from posteer.latents.bank import LatentBank, Origin, draw_analytic, load_bank
from posteer.latents.importance import ess_fraction, normalise, pareto_k, pareto_smoothed
from posteer.latents.rollouts import DrawPlan, draw_bank
from posteer.latents.sampling import sample

__all__ = [
    "DrawPlan",
    "LatentBank",
    "Origin",
    "draw_analytic",
    "draw_bank",
    "ess_fraction",
    "load_bank",
    "normalise",
    "pareto_k",
    "pareto_smoothed",
    "sample",
]
