"""Dumps in place of a database: paths among the arguments of a command that answers.

They are read where the command opens the database, into one in the user's cache.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.errors import UsageError, quote

if TYPE_CHECKING:
    from bufdb.dumps.discover import Source

_PATHS = "bufdb.paths"
"""Key of a context for the paths and what they are, in the order of the command line."""
_DATABASE = "bufdb.database"
"""Key of a context for the database that was made of them."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _keep(context: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> None:
    if context.resilient_parsing:
        return
    context.meta[_PATHS] = [(text, source_of(text)) for text in texts]


def argument_as(metavar: str) -> Decorator:
    """Return the argument that takes dumps to ask instead of a database."""
    return click.argument(
        "paths",
        metavar=metavar,
        nargs=-1,
        type=click.Path(),
        expose_value=False,
        callback=_keep,
    )


argument = argument_as("[PATH]...")


def is_path(text: str) -> bool:
    """Return whether a word of a command line is a place of dumps: a path, a URL or `-`."""
    from bufdb.dumps.remote import is_url

    return text == "-" or os.path.lexists(text) or is_url(text)


def or_name(word: str | None) -> str | None:
    """Return a word that names a module or function; None if it is a path, which is kept."""
    if word is None or not _is_meant(word):
        return word
    click.get_current_context().meta[_PATHS].insert(0, (word, source_of(word)))
    return None


def sides(base: str, new: str) -> tuple[str, str]:
    """Return the runs that two words name; those of the dumps if they are paths, which are kept.

    Raises:
        UsageError: one is a path, and the other is neither that nor a run of the same dumps.
    """
    from bufdb.recording.named_dumps import run_names

    are_paths = _is_meant(base), _is_meant(new)
    if not any(are_paths):
        return base, new
    if not all(are_paths):
        odd = new if are_paths[0] else base
        raise UsageError(f"{quote(odd)} is no path of dumps, and the other side is; give two")
    sources = source_of(base), source_of(new)
    click.get_current_context().meta[_PATHS] = [(base, sources[0]), (new, sources[1])]
    base_run, new_run = run_names(sources)
    return base_run, new_run


def compared(base: str, run: str | None) -> tuple[str, str | None]:
    """Return the run to compare with and the one that is compared, where paths are named.

    Raises:
        UsageError: the side to compare with is a path, and the other is not one path alone.
    """
    if not _is_meant(base):
        return base, run
    named: list[tuple[str, Source]] = click.get_current_context().meta[_PATHS]
    if len(named) > 1 or run is not None:
        raise UsageError(f"{quote(base)} is compared with one path alone")
    return sides(base, named[0][0])


def are_named() -> bool:
    """Return whether paths are named, as far as names are not paths, too."""
    return bool(click.get_current_context().meta.get(_PATHS))


def _is_meant(word: str) -> bool:
    """Return whether a word that may be a name is a path.

    A plain word is a name where there is a database to ask, even if a folder is called so.
    """
    context = click.get_current_context()
    is_plain = os.sep not in word and word not in ("-", ".", "..")
    return is_path(word) and not _names_database(context) and not (
        is_plain and Path(word).is_dir() and Path(context.params["db"]).exists()
    )  # fmt: skip


def _names_database(context: click.Context) -> bool:
    on_command_line = click.core.ParameterSource.COMMANDLINE
    return any(context.get_parameter_source(name) is on_command_line for name in ("db", "on"))


def database(note: Callable[[str], None], own: Callable[[], list[str] | None]) -> str | None:
    """Return the database of the dumps that the command line names; None if it names none.

    Args:
        note: takes what the user should know.
        own: returns what counts as the user's own code.

    Raises:
        UsageError: it names a database, too; or a path holds no dump.
    """
    context = click.get_current_context(silent=True)
    named = [] if context is None else context.meta.get(_PATHS, [])
    if context is None or not named:
        return None
    if _DATABASE not in context.meta:
        context.meta[_DATABASE] = _read(context, dict(named), note, own())
    db: str = context.meta[_DATABASE]
    return db


def _read(
    context: click.Context,
    named: dict[str, Source],
    note: Callable[[str], None],
    own: list[str] | None,
) -> str:
    from bufdb.recording.named_dumps import database_of
    from bufdb.render.progress import progress

    if _names_database(context):
        raise UsageError(
            f"{quote(next(iter(named)))} is read in place of a database, and --db or --on names "
            "one; give one of them"
        )
    observed = partial(progress, "MB", is_quiet=False)
    made = context.with_resource(database_of([*named.values()], observed, own))
    for summary in made.summaries:
        for text in summary.notes:
            note(text)
        if summary.exit_code:
            note(summary.line())
    if "-" not in named:
        line = shlex.join(["bufdb", "ingest", *named])
        context.call_on_close(lambda: note(f"to keep what was read: {line}"))
    return made.db


def source_of(text: str) -> Source:
    """Return a place of dumps.

    Raises:
        UsageError: there is no such path.
    """
    from bufdb.dumps.place import Bytes
    from bufdb.dumps.remote import Url, is_url

    if text == "-":
        return Bytes("stdin", sys.stdin.buffer.read())
    if not is_path(text):
        raise UsageError(f"no file or directory {quote(text)}")
    return Url(text) if is_url(text) else Path(text)
