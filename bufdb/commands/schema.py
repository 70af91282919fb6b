"""`bufdb schema`: the tables, views and macros with their columns and comments."""

from __future__ import annotations

from pathlib import Path

import click

from bufdb.answers import schema
from bufdb.answers.schema import describe
from bufdb.commands import common
from bufdb.errors import UsageError, did_you_mean, quote


@click.command(name="schema", short_help="Describe the tables, views and macros.")
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
)
@click.option("--brief", is_flag=True, help="Leave out the columns.")
@common.read_db_option
def command(names: tuple[str, ...], format_name: str, brief: bool, db: str) -> None:
    """Describe the tables, views and macros, all or those named, from the database itself.

    Without a database file, describe those of an empty database.

    With --on, print SQL that creates them in a plain DuckDB shell, over the files of the dataset:
    bufdb schema --on URL > views.sql, then .read views.sql
    """
    url = common.dataset()
    if url is not None:
        _write_sql(url, names, format_name, is_brief=brief)
        return
    from bufdb.database import store

    with store.open_readable(db) if Path(db).exists() else store.open_empty() as con:
        items = describe(con)
    known = {item.name for item in items}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or ";"
            raise UsageError(f"no table {quote(name)}{hint} 'bufdb schema' shows all")
    chosen = [item for item in items if not names or item.name in names]
    if brief:
        common.write(schema.brief(chosen, format_name))
        return
    writers = {
        "text": schema.as_text,
        "markdown": schema.as_markdown,
        "json": schema.as_json,
    }
    common.write(writers[format_name](chosen))


def _write_sql(url: str, names: tuple[str, ...], format_name: str, *, is_brief: bool) -> None:
    from bufdb.dataset import snapshot

    if names or is_brief or format_name != "text":
        raise UsageError("schema --on prints all SQL; it takes neither names nor --format")
    common.write(snapshot.shell_text(url))
