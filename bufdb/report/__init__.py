"""Records become text: tables, CSV, JSON, Markdown. Prints nothing."""

FORMATS = ("table", "csv", "json", "jsonl", "markdown")
"""Of `bufdb.report.formats`, by name."""
