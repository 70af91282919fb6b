"""The SQL that makes tables, views and macros: a file of `schema/` for each, named after it.

A view or macro can be made once those that it names are there. Its own text says which: there is
no order to keep by hand.
"""

import functools
import os
import re
import textwrap
from collections.abc import Set
from pathlib import Path

from bufdb import __version__, resources
from bufdb.database.digest import blake2b
from bufdb.database.engine import duckdb

TABLES = ("tables",)
"""Folders of what is made once, with the database."""
ASKED = "asked"
"""Folder of the views that read the variables by which saved queries are asked."""
VIEWS = ("macros", "views", "diff", ASKED)
"""Folders of what is made again when the database has others."""
CONSTANT = frozenset(["schema_info", "op_categories", "role_rules", "memory_spaces"])
"""Tables that are bufdb's own: they have rows from the start, and are in no dataset."""
CATALOG = "bufdb"
"""Name of the attached file in the database in memory that answers questions."""
_COMMENTS = "\nCOMMENT ON "
_COMMENT = r"(?m)^COMMENT ON COLUMN \w+\.(\w+) IS\s+'((?:[^']|'')*)';"
_SELECT = r"(?ms)^SELECT(?: DISTINCT)?\n(.*?)^(FROM .*?)(?:^UNION|\Z)"
_CTE = r"(?ms)^(?:WITH )?(\w+) AS \(\n(.*?)^\)"
_COLUMN = r'"?\w+"?\.\w+(?: AS \w+)?'
_COLUMNS = rf"(?m)^  ((?:{_COLUMN}, )*{_COLUMN}),?$"
"""A line of columns alone."""
_FORWARDED = r'(?:^|, )"?(\w+)"?\.(\w+)(?=,|$)'
_SOURCE = r'\b(?:FROM|JOIN) "?(\w+)"?(?: AS (\w+))?'
_PROSE = r"--.*|'[^']*'"


def tables(*, comments: bool = True) -> dict[str, str]:
    """Return name and SQL of each table, with its comments or without."""
    whole = {file.stem: _bytes(file).decode() for file in resources.schema_files(*TABLES)}
    return whole if comments else {name: _bare(text) for name, text in whole.items()}


def module_tables(sql: str) -> list[str]:
    """Return the tables with rows of modules that a saved query needs, by itself or by views."""
    known = {name for name, text in tables().items() if "\n  module_id BIGINT NOT NULL" in text}
    return sorted(_named("\n".join([sql, *views(sql, comments=False).values()]), known))


def views(sql: str | None = None, *, comments: bool = True) -> dict[str, str]:
    """Return name and SQL of views and macros, in an order in which they can be made.

    Args:
        sql: a saved query, if only what it needs is wanted: what it names, and what that names.
        comments: with their comments, and those of columns that a view only forwards.
    """
    files = resources.schema_files(*VIEWS)
    whole = {file.stem: _bytes(file).decode() for file in files}
    bare = {name: _bare(text) for name, text in whole.items()}
    from graphlib import TopologicalSorter  # needed only to make them

    uses: dict[str, set[str]] = {}
    waiting = set(whole) if sql is None else _named(sql, whole.keys())
    while waiting:
        name = waiting.pop()
        uses[name] = _named(bare[name], whole.keys() - {name})
        waiting |= uses[name] - uses.keys()
    ordered = {name: bare[name] for name in TopologicalSorter(uses).static_order()}
    if not comments:
        return ordered
    known = {name: dict(re.findall(_COMMENT, text)) for name, text in {**tables(), **whole}.items()}
    return {name: whole[name] + _inherited(name, text, known) for name, text in ordered.items()}


def asked_views(sql: str) -> dict[str, str]:
    """Return name and SQL of the views that the SQL needs and that read variables, in order."""
    names = {file.stem for file in resources.schema_files(ASKED)}
    return {name: text for name, text in views(sql, comments=False).items() if name in names}


def _bare(text: str) -> str:
    """Return the SQL of one object without its comments."""
    return text.partition(_COMMENTS)[0]


def _inherited(name: str, text: str, known: dict[str, dict[str, str]]) -> str:
    """Comments of the columns that a view has from a table or another view, if it has none itself.

    Args:
        name: the view, or a macro, whose columns have no comments.
        text: its SQL without comments.
        known: comments of columns by object; those that the view inherits are added.
    """
    if f"\nCREATE OR REPLACE VIEW {name} " not in text:
        return ""
    within = dict(known)
    for cte, body in re.findall(_CTE, text):
        within[cte] = _forwarded(textwrap.dedent(body), within)
    comments = {
        column: comment
        for column, comment in _forwarded(text, within).items()
        if column not in known[name]
    }
    known[name] |= comments
    return "".join(
        f"\nCOMMENT ON COLUMN {name}.{column} IS '{comment}';"
        for column, comment in comments.items()
    )


def _forwarded(text: str, known: dict[str, dict[str, str]]) -> dict[str, str]:
    """Comments of the columns that the first SELECT of a text takes as they are."""
    select = re.search(_SELECT, text)
    if select is None:
        return {}
    sources = {alias or source: source for source, alias in re.findall(_SOURCE, select[2])}
    return {
        column: known[sources[alias]][column]
        for columns in re.findall(_COLUMNS, select[1])
        for alias, column in re.findall(_FORWARDED, columns)
        if column in known.get(sources.get(alias, ""), {})
    }


def _named(sql: str, names: Set[str]) -> set[str]:
    """Return those of `names` that the SQL names; prose says nothing of what it uses."""
    return set(re.findall(r"\w+", re.sub(_PROSE, "", sql).lower())) & names


def views_hash() -> str:
    """Return a hash of the SQL of all views and macros, and of what comments and prints it."""
    return _hash(*VIEWS)


@functools.cache
def schema_mark() -> str:
    """Return a mark of the SQL of everything in a database, and of what comments and makes it.

    Files are known by size and time, as Python knows the source of compiled code: to read them all
    takes 5 ms.
    """
    digest = blake2b(f"{duckdb.__version__} {__version__}".encode(), digest_size=16)
    own = Path(__file__)
    for place in (own, own.with_name("ready.py")):
        status = place.stat()
        digest.update(f"{place.name} {status.st_size} {status.st_mtime_ns}\0".encode())
    for folder in resources.schema_folders(*TABLES, *VIEWS):
        with os.scandir(folder) as entries:
            statuses = sorted((entry.name, entry.stat()) for entry in entries)
        for name, status in statuses:
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


@functools.cache
def _bytes(file: Path) -> bytes:
    return file.read_bytes()


@functools.cache
def _hash(*folders: str) -> str:
    digest = blake2b(duckdb.__version__.encode(), digest_size=16)
    # Comments that columns inherit are of this module.
    digest.update(Path(__file__).read_bytes())
    for file in resources.schema_files(*folders):
        digest.update(file.name.encode() + b"\0" + _bytes(file))
    return digest.hexdigest()
