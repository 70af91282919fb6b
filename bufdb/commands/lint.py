"""`bufdb lint`: check saved queries against their headers and the catalog."""

from __future__ import annotations

from pathlib import Path

import click

from bufdb.commands import common


@click.command(name="lint", short_help="Check saved queries.")
@click.argument(
    "files",
    metavar="[FILE...]",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--db", metavar="FILE", help="Check against this database's tables and views.")
@common.wait_option
@common.queries_option
def command(files: tuple[Path, ...], db: str | None, folders: tuple[Path, ...]) -> None:
    """Check query files, or all saved queries, without running them.

    Prints one finding per line; the exit code is 1 if there is any. Without --db, checks against
    the tables and views of an empty database.
    """
    from bufdb.database import store
    from bufdb.lint import lint

    catalogue = common.catalogue(() if files else folders)
    paths = files or tuple(catalogue.paths.values())
    findings = [] if files else [str(clash) for clash in catalogue.clashes]
    with store.open_empty() if db is None else store.open_readable(db) as con:
        findings += [str(finding) for path in paths for finding in lint.lint(con, path)]
    common.write("".join(f"{finding}\n" for finding in findings))
    if findings:
        click.get_current_context().exit(1)
    common.note(f"{len(paths)} queries checked, nothing found")
