"""Remove values: each name alone and all together, or one after another until the peak fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.database.engine import duckdb
from bufdb.memory.donation import Spans, donated
from bufdb.memory.maxima import Steps
from bufdb.memory.needs import Together, together
from bufdb.memory.savings import LARGE_PART
from bufdb.rows.op_names import op_path, strip_op_path
from bufdb.what_if import cost, donation, temps
from bufdb.what_if.donation import Donation
from bufdb.what_if.model import Arena, Height, Model, Need
from bufdb.what_if.module_choice import Choice
from bufdb.what_if.temps import Taken, Temps

INSTANTS = """
SELECT
  instructions.program_order,
  instructions.instruction_name,
  instructions.op_name,
  CASE
    WHEN own_frames.stack_frame_id IS NOT NULL
      THEN own_frames.source_file || ':' || own_frames.source_line
    WHEN is_library_path(instructions.source_file, modules.own_pattern)
      THEN library_source(instructions.source_file, instructions.source_line, modules.own_pattern)
    WHEN stack_frames.stack_frame_id IS NULL
      THEN instructions.source_file || ':' || instructions.source_line
  END
FROM instructions
JOIN modules ON modules.module_id = instructions.module_id
LEFT JOIN stack_frames
  ON stack_frames.module_id = instructions.module_id
  AND stack_frames.stack_frame_id = instructions.stack_frame_id
LEFT JOIN stack_frames AS own_frames
  ON own_frames.module_id = stack_frames.module_id
  AND own_frames.stack_frame_id = stack_frames.own_frame_id
WHERE instructions.module_id = $module_id
  AND list_contains($times, instructions.program_order)
ORDER BY ALL
"""
SQL = f"{temps.SQL}\n{INSTANTS}"
"""The SQL of the answer, besides that for the choice of a module and for donation."""
_NONE = np.empty(0, np.int64)
TOGETHER = "together"
MAX_IDLE = 50
"""Maximum consecutive names that do not lower the peak by themselves on the way to the limit."""


@dataclass(frozen=True)
class Reduction:
    """What to remove."""

    without: Sequence[str] = ()
    """Patterns such as line:GLOB."""
    donate: Sequence[str] = ()
    """Numbers of parameters, or globs of their names."""
    keep: Fraction = Fraction(0)
    """Share of the bytes of `without`, and of names that `until` removes, that stays."""
    until: int | None = None
    """Target in bytes."""
    by: str = "source_line"
    """What `until` removes: source_line, op or value."""
    is_cheapest_first: bool = False
    """Whether `until` first removes what costs least to recompute per byte saved: by measured time
    where the module was timed, else by operations."""


@dataclass(frozen=True)
class Low:
    """The low end of a saving: values are kept instead of those that a scan saves."""

    saving_bytes: int
    """At most the row's saving_bytes."""
    form: str
    """wrap or policy: peak_savings.saving_form."""
    kept_name: str | None
    """Lines whose values are kept."""
    operation_count: int | None


@dataclass(frozen=True)
class Row:
    """One name removed, or all of them."""

    what: str
    """source_line, op, value, donation or TOGETHER."""
    name: str
    held_bytes: int
    """Bytes held at the current peak; for a donation the bytes of the parameter."""
    saving_bytes: int
    """Decrease of the peak; with `until`, after removing what the rows above remove."""
    peak_bytes_without: int
    next_peak_time: int
    is_layer_input: bool = False
    """Whether its values include an input of a scanned layer."""
    dtype: str | None = None
    """Element type of its largest value; None for a tuple's table and for a donation."""
    operation_count: int | None = None
    """Operations to recompute it, counting shared ones once; None if unknown. For values that a
    loop stacks, with the operands of other lines; for others, only of its large values."""
    recompute_ns: int | None = None
    """Measured time of what is executed to recompute it; None without a profile."""
    is_residual: bool = False
    """Whether it includes values that a loop stacks for the backward pass."""
    low: Low | None = None
    """The low end of the saving; None if unknown."""
    need: Need | None = None
    """Memory that a device must have then; None for one of several names: not computed."""


@dataclass(frozen=True)
class Instant:
    """The instruction at an instant."""

    instruction_name: str
    op_path: str | None
    source: str | None


