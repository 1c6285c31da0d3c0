"""The paper's tables, claims and figures as a page."""
