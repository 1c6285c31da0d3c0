"""The doors: elicit, evaluate, compare, sample, check."""
