"""Pair parameters with outputs that can take their bytes, and what these outputs hold before.

The rule is that of `bufdb.memory.donation`: an output of the size of the parameter is written over
it, and what the output's allocation holds before the parameter's last use needs bytes elsewhere.
XLA keeps a parameter that is not donated live to the end, so the last use is the last instruction
that reads it; only where that is not known is it the end of the live range. An instruction that
reads the parameter itself and cannot write over it (HloDataflowAnalysis of XLA,
CanShareOperandBufferWithUser) makes its result elsewhere, for a copy to follow.
The view answered_donations has the same rule for the selected functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bufdb.database.engine import duckdb
from bufdb.errors import UsageError, did_you_mean, listed, quote
from bufdb.memory.donation import donors
from bufdb.what_if import temps
from bufdb.what_if.module_choice import Choice

CANDIDATES = """
WITH reads AS (
  SELECT
    uses.value_id,
    CASE WHEN count(*) = count(users.program_order) THEN max(users.program_order) END AS read_time
  FROM uses
  LEFT JOIN instructions AS users
    ON users.module_id = uses.module_id
    AND users.instruction_name = uses.instruction_name
  WHERE uses.module_id = $module_id
    AND coalesce(users.opcode, '') NOT IN (
      'add-dependency', 'bitcast', 'domain', 'get-tuple-element', 'opt-barrier', 'tuple'
    )
  GROUP BY uses.value_id
),
placed AS (
  SELECT
    allocations.allocation_index,
    allocations.kind,
    allocations.size_bytes,
    allocations.parameter_number,
    "values".value_id,
    "values".size_bytes AS value_bytes,
    CASE WHEN NOT shapes.is_tuple THEN shapes.dtype || shapes.dimensions_text END AS shape,
    live_ranges.end_time,
    least(live_ranges.end_time, coalesce(reads.read_time, live_ranges.end_time)) AS last_use_time,
    coalesce(instructions.op_name, "values".instruction_name) AS name,
    instructions.opcode = 'parameter' AS is_parameter
  FROM allocations
  LEFT JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  LEFT JOIN shapes ON shapes.shape = "values".shape
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  LEFT JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  LEFT JOIN reads ON reads.value_id = "values".value_id
  WHERE allocations.module_id = $module_id
    AND allocations.color = $color
    AND allocations.kind IN ('parameter', 'donated_parameter', 'output')
)
SELECT
  allocation_index,
  kind,
  any_value(size_bytes),
  any_value(parameter_number),
  coalesce(
    arg_min(name, value_id) FILTER (WHERE is_parameter),
    'parameter ' || any_value(parameter_number),
    'output ' || allocation_index
  ),
  coalesce(max(last_use_time) FILTER (WHERE value_bytes > 0), -1),
  arg_max(shape, (kind <> 'output' AND is_parameter, coalesce(end_time, -1), value_id))
    FILTER (WHERE value_bytes = size_bytes)
FROM placed
GROUP BY allocation_index, kind
ORDER BY allocation_index
"""
SPANS = """
SELECT
  "values".allocation_index,
  live_ranges.start_time,
  live_ranges.end_time,
  coalesce(
    instructions.opcode IN (
      'convolution', 'custom-call', 'dot', 'fft', 'gather', 'reduce', 'reduce-window',
      'reverse', 'sort', 'transpose'
    )
    OR (instructions.opcode = 'fusion' AND regexp_matches(instructions.text, 'kind=kCustom')),
    FALSE
  ) AS writes_elsewhere
FROM "values"
JOIN live_ranges
  ON live_ranges.module_id = "values".module_id
  AND live_ranges.value_id = "values".value_id
JOIN allocations
  ON allocations.module_id = "values".module_id
  AND allocations.allocation_index = "values".allocation_index
LEFT JOIN instructions
  ON instructions.module_id = "values".module_id
  AND instructions.instruction_name = "values".instruction_name
WHERE "values".module_id = $module_id
  AND allocations.kind = 'output'
  AND allocations.color = $color
  AND live_ranges.start_time <= live_ranges.end_time
ORDER BY ALL
"""
_MOST_NAMED = 5


@dataclass(frozen=True)
class Donation:
    """A parameter and the output that is written over it."""

    name: str
    """The parameter's op_name, in JAX the argument's path; else its instruction's name."""
    parameter_number: int
    size_bytes: int
    early: tuple[tuple[int, int], ...]
    """Periods in which the output's allocation is used before the parameter is free: first and last
    instants, ascending and disjoint."""


