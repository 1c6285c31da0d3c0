"""Panels and progress bars."""
