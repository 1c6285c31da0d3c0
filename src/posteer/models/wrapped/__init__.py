"""Other people's networks as models: what they read, over which tokens, after which text."""
