"""Records become text: tables, CSV, JSON, Markdown. Prints nothing."""
