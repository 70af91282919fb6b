"""`Database`: dumps and compiled functions in, and what `Readable` answers out."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from bufdb.api.questions.opening import Opener
from bufdb.api.readable import LOG, Readable, as_text
from bufdb.database import store
from bufdb.database.patience import Patience
from bufdb.dumps.places.place import Bytes
from bufdb.dumps.places.remote import Url, is_url
from bufdb.errors import UsageError
from bufdb.ingest.ingest import ingest
from bufdb.query.sizes import as_limit

if TYPE_CHECKING:
    from bufdb.dumps.discover import Source as Dumps
    from bufdb.ingest.summary import Summary as Ingested

Source = str | bytes | os.PathLike[str] | Sequence[str | bytes | os.PathLike[str]] | Any
"""Dumps, at one place or several, or what JAX compiled or lowered, one or several."""


class Database(Readable):
    """A database file, or one in memory; `bufdb.connect` makes it. A context manager closes it."""

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
            store.open_writable(str(path)).close()
        file = os.fspath(path)
        if not file or (on is None and file.startswith(":memory:")):
            raise UsageError(f"connect wants the name of a file, or None, got {file!r}")
        rules = None if categories is None else Path(categories)
        limit = None if memory_limit is None else as_limit(memory_limit, "connect: memory_limit")
        opener = Opener(file, rules, Patience(wait, LOG.warning), limit, is_dataset=on is not None)
        super().__init__(opener, [Path(folder) for folder in queries])

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
        prune: bool = False,
        compiler_options: Mapping[str, Any] | None = None,
    ) -> Ingested:
        """Read dumps, or what JAX compiled, into the database.

        Args:
            source: directories, files, archives or URLs of dumps, or the bytes of a log; or
                functions: what `jax.jit(f).lower(...)` gave, which is compiled once more so that
                XLA writes a dump, or what `.compile()` gave.
            run: name of the run; by default that of the directory, of functions 'compiled'.
            labels: labels of the run, added to those it has.
            metadata: labels that say how the run was made and keep none apart.
            own: packages and paths that count as your own code although they are installed.
            replace: what the run had before goes, instead of what is read anew alone.
            prune: what the run has of other places, or is gone from this one, goes.
            compiler_options: of lowered functions, passed on to `compile`.

        Returns:
            What was done, in counts; `notes` and the diagnostics say what was not understood.

        Raises:
            UsageError: nothing to read is there.
            BufdbError: a function cannot be read; the message says what to do. One that XLA
                refuses, being too large, is read: `refusals` says so.
            DatabaseError: the database cannot be opened, or is of another version.
        """
        self._require_file()
        from bufdb.compiled.dump import dumped

        refusals: list[str] = []
        with ExitStack() as stack:
            places = _dumps(source)
            given: dict[str, Any] = {"run": run}
            if places is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bufdb-"))
                for one in _several(source):
                    refusal = dumped(one, Path(folder), compiler_options)
                    if refusal is not None:
                        refusals.append(refusal)
                places = [Path(folder)]
                given = {"run": run or "compiled", "source_path": "a compiled function"}
            elif compiler_options is not None:
                raise UsageError("compiler_options are for lowered functions, not for dumps")
            given |= {"labels": _texts(labels), "metadata": _texts(metadata), "prune": prune}
            stack.enter_context(self._opener.faults())
            summary = ingest(self.path, places, **given, own_globs=own, replace=replace)
            summary.refusals += refusals
        for text in [*summary.notes, *(f"XLA gave up: {text}" for text in refusals)]:
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
        processes compile is not seen: `bufdb capture -- COMMAND` sees it. Where the block fails,
        what was compiled until then is ingested, and a program that XLA refuses for its size.

        Raises:
            BufdbError: nothing was compiled; or this JAX has no place to put dump options.
        """
        self._require_file()
        from bufdb.compiled.watch import watched

        @contextmanager
        def block() -> Iterator[None]:
            with tempfile.TemporaryDirectory(prefix="bufdb-") as name:
                try:
                    with watched(Path(name)):
                        yield
                finally:
                    if any(Path(name).iterdir()):
                        self._ingest_watched(Path(name), run, labels)

        return block()

    def _require_file(self) -> None:
        """Nothing if dumps can be stored here.

        Raises:
            UsageError: it is a dataset.
        """
        if self._opener.is_dataset:
            raise UsageError(
                f"{self.path} is read only here: 'bufdb ingest --out' writes a dataset"
            )

    def _ingest_watched(self, folder: Path, run: str, labels: Mapping[str, str] | None) -> None:

        with self._opener.faults():
            done = ingest(
                self.path, [folder], run=run, labels=_texts(labels), source_path="a captured block"
            )
        for text in done.notes:
            LOG.warning("%s", text)


def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    on: str | os.PathLike[str] | None = None,
    queries: Sequence[str | os.PathLike[str]] = (),
    categories: str | os.PathLike[str] | None = None,
    wait: float | None = None,
    memory_limit: str | None = None,
) -> Database:
    """A database of dumps and of compiled functions.

    Args:
        path: the file, which the first ingest makes; None for one in memory, which is gone when it
            is closed (it is a private file of the folder for temporary ones).
        on: a dataset to read instead, a folder or a URL that 'bufdb ingest --out' has written.
        queries: folders with saved queries of your own, besides bufdb's and those of BUFDB_QUERIES.
        categories: a file with rules of your own for peak-by by role and category.
        wait: how long to wait while another process holds the file [s]; by default ten seconds to
            read, and to write as long as it takes.
        memory_limit: memory for DuckDB, such as "2GB"; else 768 MB for an answer and 512 MB for an
            ingest. What needs more goes to disk for a while.
    """
    return Database(
        path, on=on, queries=queries, categories=categories, wait=wait, memory_limit=memory_limit
    )


def _dumps(source: Source) -> list[Dumps] | None:
    """Where dumps are; None for functions.

    Raises:
        UsageError: a path does not exist, or dumps and functions are mixed.
    """

    def place(one: str | bytes | os.PathLike[str]) -> Dumps:
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
    are_dumps = [isinstance(one, str | bytes | os.PathLike) for one in many]
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
