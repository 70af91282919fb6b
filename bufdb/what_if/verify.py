"""Promised and got: what `advice` and `what-if` say of BASE for what NEW has no longer, and NEW.

A value is recognized by its op and its size, not by its line, which an edit shifts. It is gone if
it waits in BASE (a loop stacks it, or it lives long) and nothing of its op and size waits as long
in NEW; values that are there at the peak for a moment say nothing, since the peak may be elsewhere.

Invariant: a promise is a figure of `bufdb.what_if.removal` or a row of query advice. NEW says only
what is gone, and by how many bytes of something else instead the least may be less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from bufdb import resources
from bufdb.answers import diff
from bufdb.answers.opening import Open
from bufdb.database.engine import duckdb
from bufdb.query import catalogue, execute
from bufdb.query.header import SavedQuery
from bufdb.query.parameters import glob
from bufdb.query.result import Result
from bufdb.render import formats
from bufdb.render.text import escape_control, human_bytes, markdown_escape
from bufdb.what_if import donation, module_choice, removal, temps
from bufdb.what_if.donation import Donation
from bufdb.what_if.model import Need
from bufdb.what_if.module_choice import Choice
from bufdb.what_if.removal import Reduction, Row
from bufdb.what_if.temps import Taken, Temps
from bufdb.what_if.what_if import WhatIf

TOLERANCE = 0.02
"""Share of BASE's peak by which a saving may lie outside of its range and count as in it."""
LEAST_LIFE = 0.1
"""Share of the schedule from which a value waits, as in query advice."""
CRUMB = 1000
"""Part of the peak below which a value is left out."""
SAME_LIFE = 0.5
"""Share of a value's life in BASE that it must have in NEW to be there still."""
BLOCK = 0.9
"""Share of what loops stack that must be gone for advice on a block of rounds to be followed."""
MOST = 5
"""Rows for values that NEW holds instead."""
MOST_PAIRS = 20
"""Functions that are shown."""
ARGUMENTS = "SELECT argument_bytes FROM memory_figures WHERE module_id = ? AND color = ?"
NOTHING = "nothing that waits at the peak is gone"
LARGER = "the arguments are larger, which is another program"
COLUMNS = {
    "base_run_name": "VARCHAR", "new_run_name": "VARCHAR", "function_name": "VARCHAR",
    "what": "VARCHAR", "name": "VARCHAR", "promised_by": "VARCHAR", "kind": "VARCHAR",
    "sureness": "VARCHAR", "base_bytes": "HUGEINT", "new_bytes": "HUGEINT",
    "low_saving_bytes": "HUGEINT", "saving_bytes": "HUGEINT", "got_bytes": "HUGEINT",
    "is_in_range": "BOOLEAN",
}  # fmt: skip


@dataclass(frozen=True)
class Promise:
    """A row: something that is gone, what came instead, or both together."""

    what: str
    """source_line, op, value, donation, block, instead, peak or need."""
    name: str
    base_bytes: int
    """What it holds at the peak of BASE; of peak and need that itself."""
    new_bytes: int
    """The same of NEW."""
    low: int | None
    """The least that is promised; None where nothing is."""
    high: int | None
    promised_by: str | None = None
    """advice or what-if."""
    kind: str | None = None
    """Of advice, as sureness."""
    sureness: str | None = None
    slack: int = 0

    @property
    def is_total(self) -> bool:
        """Return whether it is about the whole module."""
        return self.what in ("peak", "need")

    @property
    def got(self) -> int | None:
        """Return by how much it fell; None for a part, where only the bytes are known."""
        return self.base_bytes - self.new_bytes if self.is_total else None

    @property
    def is_in_range(self) -> bool | None:
        """Return whether what came is what was promised; None if that is not known."""
        if self.got is None or self.low is None or self.high is None:
            return None
        return self.low - self.slack <= self.got <= self.high + self.slack


@dataclass(frozen=True)
class Verified:
    """A function on both sides."""

    base: Choice
    new: Choice
    rows: list[Promise]
    reason: str = NOTHING
    """Why nothing was promised, if nothing was."""

    @property
    def peak(self) -> Promise:
        """Return the row of the peak."""
        return next(row for row in self.rows if row.what == "peak")

    @property
    def is_kept(self) -> bool:
        """Return whether at least the low end came; True where nothing was promised."""
        peak = self.peak
        return peak.low is None or (peak.got or 0) >= peak.low - peak.slack


