"""The command line: finds the command, turns errors into one line and an exit code.

With `bufdb.commands` the only code that prints, exits or imports click. A command's module is
imported when it is named, so that none pays for the imports of another.
"""

from __future__ import annotations

import importlib
import os
import sys

import click

from bufdb import __version__
from bufdb.errors import BufdbError, UsageError, quote
from bufdb.render import escape_control
from bufdb.saved_query import suggestion

COMMANDS = {
    "ingest": "bufdb.commands.ingest",
    "capture": "bufdb.commands.capture",
    "query": "bufdb.commands.query",
    "queries": "bufdb.commands.queries",
    "sql": "bufdb.commands.sql",
    "schema": "bufdb.commands.schema",
    "check": "bufdb.commands.check",
    "runs": "bufdb.commands.runs",
    "budget": "bufdb.commands.budget",
    "diff": "bufdb.commands.diff",
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

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        if cmd_name not in COMMANDS:
            hint = suggestion(cmd_name, COMMANDS) or f"; there are {', '.join(COMMANDS)}"
            raise UsageError(f"no command {quote(cmd_name)}{hint}")
        command: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
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
      3    database missing, in use or of another version
      4    ingest finished, but part of a dump was not understood
      130  interrupted
    """


keep_lines(bufdb)


def main() -> None:
    """Entry point of the `bufdb` script."""
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        # A query may still be at work on its thread, and a normal exit would wait for it.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; its exit code."""
    try:
        code = bufdb.main(arguments, prog_name="bufdb", standalone_mode=False)
    except BufdbError as error:
        # A message may quote a dump, a path or the SQL of a file that somebody sent.
        click.echo(f"bufdb: error: {escape_control(str(error))}", err=True)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"; try '{error.ctx.command_path} --help'"
        message = escape_control(error.format_message().rstrip("."))
        click.echo(f"bufdb: error: {message}{hint}", err=True)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt, RuntimeError) as error:
        # What DuckDB makes of Ctrl-C while it is at work.
        if type(error) is RuntimeError and str(error) != "Query interrupted":
            raise
        click.echo("bufdb: interrupted", err=True)
        return INTERRUPTED
    # Outside standalone mode click hands back the code of ctx.exit(), or what a command returned.
    return code if isinstance(code, int) else 0
