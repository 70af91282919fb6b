"""The debug_options file: compiler flags that differ from their default (format section 2.1)."""

from __future__ import annotations


def read(text: bytes) -> tuple[list[tuple[str, str]], list[tuple[int, str]]]:
    """(name, value) of every `name: value` line, and (line number, message) of the others."""
    options, problems = [], []
    for number, line in enumerate(text.decode(errors="replace").split("\n"), 1):
        name, separator, value = line.partition(": ")
        if separator and name:
            options.append((name, value))
        elif line.strip():
            problems.append((number, "expected 'name: value'"))
    return options, problems