@dataclass(frozen=True)
class Verification:
    """The answer of `bufdb verify`."""

    functions: list[Verified]
    notes: list[str] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        """Return whether every promise came true at its low end."""
        return all(one.is_kept for one in self.functions)

    def result(self) -> Result:
        """Return every row."""
        return Result(
            list(COLUMNS.items()), [_cells(one, row) for one in self.functions for row in one.rows]
        )

    def text(self, format_name: str = "table", width: int | None = None) -> tuple[str, int]:
        """Return the text as `table` or `markdown`, and the number of cells cut to fit `width`."""
        blocks, cut = [], 0
        for one in self.functions:
            table, count = formats.render(_table(one), format_name, width)
            cut += count
            escape = markdown_escape if format_name == "markdown" else escape_control
            blocks.append(f"{escape(_headline(one))}\n\n{table}")
        return "\n".join(blocks), cut


def verify(
    opened: Open,
    base: str,
    new: str,
    *,
    function: str | None = None,
    color: int | str | None = None,
    pairs: Sequence[str] = (),
) -> Verification:
    """Return what was promised of two runs' functions, and what came; arguments as for `diff`.

    Raises:
        UsageError: a run or a pair does not exist.
        BufdbError: a peak is unknown, so that nothing can be compared.
    """
    peaks = diff.peaks(opened, base, new, function=function, color=color, pairs=pairs)
    rows = [row for row, is_changed in peaks if is_changed]
    rows.sort(key=lambda row: (-abs(row.delta_bytes or 0), -(row.base_bytes or 0)))
    all_found = [(row, _pair(opened, row, None)) for row in rows[:MOST_PAIRS]]
    # Where the peak is the same, something may have been promised all the same.
    shown = [one for row, one in all_found if row.delta_bytes or one.peak.low is not None]
    notes = []
    if not shown:
        why = diff.why_nothing(opened, base, new, function=function, color=color, pairs=pairs)
        notes.append(why or "no peak of a function that both have has changed")
    if len(rows) > MOST_PAIRS:
        notes.append(f"{len(rows) - MOST_PAIRS} more functions; --function chooses")
    return Verification(shown, notes)


def verify_promise(opened: Open, promise: WhatIf, new: str) -> Verification:
    """Return what `what-if` promised, and what came in a run.

    Args:
        opened: opens the database.
        promise: the answer of what-if that made it.
        new: the run with the change.
    """
    base = promise.answer.choice
    peaks = diff.peaks(opened, base.run_name, new, color=base.color)
    own_rows = [
        row for row, _ in peaks if row.base_module_key == base.module_key and row.new_module_key
    ]
    if not own_rows:
        return Verification([], [f"run {new} has no function {base.function_name}"])
    return Verification([_pair(opened, own_rows[0], promise)])


def _pair(opened: Open, row: diff.Row, promise: WhatIf | None) -> Verified:
    advice = catalogue.Catalogue([resources.query_folder()]).find("advice")
    sql = "\n".join(
        [module_choice.SQL, ARGUMENTS, donation.CANDIDATES, donation.SPANS, removal.SQL, advice.sql]
    )
    runs = [glob(name) for name in (row.base_run_name, row.new_run_name) if name is not None]
    con = opened(sql, runs=runs)
    before, after = (
        module_choice.choose(con, glob(key or ""), glob(run or ""), row.color)
        for key, run in (
            (row.base_module_key, row.base_run_name),
            (row.new_module_key, row.new_run_name),
        )
    )
    held, other = temps.load(con, before), temps.load(con, after)
    change = _change(before, held, after, other)
    if (
        promise is None
        and row.paired_by.startswith(("name", "likeness"))
        and _grew(con, before, after)
    ):
        return Verified(before, after, _totals(before, after, None), LARGER)
    if promise is None:
        advised = _advice(con, advice, before)
        donations = donation.find(con, before, _donated(con, before, after)).pairs
        rows = _promised(before, held, change, donations)
        parts = [_part(one, change, advised) for one in rows if one.what != removal.TOGETHER]
        total = _together(rows, parts)
        if total is not None and change.gone:
            total = _widened(total, before, held, change, donations)
        parts.sort(key=lambda part: (-(part.high or 0), part.name))
        parts += _block(advised, held, change)
    else:
        rows = promise.answer.rows
        parts = [_part(one, change) for one in rows if one.what != removal.TOGETHER]
        total = _promised_total(promise)
    return Verified(before, after, [*parts, *_instead(change), *_totals(before, after, total)])


# -- What is gone ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Buffer:
    """Values at the same bytes that hold some at the peak, or wait."""

    row: int
    """Of `Temps`."""
    op: str
    line: str
    size: int
    held: int
    life: float
    """Share of the schedule in which it is live."""
    is_residual: bool


