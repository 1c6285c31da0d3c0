"""Branch and bound over the ends of prompts: the best prompt, and a proof of how good it is."""
