"""The answers of one database for coding assistants, over the Model Context Protocol.

Invariant: tools read and write nothing; a figure is exact, and what is cut says so. SQL is held to
what `bufdb sql` is: one SELECT, on a read-only and locked connection.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bufdb import __version__
from bufdb.api.answer import Answer
from bufdb.api.database import Database
from bufdb.api.readable import LOG
from bufdb.api.rows import Rows
from bufdb.errors import BufdbError
from bufdb.query.catalogue import Catalogue
from bufdb.query.result import Result
from bufdb.report.formats import render
from bufdb.resources import query_folder

ROWS = 50
"""Rows of an answer unless more are asked for."""
INSTRUCTIONS = (
    "Memory of programs that XLA compiled (JAX): peaks, what holds them, what would lower them. "
    "Begin with summary; queries lists the saved queries; advice says what to change. Sizes are in "
    "bytes and exact. Empty cells are NULL: not known, never zero."
)


class Tools:
    """What an assistant can ask of one database; each answer is text, rows are CSV."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def summary(
        self,
        run: str | None = None,
        function: str | None = None,
        module: str | None = None,
        limit: str | None = None,
    ) -> str:
        """The highest peak, what holds it, and what would lower it most, as JSON.

        run, function and module are globs (run also of LABEL=VALUE); limit is the memory of the
        device: a size such as 16GiB, or a name such as TPU v5e.
        """
        found = self._db.summary(run=run, function=function, module=module, limit=limit)
        return json.dumps(found.data, ensure_ascii=False)

    def queries(self) -> str:
        """The saved queries: name, question, and the parameters that each takes."""
        found = Catalogue([query_folder()]).load_all()
        lines = [
            f"{query.name}: {query.title} ({', '.join(param.name for param in query.params)})"
            for query in found
        ]
        return "\n".join(lines)

    def query(
        self, name: str, params: dict[str, str | int] | None = None, max_rows: int = ROWS
    ) -> str:
        """The answer of a saved query as CSV; params by name, as in {"run": "b16", "top_n": 5}."""
        return _csv(self._db.query(name, **(params or {})), max_rows)

    def sql(self, select: str, max_rows: int = ROWS) -> str:
        """The answer of one SELECT in DuckDB's SQL, as CSV.

        SHOW TABLES and DESCRIBE name tables and columns; memory_figures has the figures of each
        module, value_details the values, peak_values what holds each peak.
        """
        return _csv(self._db.sql(select), max_rows)

    def diff(self, base: str, new: str, by: str = "op", max_rows: int = ROWS) -> str:
        """What changed between two runs (names, or LABEL=VALUE), and why: a line, then CSV.

        by groups the parts: op, source, shape, dtype, opcode, category, stack or all.
        """
        found = self._db.diff(base, new, by=by)
        return _with_rows(found, max_rows)

    def what_if(
        self,
        module: str,
        without: list[str] | None = None,
        donate: list[str] | None = None,
        keep: str | None = None,
        until: str | None = None,
        run: str | None = None,
        max_rows: int = ROWS,
    ) -> str:
        """What the peak of a module would be without some lines, ops or values: a line, then CSV.

        without takes line:FILE:LINE, op:PATH or value:INSTRUCTION, globs too; donate takes names of
        parameters; keep is the share of bytes that stays (0.5 for f32 made bf16); until takes what
        saves most until the peak is down to a size. Exact for today's schedule, a prediction of a
        recompilation.
        """
        found = self._db.what_if(
            module, without=without or [], donate=donate or [], keep=keep, until=until, run=run
        )
        return _with_rows(found, max_rows)

    def advice(
        self, run: str | None = None, function: str | None = None, max_rows: int = ROWS
    ) -> str:
        """What would lower peaks, with the saving in bytes and how sure it is, as CSV."""
        return _csv(self._db.query("advice", run=run, function=function), max_rows)


NAMES = ("summary", "queries", "query", "sql", "diff", "what_if", "advice")
"""Methods of `Tools` that are tools; what_if is called what-if."""


def server(db: Database) -> Any:
    """A server of the official SDK with the tools of one database; `.run("stdio")` serves.

    Raises:
        BufdbError: the SDK is not installed.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise BufdbError(
            "to serve assistants the package mcp is needed, of version 2 or later: "
            "pip install 'bufdb[mcp]'"
        ) from error
    served = MCPServer("bufdb", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools, lock = Tools(db), threading.Lock()
    for name in NAMES:
        served.add_tool(
            _guarded(getattr(tools, name), lock, ToolError),
            name=name.replace("_", "-"),
            annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False),
            structured_output=False,
        )
    return served


def _guarded(
    tool: Callable[..., str], lock: threading.Lock, failure: type[Exception]
) -> Callable[..., str]:
    """The tool with notes below its answer, and bufdb's errors as those of a tool."""

    @functools.wraps(tool)
    def call(*arguments: Any, **options: Any) -> str:
        with lock, _noted() as notes:
            try:
                answer = tool(*arguments, **options)
            except BufdbError as error:
                raise failure(str(error)) from error
        return "\n".join([answer, *(f"note: {text}" for text in notes)])

    return call


@contextmanager
def _noted() -> Iterator[list[str]]:
    """What is said of an answer within the block, in place of standard error."""
    notes: list[str] = []
    handler = logging.Handler()
    # In place of a class with this one method, which mypy does not let a function take.
    handler.emit = lambda record: notes.append(record.getMessage())  # type: ignore[method-assign]
    propagates, LOG.propagate = LOG.propagate, False
    LOG.addHandler(handler)
    try:
        yield notes
    finally:
        LOG.removeHandler(handler)
        LOG.propagate = propagates


def _csv(found: Rows, max_rows: int) -> str:
    columns = [(name, str(type_)) for name, type_ in zip(found.columns, found.types, strict=True)]
    return _cut(Result(columns, found.fetchall()), max_rows)


def _with_rows(found: Answer, max_rows: int) -> str:
    """The first line of a text, which says it all, the rows, and the notes."""
    parts = [found.text.split("\n")[0]]
    if found.data:
        columns = [(name, "VARCHAR") for name in found.data[0]]
        rows = [tuple(row.values()) for row in found.data]
        parts += ["", _cut(Result(columns, rows), max_rows)]
    return "\n".join([*parts, *(f"note: {text}" for text in found.notes)])


def _cut(result: Result, max_rows: int) -> str:
    """Rows as CSV, and how many were left out."""
    shown = Result(result.columns, result.rows[: max(max_rows, 0)])
    text = render(shown, "csv")[0].rstrip("\n")
    more = len(result.rows) - len(shown.rows)
    return f"{text}\n({more} more rows; max_rows gives more)" if more else text
