"""Programs whose lines say which arrays are theirs: `#: 24 ~40` (data/model/loops.py)."""

from __future__ import annotations

import re
from pathlib import Path

ORIGINS = """
SELECT
  modules.run_name,
  modules.function_name,
  value_origins.value_id,
  "values".instruction_name,
  "values".shape,
  "values".size_bytes,
  value_origins.origin_kind,
  value_origins.op_name,
  value_origins.is_layer_input,
  CASE
    WHEN value_origins.stack_frame_id IS NOT NULL THEN own_frames.source_line
    WHEN NOT is_library_path(value_origins.source_file, modules.own_pattern)
      THEN value_origins.source_line
  END AS line
FROM value_origins
JOIN modules ON modules.module_id = value_origins.module_id
JOIN "values"
  ON "values".module_id = value_origins.module_id
  AND "values".value_id = value_origins.value_id
LEFT JOIN stack_frames
  ON stack_frames.module_id = value_origins.module_id
  AND stack_frames.stack_frame_id = value_origins.stack_frame_id
LEFT JOIN stack_frames AS own_frames
  ON own_frames.module_id = stack_frames.module_id
  AND own_frames.stack_frame_id = stack_frames.own_frame_id
ORDER BY ALL
"""
"""Every origin with the line of the user's."""


def marks(path: Path) -> dict[tuple[str, str], set[int]]:
    """Return lines by top-level function and mark (a size, or `~` and a size)."""
    found: dict[tuple[str, str], set[int]] = {}
    function = ""
    for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
        if name := re.match(r"def (\w+)", text):
            function = name[1]
        if mark := re.search(r"#:([ ~\d]+)$", text):
            for size in mark[1].split():
                found.setdefault((function, size), set()).add(number)
    return found


def right_lines(
    lines: dict[tuple[str, str], set[int]], functions: list[str], shape: str, op_name: str | None
) -> set[int]:
    """Return the lines that an array of this shape may have; none if no mark has one of its sizes.

    A cotangent, recognized by its op_name, may have a line that uses the array.
    """
    array = re.match(r"\w+\[([\d,]+)\]", shape)
    found: set[int] = set()
    for size in array[1].split(",") if array else ():
        for function in functions:
            found |= lines.get((function, size), set())
            if "transpose(" in (op_name or ""):
                found |= lines.get((function, "~" + size), set())
    return found
