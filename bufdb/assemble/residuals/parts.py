"""Needs of stacks as columns of `recompute_parts`: what the same stacks need is one part."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bufdb.columnar.rows import objects, strings
from bufdb.columnar.scan import Columns
from bufdb.memory.needs import Kept, Needs

_LIMIT = 2**63


def columns_of(stacks: Mapping[bytes, Needs]) -> Columns:
    """A row for each stack and each part that it needs.

    Args:
        stacks: by the name of what inserts their slices.
    """
    users: dict[int, list[tuple[str, bytes]]] = {}
    kept: dict[int, Kept] = {}
    counts: dict[int, int | None] = {}
    for name, needs in stacks.items():
        for kind in ("again", "all_again", "kept"):
            for node in getattr(needs, kind):
                users.setdefault(node, []).append((kind, name))
        kept |= needs.kept
        counts |= needs.all_again
    parts: dict[tuple[str | None, tuple[tuple[str, bytes], ...]], list[int]] = {}
    for node in sorted(users):
        line = kept[node].name if node in kept else None
        parts.setdefault((line, tuple(users[node])), []).append(node)
    rows = []
    # By what they are: the numbers of nodes depend on the form of the text.
    in_order = sorted(parts.items(), key=lambda part: (part[0][0] or "", part[0][1]))
    for index, ((line, of), nodes) in enumerate(in_order):
        known = [count for node in nodes if (count := counts.get(node)) is not None]
        total = sum(known) if len(known) == len(nodes) and sum(known) < _LIMIT else None
        for kind, name in of:
            mine = stacks[name].kept if kind == "kept" else {}
            size = sum(mine[node].size_bytes for node in nodes if node in mine)
            cells = (None, size, line) if kind == "kept" else (total, None, None)
            rows.append((name, kind, index, stacks[name].form, *cells))
    if not rows:
        return {}
    names, kinds, indexes, of_forms, totals, sizes, lines = zip(*rows, strict=True)
    return {
        "written_by": strings(names),
        "part_kind": strings(kinds),
        "part_index": np.array(indexes, np.int64),
        "saving_form": strings(of_forms),
        "operation_count": objects(totals),
        "kept_bytes": objects(sizes),
        "kept_name": strings(lines),
    }
