"""Records become text: tables, CSV, JSON, Markdown. Prints nothing."""

FORMATS = ("table", "csv", "json", "jsonl", "markdown")
"""Of `bufdb.render.formats`, by name."""
