"""Latents drawn from models: drawn, reweighed, shipped, checked."""

from posteer.banks.drawn import Bank, LatentBank, Origin, draw_analytic, load_bank
from posteer.banks.plans import DrawPlan
from posteer.banks.reweighed import ReweighedBank
from posteer.banks.rollouts import draw_bank
from posteer.banks.sampling import sample

__all__ = [
    "Bank",
    "DrawPlan",
    "LatentBank",
    "Origin",
    "ReweighedBank",
    "draw_analytic",
    "draw_bank",
    "load_bank",
    "sample",
]
