"""`bufdb ingest`: dumps into the database, with progress on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from bufdb.commands import common
from bufdb.errors import UsageError


@click.command(name="ingest", short_help="Read dumps into the database.")
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@common.db_option
@click.option("--run", metavar="NAME", help="Name of the run; the directory's name if not given.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the run.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="Files read at a time.")
@click.option("--memory-limit", metavar="SIZE", help="Memory for DuckDB, such as 1GB.")
def command(
    paths: tuple[Path, ...],
    db: str,
    run: str | None,
    labels: tuple[str, ...],
    jobs: int | None,
    memory_limit: str | None,
) -> None:
    """Read XLA dumps into the database: directories (with all below) or single files.

    Dumps that have not changed since they were last read are left alone. What could not be read
    is told by 'bufdb query diagnostics', and by exit code 4.
    """
    from bufdb.ingest import ingest

    summary = ingest(
        db,
        list(paths),
        run=run,
        labels=_labels(labels),
        jobs=jobs,
        memory_limit=memory_limit,
        progress=_progress(),
    )
    common.note(summary.line())
    click.get_current_context().exit(summary.exit_code)


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in texts:
        label, equals, value = text.partition("=")
        if not label or not equals:
            raise UsageError(f"--label wants K=V, got {text!r}")
        if labels.setdefault(label, value) != value:
            raise UsageError(f"--label {label} is given twice")
    return labels


def _progress() -> Callable[[int, int], None] | None:
    """Writes one line over and over on a terminal; None elsewhere."""
    if not sys.stderr.isatty():
        return None

    def show(done_bytes: int, total_bytes: int) -> None:
        percent = 100 * done_bytes // max(total_bytes, 1)
        # Erased at the end, so that only the summary stays.
        end = "\r\x1b[K" if done_bytes >= total_bytes else ""
        line = f"\r{percent:3d} % of {total_bytes / 1e6:.0f} MB{end}"
        click.echo(line, nl=False, err=True)

    return show
