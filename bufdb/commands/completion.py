"""Shell completion of queries, their parameters, and names in the database.

Completion must not wait or show errors: without a database that can be opened at once, it offers
nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from bufdb.commands import common
from bufdb.database.patience import PATIENCE, Patience
from bufdb.errors import BufdbError
from bufdb.query.header import QueryFileError, SavedQuery
from bufdb.query.parameters import Known

OPEN_PARAMETER = "bufdb.open_parameter"
"""Key of the context's meta: the NAME of a -p at the end of the line that has no VALUE yet."""
_PLAIN = r"[\w./+@%:,][\w./+@%:,=-]*"
"""Characters that every shell reads as a plain word: bash inserts a completion unquoted, and would
run `$(...)`, or end the command at `;`. Names with other characters are not offered."""
_HELD = ("run", "function", "module", "platform", "color")

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def query_name(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of saved queries with their titles; aliases too once something is typed."""
    items = []
    try:
        saved = common.catalogue(ctx.params.get("folders") or ())
    except BufdbError:
        return []
    for name in [*saved.paths, *(saved.aliases if incomplete else ())]:
        if name.startswith(incomplete.replace("_", "-")) and re.fullmatch(_PLAIN, name):
            try:
                query = saved.find(name)
            except QueryFileError:
                continue
            text = query.alias.text if query.alias else query.title
            items.append(CompletionItem(name, help=_printable(text)))
    return items


def known(*kinds: str) -> Completer:
    """Return a completer of names in the database: run (with labels), function, module."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _items([name for kind in kinds for name in _names(ctx, kind)], incomplete)

    return complete


run_name = known("run name")
"""Completes names of runs, where a label is not accepted."""

_FILTERS = (
    ("run", "Only runs whose name, or LABEL=VALUE, matches this glob."),
    ("function", "Only jitted functions that match this glob."),
    ("module", "Only modules whose key matches this glob."),
)


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --run, --function and --module, for commands that filter modules."""
    for name, text in reversed(_FILTERS):
        option = click.option(
            f"--{name}", metavar=name.upper(), shell_complete=known(name), help=text
        )
        function = option(function)
    return function


color_option = click.option(
    "--color",
    metavar="N",
    shell_complete=known("color"),
    help="Memory space: its number, its name or all.  [default: the device's own]",
)
"""For commands that are about the device's memory unless another space is given."""


def parameter(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete -p: the query's parameters, or after a name, its values if they are known."""
    query = _query(ctx)
    if query is None:
        return []
    name = ctx.meta.get(OPEN_PARAMETER)
    if name is not None:
        return _items(_values(ctx, query, name), incomplete)
    name, equals, *_rest = incomplete.partition("=")
    if equals:
        return _items([f"{name}={value}" for value in _values(ctx, query, name)], incomplete)
    return [
        CompletionItem(param.name, help=_printable(param.text))
        for param in query.params
        if param.name.startswith(incomplete.replace("-", "_")) and re.fullmatch(_PLAIN, param.name)
    ]


def _values(ctx: click.Context, query: SavedQuery, name: str) -> list[str]:
    param = query.param(name.replace("-", "_"))
    if param is None:
        return []
    if param.choices:
        return [str(choice) for choice in param.choices]
    if param.type == "BOOLEAN":
        return ["true", "false"]
    kind = "run" if param.name in ("base", "new") else param.name
    return _names(ctx, kind) if kind in _HELD else []


def _query(ctx: click.Context) -> SavedQuery | None:
    try:
        saved = common.catalogue(ctx.params.get("folders") or ())
        return saved.find(ctx.params.get("name") or "")
    except BufdbError:
        return None


def _names(ctx: click.Context, kind: str) -> list[str]:
    """Return names in the database; empty if it cannot be opened at once."""
    import duckdb

    path = ctx.params.get("db") or os.environ.get("BUFDB_DB") or common.DEFAULT_DATABASE
    if not Path(path).is_file():
        return []
    token = PATIENCE.set(Patience(0, lambda _: None))
    try:
        held = Known(common.open_database(path, ""))
        if kind == "run name":
            return held.runs()
        if kind == "run":
            return held.selectors()
        if kind == "color":
            return [name for *_, name in held.spaces(held.names("platform"))]
        return held.names(kind)
    except (BufdbError, duckdb.Error):
        return []
    finally:
        PATIENCE.reset(token)


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(name)
        for name in dict.fromkeys(names)
        if name.startswith(incomplete) and re.fullmatch(_PLAIN, name)
    ]


def _printable(text: str) -> str:
    """Return a text of a query's header, which may be of any file, safe for a shell to show."""
    return "".join(char if char.isprintable() else " " for char in text)
