"""`bufdb mcp`: serve the answers of one database to coding assistants."""

from __future__ import annotations

import click

from bufdb.commands import common


@click.command(name="mcp", short_help="Serve the answers to coding assistants, over stdio.")
@common.db_option
def command(db: str) -> None:
    r"""Serve the Model Context Protocol on standard input and output until the input ends.

    \b
      {"mcpServers": {"bufdb": {"command": "bufdb", "args": ["mcp", "--db", "/path/runs.duckdb"]}}}

    Tools: summary, queries, query, sql, diff, what-if, verify and advice. All only read this one
    database, with the limits of 'bufdb query' and 'bufdb sql': locked, without access to other
    files. Between calls the file is free for others. A call ends after 60 s, or when it is
    canceled, and does not block others; rows, cells and memory are bounded. Needs the package mcp
    (pip install 'bufdb[mcp]').
    """
    from bufdb.api import assistant
    from bufdb.api.database import connect

    common.open_database(db).close()  # report errors at once
    assistant.server(connect(db)).run("stdio")
