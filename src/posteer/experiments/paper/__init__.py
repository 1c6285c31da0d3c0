"""The paper: its published figures, tables, claims and figures, from records of a sweep."""
