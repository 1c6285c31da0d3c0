"""Searches that ask the model itself."""