@dataclass
class _Change:
    """Buffers of BASE that NEW has no longer, and those of NEW that BASE has not."""

    gone: list[_Buffer]
    narrowed: list[tuple[_Buffer, Fraction]]
    """Those that wait in NEW with fewer bytes, and the share that stays."""
    stays: list[_Buffer]
    appeared: list[_Buffer]
    unmatched: list[_Buffer]
    """Buffers of BASE, however short they live, whose op and size NEW has nowhere."""

    @property
    def keep(self) -> Fraction:
        """Return the share that stays of what is narrowed, if that is the same of all."""
        shares = {share for _, share in self.narrowed}
        return shares.pop() if not self.gone and len(shares) == 1 else Fraction(0)

    @property
    def away(self) -> list[_Buffer]:
        """Return what `what-if` removes: everything gone, or else everything narrowed."""
        return [one for one, _ in self.narrowed] if self.keep else self.gone


def _buffers(chosen: Choice, held: Temps) -> list[_Buffer]:
    ops, lines = held.labels["op"], held.labels["source_line"]
    buffers = []
    for buffer in np.unique(held.buffer).tolist():
        rows = np.flatnonzero(held.buffer == buffer)
        op, line = int(ops.of_row[rows[0]]), int(lines.of_row[rows[0]])
        if op < 0:
            continue
        first, last = held.ranges.start[rows].min(), held.ranges.end[rows].max()
        largest = int(rows[np.argmax(held.ranges.size[rows])])
        buffers.append(
            _Buffer(
                int(rows[0]),
                ops.names[op],
                "" if line < 0 else lines.names[line],
                int(held.ranges.size[largest]),
                int(held.held_bytes[rows].sum()),
                float(last - first) / max(chosen.schedule_length, 1),
                bool(held.is_residual[rows].any()),
            )
        )
    return buffers


def _change(before: Choice, held: Temps, after: Choice, other: Temps) -> _Change:
    """Match the buffers that wait at the peak of BASE with those of NEW."""
    every = _buffers(before, held)
    of_base = [
        one
        for one in every
        if one.held * CRUMB >= before.peak_bytes and (one.is_residual or one.life >= LEAST_LIFE)
    ]
    of_new = _buffers(after, other)
    free: dict[str, list[_Buffer]] = {}
    for one in of_new:
        free.setdefault(one.op, []).append(one)
    sizes = {(one.op, one.size) for one in of_new}
    unmatched = [one for one in every if (one.op, one.size) not in sizes]
    change = _Change([], [], [], [], unmatched)
    used: set[int] = set()

    def take(buffer: _Buffer, *, is_line: bool = False, is_size: bool = True) -> _Buffer | None:
        there = [
            one
            for one in free.get(buffer.op, ())
            if one.row not in used
            and (one.is_residual or one.life >= SAME_LIFE * buffer.life)
            and (one.line == buffer.line or not is_line)
            and (one.size == buffer.size) is is_size
        ]
        best = max(there, key=lambda one: one.held, default=None)
        if best is not None:
            used.add(best.row)
        return best

    # Lines may shift, but where they did not they say which of several alike it is.
    rest = sorted(of_base, key=lambda one: (-one.life, one.row))
    for is_line in (True, False):
        matches = [(one, take(one, is_line=is_line)) for one in rest]
        change.stays += [one for one, same in matches if same is not None]
        rest = [one for one, same in matches if same is None]
    for buffer in rest:
        other_size = take(buffer, is_size=False)
        if other_size is None:
            change.gone.append(buffer)
        elif other_size.size > buffer.size:
            change.stays.append(buffer)
        else:
            change.narrowed.append((buffer, Fraction(other_size.size, buffer.size)))
    change.appeared += [
        one
        for one in of_new
        if one.row not in used
        and one.held * CRUMB >= before.peak_bytes
        and (one.is_residual or one.life >= LEAST_LIFE)
    ]
    return change


def _grew(con: duckdb.DuckDBPyConnection, before: Choice, after: Choice) -> bool:
    """Return whether the arguments of NEW are larger."""
    sizes = [
        con.execute(ARGUMENTS, [one.module_id, one.color]).fetchall()[0][0]
        for one in (before, after)
    ]
    return None not in sizes and sizes[1] > sizes[0]


