"""`bufdb summary`: one screen about what was compiled; it ends an ingest and a capture too."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.commands import common, completion
from bufdb.errors import UsageError, one_line, quote
from bufdb.report import colour

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import Value

Limits = tuple[int | None, str | None]
"""Bytes of a device's memory, and the device's name; None where that is not known."""


@click.command(name="summary", short_help="One screen: the highest peak and what holds it.")
@completion.filter_options
@click.option(
    "--limit",
    metavar="SIZE|DEVICE",
    help="Memory of the device: a size such as 16GiB, or a device's name such as 'TPU v5e'.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the answer; json holds exact numbers.",
)
@common.output_option
@common.db_option
def command(
    run: str | None,
    function: str | None,
    module: str | None,
    limit: str | None,
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    """Show what was compiled, the highest peak, what holds it, and what would lower it most.

    The peak is that of the device's own memory, the highest of all functions asked about. How much
    of the device it takes is said where the device is known: by --limit, or by a label of the run
    (bufdb ingest --metadata device='TPU v5e'); no dump names it. All figures are those of 'bufdb
    query peak-by-category', 'peak-by-source-line', 'advice' and 'diagnostics'.
    """
    from bufdb.query.catalogue import Catalogue
    from bufdb.report import summary
    from bufdb.resources import query_folder
    from bufdb.summary import overview

    limits = limit_of(limit)
    given = {"run": run, "function": function, "module": module}
    asked = {name: text for name, text in given.items() if text is not None}
    parts = overview.queries(Catalogue([query_folder()]), tuple(overview.QUERIES))
    for query in parts.values():
        for name in asked:
            if query.param(name) is None:
                raise UsageError(f"summary: --{name} is no parameter of the query {query.name}")
    con = common.open_database(db, overview.sql_of(parts), runs=None if run is None else [run])
    found = overview.overview(con, parts, asked, *limits)
    if not found.counts["module_count"]:
        _say_why(con, asked)
        if format_name == "text":
            return
    is_coloured = output is None and format_name == "text" and colour.wanted(sys.stdout, os.environ)
    text = (
        summary.as_json(found)
        if format_name == "json"
        else summary.text(found, is_coloured=is_coloured)
    )
    common.write(text, output, is_safe=is_coloured)


def show_after(
    db: str, runs: Sequence[str], parts: tuple[str, ...] = (), limits: Limits = (None, None)
) -> None:
    """A short summary on standard error, after an ingest: of its run, of several of all there are.

    Without `parts` it is read from few views, which costs an ingest 0.15 s.
    """
    from bufdb.database import store
    from bufdb.query.catalogue import Catalogue
    from bufdb.report import summary
    from bufdb.resources import query_folder
    from bufdb.summary import overview

    queries = overview.queries(Catalogue([query_folder()]), parts)
    globs = [overview.glob(run) for run in runs]
    asked: dict[str, Value] = {"run": globs[0]} if len(globs) == 1 else {}
    narrowed = globs if len(globs) == 1 else None
    with store.open_readable(db, overview.sql_of(queries), runs=narrowed) as con:
        found = overview.overview(con, queries, asked, *limits)
    if not found.counts["module_count"]:
        return
    command = shlex.join(["bufdb", "summary", *(["--run", *globs] if narrowed else [])])
    text = summary.text(
        found,
        is_coloured=colour.wanted(sys.stderr, os.environ),
        more=f"{one_line(command)} shows what holds it",
    )
    with contextlib.suppress(OSError):
        click.echo(text, nl=False, err=True)


def limit_of(text: str | None) -> Limits:
    """Bytes of --limit, and the name of the device if it is one.

    Raises:
        UsageError: it is neither a size nor a device.
    """
    from bufdb.query.sizes import parse_size
    from bufdb.summary.devices import DEVICES, device

    if text is None:
        return None, None
    known = device(text)
    if known is not None:
        return known.memory_bytes, known.name
    try:
        size = parse_size(text)
    except ValueError:
        size = 0
    if size <= 0:
        names = ", ".join(item.name for item in DEVICES)
        raise UsageError(f"--limit wants a size such as 16GiB or one of {names}; got {quote(text)}")
    return size, None


def _say_why(con: duckdb.DuckDBPyConnection, asked: dict[str, str]) -> None:
    """Why there is nothing to show."""
    from bufdb.database.store import CATALOG
    from bufdb.query.asked import nothing
    from bufdb.query.asked.known import Known
    from bufdb.query.catalogue import Catalogue
    from bufdb.resources import query_folder

    query = Catalogue([query_folder()]).find("modules")
    common.note(nothing.why(Known(con, CATALOG), query, asked))
