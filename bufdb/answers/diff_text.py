"""Two sides next to each other, made readable.

Invariant: `~` is shown where nothing changed and nowhere else; rows cut off are summed up, so that
the figures shown add up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bufdb.answers.diff import MOST_PLACES, TIMED, Comparison, Row, Time
from bufdb.query.result import Result
from bufdb.render import formats
from bufdb.render.text import (
    escape_control,
    human_apart,
    human_bytes,
    human_change,
    human_time,
    markdown_escape,
)

_OF_OPERATIONS = ("op", "source", "stack")
"""Keys whose groups are operations or their source places, including what XLA adds for them."""
_RELATION = re.compile("^(saved |slice of |copy of |for )")


@dataclass(frozen=True)
class Shown:
    """A comparison as text."""

    text: str
    cut: int
    """Cells that had to be shortened."""
    notes: list[str]
    """Notes on what was left out, and how to see it."""


_WIDE = 110
"""Minimum columns at which the names of all unchanged figures have room."""


def text(
    comparison: Comparison, top: int, format_name: str = "table", width: int | None = None
) -> Shown:
    """Return the line of `summary`, the figures, and the parts of the largest changes.

    Args:
        comparison: two sides.
        top: functions, and parts of each, to show.
        format_name: table or markdown.
        width: columns that a table must fit into; None for no limit.
    """
    is_markdown = format_name == "markdown"
    cut = 0

    def table(result: Result) -> str:
        nonlocal cut
        text, cells = formats.render(result, format_name, width)
        cut += cells
        return text

    def line(text: str) -> str:
        return (markdown_escape(text) if is_markdown else escape_control(text)) + "\n"

    def bold(text: str) -> str:
        return f"**{line(text).rstrip()}**\n" if is_markdown else line(text)

    is_narrow = not is_markdown and width is not None and width < _WIDE
    figures, left_out = figures_table(comparison, top, is_narrow=is_narrow)
    blocks = [bold(summary(comparison)), table(figures)]
    unknown = unknown_lines(comparison, top)
    if unknown:
        # In Markdown only an empty line starts a new paragraph.
        blocks.append(("\n" if is_markdown else "").join(line(text) for text in unknown))
    parts = part_tables(comparison, top)
    for heading, result, temps in parts[:MOST_PLACES]:
        body = table(result)
        # Markdown needs an empty line between a paragraph and a table, and after it.
        blocks.append(f"{bold(heading)}\n{body}" if is_markdown else f"{bold(heading)}{body}")
        if temps is not None:
            blocks.append(line(temps))
    notes = [f"{left_out} more functions; --top shows more"] if left_out else []
    more = comparison.more_places + max(0, len(parts) - MOST_PLACES)
    if more:
        least = "at least " if comparison.is_least else ""
        notes.append(f"parts of {least}{more} more functions changed; --function shows them")
    if (note := others(comparison)) is not None:
        notes.append(note)
    return Shown("\n".join(blocks), cut, notes)


def others(comparison: Comparison) -> str | None:
    """Return a note on peaks that changed in other memory spaces ("vmem: +1.20 MiB"), or None."""
    spaces: dict[str, list[str]] = {}
    for name, delta in comparison.other_spaces:
        spaces.setdefault(name, []).append(signed_bytes(delta))
    changes = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in spaces.items())
    return (
        f"peaks of other memory spaces changed: {changes}; --color all shows them"
        if changes
        else None
    )


def summary(comparison: Comparison) -> str:
    """Return one line: the peak that grew (or else shrank) most, its largest part, and the sums.

    "train_step: peak 2.52 MiB → 4.07 MiB (+61.4%), largest: +1.21 MiB dot_general train.py:48; in
    all: grew 1.82 MiB in 2 functions, shrank 3.00 KiB in 1, 4 unchanged".
    """
    peaks = [row for row in comparison.figures if row.figure == "peak"]
    if not peaks:
        return "nothing to compare"
    first = peaks[0]
    if _outcome(first) not in ("grew", "shrank"):
        known = " known" if any(_outcome(row) == "unknown" for row in peaks) else ""
        return f"no{known} peak changed: {_totals(peaks)}"
    line = f"{_subject(first, peaks)}: peak {_from_to(first)}"
    parts = [row for row in comparison.peak_parts if row.place == first.place]
    for cause in moved(parts, first.delta_bytes or 0)[:1]:
        line += f", largest: {signed_bytes(cause.delta_bytes)} {_cause(cause, comparison.key_name)}"
    return f"{line}; in all: {_totals(peaks)}" if len(peaks) > 1 else line


def grown(comparison: Comparison, most: int) -> dict[tuple[str, int | None], str]:
    """Return a sentence for each peak that grew, by its module of new and memory space.

    "train_step: peak 6.10 MiB → 8.49 MiB (+39.3%), largest: +1.53 MiB saved train.py:66, +1.53 MiB
    saved train.py:65 and 3 more", with the `most` largest parts.
    """
    peaks = [row for row in comparison.figures if row.figure == "peak"]
    sentences = {}
    for row in peaks:
        if row.new_module_key is None or (row.delta_bytes or 0) <= 0:
            continue
        parts = [part for part in comparison.peak_parts if part.place == row.place]
        causes = moved(parts, row.delta_bytes or 0)
        named = [
            f"{signed_bytes(cause.delta_bytes)} {_cause(cause, comparison.key_name)}"
            for cause in causes[:most]
        ]
        rest = f" and {len(causes) - most} more" if len(causes) > most else ""
        largest = f", largest: {', '.join(named)}{rest}" if named else ""
        sentence = f"{_subject(row, peaks)}: peak {_from_to(row)}{largest}"
        sentences[row.new_module_key, row.color] = sentence
    return sentences


def _totals(peaks: list[Row]) -> str:
    """Return what grew, shrank or is on one side only, each with its sum, and the other counts.

    Sums are per memory space: "hbm grew 1.24 GiB in 3 functions, shrank 40.0 MiB in 2; vmem …".
    """
    spaces: dict[int | None, dict[str, list[Row]]] = {}
    counts: Counter[str] = Counter()
    for row in peaks:
        outcome = _outcome(row)
        if outcome in ("unknown", "unchanged"):
            counts[outcome] += 1
        elif row.base_bytes is None and row.new_bytes is None:
            counts[f"{outcome} of unknown size"] += 1
        else:
            spaces.setdefault(row.color, {}).setdefault(outcome, []).append(row)
    texts = []
    for outcomes in spaces.values():
        sums = [_sum(outcome, rows) for outcome, rows in outcomes.items()]
        sums[0] += " functions" if _functions(next(iter(outcomes.values()))) > 1 else " function"
        name = f"{_space(next(iter(outcomes.values()))[0])} " if len(spaces) > 1 else ""
        texts.append(name + ", ".join(sums))
    rest = [f"{count} {outcome}" for outcome, count in counts.items()]
    if len(texts) > 1:  # the counts are of all spaces
        return "; ".join([*texts, ", ".join(rest)] if rest else texts)
    return ", ".join([*texts, *rest])


def _sum(outcome: str, rows: list[Row]) -> str:
    one_side = outcome.startswith("only")
    changes = (
        (row.new_bytes or 0) + (row.base_bytes or 0) if one_side else abs(row.delta_bytes or 0)
        for row in rows
    )
    return f"{outcome} {human_bytes(sum(changes))} in {_functions(rows)}"


def _functions(rows: list[Row]) -> int:
    return len({(row.base_function_name, row.new_function_name) for row in rows})


def _outcome(row: Row) -> str:
    """Return what happened to a peak, in the words of the summary."""
    if row.paired_by.startswith("only"):
        return row.paired_by
    return "unchanged" if row.change == "same" else str(row.change)


def _from_to(row: Row) -> str:
    base, new = _sizes(row.base_bytes, row.new_bytes)
    note = "" if row.delta_ratio is None else f" ({human_change(row.delta_ratio, '+')})"
    return f"{base} → {new}{note}"


def moved(parts: Sequence[Row], delta_bytes: int) -> list[Row]:
    """Return the parts of one peak that changed in the direction of a change, the largest first.

    Pairs that only changed their name, as between versions of JAX, are left out: one part vanished
    and one appeared with the same shape, kind of allocation and bytes.
    """
    sign = 1 if delta_bytes > 0 else -1
    other = Counter(map(_alike, (row for row in parts if sign * (row.delta_bytes or 0) < 0)))
    changed = []
    for row in sorted(parts, key=lambda row: -sign * (row.delta_bytes or 0)):
        if sign * (row.delta_bytes or 0) <= 0:
            break
        if row.change in ("appeared", "vanished") and other[_alike(row)]:
            other[_alike(row)] -= 1
        else:
            changed.append(row)
    return changed


def _alike(row: Row) -> tuple[object, ...]:
    is_one_sided = row.change in ("appeared", "vanished")
    shape = row.new_shape if row.change == "appeared" else row.base_shape
    return is_one_sided, shape, row.allocation_kind, abs(row.delta_bytes or 0)


def _cause(row: Row, key_name: str) -> str:
    source = row.new_source or row.base_source
    part = _part(row, key_name)
    return part if source is None or source in part else f"{part} {source}"


def _part(row: Row, key_name: str) -> str:
    """Return the group and any donation; "for X" where XLA adds all of it for X."""
    part = str(row.part)
    if row.change in ("donated", "not donated"):
        count = row.new_value_count if row.change == "donated" else row.base_value_count
        subject = "parameter" if count == 1 else f"{count} parameters"
        # Parts without a name are in parentheses.
        name = "" if part.startswith("(") else f" '{part}'"
        verb = "is" if count == 1 else "are"
        what = "donated now" if row.change == "donated" else "not donated any more"
        return f"{subject}{name} {verb} {what}"
    added = (row.base_added_bytes, row.new_added_bytes)
    if any(added) and added == (row.base_bytes, row.new_bytes) and key_name in _OF_OPERATIONS:
        return f"for {part}"
    return part


def _part_with_added(row: Row, key_name: str) -> str:
    """Return the part, with the bytes that XLA adds for its operation."""
    part = _part(row, key_name)
    added = (row.base_added_bytes, row.new_added_bytes)
    if not any(added) or added == (row.base_bytes, row.new_bytes) or key_name not in _OF_OPERATIONS:
        return part
    return f"{part} (by XLA: {_pair(*_sizes(*added), row)})"


def _name(row: Row) -> str:
    """Return the function; both names if they differ."""
    base, new = (
        # A module without a function is named by its path; its stage is the same for all.
        name
        if name is None or name != key
        else re.sub(r"[.][a-z0-9_.]*after_optimizations$", "", name)
        for name, key in (
            (row.base_function_name, row.base_module_key),
            (row.new_function_name, row.new_module_key),
        )
    )
    if base is None or new is None or base == new:
        return str(new if new is not None else base)
    return f"{base} → {new}"


def _subject(row: Row, peaks: list[Row]) -> str:
    spaces = {other.color for other in peaks}
    return f"{_name(row)} ({_space(row)})" if len(spaces) > 1 else _name(row)


def _space(row: Row) -> str:
    if row.color is None:
        return "-"
    return row.memory_space_name or f"color {row.color}"


def figures_table(
    comparison: Comparison, top: int, *, is_narrow: bool = False
) -> tuple[Result, int]:
    """Return the figures of the first `top` places, and the number of places left out.

    Unchanged figures share one row; with `is_narrow` they are counted instead of named.
    """
    places = [list(rows) for _, rows in groupby(comparison.figures, key=lambda row: row.place)]
    label = labels([rows[0] for rows in places])
    names = ("function", "space", "figure", "base", "new", "delta", "change", "paired by")
    table: list[tuple[Any, ...]] = []
    for rows in places[:top]:
        first = rows[0]
        body: list[tuple[str, ...]] = []
        if first.paired_by.startswith("only"):
            body.append(("peak", *_sides(first), "-", "-"))
        else:
            body.extend(
                (row.figure, *_sides(row), *_delta(row)) for row in rows if row.delta_bytes != 0
            )
            same = [row.figure for row in rows if row.delta_bytes == 0]
            if same:
                body.append((_unchanged(same, rows, is_narrow), "~", "~", "~", "~"))
        for number, cells in enumerate(body):
            head = (label[first.place], _space(first)) if number == 0 else ("", "")
            table.append((*head, *cells, first.paired_by if number == 0 else ""))
    return _result(names, 3, 4, table), max(0, len(places) - top)


def _unchanged(same: list[str], rows: list[Row], is_narrow: bool) -> str:
    if len(same) == len(rows):
        return "all figures"
    return f"{len(same)} others" if is_narrow and len(same) > 1 else ", ".join(same)


def labels(firsts: list[Row]) -> dict[int, str]:
    """Return the label of each place: the function; runs and modules only where ambiguous."""
    sides = [{row.base_run_name for row in firsts}, {row.new_run_name for row in firsts}]
    several = any(len(runs - {None}) > 1 for runs in sides)
    alike = Counter((_name(row), row.color, row.base_run_name, row.new_run_name) for row in firsts)
    labels_by_place = {}
    for row in firsts:
        details = []
        if several:
            details.append(f"{row.base_run_name or '-'} → {row.new_run_name or '-'}")
        if alike[_name(row), row.color, row.base_run_name, row.new_run_name] > 1:
            details.append(f"{_short(row.base_module_key)} → {_short(row.new_module_key)}")
        text = f" [{', '.join(details)}]" if details else ""
        labels_by_place[row.place] = _name(row) + text
    return labels_by_place


def _short(module_key: str | None) -> str:
    """Return the module_NNNN of a module's path, or all of a path that is not XLA's."""
    if module_key is None:
        return "-"
    match = re.search(r"module_[0-9]+", module_key)
    return match[0] if match else module_key


def part_tables(comparison: Comparison, top: int) -> list[tuple[str, Result, str | None]]:
    """Return heading, parts and composition of temps for each place with a changed part."""
    key_name = comparison.key_name
    label = labels([row for row in comparison.figures if row.figure == "peak"])
    figures: dict[int, dict[str, Row]] = {}
    for row in comparison.figures:
        figures.setdefault(row.place, {})[row.figure] = row
    times: dict[int, dict[str | None, Time]] = {}
    whole: dict[int, Time] = {}
    for time in comparison.times:
        if time.is_whole:
            whole[time.place] = time
        else:
            times.setdefault(time.place, {})[time.part] = time
    tables = []
    for place, group in groupby(comparison.peak_parts, key=lambda row: row.place):
        parts = list(group)
        if not any(_is_changed(row) for row in parts):
            continue
        peak = figures[place]["peak"]
        delta = signed_bytes(peak.delta_bytes)
        heading = f"{label[place]}, {_space(peak)}: peak {delta} by {key_name}"
        if place in whole:
            base, new = whole[place].base_ns, whole[place].new_ns
            change = f" ({human_change((new - base) / base, '+')})" if base and new != base else ""
            heading += f"; a run takes {human_time(base)} → {human_time(new)}{change}"
        table = _part_table(peak, parts, key_name, top, times.get(place, {}))
        tables.append((heading, table, _temps(figures[place], parts)))
    return tables


def _time_of(row: Row, times: Mapping[str | None, Time]) -> str:
    """Return how much longer a part takes in a run; '' where it was not timed."""
    time = times.get(_RELATION.sub("", row.part or ""))
    if time is None:
        return ""
    delta = time.new_ns - time.base_ns
    return f"{'+' if delta > 0 else ''}{human_time(delta)}" if delta else "~"


def _part_table(
    peak: Row, parts: list[Row], key_name: str, top: int, times: Mapping[str | None, Time]
) -> Result:
    names: tuple[str, ...] = (
        "change",
        "base",
        "new",
        "delta",
        "kind",
        "values",
        "shape",
        "source",
        "part",
    )
    changed = [row for row in parts if _is_changed(row)]
    rest = changed[top:]
    same = [row for row in parts if not _is_changed(row)]
    table: list[tuple[Any, ...]] = [
        (
            row.change,
            *_sizes(row.base_bytes, row.new_bytes),
            signed_bytes(row.delta_bytes),
            row.allocation_kind,
            _pair(row.base_value_count, row.new_value_count, row),
            _pair(row.base_shape, row.new_shape, row),
            row.new_source or row.base_source,
            _part_with_added(row, key_name),
        )
        for row in changed[:top]
    ]
    for rows, what in ((rest, "smaller"), (same, "unchanged")):
        if rows:
            base = sum(row.base_bytes or 0 for row in rows)
            new = sum(row.new_bytes or 0 for row in rows)
            delta = signed_bytes(new - base) if what == "smaller" else "~"
            cells = (*_sizes(base, new), delta, None, None, None, None, f"{len(rows)} {what}")
            table.append(("", *cells))
    total = (*_sizes(peak.base_bytes, peak.new_bytes), signed_bytes(peak.delta_bytes))
    table.append(("", *total, None, None, None, None, "peak"))
    if times and key_name in TIMED:
        shown = [_time_of(row, times) for row in changed[:top]]
        shown += [""] * (len(table) - len(shown))
        table = [(*row[:4], time, *row[4:]) for row, time in zip(table, shown, strict=True)]
        names = (*names[:4], "time", *names[4:])
    texts = [tuple("" if c is None else c for c in row) for row in table]
    return _result(names, 1, 3 + (len(names) > 9), texts)


def _is_changed(row: Row) -> bool:
    """Return whether a part's bytes differ or it is a donation, which need not change them."""
    return row.delta_bytes != 0 or row.change in ("donated", "not donated")


