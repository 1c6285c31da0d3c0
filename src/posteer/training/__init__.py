"""Meta-learning a Bayes-filtered transformer: data, plan, loop, checkpoints."""
