"""Modules that a comparison pairs on request: texts OLD=NEW, checked before they are used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bufdb.errors import UsageError, did_you_mean, listed, quote

if TYPE_CHECKING:
    import duckdb

# Functions first, since most pairs are of functions.
_NAMES = """
SELECT name
FROM (
  SELECT unnest([
    {'name': modules.function_name, 'rank': 0},
    {'name': modules.module_name, 'rank': 1},
    {'name': modules.module_key, 'rank': 2}
  ], recursive := true)
  FROM modules
  JOIN selected_runs($side::VARCHAR) AS runs ON runs.run_name = modules.run_name
)
WHERE name IS NOT NULL
GROUP BY name
ORDER BY min(rank), name"""
_ASKED_PAIRS = """
SELECT paired_by FROM diff_pairs($base::VARCHAR, $new::VARCHAR, $pair::VARCHAR)
WHERE paired_by GLOB 'asked*' LIMIT 1"""
SQL = "\n".join((_NAMES, _ASKED_PAIRS))
"""All SQL of a check."""
_SHOWN = 6
"""Names listed if none is similar."""


def require_pairs(
    con: duckdb.DuckDBPyConnection, base: str, new: str, pairs: Sequence[str], asker: str
) -> None:
    """Check that what is to be paired is in both sides; a side without modules has no names.

    Args:
        con: a database opened for a question.
        base: a run, or LABEL=VALUE.
        new: the same of the other side.
        pairs: texts OLD=NEW.
        asker: how messages begin.

    Raises:
        UsageError: a name is missing or repeated, or the two cannot be compared.
    """
    if not pairs:
        return
    base_names, new_names = (_column(con, _NAMES, side=side) for side in (base, new))
    sides = [_pair(text, base_names, new_names, asker) for text in pairs]
    for names in zip(*sides, strict=True):
        for name, count in Counter(names).items():
            if count > 1:
                raise UsageError(f"{asker}: {quote(name)} is in several pairs")
    for text in pairs:
        if "," in text:  # the separator of pairs
            raise UsageError(f"{asker} {quote(text)}: a name with a comma cannot be asked for")
        if not _column(con, _ASKED_PAIRS, base=base, new=new, pair=text):
            raise UsageError(
                f"{asker} {quote(text)}: both are there, but of another platform, or in runs of "
                "other labels"
            )


def _pair(text: str, base_names: list[str], new_names: list[str], asker: str) -> tuple[str, str]:
    """Return both names of OLD=NEW; a name may itself contain "="."""
    pieces = text.split("=")
    splits = [("=".join(pieces[:n]), "=".join(pieces[n:])) for n in range(1, len(pieces))]
    if not splits:
        raise UsageError(f"{asker}: expected OLD=NEW, found {quote(text)}")
    for old, new in splits:
        if old in base_names and new in new_names:
            return old, new
    old, new = next((both for both in splits if both[0] in base_names), splits[0])
    name, side, names = (old, "BASE", base_names)
    if old in base_names:
        name, side, names = (new, "NEW", new_names)
    hint = did_you_mean(name, names) or f"; there is {listed(names, _SHOWN) or 'none'}"
    raise UsageError(f"{asker}: no function and no module {quote(name)} in {side}{hint}")


def _column(con: duckdb.DuckDBPyConnection, sql: str, **values: str) -> list[Any]:
    return [cell for (cell,) in con.execute(sql, values).fetchall()]
