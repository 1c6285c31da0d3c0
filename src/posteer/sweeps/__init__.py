"""Many runs: configuration, store, runner, executors."""
