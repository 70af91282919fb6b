"""The SQL that makes tables, views and macros: a file of `schema/` for each, named after it.

A view or macro can be made once those that it names are there. Its own text says which: there is
no order to keep by hand.
"""

import functools
import hashlib
import re
from collections.abc import Set
from graphlib import TopologicalSorter

import duckdb

from bufdb import resources

TABLES = ("tables",)
"""Folders of what is made once, with the database."""
ASKED = "asked"
"""Folder of the views that read the variables by which saved queries are asked."""
VIEWS = ("macros", "views", "diff", ASKED)
"""Folders of what is made anew when the database has others."""
CATALOG = "bufdb"
"""Name of the attached file in the database in memory that answers questions."""
_COMMENTS = "\nCOMMENT ON "
_PROSE = re.compile(r"--.*|'[^']*'")


def tables() -> dict[str, str]:
    """Name and SQL of each table."""
    return {file.stem: file.read_text(encoding="utf-8") for file in resources.schema_files(*TABLES)}


def module_tables(sql: str) -> list[str]:
    """Names of the tables that a saved query needs, by itself or by views, with rows of modules."""
    known = {name for name, text in tables().items() if "\n  module_id BIGINT NOT NULL" in text}
    return sorted(_named("\n".join([sql, *views(sql, comments=False).values()]), known))


def views(sql: str | None = None, *, comments: bool = True) -> dict[str, str]:
    """Name and SQL of views and macros, in an order in which they can be made.

    Args:
        sql: a saved query, if only what it needs is wanted: what it names, and what that names.
        comments: with their comments.
    """
    files = resources.schema_files(*VIEWS)
    whole = {file.stem: file.read_text(encoding="utf-8") for file in files}
    bare = {name: text.partition(_COMMENTS)[0] for name, text in whole.items()}
    uses: dict[str, set[str]] = {}
    waiting = set(whole) if sql is None else _named(sql, whole.keys())
    while waiting:
        name = waiting.pop()
        uses[name] = _named(bare[name], whole.keys() - {name})
        waiting |= uses[name] - uses.keys()
    texts = whole if comments else bare
    return {name: texts[name] for name in TopologicalSorter(uses).static_order()}


def asked_views(sql: str) -> dict[str, str]:
    """Name and SQL of the views that the SQL needs and that read variables, in order."""
    names = {file.stem for file in resources.schema_files(ASKED)}
    return {name: text for name, text in views(sql, comments=False).items() if name in names}


def _named(sql: str, names: Set[str]) -> set[str]:
    """Those of `names` that the SQL names; prose says nothing of what it uses."""
    return set(re.findall(r"\w+", _PROSE.sub("", sql).lower())) & names


def views_hash() -> str:
    """A hash of the SQL of all views and macros, and of the DuckDB that prints it."""
    return _hash(*VIEWS)


def schema_hash() -> str:
    """A hash of the SQL of all that a database has, and of the DuckDB that makes it."""
    return _hash(*TABLES, *VIEWS)


@functools.cache
def _hash(*folders: str) -> str:
    digest = hashlib.blake2b(duckdb.__version__.encode(), digest_size=16)
    for file in resources.schema_files(*folders):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
