"""`Database`: a file, a dataset or in memory, with the command line's questions as methods."""

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

from bufdb.answers.opening import Opener
from bufdb.api.answer import Answer, Rows, dicts
from bufdb.database.definitions import CATALOG
from bufdb.database.patience import Patience
from bufdb.dumps.place import Bytes, Files
from bufdb.dumps.remote import Url, is_url
from bufdb.errors import UsageError
from bufdb.ingest.ingest import ingest
from bufdb.query import execute, parameters
from bufdb.query.catalogue import Catalogue, query_folders
from bufdb.query.parameters import Known
from bufdb.query.sizes import as_limit
from bufdb.render.output import write_file

if TYPE_CHECKING:
    import duckdb

    from bufdb.capture.dump import Dumped
    from bufdb.dumps.discover import Source as Dumps
    from bufdb.ingest.plan import Summary as Ingested
    from bufdb.ingest.upgrade import Upgraded
    from bufdb.query.header import SavedQuery, Value


# -- `Readable`: the questions to a database, answered as on the command line ----------------------
#
# Invariant: between two calls no file is open, so that other processes can read and write it;
# answers are in memory and do not change later.

LOG = logging.getLogger("bufdb")
"""Logs what the command line prints on standard error besides answers."""


class Readable:
    """A database for reading; `bufdb.api.database.Database` also writes it.

    All errors are `bufdb.errors.BufdbError`, with the messages of the command line.
    """

    def __init__(self, opener: Opener, folders: Sequence[Path] = ()) -> None:
        """Read what `opener` opens; `folders` hold saved queries in addition to bufdb's."""
        self.path = opener.path
        """The file."""
        self._opener, self._folders = opener, folders

    def query(self, name: str, /, **params: object) -> Rows:
        """Return the answer of a saved query, as `bufdb query NAME -p PARAM VALUE` gives it.

        `bufdb query NAME --help` lists parameters and columns with their units. The answer is a
        relation over a table in memory: `.df()`, `.pl()`, `.arrow()`, `.fetchall()`; printed and in
        a notebook it is the command's table.

        Args:
            name: name of the query, with dashes or underscores.
            params: parameters by name, such as run="b*" or top_n=5; None means the default. Of a
                query with the parameter budget, such as serving and scaling, `live` names a memory
                profile or a run instead: what its process leaves is the budget.

        Raises:
            UsageError: no such query, parameter or run, or a value of the wrong type; or nothing is
                left.
            BufdbError: DuckDB refused a query of your own, or failed.
        """
        query = Catalogue(query_folders(self._folders, os.environ)).find(name)
        if query.param("live") is None and query.param("budget") is not None:
            live = params.pop("live", None)
            if live is not None and params.get("budget") is not None:
                raise UsageError("live is in place of budget; name one of them")
            if live is not None:
                from bufdb.answers.live import require_budget

                require_budget(query)
                params["budget"] = self._left(str(live), None)
        texts = {key: as_text(value) for key, value in params.items() if value is not None}
        bound = execute.bind(query, texts)
        sql = query.sql if query.is_own else None
        # A parameter of another query may mean anything.
        runs = execute.runs_asked(bound) if query.is_own else None
        with self._opener.one(sql, runs=runs) as con:
            row_count = execute.query_as_table(con, query, bound)
            _note_nothing(con, query, bound, row_count)
            return _answered(con)

    def _left(self, live: str, limit: int | str | None) -> int:
        """Return what a process leaves of a limit, else of that of its account [bytes]."""
        from bufdb.answers import live as answers

        path = Path(live)
        if path.is_file():
            accounts = answers.of_file(path)
        elif live.endswith(".prof"):
            raise UsageError(f"live {live}: no such file")
        else:
            with self._opener.one(answers.ACCOUNTS, runs=[live]) as con:
                accounts = answers.of_run(con, live)
        rest = answers.left_of(accounts, live, limit)
        LOG.info(rest.note)
        return rest.size_bytes

    def sql(self, text: str, *, most_rows: int | None = None) -> Rows:
        """Return the answer of one SELECT of your own, as `bufdb sql`: read-only, no other files.

        Args:
            text: the SELECT.
            most_rows: limit for the rows; DuckDB does not compute the rest where it can avoid it.

        Raises:
            UsageError: it is not one statement, or it does more than read.
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
        live: str | os.PathLike[str] | None = None,
    ) -> Answer:
        """Return one screen: the highest peak, what holds it, and what would lower it most.

        Args:
            run: glob of runs, or of LABEL=VALUE.
            function: glob of jitted functions.
            module: glob of modules' keys.
            color: number or name of a memory space, or all; the device's own by default.
            limit: memory of the device: bytes, a size like "16GiB", or a name like "TPU v5e".
            live: a memory profile, or a run: what its process leaves of the limit, or else of the
                limit of its account, is the limit of the programs.
        """
        from bufdb.answers.summary import summary
        from bufdb.answers.summary_text import as_dict, text

        if live is not None:
            limit = self._left(str(live), limit)

        with self._opener.several() as opened:
            answer = summary(
                opened, run=run, function=function, module=module, color=color, limit=limit
            )
        if answer.note is not None:
            return Answer("", as_dict(answer.overview), (answer.note,))
        return Answer(text(answer.overview), as_dict(answer.overview))

    def diff(self, base: str, new: str, *, top: int = 10, **options: Any) -> Answer:
        """Return what changed between two runs, and why.

        The data has what the text is made of: the peak of each pair, all figures of the first `top`
        pairs, and the parts of the first `top` that changed. `db.query("diff-modules", ...)` and
        `db.query("diff-peak", ...)` are relations of all rows.

        Args:
            base: a run, or LABEL=VALUE.
            new: the same of the other side.
            top: functions, and parts of each, that the text shows.
            options: by, function, module, color and pairs, see `bufdb.answers.diff.diff`.
        """
        from bufdb.answers.diff import MOST_PLACES, diff
        from bufdb.answers.diff_rows import rows
        from bufdb.answers.diff_text import text

        with self._opener.several() as opened:
            most = max(top, MOST_PLACES)
            answer = diff(opened, base, new, top=top, most_places=most, **options)
        shown = text(answer.comparison, top)
        notes = [answer.note] if answer.note is not None else shown.notes
        return Answer(shown.text, dicts(rows(answer.comparison)), tuple(notes))

    def blame(self, base: str, new: str, *, over: float = 1.0) -> Answer:
        """Return the functions whose need jumped between two runs, and what grew most.

        The data is a list with a dict for each function: its steps and jumps, in bytes.

        Args:
            base: a run, or LABEL=VALUE.
            new: the same of the other side.
            over: changes of the need up to this are no jump [percent].
        """
        from bufdb.blame.series import as_data, of_runs, text

        with self._opener.several() as opened:
            jumps = of_runs(opened, (base, new), over)
        return Answer(text(jumps), as_data(jumps))

    def what_if(self, module: str, **options: Any) -> Answer:
        """Return the peak of a module without some lines, ops or values [bytes].

        Args:
            module: key or name of a module, name of a function, or a glob of one.
            options: without, donate, keep, until, by, order, run and color, like the options of
                `bufdb what-if`; see `bufdb.what_if.what_if.what_if`.
        """
        from bufdb.what_if.what_if import what_if

        with self._opener.several() as opened:
            answer = what_if(opened, module, **options)
        return Answer(answer.text()[0], dicts(answer.result()), tuple(answer.notes))

    def verify(self, base: str, new: str, **options: Any) -> Answer:
        """Return what was promised for a change of `base`, and what `new`, which has it, saves.

        The data has a row for each part, and one for the peak and one for the need, whose
        `is_in_range` says whether the saving was the promised one [bytes].

        Args:
            base: a run, or LABEL=VALUE.
            new: the run with the change.
            options: function, color and pairs, like the options of `bufdb verify`; see
                `bufdb.what_if.verify.verify`.
        """
        from bufdb.what_if.verify import verify

        with self._opener.several() as opened:
            answer = verify(opened, base, new, **options)
        return Answer(answer.text()[0], dicts(answer.result()), tuple(answer.notes))

    def report(self, output: str | os.PathLike[str] = "report.html", **options: Any) -> Path:
        """Write one offline HTML page about the compiled modules, and return its path.

        Args:
            output: the file.
            options: run, function, module, platform, base (a run to compare with) and limit, like
                the options of `bufdb report`; see `bufdb.page.page.report`.
        """
        from bufdb.page.page import report

        with self._opener.several() as opened:
            text = report(opened, **options)
        write_file(Path(output), text.encode("utf-8"))
        return Path(output)

    def export(self, output: str | os.PathLike[str], format: str, **options: Any) -> Path:
        """Write the database, or a part of it, for another tool, and return the path.

        Args:
            output: a file; a new folder for parquet and csv.
            format: parquet, csv, bundle, speedscope, collapsed, pprof, perfetto or torch-snapshot.
            options: run, function, module, color, frames, anonymize and keep, like the options of
                `bufdb export`; see `bufdb.export.export.export`.
        """
        from bufdb.export.export import export

        with self._opener.several() as opened:
            notes = export(opened, self.path, format, Path(output), **options)
        for text in notes:
            LOG.warning("%s", text)
        return Path(output)


def as_text(value: object) -> str:
    """Return a value as text for the command line's parser."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _note_nothing(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, bound: Mapping[str, Value], row_count: int
) -> None:
    """Say which labels and runs there are not, and why there is no row."""
    for text in parameters.notes_on_nothing(Known(con, CATALOG), query, bound, row_count):
        LOG.warning("%s", text)


