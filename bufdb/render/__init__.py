"""Render records as text: tables, CSV, JSON, Markdown. Prints nothing."""

FORMATS = ("table", "csv", "json", "jsonl", "markdown")
"""Names of the formats of `bufdb.render.formats`."""
