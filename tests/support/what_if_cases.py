"""Modules of a few values to ask what-if about."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import duckdb
from small_db import Module, derive, insert

from bufdb.what_if import removal as what_if
from bufdb.what_if.module_choice import choose

STEPS = 10


class Case(Module):
    """A module of one temp allocation in which each value has a place of its own."""

    def __init__(self, con: duckdb.DuckDBPyConnection, module_id: int = 1, **cells: Any) -> None:
        super().__init__(con, module_id, **{"schedule_length": STEPS, **cells})
        self.allocation(0, "temp", 10_000)
        self.next_byte = 0

    def temp(self, number: int, size: int, live: tuple[int, int], line: str = "", **cells: Any):
        """A value, made at `FILE:LINE` where one is given."""
        if line:
            file, _, at = line.rpartition(":")
            cells |= {"source_file": file, "source_line": int(at)}
        self.value(number, 0, self.next_byte, size, live, **cells)
        self.next_byte += size

    def close(self) -> None:
        """Close as `Module.close` does, with an allocation that has no holes at the peak."""
        super().close()
        self.con.execute(
            "UPDATE allocations SET size_bytes = occupied_temp_bytes FROM occupied_peaks AS peaks "
            "WHERE allocations.module_id = peaks.module_id AND allocations.color = peaks.color "
            "AND allocations.kind = 'temp' AND allocations.module_id = ?",
            [self.id],
        )
        derive(self.con)

    def origin(self, value_id: int, line: str, kind: str = "stacked", **cells: Any) -> None:
        """Add the origin of the data of a value that a loop carries."""
        file, _, at = line.rpartition(":")
        insert(self.con, "value_origins", module_id=self.id, value_id=value_id, origin_kind=kind,
               source_file=file, source_line=int(at), opcode="dot", **cells)  # fmt: skip


def two_peaks(con: duckdb.DuckDBPyConnection, **cells: Any) -> None:
    """Make peaks at 2 and 7, each with 10 bytes of a line of its own and a line that is in both."""
    case = Case(con, **cells)
    case.temp(1, 6, (1, 3), "/m/model.py:53", op_name="jit(f)/net/dot", program_order=1)
    case.temp(2, 6, (6, 8), "/m/model.py:54", op_name="jit(f)/net/mul", program_order=6)
    case.temp(3, 4, (0, 9), "/m/other.py:53", op_name="jit(f)/other/dot", program_order=0)
    case.close()


def ask(con: duckdb.DuckDBPyConnection, *without: str, **options: Any) -> what_if.Answer:
    """Return the answer for the only module."""
    chosen = choose(con, "*", None, options.pop("color", None))
    keep = Fraction(options.pop("keep", 0))
    return what_if.answer(con, chosen, what_if.Reduction(without=without, keep=keep, **options))


def figures(answer: what_if.Answer) -> list[tuple[Any, ...]]:
    """Return (name, held, saving, peak without, when) of each row."""
    return [
        (row.name, row.held_bytes, row.saving_bytes, row.peak_bytes_without, row.next_peak_time)
        for row in answer.rows
    ]