def _donated(con: duckdb.DuckDBPyConnection, before: Choice, after: Choice) -> list[str]:
    """Return the numbers of the parameters that NEW donates and BASE does not."""

    def names(chosen: Choice, kind: str) -> dict[str, int]:
        parameters = {"module_id": chosen.module_id, "color": chosen.color}
        rows = con.execute(donation.CANDIDATES, parameters).fetchall()
        return {row[4]: row[3] for row in rows if row[1] == kind}

    donated = names(after, "donated_parameter")
    return [
        str(number)
        for name, number in names(before, "parameter").items()
        if name in donated and number is not None
    ]


# -- What was promised -----------------------------------------------------------------------------


def _promised(
    before: Choice, held: Temps, change: _Change, donations: Sequence[Donation]
) -> list[Row]:
    """Return what `what-if` says of what is gone: each line alone, and all together."""
    groups: dict[tuple[str, str], list[int]] = {}
    for one in change.away:
        name = ("source_line", one.line) if one.line else ("op", one.op)
        groups.setdefault(name, []).append(one.row)
    taken = [_taken(held, what, name, rows) for (what, name), rows in groups.items()]
    return removal.removed(before, held, Reduction(keep=change.keep), taken, donations)


def _taken(held: Temps, what: str, name: str, rows: Sequence[int]) -> Taken:
    """Return the whole buffers of some values."""
    return Taken(what, name, np.flatnonzero(np.isin(held.buffer, held.buffer[rows])))


def _widened(
    total: _Total, before: Choice, held: Temps, change: _Change, donations: Sequence[Donation]
) -> _Total:
    """Return what is promised of an exchange: stacks of loops go, and NEW saves others instead.

    `what-if` keeps today's schedule. Without what a loop stacks it is another schedule: what NEW
    holds instead comes off the least, but not more than the stacks that are gone, or a change that
    costs would be kept; what the body computes only to stack it may fall as well, and a donated
    argument saves up to its whole size, since early contents of the result were stacks.
    """
    rows = [one.row for one in (*change.gone, *change.unmatched)]
    (*_, most) = removal.removed(before, held, Reduction(), [_taken(held, "op", "", rows)], [])
    gone = sum(one.held for one in change.gone if one.is_residual)
    instead = min(gone, sum(one.held for one in change.appeared))
    donated = sum(pair.size_bytes for pair in donations)
    return replace(
        total,
        low=min(total.low, total.high - total.more - instead),
        high=max(total.high, most.saving_bytes + donated),
        more=total.more + max(most.saving_bytes + donated - total.high, 0),
    )


Advice = dict[str, Any]


def _advice(con: duckdb.DuckDBPyConnection, query: SavedQuery, before: Choice) -> list[Advice]:
    """Return what query advice says of BASE, however little it saves."""
    parameters = {
        "run": glob(before.run_name),
        "module": glob(before.module_key),
        "color": str(before.color),
        "top_n": "1000",
        "min_ratio": "0",
    }
    names = [column.name for column in query.columns]
    rows = execute.execute_query(con, query, execute.bind(query, parameters)).rows
    advice = [dict(zip(names, row, strict=True)) for row in rows]
    return [row for row in advice if row["unknown_reason"] is None]


def _part(row: Row, change: _Change, advice: Sequence[Advice] = ()) -> Promise:
    """Return a row of `what-if` as a promise; that of advice, which knows more, goes before it."""
    new = sum(round(one.held * share) for one, share in change.narrowed if one.line == row.name)
    low = row.saving_bytes if row.low is None else row.low.saving_bytes
    part = Promise(row.what, row.name, row.held_bytes, new, low, row.saving_bytes, "what-if")
    kinds = ("dtype",) if change.keep else ("residual", "recompute", "offload", "late_free")
    for one in advice:
        if one["saving_bytes"] is None:
            continue
        if row.what == "donation" and one["kind"] == "donate":
            # Advice is about all parameters together: all of it may come, or nothing.
            least = one["low_saving_bytes"]
            return replace(
                part,
                low=min(low, low if least is None else least),
                high=max(row.saving_bytes, row.held_bytes),
                promised_by="advice",
                kind="donate",
                sureness=one["sureness"],
            )
        if row.what != "donation" and one["kind"] in kinds and one["name"] == row.name:
            least, most = one["low_saving_bytes"], one["saving_bytes"]
            return replace(
                part,
                low=most if least is None else least,
                high=most,
                promised_by="advice",
                kind=one["kind"],
                sureness=one["sureness"],
            )
    return part


