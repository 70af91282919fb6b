"""What it costs to compute values again: operations by shapes, or time by a profile."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.memory.needs import Needs, operation_count
from bufdb.what_if.temps import Temps


def _counted(held: Temps, rows: Ints) -> Iterator[list[int]]:
    """Yield the values of each large buffer that no loop stacks, except of lines with stacks.

    Those of such a line are operands of its stack, and computed with it.
    """
    of_line = held.labels["source_line"].of_row
    lines = {int(of_line[row]) for row in rows.tolist() if held.needs[row] is not None}
    for buffer in np.unique(held.buffer[rows]).tolist():
        buffer_rows = rows[held.buffer[rows] == buffer]
        is_counted = int(held.ranges.size[buffer_rows].max()) >= held.least_counted
        if is_counted and (of_line[buffer] < 0 or int(of_line[buffer]) not in lines):
            yield buffer_rows.tolist()


def operations(held: Temps, rows: Ints) -> int | None:
    """Count operations to recompute values, those of one instruction once."""
    needs = [one for row in rows.tolist() if (one := held.needs[row]) is not None]
    total = operation_count(one.all_again for one in needs) if needs else 0
    alone: dict[frozenset[str | None] | int, int] = {}
    for counted in _counted(held, rows):
        known = [held.operation_counts[row] for row in counted]
        counts = [count for count in known if count is not None]
        if not counts:
            return None
        makers = frozenset[str | None]().union(*(held.makers[row] for row in counted))
        # Values of one kernel share its work; of several kernels shapes do not say what.
        key = makers if len(makers) == 1 and None not in makers else counted[0]
        alone[key] = max(alone.get(key, 0), *counts)
    return None if total is None else total + sum(alone.values())


def _is_work(needs: Needs) -> bool:
    """Return whether a stack takes work to compute again: the input of a layer is kept as it is."""
    return any(count != 0 for count in needs.all_again.values())


def nanoseconds(held: Temps, rows: Ints) -> int | None:
    """Return how long what computes values takes in a run, each instruction once.

    None if one was not timed, or is not known.
    """
    names: set[str | None] = set()
    stacks = [[row] for row in rows.tolist() if (one := held.needs[row]) and _is_work(one)]
    for rows_of_one in (*stacks, *_counted(held, rows)):
        makers = frozenset[str | None]().union(*(held.makers[row] for row in rows_of_one))
        if not makers:
            return None
        names |= makers
    times = [held.run_ns.get(name) if name is not None else None for name in names]
    known = [time for time in times if time is not None]
    return sum(known) if len(known) == len(times) else None
