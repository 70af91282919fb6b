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
from bufdb.query.asked import spaces
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    values = query.with_settings(values)
    color = values.get("color")
    if color is not None and not spaces.is_plain(color):
        raise UsageError(f"{query.name}: outside DuckDB a memory space is its number, got {color}")
    *first, (_, text) = translate.parts(query, "spark")
    made: list[str] = []
    try:
        for name, part in first:
            _kept(session, _frame(session, query, part, values)).createOrReplaceTempView(name)
            made.append(name)
        rows = _frame(session, query, text, values).collect()
    except _failures() as error:
        reason = " ".join(str(error).split())[:300]
        raise BufdbError(f"{query.name}: Spark: {reason}") from error
    finally:
        for name in made:
            session.catalog.dropTempView(name)
    columns = [(column.name, column.type) for column in query.columns]
    kinds = [kind for _, kind in columns]
    return Result(columns, [tuple(map(_value, row, kinds)) for row in rows])


def _frame(
    session: SparkSession, query: SavedQuery, text: str, values: Mapping[str, Value]
) -> DataFrame:
    """What a part of a query gives, with the parameters that it names."""
    names = set(_PLACEHOLDER.findall(text)) & {param.name for param in query.params}
    return session.sql(text, args={name: values.get(name) for name in names})


def _kept(session: SparkSession, frame: DataFrame) -> DataFrame:
    """The rows that a frame gives, computed now and not again each time that they are read.

    They stay where the session computes; Sail 0.7 has no place for them, and sends them here.
    """
    try:
        return frame.localCheckpoint()
    except _failures() as error:
        if "checkpoint object-store path" not in str(error):
            raise
        return session.createDataFrame(frame.toArrow(), frame.schema)


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
