"""`bufdb check`: check a database against the invariants of the format, and its own records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bufdb.commands import common, paths
from bufdb.errors import UsageError
from bufdb.proto import reader
from bufdb.query.result import Result
from bufdb.render.progress import progress


@click.command(name="check", short_help="Check invariants of the stored dumps.")
@paths.argument
@click.option(
    "--examples",
    metavar="N",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Findings to show for each invariant.",
)
@click.option(
    "--skip",
    metavar="NAME",
    multiple=True,
    help="Leave out an invariant, such as lookups if you have edited op_categories; may be "
    "repeated.",
)
@click.option(
    "--protos",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Ask a second opinion instead: rows of the modules that have text and a proto, derived "
    "from the protos below DIR.",
)
@common.quiet_option
@common.output_options
@common.read_db_option
def command(
    examples: int,
    skip: tuple[str, ...],
    protos: Path | None,
    is_quiet: bool,
    db: str,
    **output: Any,
) -> None:
    """Check that the database holds what was ingested, and that the dumps agree with themselves.

    For example: allocations add up to the total, values are inside their allocation and share no
    bytes while live, XLA's peak listing has the values live at its instant, the peak adds up,
    instructions match their text, every reference resolves.

    Prints one line per invariant that does not hold: findings, modules with any, findings that are
    explained (ingest reported an error or data loss in their modules: 'bufdb query
    diagnostics'), and the first findings with module, table and row. The exit code is 1 if a
    finding is not explained, else 0. The invariants are the SQL files in queries/checks.
    """
    from bufdb.query import check

    if protos is not None:
        _second_opinion(db, protos, output)
        return
    queries = check.chosen(skip)
    with common.open_database(db) as con:
        with progress("modules", is_quiet=is_quiet) as observer:
            broken = check.violations(con, queries, examples, progress=observer)
        result = check.summary(con, broken)
        row = con.execute("SELECT count(*) FROM modules").fetchone()
    if result.rows or not is_quiet:
        common.emit(result, **output)
    modules = row[0] if row else 0
    if any(not violation.is_explained for violation in broken):
        click.get_current_context().exit(1)
    if is_quiet:
        return
    if broken:
        common.note(
            f"{len(queries) - len(broken)} of {len(queries)} invariants hold for {modules} modules;"
            " violations of the others are in modules with an ingest diagnostic"
        )
    else:
        common.note(f"{len(queries)} invariants hold for {modules} modules")


def _second_opinion(db: str, folder: Path, output: dict[str, Any]) -> None:
    """Compare text and protos of the same modules; exit with code 1 if they disagree."""
    from bufdb.ingest import second_opinion

    if not reader.is_readable():
        raise UsageError(f"--protos: {reader.PACKAGE_MISSING}")
    with common.open_database(db) as con:
        opinion = second_opinion.ask(con, folder)
    columns = [("module_key", "VARCHAR"), ("table", "VARCHAR"), ("row_count", "BIGINT")]
    rows = [(d.module_key, d.table, d.row_count, d.example) for d in opinion.disagreements]
    common.emit(Result([*columns, ("example", "VARCHAR")], rows), **output)
    if opinion.missing_count:
        common.note(
            f"protos of {opinion.missing_count} modules that have text and a proto are not below "
            f"{folder}, or have changed"
        )
    if rows:
        click.get_current_context().exit(1)
    common.note(f"text and proto of {opinion.asked_count} modules agree")
