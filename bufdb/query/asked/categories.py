"""A user's rules of what arrays are for the model, from a file: rows that go before bufdb's own.

Invariant: the rules of a file are for one question; nothing of them is stored. Their order is that
of the file, and each comes before all rules in the database.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from bufdb.errors import UsageError, did_you_mean, quote

if TYPE_CHECKING:
    from pathlib import Path

PHASES = "phases"
SUBJECTS = {"parameters": "parameter", "operations": "operation"}
"""Sections of the file with globs for names, and role_rules.subject of each."""

Rows = dict[str, list[tuple[Any, ...]]]
"""Rows of op_categories and role_rules, by table."""


def read(path: Path) -> Rows:
    """Rules from a TOML file, `"GLOB" = "WORD"` under [parameters], [operations] or [phases].

    "" in place of a word says that nothing is known of what the glob matches.

    Raises:
        UsageError: the file cannot be read, is no TOML, or holds something else.
    """
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no TOML: {error}") from error
    known = [*SUBJECTS, PHASES]
    for section in document:
        if section not in known:
            hint = did_you_mean(section, known)
            wanted = "], [".join(known)
            raise UsageError(f"{path}: expected [{wanted}], found {quote(section)}{hint}")
    phases = [(glob, None, word) for glob, word in _rules(path, PHASES, document)]
    roles = [
        (subject, glob, word)
        for section, subject in SUBJECTS.items()
        for glob, word in _rules(path, section, document)
    ]
    return {"op_categories": _numbered(phases), "role_rules": _numbered(roles)}


def _rules(path: Path, section: str, document: dict[str, Any]) -> list[tuple[str, str | None]]:
    """The globs of a section with their words; None for an empty one."""
    table = document.get(section, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected a table [{section}], found {quote(str(table))}")
    for glob, word in table.items():
        if not isinstance(word, str):
            raise UsageError(
                f'{path}: [{section}]: expected "GLOB" = "WORD", found {quote(str(word))} for '
                f"{quote(glob)}"
            )
    return [(glob, word or None) for glob, word in table.items()]


def _numbered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows with a number below 0 each, in their order: rule_order."""
    return [(order, *row) for order, row in enumerate(rows, -len(rows))]
