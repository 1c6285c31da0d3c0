"""Latents with finitely many states: hidden Markov models, or tokens that tell the state."""
