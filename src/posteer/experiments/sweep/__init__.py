"""Many runs: a configuration that expands to runs, a store that keeps them, a batched runner."""
