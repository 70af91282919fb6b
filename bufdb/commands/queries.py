"""`bufdb queries`: the catalogue, one line per query."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from bufdb.commands import common
from bufdb.query.header import GROUPS, SavedQuery
from bufdb.render import text


@click.command(name="queries", short_help="List the saved queries.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="Format of the list; json holds the whole headers.",
)
@common.queries_option
def command(format_name: str, folders: tuple[Path, ...]) -> None:
    """List the saved queries by group, one line each.

    Files that are not queries, or repeat a name, are skipped with a note on standard error.
    """
    found = common.catalogue(folders)
    queries = found.load_all()
    for problem in found.problems():
        common.note(str(problem))
    writers = {"text": _as_text, "markdown": _as_markdown, "json": _as_json}
    common.write(writers[format_name](queries))


def _groups(queries: Iterable[SavedQuery]) -> Iterator[tuple[str, list[SavedQuery]]]:
    """Yield heading and queries of each non-empty group."""
    for group, members in groupby(queries, key=lambda query: query.group):
        yield GROUPS[group], list(members)


def _as_text(queries: list[SavedQuery]) -> str:
    """Render for a terminal."""
    name_width = max((len(query.name) for query in queries), default=0)
    parts = []
    for heading, members in _groups(queries):
        rows = [["  " + query.name.ljust(name_width), query.title] for query in members]
        parts.append(f"{heading}\n{text.align(rows, [False, False])}")
    return "\n".join(parts)


def _as_markdown(queries: list[SavedQuery]) -> str:
    """Render for a README: a table per group."""
    parts = []
    for heading, members in _groups(queries):
        lines = [f"**{heading}**\n\n| query | what it shows |\n| --- | --- |\n"]
        lines += [
            f"| `{query.name}` | {text.markdown_escape(query.title)} |\n" for query in members
        ]
        parts.append("".join(lines))
    return "\n".join(parts)


def _as_json(queries: list[SavedQuery]) -> str:
    """Render for programs: a list of objects with the fields of `SavedQuery`, less sql and path."""
    objects = [asdict(query) for query in queries]
    for item in objects:
        del item["sql"], item["path"], item["alias"]
    return json.dumps(objects, indent=2, ensure_ascii=False) + "\n"
