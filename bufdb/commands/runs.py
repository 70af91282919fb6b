"""`bufdb runs`: list runs, change their labels, remove them."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import click

from bufdb import resources
from bufdb.commands import common, completion
from bufdb.errors import DatabaseError
from bufdb.query.catalogue import load


class _Runs(click.Group):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(name="runs", cls=_Runs, short_help="List, label and remove runs.")
def command() -> None:
    """List, label and remove runs; without a command it lists them."""


@command.command(name="list", short_help="List the runs (what 'bufdb runs' does).")
@common.output_options
@common.db_option
def list_command(db: str, **output: Any) -> None:
    """List the runs in order of the time of their dumps, as the query `runs` does.

    Shows labels, facts from the dumps (platforms, format eras, partitions, the compiler options
    that all modules share), the largest peak, and metadata, such as the command of a capture;
    'bufdb query runs' can filter.
    """
    from bufdb.query.execute import execute_query

    query = load(resources.query_folder() / "runs.sql")
    result = execute_query(common.open_database(db, query.sql), query, {})
    common.emit(result, **output)
    if not result.rows:
        common.note("no rows: no run is stored")


@command.command(name="label", short_help="Set labels of a run.")
@click.argument("run", metavar="RUN", shell_complete=completion.run_name)
@click.argument("labels", metavar="K=V...", nargs=-1, required=True)
@click.option(
    "--metadata",
    is_flag=True,
    help="Set metadata: it says how the run was made, selects runs, and does not separate them.",
)
@common.db_option
def label_command(run: str, labels: tuple[str, ...], metadata: bool, db: str) -> None:
    """Set labels of a run; its other labels stay."""
    from bufdb.database import runs

    pairs = common.parse_labels(labels, "label")
    with closing(_writable(db)) as con:
        runs.set_labels(con, run, pairs, metadata=metadata)


@command.command(name="unlabel", short_help="Remove labels of a run.")
@click.argument("run", metavar="RUN", shell_complete=completion.run_name)
@click.argument("labels", metavar="K...", nargs=-1, required=True)
@common.db_option
def unlabel_command(run: str, labels: tuple[str, ...], db: str) -> None:
    """Remove labels of a run."""
    from bufdb.database import runs

    with closing(_writable(db)) as con:
        runs.remove_labels(con, run, labels)


@command.command(name="remove", short_help="Remove runs with their modules.")
@click.argument(
    "names", metavar="RUN...", nargs=-1, required=True, shell_complete=completion.run_name
)
@common.db_option
def remove_command(names: tuple[str, ...], db: str) -> None:
    """Remove runs with their modules, without confirmation: the dumps can rebuild them.

    If one of the names is no run, none is removed.
    """
    from bufdb.database import runs

    with closing(_writable(db)) as con:
        removed = runs.remove_runs(con, names)
    for name, what in removed.items():
        common.note(f"removed run {name}: {what.module_count} modules, {what.row_count} rows")


def _writable(db: str) -> Any:
    """Return the database, which must exist: these commands do not create one."""
    from pathlib import Path

    from bufdb.database import store

    if not Path(db).exists():
        raise DatabaseError(f"no database {db}; make one with 'bufdb ingest DUMPS --db {db}'")
    return store.open_writable(db)
