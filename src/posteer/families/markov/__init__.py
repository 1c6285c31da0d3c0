"""k-Markov kernels: priors, tilts, prompt classes, fits."""
