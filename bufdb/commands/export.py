"""`bufdb export`: tables, a small database, flame graphs and traces for other tools."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.commands import common, completion
from bufdb.errors import UsageError

if TYPE_CHECKING:
    import duckdb

    from bufdb.export.choice import Chosen
    from bufdb.query.header import Value

TABLES = ("parquet", "csv", "bundle")
PICTURES = ("speedscope", "collapsed", "pprof", "perfetto", "torch-snapshot")
ONE = ("collapsed", "pprof")
"""Formats that hold one sum, and so one function."""


@click.command(name="export", short_help="Write tables, flame graphs and traces for other tools.")
@click.option(
    "--format",
    "form",
    type=click.Choice([*TABLES, *PICTURES]),
    required=True,
    help="What to write, see above.",
)
@completion.filter_options
@click.option(
    "--color",
    metavar="N",
    shell_complete=completion.known("color"),
    help="Of a picture: only this memory space, its number or a name as hbm.",
)
@click.option(
    "--frames",
    type=click.Choice(["own", "all"]),
    default="own",
    show_default=True,
    help="Of a picture: call stacks without library code, or with it.",
)
@click.option(
    "--anonymize",
    is_flag=True,
    help="Replace names and paths, the same by the same; sizes, shapes and lines stay.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="Where to write; a new folder for parquet and csv.",
)
@common.db_option
def command(
    form: str,
    run: str | None,
    function: str | None,
    module: str | None,
    color: str | None,
    frames: str,
    anonymize: bool,
    output: Path,
    db: str,
) -> None:
    r"""Write what the database holds, or a part of it, in the form of another tool.

    \b
      parquet         all tables, a file for each, with exact types and load.sql
      csv             the same as text
      bundle          a database with the chosen modules alone, for a bug report
      speedscope      bytes at the peak by Python call stack, for www.speedscope.app
      collapsed       the same as lines for flamegraph.pl
      pprof           the same for pprof, which compares two with -diff_base
      perfetto        occupied bytes and values over the program, for ui.perfetto.dev
      torch-snapshot  each value from allocation to free, for pytorch.org/memory_viz

    A picture shows of each function the largest compilation, and each memory space for itself;
    collapsed and pprof, which hold one sum, the function and memory space with the largest peak.

    --anonymize leaves the words of XLA, JAX and bufdb, all numbers, and single letters; every other
    word of names, paths, labels and options becomes another one, the same everywhere in the file.
    Hashes of dump files stay.

    \b
    Exit codes:
      0  written
      1  nothing to export, or a peak is unknown of all that is asked for
      2  wrong usage, or the file cannot be written
      3  database missing, in use or of another version
    """
    given = {"run": run, "function": function, "module": module}
    asked: dict[str, Value] = {name: text for name, text in given.items() if text is not None}
    is_table = form in TABLES
    if is_table and (color is not None or frames != "own"):
        raise UsageError(f"--color and --frames are for pictures, not for {form}")
    if form in TABLES:
        _write_tables(db, asked, form, output, anonymous=anonymize)
        return
    if color is not None:
        asked["color"] = int(color) if color.isdecimal() else color
    with contextlib.ExitStack() as stack:
        if anonymize:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bufdb-"))
            hidden = str(Path(folder) / "anonymous.duckdb")
            _write_tables(db, asked, "bundle", Path(hidden), anonymous=True)
            db, asked = hidden, {name: asked[name] for name in asked if name == "color"}
        data = _picture(db, asked, form, all_frames=frames == "all")
    _write(data, output)


def _write_tables(
    db: str, asked: dict[str, Value], form: str, output: Path, *, anonymous: bool
) -> None:
    from bufdb.export import bundle, tables

    con = common.open_database(db, allow_files=True)
    selection = tables.Selection(con, asked, anonymous=anonymous)
    if form == "bundle":
        bundle.write(selection, output, db)
    else:
        tables.write(selection, output, form)


def _picture(db: str, asked: dict[str, Value], form: str, *, all_frames: bool) -> bytes:
    from bufdb.export import choice, perfetto, torch_snapshot, values

    sql = "\n".join([choice.SQL, values.VALUES, values.HELD, values.FRAMES, perfetto.STEPS])
    run = asked.get("run")
    con = common.open_database(db, sql, runs=None if run is None else [str(run)])
    chosen = choice.choose(con, asked)
    if form in ("perfetto", "torch-snapshot"):
        chosen = choice.with_instants(chosen)
    if form in ONE:
        chosen = choice.largest(chosen)
    for text in chosen.notes:
        common.note(text)
    if form == "torch-snapshot":
        for device, function in enumerate(chosen.functions):
            common.note(f"device {device}: {function.title}")
        return torch_snapshot.snapshot(con, chosen.functions, all_frames=all_frames)
    if form == "perfetto":
        return perfetto.trace(con, chosen.functions, all_frames=all_frames)
    return _flame(con, chosen, form, all_frames=all_frames)


def _flame(con: duckdb.DuckDBPyConnection, chosen: Chosen, form: str, *, all_frames: bool) -> bytes:
    from bufdb import __version__
    from bufdb.export import flame, pprof, values

    shown = [
        (function, values.held(con, function, all_frames=all_frames))
        for function in chosen.functions
    ]
    if form == "speedscope":
        return flame.speedscope(shown, f"bufdb {__version__}").encode()
    ((function, held),) = shown
    if form == "collapsed":
        return flame.collapsed(held).encode()
    return pprof.profile(function, held)


def _write(data: bytes, output: Path) -> None:
    """Write a picture.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        output.write_bytes(data)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error