def _temps(figures: Mapping[str, Row], parts: list[Row]) -> str | None:
    """Return a line on the composition of the temps' change; None if there is none."""
    temps, holes = figures.get("temps"), figures.get("fragmentation")
    if temps is None or holes is None or (temps.delta_bytes == 0 and holes.delta_bytes == 0):
        return None
    held = sum(row.delta_bytes or 0 for row in parts if row.allocation_kind == "temp")
    rest = (temps.delta_bytes or 0) - held - (holes.delta_bytes or 0)
    text = (
        f"temps {signed_bytes(temps.delta_bytes)}: {signed_bytes(held)} in parts of kind temp, "
        f"{signed_bytes(holes.delta_bytes)} fragmentation"
    )
    return f"{text}, {signed_bytes(rest)} not attributed" if rest else text


def _pair(base: object, new: object, row: Row) -> str:
    """Return both sides where they differ, else one; only one for what appeared or vanished."""
    if base == new or row.change in ("appeared", "vanished"):
        shown = base if row.change == "vanished" else new
        return "" if shown is None else str(shown)
    return f"{'-' if base is None else base} → {'-' if new is None else new}"


def _result(
    names: tuple[str, ...], first_number: int, number_count: int, rows: list[tuple[Any, ...]]
) -> Result:
    """Return rows of text for `render`, with the type of a number for right-aligned columns."""
    numbers = range(first_number, first_number + number_count)
    columns = [(name, "BIGINT" if i in numbers else "VARCHAR") for i, name in enumerate(names)]
    return Result(columns, rows)