@dataclass(frozen=True)
class Answer:
    """The figures."""

    choice: Choice
    rows: list[Row]
    """One row per name, in the order given, then one for all together; or with `until` in the order
    of removal, the first row for what is removed from the start."""
    instants: dict[int, Instant]
    """Instructions by program order, for the rows whose next peak is at one."""
    refused: list[str]
    """Parameters that cannot be donated, with the reason."""
    fits: bool | None
    """Whether the high end of the need came down to `until`; None without it."""
    ranked_by: str | None = None
    """What `until` ranked names by: time or work, if what costs least went first."""
    nameless: int = 0
    """If the need does not fit, the number of values without a name live at the remaining peak."""

    @property
    def low_saving_bytes(self) -> int | None:
        """The minimum decrease of the peak; None if no row has a low end.

        Rows without values that a loop stacks count with their saving.
        """
        rows = self.rows if self.fits is not None else self.rows[-1:]
        if all(row.low is None for row in rows):
            return None
        return sum(row.saving_bytes if row.low is None else row.low.saving_bytes for row in rows)

    @property
    def left(self) -> Height:
        """The remaining peak."""
        if not self.rows:
            return Height(self.choice.peak_bytes, self.choice.peak_time)
        last = self.rows[-1]
        return Height(last.peak_bytes_without, last.next_peak_time)

    @property
    def need(self) -> Need:
        """The remaining need."""
        need = self.rows[-1].need if self.rows else None
        return need or Need(self.choice.need_bytes, self.choice.need_bytes)


def answer(con: duckdb.DuckDBPyConnection, choice: Choice, reduction: Reduction) -> Answer:
    """Return a module's peak and need after the requested removals and donations.

    Raises:
        UsageError: a requested name does not exist.
        BufdbError: it cannot be computed.
    """
    held = temps.load(con, choice)
    taken = temps.find(held, reduction.without)
    donations = donation.find(con, choice, reduction.donate)
    question = _Question(choice, reduction, held)
    together = question.together(taken, donations.pairs)
    if reduction.until is None:
        rows = [*question.alone(taken), *question.donations(donations.pairs), *together]
        fits = None
    else:
        steps, fits = question.until(reduction.until, taken, donations.pairs)
        rows = [*together, *steps]
    times = sorted({row.next_peak_time for row in rows})
    named = con.execute(INSTANTS, {"module_id": choice.module_id, "times": times}).fetchall()
    instants = {
        time: Instant(name, None if op is None else strip_op_path(op_path(op)), source)
        for time, name, op, source in named
    }
    is_ranked = reduction.until is not None and reduction.is_cheapest_first
    ranked_by = ("time" if held.run_ns else "work") if is_ranked else None
    removal = Answer(choice, rows, instants, donations.refused, fits, ranked_by)
    return (
        removal
        if fits is not False
        else replace(removal, nameless=question.nameless(removal, taken))
    )


def removed(
    choice: Choice,
    held: Temps,
    reduction: Reduction,
    taken: Sequence[Taken],
    pairs: Sequence[Donation],
) -> list[Row]:
    """Return what removing values saves: each name alone, each donation, and all together."""
    question = _Question(choice, reduction, held)
    return [
        *question.alone(taken),
        *question.donations(pairs),
        *question.together(taken, pairs),
    ]


