"""The tables, views and macros of a database with their comments, as records and as text."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from bufdb.render.text import align, markdown_escape

if TYPE_CHECKING:
    import duckdb


# --------------------------------------------------------------------------------------------------
# The data model as the database itself describes it: tables, views and macros with their comments.
#
# Renders it as text, Markdown or JSON. Invariant: nothing is said that is not in the database, so a
# user's own tables and views are described in the same way.

HEADINGS = {"table": "Tables", "view": "Views", "macro": "Macros"}


@dataclass(frozen=True)
class Column:
    """A column of a table or view, or a parameter of a macro."""

    name: str
    type: str | None
    """DuckDB type; None for a macro's parameter, which takes any."""
    is_nullable: bool
    """False only for a table's NOT NULL column; views do not record it."""
    comment: str | None


@dataclass(frozen=True)
class Item:
    """A table, view or macro."""

    kind: str
    """table, view or macro."""
    name: str
    comment: str | None
    columns: tuple[Column, ...]


def describe(con: duckdb.DuckDBPyConnection) -> list[Item]:
    """Return all tables, then views, then macros that SQL can name, each in order of name."""
    columns: dict[tuple[str, str], list[Column]] = {}
    for database, table, *cells in con.execute(
        "SELECT database_name, table_name, column_name, data_type, is_nullable, comment "
        "FROM duckdb_columns() WHERE NOT internal ORDER BY table_name, column_index"
    ).fetchall():
        columns.setdefault((database, table), []).append(Column(*cells))
    # A name refers to the connection's current database: `store.open_readable` has bufdb's views
    # there, and attaches a file that may have others of the same name.
    items = {
        (kind == "macro", name): Item(kind, name, comment, tuple(columns.get((database, name), ())))
        for kind, database, name, comment in con.execute(
            "SELECT 'table', database_name, table_name, comment FROM duckdb_tables() "
            "WHERE NOT internal "
            "UNION ALL "
            "SELECT 'view', database_name, view_name, comment FROM duckdb_views() "
            "WHERE NOT internal ORDER BY database_name = current_database()"
        ).fetchall()
    }
    for name, parameters, comment in con.execute(
        "SELECT function_name, parameters, comment FROM duckdb_functions() "
        "WHERE NOT internal AND function_type IN ('macro', 'table_macro') "
        "ORDER BY database_name = current_database()"
    ).fetchall():
        arguments = tuple(Column(parameter, None, True, None) for parameter in parameters)
        items[True, name] = Item("macro", name, comment, arguments)
    kinds = list(HEADINGS)
    return sorted(items.values(), key=lambda item: (kinds.index(item.kind), item.name))


# -- The data model as text, Markdown or JSON ------------------------------------------------------


def as_text(items: Iterable[Item]) -> str:
    """Render for a terminal: name and comment, then one line per column."""
    parts = []
    for item in items:
        comment = textwrap.fill(item.comment or "", 98, initial_indent="  ", subsequent_indent="  ")
        rows = [
            [f"    {column.name}", column.type or "", column.comment or ""]
            for column in item.columns
            if item.kind != "macro"
        ]
        table = align(rows, [False, False, False]) if rows else ""
        parts.append(f"{item.kind} {_signature(item)}\n{comment}\n{table}")
    return "\n".join(parts)


def as_markdown(items: Iterable[Item]) -> str:
    """Render for a README: a heading per kind, a section per table or view, a list of macros."""
    parts = []
    heading = None
    for item in items:
        if item.kind != heading:
            heading = item.kind
            parts.append(f"## {HEADINGS[item.kind]}\n")
        comment = markdown_escape(item.comment or "")
        parts.append(f"### `{_signature(item)}`\n\n{comment}\n")
        if item.columns and item.kind != "macro":
            rows = (
                f"| `{column.name}` | {column.type} | {markdown_escape(column.comment or '')} |\n"
                for column in item.columns
            )
            parts.append("| column | type | meaning |\n| --- | --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def as_json(items: Iterable[Item]) -> str:
    """Render for programs: a list of objects with the fields of `Item` and `Column`."""
    return json.dumps([asdict(item) for item in items], indent=2, ensure_ascii=False) + "\n"


def brief(items: Iterable[Item], format_name: str) -> str:
    """Render only names and comments, as text, markdown or json."""
    chosen = list(items)
    if format_name == "json":
        objects = [{"kind": i.kind, "name": i.name, "comment": i.comment} for i in chosen]
        return json.dumps(objects, indent=2, ensure_ascii=False) + "\n"
    if format_name == "text":
        return as_text(replace(i, columns=()) if i.kind != "macro" else i for i in chosen)
    parts = []
    for kind, members in groupby(chosen, key=lambda item: item.kind):
        rows = (
            f"| `{_signature(item)}` | {markdown_escape(item.comment or '')} |\n"
            for item in members
        )
        verb = "gives" if kind == "macro" else "holds"
        parts.append(f"| {kind} | what it {verb} |\n| --- | --- |\n" + "".join(rows))
    return "\n".join(parts)


def _signature(item: Item) -> str:
    if item.kind != "macro":
        return item.name
    return f"{item.name}({', '.join(column.name for column in item.columns)})"