@dataclass(frozen=True)
class Donations:
    """The requested donations that are possible, and those that are not."""

    pairs: list[Donation]
    refused: list[str]
    """Parameters that cannot be donated, a sentence for each reason."""


@dataclass(frozen=True)
class _Candidate:
    allocation_index: int
    kind: str
    size_bytes: int
    number: int | None
    name: str
    last_use: int
    """Last instant that reads its values, in XLA's order; -1 without any."""
    shape: str | None
    """Element type and dimensions of the parameter; for an output, of its last value."""


@dataclass(frozen=True)
class Span:
    """The live range of a value of an output's allocation."""

    start: int
    end: int
    writes_elsewhere: bool
    """Whether the instruction that makes it cannot overwrite its operands: products, and custom
    calls, whose values are those without output_to_operand_aliasing (others belong to operands).
    """


def find(con: duckdb.DuckDBPyConnection, choice: Choice, wanted: Iterable[str]) -> Donations:
    """Return the requested parameters (number, or glob of names), with outputs of their size.

    Raises:
        UsageError: there is no such parameter in this memory space.
    """
    place = {"module_id": choice.module_id, "color": choice.color}
    rows = [_Candidate(*row) for row in con.execute(CANDIDATES, place).fetchall()]
    parameters = [row for row in rows if row.kind != "output"]
    chosen: dict[int, _Candidate] = {}
    for text in wanted:
        fits = [row for row in parameters if _is_meant(row, text)]
        if not fits:
            hint = did_you_mean(text, sorted({row.name for row in parameters}))
            raise UsageError(
                f"no parameter {quote(text)} in memory space {choice.color} of "
                f"{choice.module_key}{hint or '; --color chooses another'}"
            )
        chosen |= {row.allocation_index: row for row in fits}
    free = [row for row in chosen.values() if row.kind == "parameter"]
    pairs = _paired(free, [row for row in rows if row.kind == "output"])
    paired = {parameter.allocation_index for parameter, _ in pairs}
    refused = [
        *_refused("donated already", [row for row in chosen.values() if row not in free]),
        *_refused(
            "no remaining output has its size",
            [row for row in free if row.allocation_index not in paired],
        ),
    ]
    spans: dict[int, list[Span]] = {}
    for allocation, *span in con.execute(SPANS, place).fetchall():
        spans.setdefault(allocation, []).append(Span(*span))
    donations = [
        Donation(
            parameter.name,
            -1 if parameter.number is None else parameter.number,
            output.size_bytes,
            before(spans.get(output.allocation_index, []), parameter.last_use),
        )
        for parameter, output in pairs
    ]
    return Donations(donations, refused)


def _is_meant(parameter: _Candidate, text: str) -> bool:
    if text.isdecimal():
        return parameter.number == int(text)
    return parameter.name == text or temps.fits(parameter.name, text)


def _refused(reason: str, parameters: Sequence[_Candidate]) -> list[str]:
    if not parameters:
        return []
    names = [f"{row.number} ({row.name})" for row in parameters]
    return [f"not donated, since {reason}: {listed(names, _MOST_NAMED)}"]


def _paired(
    parameters: Sequence[_Candidate], outputs: Sequence[_Candidate]
) -> list[tuple[_Candidate, _Candidate]]:
    """Pair those of equal shape, as JAX does, then the rest of equal size, as XLA does."""
    every = [*parameters, *outputs]
    number_of = {
        shape: number for number, shape in enumerate(dict.fromkeys(row.shape for row in every))
    }
    is_left = np.ones(len(every), np.bool_)
    pairs: list[tuple[int, int]] = []
    for group in ([number_of[row.shape] for row in every], [0] * len(every)):
        rows = np.flatnonzero(is_left)
        donating, receiving = donors(
            np.array(group, np.int64)[rows],
            np.array([row.size_bytes for row in every], np.int64)[rows],
            rows >= len(parameters),
            np.array([row.last_use for row in every], np.int64)[rows],
        )
        pairs += zip(rows[donating].tolist(), rows[receiving].tolist(), strict=True)
        is_left[rows[donating]] = is_left[rows[receiving]] = False
    return [(every[a], every[b]) for a, b in sorted(pairs, key=lambda pair: pair[1])]


def before(spans: Sequence[Span], last_use: int) -> tuple[tuple[int, int], ...]:
    """Return the union of spans up to the instant before the last use.

    A value that cannot overwrite the operands of the last use begins one instant too early.
    """
    merged: list[tuple[int, int]] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        start, end = span.start, min(span.end, last_use - 1)
        if start == last_use and span.writes_elsewhere:
            end = start
        if end < start:
            continue
        if merged and start <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