def _block(advice: Sequence[Advice], held: Temps, change: _Change) -> list[Promise]:
    """Return the advice on all rounds of a scan, if what the scan stacks is gone."""
    stacked = [
        one
        for one in (*change.gone, *change.stays)
        if one.is_residual and not held.is_layer_input[one.row]
    ]
    gone = sum(one.held for one in stacked if one in change.gone)
    blocks = [
        row
        for row in advice
        if row["kind"] == "block" and (row["name"] or "").startswith("scan of ")
    ]
    if len(blocks) != 1 or not gone or gone < BLOCK * sum(one.held for one in stacked):
        return []
    (row,) = blocks
    least, most = row["low_saving_bytes"], row["saving_bytes"]
    return [Promise("block", row["name"], gone, 0, least, most, "advice", "block", row["sureness"])]


def _instead(change: _Change) -> list[Promise]:
    """Return what NEW holds at its peak and BASE does not have, the largest first."""
    sums: dict[str, int] = {}
    for one in change.appeared:
        name = one.line or one.op
        sums[name] = sums.get(name, 0) + one.held
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:MOST]
    return [Promise("instead", name, 0, held, None, None) for name, held in ranked]


@dataclass(frozen=True)
class _Total:
    """What is promised of the peak, and the need then."""

    low: int
    high: int
    need: Need | None
    more: int = 0
    """What of `high` is not in the need."""


def _together(rows: Sequence[Row], parts: Sequence[Promise]) -> _Total | None:
    """Return what `what-if` says of all together; None if nothing is gone.

    Its ends are those of advice, which is less sure of what no loop stacks, and of donations.
    """
    total = next((row for row in rows if row.what == removal.TOGETHER), None)
    if total is None:
        return None
    low = total.saving_bytes if total.low is None else total.low.saving_bytes
    more = 0
    for row, part in zip(rows, parts, strict=False):
        least = row.saving_bytes if row.low is None else row.low.saving_bytes
        if part.low is not None and part.promised_by == "advice":
            low -= max(least - part.low, 0)
            if part.what == "donation" and part.high is not None:
                more += part.high - row.saving_bytes
    return _Total(low, total.saving_bytes + more, total.need, more)


def _promised_total(promise: WhatIf) -> _Total:
    answer = promise.answer
    high = answer.choice.peak_bytes - answer.left.peak_bytes
    low = high if answer.low_saving_bytes is None else answer.low_saving_bytes
    return _Total(low, high, answer.need)


def _totals(before: Choice, after: Choice, total: _Total | None) -> list[Promise]:
    """Return the rows of the peak and of the need."""
    slack = round(TOLERANCE * before.peak_bytes)
    peaks = (before.peak_bytes, after.peak_bytes)
    needs = (before.need_bytes, after.need_bytes)
    if total is None:
        none = Promise("peak", "all together", *peaks, None, None)
        return [none, Promise("need", "all together", *needs, None, None)]
    least = most = None
    if total.need is not None:
        # Its range is of holes alone; that of what is saved instead comes on top.
        least = before.need_bytes - total.need.high_bytes - (total.high - total.more - total.low)
        most = before.need_bytes - total.need.low_bytes + total.more
    return [
        Promise("peak", "all together", *peaks, total.low, total.high, "what-if", slack=slack),
        Promise("need", "all together", *needs, least, most, "what-if", slack=slack),
    ]


# -- As text ---------------------------------------------------------------------------------------


def _headline(one: Verified) -> str:
    peak = one.peak
    names = f"{one.base.function_name} ({one.base.run_name} → {one.new.run_name}"
    got = peak.got or 0
    outcome = f"saved {human_bytes(got)}" if got >= 0 else f"costs {human_bytes(-got)}"
    text = f"{names}, {one.base.memory_space}): {outcome}"
    if peak.low is None or peak.high is None:
        return f"{text}; {one.reason}, so nothing was promised"
    low = "" if peak.low == peak.high else f"{human_bytes(peak.low)} to "
    verdict = (
        "as promised"
        if peak.is_in_range
        else "more than promised"
        if got > peak.high
        else "less than promised"
    )
    return f"{text}, {verdict} ({low}{human_bytes(peak.high)})"


def _table(one: Verified) -> Result:
    # The headline has the runs and the function.
    return Result(list(COLUMNS.items())[3:], [_cells(one, row)[3:] for row in one.rows])


def _cells(one: Verified, row: Promise) -> tuple[Any, ...]:
    return (
        one.base.run_name, one.new.run_name, one.base.function_name, row.what, row.name,
        row.promised_by, row.kind, row.sureness, row.base_bytes, row.new_bytes, row.low, row.high,
        row.got, row.is_in_range,
    )  # fmt: skip
