"""Posterior prefix tuning: bank, ascent, snap."""