def _answered(con: duckdb.DuckDBPyConnection) -> Rows:
    """Return the table of the answer, which keeps its connection; detach the file."""
    con.execute(f"DETACH {CATALOG}")
    con.execute("USE memory")  # else functions of the relation are looked up in the file
    return Rows(con.table(f"temp.main.{execute.ANSWER}"))


# -- `Database`: takes dumps and compiled functions, and answers what `Readable` does --------------

Source = str | bytes | os.PathLike[str] | Sequence[str | bytes | os.PathLike[str]] | Any
"""One or several places of dumps, or one or several functions that JAX compiled or lowered."""


class Database(Readable):
    """A database file, or one in memory, made by `bufdb.connect`; a context manager closes it."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        on: str | os.PathLike[str] | None = None,
        queries: Sequence[str | os.PathLike[str]] = (),
        categories: str | os.PathLike[str] | None = None,
        wait: float | None = None,
        memory_limit: str | None = None,
    ) -> None:
        """See `bufdb.connect`."""
        self._remove: weakref.finalize[[str], Database] | None = None
        if on is not None:
            if path is not None:
                raise UsageError("connect wants a file, or on= a dataset, not both")
            path = on
        elif path is None:
            folder = tempfile.mkdtemp(prefix="bufdb-")
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            path = Path(folder) / "bufdb.duckdb"
        file = os.fspath(path)
        if not file or (on is None and file.startswith(":memory:")):
            raise UsageError(f"connect wants the name of a file, or None, got {file!r}")
        rules = None if categories is None else Path(categories)
        limit = None if memory_limit is None else as_limit(memory_limit, "connect: memory_limit")
        opener = Opener(file, rules, Patience(wait, LOG.warning), limit, is_dataset=on is not None)
        opener.makes_file = self._remove is not None
        super().__init__(opener, [Path(folder) for folder in queries])

    def close(self) -> None:
        """Close the database; one in memory is deleted, answers stay valid."""
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
        prune: bool = False,
        compiler_options: Mapping[str, Any] | None = None,
    ) -> Ingested:
        """Read dumps, or functions that JAX compiled, into the database.

        Args:
            source: directories, files, archives or URLs of dumps, or the bytes of a log; or
                functions: results of `jax.jit(f).lower(...)`, which are compiled once more so that
                XLA writes a dump, or results of `.compile()`.
            run: name of the run; by default that of the directory, for functions 'compiled'.
            labels: labels of the run, added to those it has.
            metadata: labels that describe how the run was made and do not distinguish runs.
            own: packages and paths that count as your own code although they are installed.
            replace: remove everything that the run had before, not only what is read again.
            prune: also remove what the run has from other places, or that is gone from this one.
            compiler_options: passed to `compile` for lowered functions.

        Returns:
            Counts of what was read; `notes` and the diagnostics list what was not understood.

        Raises:
            UsageError: there is nothing to read.
            BufdbError: a function cannot be read; the message says what to do. One that XLA
                refuses because it is too large is read, and reported in `refusals`.
            DatabaseError: the database cannot be opened, or is of another version.
        """
        self._require_file()
        from bufdb.capture.dump import dumped

        refusals: list[str] = []
        with ExitStack() as stack:
            places = _dumps(source)
            if places is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bufdb-"))
                files: Dumped = {}
                for one in _several(source):
                    dump_folder, refusal = dumped(one, Path(folder), compiler_options)
                    files |= dump_folder
                    refusals += [] if refusal is None else [refusal]
                places = [Files("compiled", files, "a compiled function")]
            elif compiler_options is not None:
                raise UsageError("compiler_options are for lowered functions, not for dumps")
            stack.enter_context(self._opener.faults())
            summary = ingest(
                self.path,
                places,
                run=run,
                labels=_texts(labels),
                metadata=_texts(metadata),
                own_globs=own,
                replace=replace,
                prune=prune,
            )
            summary.refusals += refusals
        for text in [*summary.notes, *(f"XLA gave up: {text}" for text in refusals)]:
            LOG.warning("%s", text)
        return summary

    def upgrade(self, *, jobs: int | None = 1) -> Upgraded:
        """Make the database, or dataset, of an older bufdb one of this version.

        Args:
            jobs: processes that read kept dump files; None for as many as processors, up to four.

        Returns:
            Counts of what was read again and of what was copied; notes go to the log, too.

        Raises:
            DatabaseError: there is none, it is of a later version, or it cannot be read.
            BufdbError: the new one cannot be written; the old one is as it was.
        """
        if self._opener.is_dataset:
            from bufdb.dataset.upgrade import upgrade
        else:
            from bufdb.ingest.upgrade import upgrade
        with self._opener.faults():
            upgraded = upgrade(self.path, jobs=jobs)
        for text in upgraded.notes:
            LOG.warning("%s", text)
        return upgraded

    def capture(
        self, *, run: str, labels: Mapping[str, str] | None = None
    ) -> AbstractContextManager[None]:
        """Ingest at the end of the block what JAX compiles in this process within it.

            with db.capture(run="b16"):
                train_step(params, batch)

        Functions that were compiled before are not compiled again, and so not seen: call
        `jax.clear_caches()` first. JAX's persistent cache is off within the block. What other
        processes compile is not seen; `bufdb capture -- COMMAND` sees it. If the block fails, what
        was compiled until then is ingested, including a program that XLA refuses for its size.

        Raises:
            BufdbError: nothing was compiled, or this JAX does not accept dump options.
        """
        self._require_file()
        from bufdb.capture.dump import programs, watched

        @contextmanager
        def block() -> Iterator[None]:
            with tempfile.TemporaryDirectory(prefix="bufdb-") as name:
                try:
                    with watched(Path(name)):
                        yield
                finally:
                    if files := programs(Path(name)):
                        place = Files(run, files, "a captured block")
                        self.ingest(place, run=run, labels=labels)

        return block()

    def _require_file(self) -> None:
        """Raise an error unless dumps can be stored here.

        Raises:
            UsageError: it is a dataset.
        """
        if self._opener.is_dataset:
            raise UsageError(
                f"{self.path} is read only here: 'bufdb ingest --out' writes a dataset"
            )


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    on: str | os.PathLike[str] | None = None,
    queries: Sequence[str | os.PathLike[str]] = (),
    categories: str | os.PathLike[str] | None = None,
    wait: float | None = None,
    memory_limit: str | None = None,
) -> Database:
    """Return a database of dumps and of compiled functions.

    Args:
        path: the file, which the first ingest makes; None for one in memory, which is gone when it
            is closed (it is a private file of the folder for temporary ones).
        on: a dataset to read instead, a folder or a URL that 'bufdb ingest --out' has written.
        queries: folders with saved queries of your own, besides bufdb's and those of BUFDB_QUERIES.
        categories: a file with rules of your own for peak-by by role and category.
        wait: how long to wait while another process holds the file [s]; by default ten seconds to
            read, and to write as long as it takes.
        memory_limit: memory for DuckDB, such as "2GB"; by default 768 MB for an answer and 512 MB
            for an ingest. What needs more goes to disk temporarily.
    """
    return Database(
        path, on=on, queries=queries, categories=categories, wait=wait, memory_limit=memory_limit
    )


def _dumps(source: Source) -> list[Dumps] | None:
    """Return the places of dumps; None for functions.

    Raises:
        UsageError: a path does not exist, or dumps and functions are mixed.
    """

    def place(one: str | bytes | os.PathLike[str] | Files) -> Dumps:
        if isinstance(one, Files):
            return one
        if isinstance(one, bytes):
            return Bytes("bytes", one)
        if isinstance(one, str) and is_url(one):
            return Url(one)
        if not Path(one).exists():
            raise UsageError(f"no file or directory {os.fspath(one)}")
        return Path(one)

    many = _several(source)
    if not many:
        raise UsageError("nothing to ingest: an empty list")
    are_dumps = [isinstance(one, str | bytes | os.PathLike | Files) for one in many]
    if all(are_dumps):
        return [place(one) for one in many]
    if any(are_dumps):
        raise UsageError("dumps and compiled functions cannot be ingested together; ingest twice")
    return None


def _several(source: Source) -> list[Any]:
    if isinstance(source, Sequence) and not isinstance(source, str | bytes):
        return list(source)
    return [source]


def _texts(labels: Mapping[str, object] | None) -> dict[str, str]:
    return {str(name): as_text(value) for name, value in (labels or {}).items()}
