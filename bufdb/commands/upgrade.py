"""`bufdb upgrade`: a database of this version from one of another."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from bufdb.commands import common
from bufdb.errors import UsageError
from bufdb.render.progress import progress


@click.command(name="upgrade", short_help="Make a database of this version from an older one.")
@click.argument("place", metavar="[FILE|URL]", required=False, type=click.Path())
@common.db_option
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of reading processes.  [default: number of processors, at most 4]",
)
@common.quiet_option
def command(place: str | None, db: str, jobs: int | None, is_quiet: bool) -> None:
    """Make the database FILE (or that of --db) one of this version, with everything that it holds.

    The dump files that it keeps are read again by this version's readers. Rows of modules without
    kept files (ingested with --no-sources, or by bufdb 0.2) are copied: what only a reader of this
    version finds is missing, and 'bufdb query diagnostics' says so. Ingesting their dumps renews
    them. Labels, metadata, profiles and edited rules come along.

    The new file is made next to the old one, which stays as it is until the new one replaces it as
    a whole. Until then both take space, and so do the dump files, in TMPDIR.

    A folder or a URL, also that of --db, is a dataset ('bufdb ingest --out'). Others may read it
    meanwhile: what is of an earlier version is stored again and counts at the end, all at once;
    'bufdb compact' removes what it replaced.
    """
    source = click.get_current_context().get_parameter_source("db")
    if place is not None and source is ParameterSource.COMMANDLINE:
        raise UsageError("FILE and --db both name the database; give one of them")
    target = place or db
    if not target:
        raise UsageError("expected the name of a database file")
    if "://" in target or Path(target).is_dir():
        from bufdb.dataset.upgrade import upgrade
    else:
        from bufdb.ingest.upgrade import upgrade
    state = click.get_current_context().find_root().obj
    if isinstance(state, dict):
        state["db"] = target
    with progress("MB", is_quiet=is_quiet) as report:
        upgraded = upgrade(target, jobs=jobs, progress=report)
    for text in upgraded.notes:
        common.note(text)
    if not is_quiet:
        common.note(upgraded.line(target))
