"""Latents with finitely many states: hidden Markov models, and those whose tokens tell the state."""
