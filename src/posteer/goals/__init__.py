"""What to elicit: utilities, objectives, and their finite-state forms."""
