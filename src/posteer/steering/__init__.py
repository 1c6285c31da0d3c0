"""Posterior prefix tuning: tilt, estimate, ascend, snap."""
