"""Saved queries as text: the list of all, and the help of one."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from bufdb.query import parameters
from bufdb.query.header import GROUPS, Parameter, SavedQuery
from bufdb.render import text


def _groups(queries: Iterable[SavedQuery]) -> Iterator[tuple[str, list[SavedQuery]]]:
    """Yield heading and queries of each non-empty group."""
    for group, members in groupby(queries, key=lambda query: query.group):
        yield GROUPS[group], list(members)


def as_text(queries: list[SavedQuery]) -> str:
    """Return a list for a terminal: a line for each query, by group."""
    name_width = max((len(query.name) for query in queries), default=0)
    parts = []
    for heading, members in _groups(queries):
        rows = [["  " + query.name.ljust(name_width), query.title] for query in members]
        parts.append(f"{heading}\n{text.align(rows, [False, False])}")
    return "\n".join(parts)


def as_markdown(queries: list[SavedQuery]) -> str:
    """Return the same for a README: a table per group."""
    parts = []
    for heading, members in _groups(queries):
        lines = [f"**{heading}**\n\n| query | what it shows |\n| --- | --- |\n"]
        lines += [
            f"| `{query.name}` | {text.markdown_escape(query.title)} |\n" for query in members
        ]
        parts.append("".join(lines))
    return "\n".join(parts)


def as_json(queries: list[SavedQuery]) -> str:
    """Return JSON: a list of objects with the fields of `SavedQuery`, less sql and path."""
    objects = [query._asdict() for query in queries]
    for item in objects:
        for parts in ("params", "columns", "aliases"):
            item[parts] = [part._asdict() for part in item[parts]]
        del item["sql"], item["path"], item["alias"]
    return json.dumps(objects, indent=2, ensure_ascii=False) + "\n"


def help_text(query: SavedQuery, options: Mapping[str, str]) -> str:
    """Return a query's help, made from its header.

    Args:
        query: the query.
        options: names of parameters by that of the option that abbreviates them.
    """
    parts = [f"{query.name}: {query.title}\n"]
    if query.alias:
        parts.append(f"  Short for: bufdb query {query.alias.text}\n")
    if query.description:
        parts.append(textwrap.indent(query.description, "  ") + "\n")
    if query.wrong_when:
        parts.append("Can be wrong:\n" + _wrapped(query.wrong_when, "  "))
    if query.params:
        lines = (
            f"  {_option(param, options)} {param.type}\n" + _wrapped(_param_text(param), "      ")
            for param in query.params
        )
        parts.append("Parameters:\n" + "".join(lines))
    lines = (
        f"  {column.name} {column.type}\n" + _wrapped(column.text, "      ")
        for column in query.columns
    )
    parts.append("Columns:\n" + "".join(lines))
    if query.aliases:
        lines = (f"  {alias.name} is {alias.text}\n" for alias in query.aliases)
        parts.append("Aliases:\n" + "".join(lines))
    reason = f" ({query.engines_reason})" if query.engines_reason else ""
    parts.append(f"Runs on {', '.join(query.engines)}{reason}. File: {query.path}\n")
    return "\n".join(parts)


def _option(param: Parameter, options: Mapping[str, str]) -> str:
    """Return how to set a parameter, with the option that abbreviates it."""
    short = next((f"--{name}, " for name, of in options.items() if of == param.name), "")
    return f"{short}-p {param.name}"


def _wrapped(text: str, indent: str) -> str:
    lines = textwrap.wrap(text, 96, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def _param_text(param: Parameter) -> str:
    text = param.text
    if param.choices:
        text += f" One of {', '.join(str(choice) for choice in param.choices)}."
    if parameters.is_size(param):
        text += " A unit may follow, as in 32MiB."
    if parameters.is_space(param):
        text += " A name, such as hbm, works where only one platform has it."
    return text if param.default is None else f"{text} [default: {param.default}]"