def unknown_lines(comparison: Comparison, top: int) -> list[str]:
    """Return a line for each of the first `top` places with an unknown peak: whose, and why."""
    peaks = [row for row in comparison.figures if row.figure == "peak"]
    label = labels(peaks)
    return [
        f"{label[row.place]}, {_space(row)}: peak unknown: {row.unknown_reason}"
        for row in peaks[:top]
        if row.unknown_reason is not None
    ]


def _sides(row: Row) -> tuple[str, str]:
    """Return base and new: '-' without a module, 'unknown' where it lacks the figure."""
    sides = ((row.base_bytes, row.base_module_key), (row.new_bytes, row.new_module_key))
    base, new = (
        "unknown" if count is None and key is not None else text
        for (count, key), text in zip(sides, _sizes(row.base_bytes, row.new_bytes), strict=True)
    )
    return base, new


def _delta(row: Row) -> tuple[str, str]:
    if row.unknown_reason is not None:
        return "unknown", "-"
    ratio = "-" if row.delta_ratio is None else human_change(row.delta_ratio, "+")
    return signed_bytes(row.delta_bytes), ratio


def signed_bytes(count: int | None) -> str:
    """Return a change with its sign: '+1.21 MiB', '-4 B', '~' for none, '-' if unknown."""
    if count is None:
        return "-"
    if count == 0:
        return "~"
    return f"{'+' if count > 0 else ''}{human_bytes(count)}"


def _sizes(base: int | None, new: int | None) -> tuple[str, str]:
    """Return both sides with enough digits to differ; '-' if unknown."""
    if base is None or new is None:
        return _size(base), _size(new)
    texts = human_apart([base, new])
    return texts[0], texts[1]


def _size(count: int | None) -> str:
    return "-" if count is None else human_bytes(count)
