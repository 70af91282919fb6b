"""The data model as text, Markdown or JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import groupby

from bufdb.query.schema import HEADINGS, Item
from bufdb.report.text import align, markdown_escape


def as_text(items: Iterable[Item]) -> str:
    """For a terminal: name and comment, below it one line per column."""
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
    """For a README: a heading per kind, a section per table or view, a list of macros."""
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
    """For programs: a list of objects with the fields of `Item` and `Column`."""
    return json.dumps([asdict(item) for item in items], indent=2, ensure_ascii=False) + "\n"


def brief(items: Iterable[Item], format_name: str) -> str:
    """Names and comments alone, as text, markdown or json."""
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
