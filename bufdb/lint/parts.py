"""A statement in parts: what would be read too often is computed first, once.

DuckDB computes a CTE that several others read once. Spark and Sail put its text wherever its name
stands, and so do the CTEs that it reads: a few steps of two readers each, and the plan reads tables
ten thousand times, for which their planners have neither the time nor the memory.

Reads and rewrites syntax trees only; runs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlglot import exp

MOST_READS = 100
"""Of tables in one plan. Over plain tables Spark plans 1,300 (query advice), but not 2,200; over a
dataset, of which each read is a join with the owners that count, 1,300 fill a gigabyte in 14
minutes. In eight parts of at most 100 that query takes 75 s there; 50 instead gain nothing."""


def parted(tree: exp.Query) -> list[tuple[str, exp.Query]]:
    """The statement as parts, each with its name; the last one, which has none, is the answer.

    A part reads earlier ones by their names, which are those of the CTEs that they were.

    Args:
        tree: a statement of `bufdb.lint.whole` or `bufdb.lint.spark`, of which a CTE reads none
            but those before it; it stays as it is.
    """
    ctes = {cte.alias: cte.this for cte in tree.ctes}
    body = tree.copy()
    body.set("with_", None)
    readings = {name: _read_names(part) for name, part in {**ctes, "": body}.items()}
    first: set[str] = set()
    while wanted := _most_saving(readings, first):
        first.add(wanted)
    names = [name for name in ctes if name in first]
    return [(name, _with_ctes(ctes[name], ctes, first)) for name in names] + [
        ("", _with_ctes(body, ctes, first))
    ]


def _read_names(tree: exp.Expr) -> Counter[str]:
    """How often a SELECT names each table or CTE."""
    return Counter(table.name for table in tree.find_all(exp.Table))


def _most_saving(readings: Mapping[str, Counter[str]], first: set[str]) -> str | None:
    """The CTE that makes most of the largest part; None where no part is too large."""
    reads: dict[str, int] = {}
    for name, counts in readings.items():
        reads[name] = sum(
            count * (1 if other in first else reads.get(other, 1))
            for other, count in counts.items()
        )
    largest = max((name for name in readings if name in first or not name), key=reads.__getitem__)
    if reads[largest] <= MOST_READS:
        return None
    times = Counter({largest: 1})
    for name in reversed(list(readings)):
        if name == largest or name not in first:
            for other, count in readings[name].items():
                times[other] += count * times[name]
    saving = {
        name: (times[name] - 1) * (reads[name] - 1)
        for name in readings
        if name and name not in first
    }
    best = max(saving, key=saving.__getitem__, default="")
    return best if saving.get(best, 0) > 0 else None


def _with_ctes(body: exp.Expr, ctes: Mapping[str, exp.Expr], first: set[str]) -> exp.Query:
    """A SELECT with the CTEs that it needs, without those that are computed first."""
    needed = set(_read_names(body))
    for name in reversed(list(ctes)):
        if name in needed and name not in first:
            needed |= _read_names(ctes[name]).keys()
    parts = [
        exp.CTE(this=cte.copy(), alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        for name, cte in ctes.items()
        if name in needed and name not in first
    ]
    made = body.copy()
    assert isinstance(made, exp.Query)
    if parts:
        made.set("with_", exp.With(expressions=parts))
    return made
