"""`bufdb sql`: answer one SELECT of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from bufdb.commands import common, paths


@click.command(name="sql", short_help="Answer your own SELECT.")
@click.argument("text", metavar="SELECT")
@paths.argument
@common.data_options
@click.option("--explain", is_flag=True, help="Print DuckDB's plan instead of the answer.")
@common.allow_files_option
@common.categories_option
@common.read_db_option
def command(
    text: str,
    explain: bool,
    allow_files: bool,
    categories: Path | None,
    db: str,
    **output: Any,
) -> None:
    """Answer one SELECT, read-only; '-' takes it from standard input.

    'bufdb schema' describes the tables and views. The SELECT can read only the database, or with
    --allow-files other files too.

    A PATH is read in place of a database: a dump folder, an archive, a log, a URL, or -.
    """
    from bufdb.query import execute

    if text == "-":
        text = sys.stdin.read()
    common.require_pipe(output["format_name"], output["output"])
    con = common.open_last(db, allow_files=allow_files, categories=categories)
    if explain:
        plans = execute.execute_sql(con, text, explain=True).rows
        common.write("".join(f"{plan}\n" for _, plan in plans), output["output"])
    elif output["format_name"] in common.BINARY:
        from bufdb.api import answer

        execute.sql_as_table(con, text)
        common.write_bytes(answer.as_bytes(con, output["format_name"]), output["output"])
    else:
        common.emit(execute.execute_sql(con, text), **output)
