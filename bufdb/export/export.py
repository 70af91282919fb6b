"""`export` as a function: tables and pictures of a database, in other tools' formats."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb import __version__
from bufdb.answers.opening import Open
from bufdb.database import definitions, narrowing, store
from bufdb.errors import UsageError, quote
from bufdb.export import flame, perfetto, pprof, shown, tables, torch_snapshot, values
from bufdb.render.output import write_file

if TYPE_CHECKING:
    import duckdb

    from bufdb.export.shown import Chosen
    from bufdb.query.header import Value

TABLES = ("parquet", "csv", "bundle")
PICTURES = ("speedscope", "collapsed", "pprof", "perfetto", "torch-snapshot")
ONE = ("collapsed", "pprof")
"""Formats that hold one sum, and so one function."""
FRAMES = ("own", "all")
_OF_VALUES = (values.VALUES, values.HELD, values.FRAMES, perfetto.STEPS)
_SQL = "\n".join([shown.SQL, *_OF_VALUES])
LEAST_FUNCTIONS = 20
"""With fewer, making the copies takes longer than they save."""


def export(
    opened: Open,
    db: str,
    form: str,
    output: Path,
    *,
    run: str | None = None,
    function: str | None = None,
    module: str | None = None,
    color: int | str | None = None,
    frames: str = "own",
    anonymize: bool = False,
    keep: Sequence[str] = (),
) -> list[str]:
    """Write a database, or a part of it; arguments as the options of `bufdb export`.

    Args:
        opened: opens the database.
        db: its file, which a bundle must not overwrite.
        form: one of TABLES and PICTURES.
        output: where to write; a new folder for parquet and csv.
        run: glob of runs, or of LABEL=VALUE.
        function: glob of functions.
        module: glob of modules' keys.
        color: for a picture, only this memory space, by number or name.
        frames: for a picture, call stacks of the user's own code (own) or with libraries (all).
        anonymize: replace names and paths consistently.
        keep: labels of runs that are not anonymized.

    Returns:
        Notes for the reader of the export.

    Raises:
        UsageError: wrong usage, or the file cannot be written.
        BufdbError: there is nothing to export, or no peak of what is selected is known.
    """
    _require(form, color, frames)
    globs = {"run": run, "function": function, "module": module}
    filters: dict[str, Value] = {name: text for name, text in globs.items() if text is not None}
    if keep and not anonymize:
        raise UsageError("--keep is for --anonymize; without it all labels stay")
    if form in TABLES:
        _write_tables(opened, db, filters, form, output, anonymous=anonymize, keep=keep)
        return []
    if color is not None:
        filters["color"] = int(color) if str(color).isdecimal() else color
    with ExitStack() as stack:
        if anonymize:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bufdb-"))
            hidden = str(Path(folder) / "anonymous.duckdb")
            _write_tables(opened, db, filters, "bundle", Path(hidden), anonymous=True, keep=keep)
            opened = partial(store.open_readable, hidden)
            filters = {name: filters[name] for name in filters if name == "color"}
        data, notes = _picture(opened, filters, form, all_frames=frames == "all")
    write_file(output, data)
    return notes


def _require(form: str, color: int | str | None, frames: str) -> None:
    known = (*TABLES, *PICTURES)
    if form not in known:
        raise UsageError(f"--format is one of {', '.join(known)}, got {quote(form)}")
    if frames not in FRAMES:
        raise UsageError(f"--frames is one of {', '.join(FRAMES)}, got {quote(frames)}")
    if form in TABLES and (color is not None or frames != "own"):
        raise UsageError(f"--color and --frames are for pictures, not for {form}")


def _write_tables(
    opened: Open,
    db: str,
    filters: dict[str, Value],
    form: str,
    output: Path,
    *,
    anonymous: bool,
    keep: Sequence[str],
) -> None:
    con = opened(allow_files=True, runs=_runs(filters))
    is_bundle = form == "bundle"
    selection = tables.Selection(
        con, filters, anonymous=anonymous, keep=keep, has_sources=is_bundle
    )
    if is_bundle:
        tables.write_bundle(selection, output, db)
    else:
        tables.write(selection, output, form)


def _runs(filters: Mapping[str, Value]) -> list[str] | None:
    return None if filters.get("run") is None else [str(filters["run"])]


def _picture(
    opened: Open, filters: dict[str, Value], form: str, *, all_frames: bool
) -> tuple[bytes, list[str]]:
    """Return the picture, and notes for its reader."""
    con = opened(_SQL, runs=_runs(filters))
    chosen = shown.choose(con, filters)
    if form in ("perfetto", "torch-snapshot"):
        chosen = shown.with_instants(chosen)
    chosen = shown.largest(chosen) if form in ONE else shown.first(chosen)
    notes = list(chosen.notes)
    with _alone(con, chosen):
        data = _drawn(con, chosen, form, all_frames=all_frames)
    if form == "torch-snapshot":
        functions = enumerate(chosen.functions)
        notes += [f"device {device}: {function.title}" for device, function in functions]
    return data, notes


def _alone(con: duckdb.DuckDBPyConnection, chosen: Chosen) -> AbstractContextManager[None]:
    """Narrow the tables to the rows of these functions within the block: each is queried.

    For 500 of 20,000 functions this takes 17 s of CPU instead of 40 s, most of it planning.
    """
    if len(chosen.functions) < LEAST_FUNCTIONS or narrowing.module_count(con) == 0:
        return nullcontext()
    ids = ", ".join(str(function.module_id) for function in chosen.functions)
    chosen_ids = f"SELECT module_id FROM modules WHERE module_id IN ({ids})"
    tables = definitions.module_tables("\n".join(_OF_VALUES))
    return narrowing.to_modules(con, tables, chosen_ids, is_asked_often=True)


def _drawn(con: duckdb.DuckDBPyConnection, chosen: Chosen, form: str, *, all_frames: bool) -> bytes:
    if form == "torch-snapshot":
        return torch_snapshot.snapshot(con, chosen.functions, all_frames=all_frames)
    if form == "perfetto":
        return perfetto.trace(con, chosen.functions, all_frames=all_frames)
    shown = (
        (function, values.held(con, function, all_frames=all_frames))
        for function in chosen.functions
    )
    if form == "speedscope":
        return flame.speedscope(shown, f"bufdb {__version__}").encode()
    ((function, held),) = shown
    if form == "collapsed":
        return flame.collapsed(held).encode()
    return pprof.profile(function, held)
