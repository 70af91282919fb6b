"""The answer of a saved query from Spark: the same rows in the same order as DuckDB's.

The text is that of `bufdb query NAME --sql --dialect spark`; parameters are bound, never pasted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bufdb.errors import BufdbError, UsageError
from bufdb.lint import translate
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLACEHOLDER = re.compile(r":([a-z][a-z0-9_]*)")


def require_claim(query: SavedQuery, engine: str) -> None:
    """Nothing if the query is known to give the same rows on an engine.

    Raises:
        UsageError: it is not; the message has the reason from its header.
    """
    if engine not in query.engines:
        reason = query.engines_reason or "its header claims no other engine"
        raise UsageError(f"{query.name} runs on {', '.join(query.engines)} only: {reason}")


def answer(session: SparkSession, query: SavedQuery, values: Mapping[str, Value]) -> Result:
    """The answer over the tables of a session (`bufdb.spark.tables.register`).

    Args:
        session: on Spark or on Sail.
        query: one that claims the engine (`require_claim`).
        values: from `bufdb.query.execute.bind`; parameters that are not there have their default.

    Raises:
        UsageError: a memory space is named, not numbered.
        BufdbError: the query cannot be written for Spark, or failed there.
    """
    color = values.get("color")
    if isinstance(color, str):
        raise UsageError(f"{query.name}: outside DuckDB a memory space is its number, got {color}")
    text = translate.body(query, "spark")
    names = set(_PLACEHOLDER.findall(text)) & {param.name for param in query.params}
    try:
        frame = session.sql(text, args={name: values.get(name) for name in names})
        rows = frame.collect()
    except _failures() as error:
        reason = " ".join(str(error).split())[:300]
        raise BufdbError(f"{query.name}: Spark: {reason}") from error
    columns = [(column.name, column.type) for column in query.columns]
    kinds = [kind for _, kind in columns]
    return Result(columns, [tuple(map(_value, row, kinds)) for row in rows])


def _failures() -> tuple[type[Exception], ...]:
    """What a session raises; Spark in this process passes on some of what Java raised as it is."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:  # the client of Spark Connect alone
        return (PySparkException,)
    return PySparkException, Py4JError


def _value(value: Any, kind: str) -> Any:
    """A value as DuckDB gives it."""
    if isinstance(value, Decimal):
        return float(value) if kind == "DOUBLE" else int(value)
    return value
