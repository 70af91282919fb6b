"""Programs whose lines say which arrays are theirs: `#: 24 ~40` (data/model/loops.py)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb

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


MADE_IN = {
    "layers": ["_layer"],
    "layers_named": ["_layer"],
    "accumulated": ["_layer", "accumulated"],
    "nested": ["nested"],
    "decode": ["decode"],
}
"""The functions of data/model/loops.py whose marks hold for a program."""
UNMARKED = {
    # A cotangent of x is also summed up on the line of the norm; so are its row sums.
    ("attention_scan", 36, "add_any"),
    ("attention_scan", 36, "reduce_sum"),
    # Of (2, 130, 4, 24) one 96 is made, which is not the width of the model.
    ("attention_scan", 43, "dot_general"),
    ("attention_scan", 43, "transpose"),
    # The gradient of the embedding is scattered where it was looked up.
    ("decoder_xent", 227, "scatter-add"),
    # Indices of the tokens: 128 of them, as there are sums.
    ("decoder_xent", 233, "select_n"),
    # The new weights take the bytes of the gradients, outside the loop.
    ("grad_accumulation", 113, "sub"),
}
"""(program, line, operation) that no mark names and that were found to be right by hand."""


def marks(path: Path) -> dict[tuple[str, str], set[int]]:
    """Return lines by top-level function and mark (a size, or `~` and a size)."""
    lines: dict[tuple[str, str], set[int]] = {}
    function = ""
    for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
        if name := re.match(r"def (\w+)", text):
            function = name[1]
        if mark := re.search(r"#:([ ~\d]+)$", text):
            for size in mark[1].split():
                lines.setdefault((function, size), set()).add(number)
    return lines


def right_lines(
    lines: dict[tuple[str, str], set[int]], functions: list[str], shape: str, op_name: str | None
) -> set[int]:
    """Return the lines that an array of this shape may have; none if no mark has one of its sizes.

    A cotangent, recognized by its op_name, may have a line that uses the array.
    """
    array = re.match(r"\w+\[([\d,]+)\]", shape)
    numbers: set[int] = set()
    for size in array[1].split(",") if array else ():
        for function in functions:
            numbers |= lines.get((function, size), set())
            if "transpose(" in (op_name or ""):
                numbers |= lines.get((function, "~" + size), set())
    return numbers


def rows(db: Path) -> list[dict]:
    """Return every origin in a database."""
    with duckdb.connect(str(db), read_only=True) as con:
        cursor = con.execute(ORIGINS)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def judge(origins: list[dict], lines: dict, made_in: Callable) -> tuple[int, set]:
    """Count rows with a right line; collect wrong ones, unless a parameter with its own name."""
    right, wrong = 0, set()
    for row in origins:
        wanted = right_lines(lines, made_in(row["function_name"]), row["shape"], row["op_name"])
        if not wanted or row["line"] in wanted:
            right += bool(wanted)
        elif row["line"] is not None or "/" in (row["op_name"] or "/"):
            wrong.add((row["function_name"], row["line"], row["op_name"].rpartition("/")[2]))
    return right, wrong
