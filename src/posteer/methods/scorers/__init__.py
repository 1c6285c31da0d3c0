"""Expected utilities of hard prompts from a fixed bank of latents, without the model."""
