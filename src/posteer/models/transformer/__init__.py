"""Transformers that filter: network, model, folder, fast paths."""
