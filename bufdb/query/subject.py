"""Choose the module and memory space for an answer about one module.

Of the matching modules, in one run or several, the one with the largest need among those with a
known peak, in the memory space that `asked_spaces` selects: by default the device's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.query import execute
from bufdb.query.header import Value
from bufdb.query.parameters import find_space, glob, is_plain_space

if TYPE_CHECKING:
    import duckdb

SQL = """
SELECT
  asked.run_name,
  coalesce(asked.function_name, asked.module_key) AS function_name,
  asked.module_id,
  asked.module_key,
  asked.platform,
  asked.color,
  coalesce(asked.memory_space_name, 'color ' || asked.color, '') AS memory_space,
  asked.is_asked,
  coalesce(modules.schedule_length, 0) AS schedule_length,
  asked.need_bytes,
  asked.peak_bytes,
  asked.peak_time,
  asked.fixed_bytes,
  asked.temp_bytes,
  asked.argument_bytes,
  asked.output_bytes,
  asked.alias_bytes,
  asked.constant_bytes,
  asked.peak_unknown_reason AS unknown_reason
FROM asked_spaces AS asked
JOIN modules ON modules.module_id = asked.module_id
WHERE getvariable('subject')::VARCHAR IS NULL
  OR asked.module_key GLOB getvariable('subject')::VARCHAR
  OR asked.module_key = getvariable('subject')::VARCHAR
  OR asked.module_name GLOB getvariable('subject')::VARCHAR
  OR asked.module_name = getvariable('subject')::VARCHAR
  OR asked.function_name GLOB getvariable('subject')::VARCHAR
  OR asked.function_name = getvariable('subject')::VARCHAR
ORDER BY
  asked.peak_bytes IS NULL, asked.need_bytes DESC NULLS LAST, asked.peak_bytes DESC NULLS LAST,
  asked.run_name, asked.module_key, asked.color NULLS LAST
"""
NAMES = """
SELECT DISTINCT unnest([module_key, module_name, function_name]) AS name
FROM asked_spaces
"""


@dataclass(frozen=True)
class Subject:
    """A module in a memory space; bytes are exact."""

    run_name: str
    function_name: str
    """The module's key if that is unknown."""
    module_id: int
    module_key: str
    platform: str | None
    color: int | None
    """None for a module without allocations, like all fields in bytes."""
    memory_space: str
    is_asked: bool
    schedule_length: int
    """The last instant [program order]."""
    need_bytes: int | None
    """Memory that a device must have."""
    peak_bytes: int | None
    """None if unknown."""
    peak_time: int | None
    """None if the peak is unknown, or known from an out-of-memory message."""
    fixed_bytes: int | None
    temp_bytes: int | None
    """Size of the temp allocations, which are never occupied in full."""
    argument_bytes: int | None
    output_bytes: int | None
    alias_bytes: int | None
    """Donated bytes: counted in argument_bytes and in output_bytes."""
    constant_bytes: int | None
    unknown_reason: str | None
    """Why the peak is unknown."""
    besides: tuple[Subject, ...] = ()
    """The module's other memory spaces, if not empty."""
    others: str = ""
    """A sentence on other matching modules; '' if there are none."""

    @property
    def filters(self) -> dict[str, Value]:
        """Parameters that limit a saved query to this module in this space."""
        values: dict[str, Value] = {"run": glob(self.run_name), "module": glob(self.module_key)}
        if self.color is not None:
            values["color"] = self.color
        return values


def choose(
    con: duckdb.DuckDBPyConnection, asker: str, name: str | None, filters: Mapping[str, Value]
) -> Subject:
    """Return the matching module with the largest need, known peaks before unknown ones.

    Args:
        con: the database.
        asker: the command, which begins a message.
        name: key or name of a module, name of a function, or a glob of one; None for all.
        filters: run, function, module (globs) and color (number, name or all), as in saved queries.

    Raises:
        UsageError: nothing matches, or there is no such memory space.
    """
    values = {key: value for key, value in filters.items() if value is not None}
    color = values.pop("color", None)
    if color is not None and not is_plain_space(color):
        values["platform"], color = find_space(con, asker, str(color), values)
    chosen_space = {} if color is None else {"color": str(color)}
    result = execute.execute_with(con, SQL, {**values, **chosen_space, "subject": name}, asker)
    names = [column for column, _ in result.columns]
    fits = [Subject(**dict(zip(names, row, strict=True))) for row in result.rows]
    if not fits:
        raise UsageError(_nothing(con, asker, name, values))
    here = [item for item in fits if item.is_asked]
    if not here:
        known = sorted({f"{item.color} ({item.memory_space})" for item in fits})
        raise UsageError(f"{asker}: there is no memory space {color}; there are {', '.join(known)}")
    chosen = here[0]
    rest = tuple(
        item
        for item in fits
        if item.module_id == chosen.module_id and item.color != chosen.color and item.need_bytes
    )
    facts: dict[str, Any] = {**vars(chosen), "besides": rest, "others": _others(here)}
    return Subject(**facts)


def _nothing(
    con: duckdb.DuckDBPyConnection, asker: str, name: str | None, values: Mapping[str, Value]
) -> str:
    """Return the reason why nothing matches."""
    filters = ", ".join(f"{key} {quote(str(value))}" for key, value in values.items())
    where = f" with {filters}" if filters else ""
    if name is None:
        return f"no module{where}; 'bufdb query modules' lists them"
    rows = execute.execute_with(con, NAMES, values, asker).rows
    hint = did_you_mean(name, sorted({known for (known,) in rows if known is not None}))
    return f"no module {quote(name)}{where}{hint or ';'} 'bufdb query modules' lists them"


def _others(fits: list[Subject]) -> str:
    """Return a sentence on what was not chosen, and why."""
    count = len({item.module_id for item in fits})
    if count == 1:
        return ""
    runs = len({item.run_name for item in fits})
    where = f" in {runs} runs" if runs > 1 else ""
    unknown = len({item.module_id for item in fits if item.unknown_reason is not None})
    first = fits[0]
    text = f"{count} modules{where} match; {first.module_key} of run {first.run_name}"
    if first.unknown_reason is not None:
        return f"{text} is used; all peaks are unknown"
    if unknown:
        return f"{text} has the largest need of those whose peak is known; that of {unknown} is not"
    return f"{text} has the largest need"
