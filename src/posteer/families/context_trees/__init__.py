"""Latents that look back as far as their tree says: context-tree weighting."""
