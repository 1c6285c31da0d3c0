"""Records in a notebook: tables in HTML and plots with matplotlib."""
