"""`Database`: dumps and compiled functions in, answers out, as the command line gives them.

Invariant: between two calls no file is open, so that other processes can read and write it; what
was answered is in memory and stays as it was when it was asked.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bufdb.api.answer import Answer, dicts
from bufdb.api.questions.opening import Opener
from bufdb.database import store
from bufdb.database.patience import DEFAULT_WAIT_S, Patience
from bufdb.errors import UsageError
from bufdb.query import execute

if TYPE_CHECKING:
    import duckdb

    from bufdb.ingest.summary import Summary as Ingested
    from bufdb.query.header import SavedQuery, Value

Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any
"""Paths of dumps, one or several, or what JAX compiled or lowered, one or several."""
LOG = logging.getLogger("bufdb")
"""Says what the command line says on standard error besides answers."""


class Database:
    """A database file, or one in memory; `bufdb.connect` makes it.

    A context manager, which closes it. All errors are `bufdb.errors.BufdbError`, with the messages
    of the command line.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        queries: Sequence[str | os.PathLike[str]] = (),
        categories: str | os.PathLike[str] | None = None,
        wait: float = DEFAULT_WAIT_S,
    ) -> None:
        """See `bufdb.connect`."""
        self._remove: weakref.finalize[[str], Database] | None = None
        if path is None:
            folder = tempfile.mkdtemp(prefix="bufdb-")
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            path = Path(folder) / "bufdb.duckdb"
            store.open_writable(str(path)).close()
        self.path = os.fspath(path)
        """The file."""
        if not self.path or self.path.startswith(":memory:"):
            raise UsageError(f"connect wants the name of a file, or None, got {self.path!r}")
        self._folders = [Path(folder) for folder in queries]
        rules = None if categories is None else Path(categories)
        self._opener = Opener(self.path, rules, Patience(wait, LOG.warning))

    def close(self) -> None:
        """Forget the database; one in memory is gone, answers stay."""
        self._opener.is_closed = True
        if self._remove is not None:
            self._remove()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<bufdb.Database {'in memory' if self._remove else self.path}>"

    # -- in --------------------------------------------------------------------------------

    def ingest(
        self,
        source: Source,
        *,
        run: str | None = None,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        own: Sequence[str] | None = None,
        replace: bool = False,
        compiler_options: Mapping[str, Any] | None = None,
    ) -> Ingested:
        """Read dumps, or what JAX compiled, into the database.

        Args:
            source: directories or files of dumps, or functions: what `jax.jit(f).lower(...)` gave,
                which is compiled once more so that XLA writes a dump, or what `.compile()` gave.
            run: name of the run; by default that of the directory, of functions 'compiled'.
            labels: labels of the run, added to those it has.
            metadata: labels that say how the run was made and keep none apart.
            own: packages and paths that count as your own code although they are installed.
            replace: what the run had before goes, instead of what is read anew alone.
            compiler_options: of lowered functions, passed on to `compile`.

        Returns:
            What was done, in counts; `notes` and the diagnostics say what was not understood.

        Raises:
            UsageError: nothing to read is there.
            BufdbError: a function cannot be read; the message says what to do.
            DatabaseError: the database cannot be opened, or is of another version.
        """
        from bufdb.compiled.dump import dumped
        from bufdb.ingest.ingest import ingest

        with ExitStack() as stack:
            paths = _paths(source)
            given: dict[str, Any] = {"run": run}
            if paths is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bufdb-"))
                for one in source if isinstance(source, Sequence) else [source]:
                    dumped(one, Path(folder), compiler_options)
                paths = [Path(folder)]
                given = {"run": run or "compiled", "source_path": "a compiled function"}
            elif compiler_options is not None:
                raise UsageError("compiler_options are for lowered functions, not for dumps")
            given |= {"labels": _texts(labels), "metadata": _texts(metadata)}
            stack.enter_context(self._opener.faults())
            summary = ingest(self.path, paths, **given, own_globs=own, replace=replace)
        for text in summary.notes:
            LOG.warning("%s", text)
        return summary

    def capture(
        self, *, run: str, labels: Mapping[str, str] | None = None
    ) -> AbstractContextManager[None]:
        """Ingests what JAX compiles in this process within the block, at its end.

            with db.capture(run="b16"):
                train_step(params, batch)

        Functions that were compiled before are not compiled again, and so not seen: call
        `jax.clear_caches()` first. JAX's persistent cache is off within the block. What other
        processes compile is not seen: `bufdb capture -- COMMAND` sees it.

        Raises:
            BufdbError: nothing was compiled; or this JAX has no place to put dump options.
        """
        from bufdb.compiled.watch import watched

        @contextmanager
        def block() -> Iterator[None]:
            with tempfile.TemporaryDirectory(prefix="bufdb-") as name:
                with watched(Path(name)):
                    yield
                self._ingest_watched(Path(name), run, labels)

        return block()

    def _ingest_watched(self, folder: Path, run: str, labels: Mapping[str, str] | None) -> None:
        from bufdb.ingest.ingest import ingest

        with self._opener.faults():
            done = ingest(
                self.path, [folder], run=run, labels=_texts(labels), source_path="a captured block"
            )
        for text in done.notes:
            LOG.warning("%s", text)

    # -- out -------------------------------------------------------------------------------

    def query(self, name: str, /, **params: object) -> duckdb.DuckDBPyRelation:
        """The answer of a saved query, as `bufdb query NAME -p PARAM VALUE` gives it.

        `bufdb query NAME --help` lists parameters and columns with their units. The answer is a
        relation over a table in memory: `.df()`, `.pl()`, `.arrow()`, `.fetchall()`.

        Args:
            name: of the query, with dashes or underscores.
            params: parameters by name, such as run="b*" or top_n=5; None leaves the default.

        Raises:
            UsageError: no such query or parameter, or no value of its type.
            BufdbError: DuckDB refused a query of your own, or failed.
        """
        query = self._catalogue().find(name)
        given = {key: _text(value) for key, value in params.items() if value is not None}
        bound = execute.bind(query, given)
        sql = query.sql if query.is_own else None
        with self._opener.one(sql, runs=execute.runs_asked(bound)) as con:
            row_count = execute.query_as_table(con, query, bound)
            _note_nothing(con, query, bound, row_count)
            return _answered(con)

    def sql(self, text: str) -> duckdb.DuckDBPyRelation:
        """The answer of one SELECT of your own, as `bufdb sql`: read-only, no other files.

        Raises:
            UsageError: not one statement, or one that does more than read.
            BufdbError: DuckDB refused it or failed.
        """
        with self._opener.one() as con:
            execute.sql_as_table(con, text)
            return _answered(con)

    def summary(
        self,
        *,
        run: str | None = None,
        function: str | None = None,
        module: str | None = None,
        limit: int | str | None = None,
    ) -> Answer:
        """One screen: the highest peak, what holds it, and what would lower it most.

        Args:
            run: glob of runs, or of LABEL=VALUE.
            function: glob of jitted functions.
            module: glob of modules' keys.
            limit: memory of the device: bytes, a size such as "16GiB", or a name as "TPU v5e".
        """
        from bufdb.api.questions.summary import summary
        from bufdb.report.summary import as_dict, text

        with self._opener.several() as opened:
            found = summary(opened, run=run, function=function, module=module, limit=limit)
        if found.note is not None:
            return Answer("", as_dict(found.found), (found.note,))
        return Answer(text(found.found), as_dict(found.found))

    def diff(self, base: str, new: str, *, top: int | None = None, **options: Any) -> Answer:
        """What changed between two runs, and why.

        Args:
            base: a run, or LABEL=VALUE.
            new: the same of the other side.
            top: functions and parts that the text shows; 10 by default. The data has all.
            options: by, function, module, color and pairs, see `bufdb.api.questions.diff.diff`.
        """
        from bufdb.api.questions.diff import diff
        from bufdb.report.diff import DEFAULT_TOP, text

        with self._opener.several() as opened:
            found = diff(opened, base, new, **options)
        shown = text(found.comparison, top or DEFAULT_TOP)
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
        try:
            Path(output).write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {output}: {error.strerror}") from error
        return Path(output)

    def export(self, output: str | os.PathLike[str], format: str, **options: Any) -> Path:
        """Write the database, or a part of it, for another tool; where it is.

        Args:
            output: a file; a new folder for parquet and csv.
            format: parquet, csv, bundle, speedscope, collapsed, pprof, perfetto or torch-snapshot.
            options: run, function, module, color, frames and anonymize, as the options of
                `bufdb export`; see `bufdb.api.questions.export.export`.
        """
        from bufdb.api.questions.export import export

        with self._opener.several() as opened:
            notes = export(opened, self.path, format, Path(output), **options)
        for text in notes:
            LOG.warning("%s", text)
        return Path(output)

    # -- how -------------------------------------------------------------------------------

    def _catalogue(self) -> Any:
        from bufdb.query.catalogue import Catalogue, query_folders

        return Catalogue(query_folders(self._folders, os.environ))


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    queries: Sequence[str | os.PathLike[str]] = (),
    categories: str | os.PathLike[str] | None = None,
    wait: float = DEFAULT_WAIT_S,
) -> Database:
    """A database of dumps and of compiled functions.

    Args:
        path: the file, which the first ingest makes; None for one in memory, which is gone when it
            is closed (it is a private file of the folder for temporary ones).
        queries: folders with saved queries of your own, besides bufdb's and those of BUFDB_QUERIES.
        categories: a file with rules of your own for peak-by-role and peak-by-category.
        wait: how long to wait while another process holds the file [s].
    """
    return Database(path, queries=queries, categories=categories, wait=wait)


