"""Vocabularies, prompts, contexts, and conditions on prompts."""
