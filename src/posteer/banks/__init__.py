"""Latent banks, predictive Monte Carlo, and the diagnostics of importance weights."""

from posteer.banks.drawn import LatentBank, Origin, draw_analytic, load_bank
from posteer.banks.rollouts import DrawPlan, draw_bank
from posteer.banks.sampling import sample
from posteer.core.weights import ess_fraction, normalise, pareto_k, pareto_smoothed

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
