"""The command line: finds the command, turns errors into one line and an exit code.

With `bufdb.commands` the only code that prints, exits or imports click. A command's module is
imported when it is named, so that none pays for the imports of another.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading

import click

from bufdb import __version__
from bufdb.commands.examples import with_examples
from bufdb.database import faults
from bufdb.errors import UsageError, did_you_mean, one_line, quote

COMMANDS = {
    "ingest": "bufdb.commands.ingest",
    "capture": "bufdb.commands.capture",
    "explain": "bufdb.commands.explain",
    "summary": "bufdb.commands.summary",
    "advice": "bufdb.commands.advice",
    "show": "bufdb.commands.show",
    "report": "bufdb.commands.report",
    "query": "bufdb.commands.query",
    "queries": "bufdb.commands.queries",
    "sql": "bufdb.commands.sql",
    "schema": "bufdb.commands.schema",
    "check": "bufdb.commands.check",
    "runs": "bufdb.commands.runs",
    "compact": "bufdb.commands.compact",
    "budget": "bufdb.commands.budget",
    "diff": "bufdb.commands.diff",
    "what-if": "bufdb.commands.what_if",
    "export": "bufdb.commands.export",
    "mcp": "bufdb.commands.mcp",
    "lint": "bufdb.commands.lint",
}
"""Module of each command, in the order of --help."""

INTERRUPTED = 130


def keep_lines(command: click.Command) -> click.Command:
    r"""The command, lines below a \b in its docstring shown as they are.

    Click looks for the character; in a raw docstring, as ruff asks for, stand a backslash and a b.
    """
    command.help = (command.help or "").replace("\\b\n", "\b\n")
    return command


class _Commands(click.Group):
    """The commands of COMMANDS, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS and ctx.resilient_parsing:
            return None
        if cmd_name not in COMMANDS:
            hint = did_you_mean(cmd_name, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
            raise UsageError(f"no command {quote(cmd_name)}{hint}")
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        if not command.epilog or "Examples:" not in command.epilog:  # of an earlier call
            with_examples(command, cmd_name)
        return keep_lines(command)


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="bufdb", message="%(prog)s %(version)s")
def bufdb() -> None:
    r"""XLA buffer-assignment dumps as DuckDB tables, with saved SQL queries.

    \b
    Exit codes:
      0    success
      1    a query or an ingest failed, or an invariant does not hold
      2    wrong usage
      3    database missing, in use, damaged, not writable or of another version
      4    ingest finished, but part of a dump was not understood
      130  interrupted
    """


keep_lines(bufdb)


def main() -> None:
    """Entry point of the `bufdb` script."""
    code = run(sys.argv[1:])
    _settle_streams()
    if code != INTERRUPTED:  # a query may still be at work on its thread then
        if threading.active_count() > 1:
            sys.exit(code)
        atexit._run_exitfuncs()
        _settle_streams()
    # Python would first take all modules apart: 45 ms of CPU with NumPy and DuckDB.
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; its exit code."""
    state: dict[str, str] = {}
    try:
        code = bufdb.main(arguments, prog_name="bufdb", standalone_mode=False, obj=state)
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"; try '{error.ctx.command_path} --help'"
        # What an option may be stands in lines of its own, each with a tab before it.
        text = error.format_message().rstrip(".").replace("\n\t", " ")
        _say(f"bufdb: error: {one_line(text)}{hint}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except Exception as error:  # raised again below unless it is known to come from outside
        if faults.is_interrupt(error):
            return _interrupted()
        known = faults.as_known(error, state.get("db"))
        if known is None and not _is_utf8(arguments):
            known = faults.NOT_UTF8
        if known is None:
            raise
        _say(f"bufdb: error: {one_line(str(known))}")
        return known.exit_code
    # Outside standalone mode click hands back the code of ctx.exit(), or what a command returned.
    return code if isinstance(code, int) else 0


def _is_utf8(arguments: list[str]) -> bool:
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        return False
    return True


def _interrupted() -> int:
    _say("bufdb: interrupted")
    return INTERRUPTED


def _say(text: str) -> None:
    """Say it to the user; where standard error takes nothing there is nobody to read it."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def _settle_streams() -> None:
    """Flush what is left; what fails now was said before, and must not fail again at the exit."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
