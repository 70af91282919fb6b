"""`bufdb doctor`: what an error, a file or a folder is, and the command to type next."""

from __future__ import annotations

import json
import os
import stat
import sys
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.commands import common, paths

if TYPE_CHECKING:
    from bufdb.dumps.discover import Source


@click.command(
    name="doctor",
    cls=common.WithCommand,
    short_help="Say what to type next, from an error or file.",
)
@click.argument("path", required=False, metavar="[PATH] | -- COMMAND...", type=click.Path())
@common.text_or_json_option
@common.output_option
def command(path: str | None, format_name: str, output: Path | None) -> None:
    r"""Say what a text, a file or a folder is, what is known of it, and the command to type next.

    \b
      python train.py 2>&1 | bufdb doctor
      bufdb doctor stderr.log
      bufdb doctor

    PATH is a log with an error or a traceback, a folder or an archive of XLA's dumps, a program, or
    - for standard input. Without it the question is about what comes through a pipe, else about the
    working directory. A COMMAND that failed is not run.

    \b
    Exit codes:
      0  answered
      2  it is nothing that bufdb knows
    """
    from bufdb.recording.diagnosis import diagnosis
    from bufdb.recording.named_dumps import database_of

    source = _source(path) if common.words_after() is None else None
    with ExitStack() as stack:

        def database() -> str:
            assert source is not None
            return stack.enter_context(database_of([source], nullcontext)).db

        answer = diagnosis(source, common.words_after(), common.DEFAULT_DATABASE, database)
    text = f"{json.dumps(asdict(answer), indent=2)}\n" if format_name == "json" else answer.text()
    common.write(text, output)


def _source(path: str | None) -> Source | None:
    """Return what is asked about; None for the working directory."""
    if path is None and not _is_piped():
        return None
    source = paths.source_of("-" if path is None else path)
    is_nothing = path is None and not getattr(source, "content", b"")
    return None if is_nothing else source


def _is_piped() -> bool:
    """Return whether standard input is a pipe or a file."""
    if sys.stdin is None or sys.stdin.closed:
        return False
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
