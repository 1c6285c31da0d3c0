"""Search over classes of prompts that no latent tells apart."""
