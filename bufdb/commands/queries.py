"""`bufdb queries`: the catalogue, one line per query."""

from __future__ import annotations

from pathlib import Path

import click

from bufdb import render
from bufdb.commands import common
from bufdb.saved_query import GROUPS


@click.command(name="queries", short_help="List the saved queries.")
@common.queries_option
def command(folders: tuple[Path, ...]) -> None:
    """List the saved queries by group, one line each."""
    queries = common.catalogue(folders).load_all()
    name_width = max((len(query.name) for query in queries), default=0)
    parts = []
    for group, heading in GROUPS.items():
        rows = [
            ["  " + query.name.ljust(name_width), query.title]
            for query in queries
            if query.group == group
        ]
        if rows:
            parts.append(f"{heading}\n{render.align(rows, [False, False])}")
    common.write("\n".join(parts))
