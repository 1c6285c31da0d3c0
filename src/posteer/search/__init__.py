"""Direct search over prompts."""
