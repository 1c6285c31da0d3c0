"""The paper's experiment, beside its published figures."""
