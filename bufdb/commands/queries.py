"""`bufdb queries`: the catalogue, one line per query."""

from __future__ import annotations

from pathlib import Path

import click

from bufdb.commands import common
from bufdb.render import queries as written


@click.command(name="queries", short_help="List the saved queries.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="Format of the list; json holds the whole headers.",
)
@common.queries_option
def command(format_name: str, folders: tuple[Path, ...]) -> None:
    """List the saved queries by group, one line each.

    Files that are not queries, or repeat a name, are skipped with a note on standard error.
    """
    saved = common.catalogue(folders)
    queries = saved.load_all()
    for problem in saved.problems():
        common.note(str(problem))
    writers = {
        "text": written.as_text, "markdown": written.as_markdown, "json": written.as_json
    }  # fmt: skip
    common.write(writers[format_name](queries))
