"""Finitely many latents of any kind, and priors over them that need no sampling."""
