"""`Readable`: what can be asked of a database, as the command line answers it.

Invariant: between two calls no file is open, so that other processes can read and write it; what
was answered is in memory and stays as it was when it was asked.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bufdb.api.answer import Answer, dicts
from bufdb.api.output import write_file
from bufdb.api.questions.opening import Opener
from bufdb.api.rows import Rows
from bufdb.database.definitions import CATALOG
from bufdb.query import execute
from bufdb.query.asked import nothing
from bufdb.query.asked.known import Known
from bufdb.query.catalogue import Catalogue, query_folders

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import SavedQuery, Value

LOG = logging.getLogger("bufdb")
"""Says what the command line says on standard error besides answers."""


class Readable:
    """A database file that is asked; `bufdb.api.database.Database` writes it too.

    All errors are `bufdb.errors.BufdbError`, with the messages of the command line.
    """

    def __init__(self, opener: Opener, folders: Sequence[Path] = ()) -> None:
        """Ask what `opener` opens; `folders` hold saved queries besides bufdb's."""
        self.path = opener.path
        """The file."""
        self._opener, self._folders = opener, folders

    def query(self, name: str, /, **params: object) -> Rows:
        """The answer of a saved query, as `bufdb query NAME -p PARAM VALUE` gives it.

        `bufdb query NAME --help` lists parameters and columns with their units. The answer is a
        relation over a table in memory: `.df()`, `.pl()`, `.arrow()`, `.fetchall()`; printed and in
        a notebook it is the command's table.

        Args:
            name: of the query, with dashes or underscores.
            params: parameters by name, such as run="b*" or top_n=5; None leaves the default.

        Raises:
            UsageError: no such query or parameter, or no value of its type.
            BufdbError: DuckDB refused a query of your own, or failed.
        """
        query = Catalogue(query_folders(self._folders, os.environ)).find(name)
        given = {key: as_text(value) for key, value in params.items() if value is not None}
        bound = execute.bind(query, given)
        sql = query.sql if query.is_own else None
        with self._opener.one(sql, runs=execute.runs_asked(bound)) as con:
            row_count = execute.query_as_table(con, query, bound)
            _note_nothing(con, query, bound, row_count)
            return _answered(con)

    def sql(self, text: str, *, most_rows: int | None = None) -> Rows:
        """The answer of one SELECT of your own, as `bufdb sql`: read-only, no other files.

        Args:
            text: the SELECT.
            most_rows: rows that are enough; the rest is not computed where DuckDB can do without.

        Raises:
            UsageError: not one statement, or one that does more than read.
            BufdbError: DuckDB refused it or failed.
        """
        with self._opener.one() as con:
            execute.sql_as_table(con, text, most_rows)
            return _answered(con)

    def summary(
        self,
        *,
        run: str | None = None,
        function: str | None = None,
        module: str | None = None,
        color: int | str | None = None,
        limit: int | str | None = None,
    ) -> Answer:
        """One screen: the highest peak, what holds it, and what would lower it most.

        Args:
            run: glob of runs, or of LABEL=VALUE.
            function: glob of jitted functions.
            module: glob of modules' keys.
            color: memory space: its number, its name or all; the device's own by default.
            limit: memory of the device: bytes, a size such as "16GiB", or a name as "TPU v5e".
        """
        from bufdb.api.questions.summary import summary
        from bufdb.report.summary import as_dict, text

        with self._opener.several() as opened:
            found = summary(
                opened, run=run, function=function, module=module, color=color, limit=limit
            )
        if found.note is not None:
            return Answer("", as_dict(found.found), (found.note,))
        return Answer(text(found.found), as_dict(found.found))

    def diff(self, base: str, new: str, *, top: int = 10, **options: Any) -> Answer:
        """What changed between two runs, and why.

        The data has what the text is made of: the peak of each pair, all figures of the first `top`
        pairs, and the parts of the first `top` that changed. `db.query("diff-modules", ...)` and
        `db.query("diff-peak", ...)` are relations of all rows.

        Args:
            base: a run, or LABEL=VALUE.
            new: the same of the other side.
            top: functions, and parts of each, that the text shows.
            options: by, function, module, color and pairs, see `bufdb.api.questions.diff.diff`.
        """
        from bufdb.api.questions.diff import diff
        from bufdb.query.diff import MOST_PLACES
        from bufdb.report.diff import text

        with self._opener.several() as opened:
            most = max(top, MOST_PLACES)
            found = diff(opened, base, new, top=top, most_places=most, **options)
        shown = text(found.comparison, top)
        notes = [found.note] if found.note is not None else shown.notes
        return Answer(shown.text, dicts(found.comparison.as_result()), tuple(notes))

    def what_if(self, module: str, **options: Any) -> Answer:
        """What the peak of a module would be without some lines, ops or values [bytes].

        Args:
            module: key or name of a module, name of a function, or a glob of one.
            options: without, donate, keep, until, by, order, run and color, as the options of
                `bufdb what-if`; see `bufdb.api.questions.what_if.what_if`.
        """
        from bufdb.api.questions.what_if import what_if

        with self._opener.several() as opened:
            found = what_if(opened, module, **options)
        return Answer(found.text()[0], dicts(found.result()), tuple(found.notes))

    def report(self, output: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write one offline page of HTML about what was compiled; where it is.

        Args:
            output: the file.
            options: run, function, module, platform, base (a run to compare with) and limit, as
                the options of `bufdb report`; see `bufdb.api.questions.report.report`.
        """
        from bufdb.api.questions.report import report

        with self._opener.several() as opened:
            text = report(opened, **options)
        write_file(Path(output), text.encode("utf-8"))
        return Path(output)

    def export(self, output: str | os.PathLike[str], format: str, **options: Any) -> Path:
        """Write the database, or a part of it, for another tool; where it is.

        Args:
            output: a file; a new folder for parquet and csv.
            format: parquet, csv, bundle, speedscope, collapsed, pprof, perfetto or torch-snapshot.
            options: run, function, module, color, frames, anonymize and keep, as the options of
                `bufdb export`; see `bufdb.api.questions.export.export`.
        """
        from bufdb.api.questions.export import export

        with self._opener.several() as opened:
            notes = export(opened, self.path, format, Path(output), **options)
        for text in notes:
            LOG.warning("%s", text)
        return Path(output)


def as_text(value: object) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _note_nothing(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, bound: Mapping[str, Value], row_count: int
) -> None:
    """Say which labels and runs there are not, and why there is no row."""
    for text in nothing.notes(Known(con, CATALOG), query, bound, row_count):
        LOG.warning("%s", text)


def _answered(con: duckdb.DuckDBPyConnection) -> Rows:
    """The table of the answer, which keeps its connection; the file is let go."""
    con.execute(f"DETACH {CATALOG}")
    con.execute("USE memory")  # or functions of the relation are looked for in the file
    return Rows(con.table(f"temp.main.{execute.ANSWER}"))
