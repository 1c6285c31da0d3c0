"""Ways to find prompts: one file each, declared needs, one registry."""
