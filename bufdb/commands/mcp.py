"""`bufdb mcp`: serve the answers of one database to coding assistants."""

from __future__ import annotations

from pathlib import Path

import click

from bufdb.commands import common


@click.command(name="mcp", short_help="Serve the answers to coding assistants, over stdio.")
@click.option(
    "--allow-run",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Let the assistant run code: explain, fit, blame and capture, which write in DIR alone.",
)
@common.db_option
def command(allow_run: Path | None, db: str) -> None:
    r"""Serve the Model Context Protocol on standard input and output until the input ends.

    \b
      {"mcpServers": {"bufdb": {"command": "bufdb", "args": ["mcp", "--db", "/path/runs.duckdb"]}}}

    Tools: summary, queries, query, sql, diff, what-if, verify and advice. All only read this one
    database, with the limits of 'bufdb query' and 'bufdb sql': locked, without access to other
    files. Between calls the file is free for others. A call ends after 60 s, or when it is
    canceled, and does not block others; rows, cells and memory are bounded. Needs the package mcp
    (pip install 'bufdb[mcp]').

    With --allow-run DIR (Linux 5.13 or later) the tools explain, fit, blame and capture run your
    code, for at most half an hour, in DIR, which must hold the database: Landlock keeps them from
    writing elsewhere, each process has at most half of the machine's memory, and a call that is
    canceled ends with all it started. They may read what you may, and use the network. Without it
    their answers say how to allow it.
    """
    from bufdb.api import assistant
    from bufdb.api.database import connect

    runs = None
    if allow_run is not None:
        from bufdb.api.running import Runs
        from bufdb.database.store import require_storable

        runs = Runs(allow_run, db)
        require_storable(db)
    if runs is None or Path(db).exists():
        common.open_database(db).close()  # report errors at once
    assistant.server(connect(db), runs).run("stdio")