def _paths(source: Source) -> list[Path] | None:
    """Paths of dumps; None for functions."""
    many = (
        list(source) if isinstance(source, Sequence) and not isinstance(source, str) else [source]
    )
    if not many:
        raise UsageError("nothing to ingest: an empty list")
    are_paths = [isinstance(one, str | os.PathLike) for one in many]
    if all(are_paths):
        paths = [Path(one) for one in many]
        for path in paths:
            if not path.exists():
                raise UsageError(f"no file or directory {path}")
        return paths
    if any(are_paths):
        raise UsageError("paths and compiled functions cannot be ingested together; ingest twice")
    return None


def _texts(labels: Mapping[str, object] | None) -> dict[str, str]:
    return {str(name): _text(value) for name, value in (labels or {}).items()}


def _text(value: object) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _note_nothing(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, bound: Mapping[str, Value], row_count: int
) -> None:
    """Say which labels there are not, and why there is no row."""
    from bufdb.query.asked import nothing
    from bufdb.query.asked.known import Known

    known = Known(con, store.CATALOG)
    for text in nothing.unknown_labels(known, query, bound):
        LOG.warning("%s", text)
    if not row_count:
        LOG.warning("%s", nothing.why(known, query, bound))


def _answered(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
    """The table of the answer, which keeps its connection; the file is let go."""
    con.execute(f"DETACH {store.CATALOG}")
    return con.table(f"temp.main.{execute.ANSWER}")
