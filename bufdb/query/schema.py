"""The data model as the database itself describes it: tables, views and macros with their comments.

Renders it as text, Markdown or JSON. Invariant: nothing is said that is not in the database, so a
user's own tables and views are described in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


HEADINGS = {"table": "Tables", "view": "Views", "macro": "Macros"}


@dataclass(frozen=True)
class Column:
    """A column of a table or view, or a parameter of a macro."""

    name: str
    type: str | None
    """DuckDB type; None for a macro's parameter, which takes any."""
    is_nullable: bool
    """False only for a table's NOT NULL column: a view does not know."""
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
    """All tables, then views, then macros that SQL can name, each in order of name."""
    columns: dict[tuple[str, str], list[Column]] = {}
    for database, table, *cells in con.execute(
        "SELECT database_name, table_name, column_name, data_type, is_nullable, comment "
        "FROM duckdb_columns() WHERE NOT internal ORDER BY table_name, column_index"
    ).fetchall():
        columns.setdefault((database, table), []).append(Column(*cells))
    # A name means what is in the database that the connection itself is of: `store.open_readable`
    # has bufdb's views there, and attaches a file that may have others of the same name.
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
