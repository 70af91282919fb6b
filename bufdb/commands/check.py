"""`bufdb check`: a database held to the invariants of the format."""

from __future__ import annotations

from typing import Any

import click

from bufdb.commands import common


@click.command(name="check", short_help="Check what must hold of every dump.")
@click.option(
    "--examples",
    metavar="N",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Findings to show of each invariant.",
)
@common.output_options
@common.db_option
def command(examples: int, db: str, **output: Any) -> None:
    """Check that the dumps in the database agree with themselves.

    Allocations add up to the total, values lie in their allocation and share no bytes while live,
    XLA's peak listing is what is live at its instant, the peak adds up, every reference resolves.
    Prints one line per invariant that does not hold; the exit code is 1 if there is any. The
    invariants are the SQL files in queries/checks.
    """
    from bufdb import check

    with common.open_database(db) as con:
        broken = check.violations(con)
        result = check.summary(con, broken, examples)
        row = con.execute("SELECT count(*) FROM modules").fetchone()
    common.emit(result, **output)
    if broken:
        click.get_current_context().exit(1)
    modules = row[0] if row else 0
    common.note(f"{len(check.checks())} invariants hold for {modules} modules")