class _Question:
    """The figures of one module."""

    def __init__(self, choice: Choice, reduction: Reduction, held: Temps) -> None:
        self.choice, self.reduction, self.temps = choice, reduction, held
        self.arena = Arena(choice, held, reduction.keep)

    def model(self, donations: Sequence[Donation] = ()) -> Model:
        choice = self.choice
        return Model(
            self.temps, choice.fixed_bytes, choice.schedule_length, donations, self.reduction.keep
        )

    def alone(self, taken: Sequence[Taken]) -> list[Row]:
        model = self.model()
        sets = [one.rows for one in taken]
        heights = model.without(sets)
        return [
            self._row(one.what, one.name, one.rows, (height, low), self.choice.peak_bytes)
            for one, height, low in zip(taken, heights, self._lows(model, sets), strict=True)
        ]

    def donations(self, pairs: Sequence[Donation]) -> list[Row]:
        if not pairs:
            return []
        occupied = self.temps.occupied
        numbers, size = np.arange(len(pairs)), np.array([pair.size_bytes for pair in pairs])
        early = [(number, *span) for number, pair in enumerate(pairs) for span in pair.early]
        spans = Spans(*np.array(early, np.int64).reshape(-1, 3).T)
        # They end when the parameter is free.
        free = np.full(len(pairs), spans.end.max(initial=0) + 1)
        steps = Steps(occupied.group, occupied.time, occupied.occupied)
        donated_peaks = donated(
            steps, occupied.peak, numbers * 0, size, free, spans, numbers, len(pairs)
        )
        cells = zip(
            pairs, donated_peaks.saving, donated_peaks.peak, donated_peaks.peak_time, strict=True
        )
        return [
            Row(
                "donation",
                pair.name,
                pair.size_bytes,
                int(saving),
                self.choice.fixed_bytes + int(peak),
                int(time),
            )
            for pair, saving, peak, time in cells
        ]

    def together(self, taken: Sequence[Taken], pairs: Sequence[Donation]) -> list[Row]:
        """Return one row for everything removed; empty if nothing is."""
        if not taken and not pairs:
            return []
        rows = _union(taken)
        model = self.model(pairs)
        (height,), (low,) = model.without([rows]), self._lows(model, [rows])
        need = self.arena.without(rows, model, height)
        count = len(taken) + len(pairs)
        row = self._row(TOGETHER, f"all {count}", rows, (height, low), self.choice.peak_bytes)
        donated = sum(pair.size_bytes for pair in pairs)
        return [replace(row, held_bytes=row.held_bytes + donated, need=need)]

    def until(
        self, limit: int, taken: Sequence[Taken], pairs: Sequence[Donation]
    ) -> tuple[list[Row], bool]:
        """Remove the name that lowers the peak most, then repeat with the remaining names.

        Stop when the need is certainly within the limit: the high end of its range.

        If no single name lowers the peak, because another instant is as high, remove the one that
        holds most at the first such instant.

        Returns:
            The rows in order of removal, and whether the need came down to the limit.
        """
        rows: list[Row] = []
        model, labels, away = self.model(pairs), self.temps.labels[self.reduction.by], _union(taken)
        plain = _union([one for one in taken if not self._has_stack(one.rows)])
        (height,), (low,) = model.without([away]), self._lows(model, [away], plain)
        ranges = self.temps.ranges
        nothing = not taken and not pairs
        need = self.arena.today if nothing else self.arena.without(away, model, height)
        while need.high_bytes > limit:
            at = height.peak_time
            is_there = (ranges.start <= at) & (at <= ranges.end) & (labels.of_row >= 0)
            is_there[away] = False
            numbers = np.unique(labels.of_row[is_there]).tolist()
            sets = [np.flatnonzero(labels.of_row == number) for number in numbers]
            heights = model.without([np.union1d(away, one) for one in sets])
            done = self._cost(away) if self.reduction.is_cheapest_first else 0
            ranked = sorted(
                zip(heights, numbers, sets, strict=True),
                key=lambda one: (
                    self._price(away, one[2], done, height.peak_bytes - one[0].peak_bytes),
                    one[0].peak_bytes,
                    -self._live_bytes(one[2], at),
                    labels.names[one[1]],
                ),
            )
            idle = next((n for n, row in enumerate(reversed(rows)) if row.saving_bytes), len(rows))
            if not ranked or idle >= MAX_IDLE:
                return rows[: len(rows) - idle], False
            best, number, number_sets = ranked[0]
            name, before = labels.names[number], (height.peak_bytes, low.peak_bytes)
            away = np.union1d(away, number_sets)
            plain = plain if self._has_stack(number_sets) else np.union1d(plain, number_sets)
            (low,) = self._lows(model, [away], plain)
            row = self._row(self.reduction.by, name, number_sets, (best, low), before)
            height, need = best, self.arena.without(away, model, best)
            rows.append(replace(row, need=need))
        return rows, True

    def nameless(self, result: Answer, taken: Sequence[Taken]) -> int:
        """Count the values live at the remaining peak for which `until` has no name."""
        at, ranges = result.left.peak_time, self.temps.ranges
        is_there = (ranges.start <= at) & (at <= ranges.end)
        is_there &= self.temps.labels[self.reduction.by].of_row < 0
        is_there[_union(taken)] = False
        return int(is_there.sum())

    def _price(self, away: Ints, rows: Ints, done: int | None, saving: int) -> Fraction:
        """Return the sort key of a removal: its cost per byte saved, or 0 for all.

        What is recomputed already costs nothing more. Names that save too little would get
        meaningless prices, and come last.
        """
        if not self.reduction.is_cheapest_first:
            return Fraction(0)
        whole = self._cost(np.union1d(away, rows))
        unknown = Fraction(1 << 200)
        if whole is None or done is None or saving <= self.choice.peak_bytes // LARGE_PART:
            return unknown
        return Fraction(whole - done, saving)

    def _cost(self, rows: Ints) -> int | None:
        """Return what it costs to recompute values: nanoseconds if they were timed, else work."""
        of = cost.nanoseconds if self.temps.run_ns else cost.operations
        return of(self.temps, rows)

    def _has_stack(self, rows: Ints) -> bool:
        return any(self.temps.needs[row] is not None for row in rows.tolist())

    def _lows(self, model: Model, sets: Sequence[Ints], plain: Ints = _NONE) -> list[_LowPeak]:
        """Return the peaks without the stacked values of these sets, but with values kept instead.

        Other values stay as they are, since their low end is unknown, except those in `plain`.
        """
        needs = self.temps.needs
        stacks = [[row for row in rows.tolist() if needs[row] is not None] for rows in sets]
        away = []
        for some in stacks:
            gone = [row for row in some if (one := needs[row]) is not None and one.is_gone]
            away.append(np.union1d(np.array(gone, np.int64), plain))
        peaks = []
        for some, height in zip(stacks, model.without(away), strict=True):
            stack_needs = [one for row in some if (one := needs[row]) is not None]
            union = together(stack_needs) if stack_needs else None
            kept = 0 if union is None else union.kept_bytes
            slices = int(self.temps.slice_bytes[some].max()) if some else 0
            peaks.append(_LowPeak(height.peak_bytes + kept + slices, union))
        return peaks

    def _live_bytes(self, rows: Ints, at: int) -> int:
        """Return the bytes of the values that are live at an instant."""
        ranges = self.temps.ranges
        there = rows[(ranges.start[rows] <= at) & (at <= ranges.end[rows])]
        return sum(ranges.size[there].tolist())

    def _row(
        self,
        what: str,
        name: str,
        rows: Ints,
        figures: tuple[Height, _LowPeak],
        before: int | tuple[int, int],
    ) -> Row:
        """Return the figures of a name.

        Args:
            what: the kind of name.
            name: the name.
            rows: the rows of `Temps` that it removes.
            figures: the peak then, and the peak at the low end.
            before: both peaks before the removal.
        """
        height, low = figures
        high_before, low_before = (before, before) if isinstance(before, int) else before
        saving = high_before - height.peak_bytes
        is_input = bool(self.temps.is_layer_input[rows].any())
        largest = max(rows.tolist(), key=lambda row: int(self.temps.ranges.size[row]), default=None)
        least = None
        if self._has_stack(rows) and low.union is not None and not self.reduction.keep:
            union = low.union
            least = Low(
                min(low_before - low.peak_bytes, saving),
                union.form,
                union.kept_name,
                union.low_operation_count,
            )
        return Row(
            what,
            name,
            sum(self.temps.held_bytes[rows].tolist()),
            saving,
            height.peak_bytes,
            height.peak_time,
            is_input,
            None if largest is None else self.temps.dtypes[largest],
            cost.operations(self.temps, rows),
            cost.nanoseconds(self.temps, rows) if self.temps.run_ns else None,
            bool(self.temps.is_residual[rows].any()),
            least,
        )


@dataclass(frozen=True)
class _LowPeak:
    """The peak with values kept instead of stacks."""

    peak_bytes: int
    union: Together | None
    """Requirements for leaving out the stacks; None if there are no stacks."""


def _union(taken: Sequence[Taken]) -> Ints:
    return np.unique(np.concatenate([_NONE, *(one.rows for one in taken)]))
