"""The command line: finds the command, turns errors into one line and an exit code.

Together with `bufdb.commands`, this is the only code that prints, exits or imports click. A
command's module is imported when it is used, so that no command pays for another's imports.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import sys
import threading
from typing import Any

import click

from bufdb import __version__
from bufdb.database import faults, spill
from bufdb.errors import UsageError, did_you_mean, one_line, quote

# -- Examples at the end of each command's --help; tests/commands/test_examples.py runs them -------

EXAMPLES = {
    "doctor": (
        "bufdb doctor data/oom/gpu.log",
        "bufdb doctor data/demo/gpu_b8",
        "bufdb doctor -- python train.py",
    ),
    "ingest": (
        "bufdb ingest data/demo --run-from-dir",
        "bufdb ingest data/demo/cpu_b16 --run base --label batch=16",
        "bufdb ingest data/demo --run-from-dir --out dataset",
    ),
    "capture": (
        "bufdb capture --run base -- python train.py",
        "bufdb capture --sweep batch=8,16,32 --limit 16GiB -- python train.py --batch {batch}",
        "bufdb capture --watch --limit 16GiB -- python train.py",
    ),
    "upgrade": ("bufdb upgrade --jobs 2", "bufdb upgrade bufdb.duckdb"),
    "profile": (
        "bufdb profile data/profiles/cpu_b8.xplane.pb.gz --run cpu_b8",
        "bufdb profile data/profiles --run cpu_b8 --quiet",
    ),
    "calls": (
        "bufdb calls -- python train.py --batch 16",
        "bufdb calls --all --timeout 600 --format json -- python -m my.train",
    ),
    "explain": (
        "bufdb explain train.py:step --args 'f32[1024,1024], f32[32,1024]'",
        "bufdb explain train.py:step --args 'state(), batch(8)' --target tpu:v5e:2x2",
        "bufdb explain --call '*train_step*' -- python train.py --batch 16",
    ),
    "fit": (
        "bufdb fit train.py:step --args 'args(16)' --limit 14GiB",
        "bufdb fit train.py:step --args 'args(16)' --target tpu:v5e:2x2 --budget-compiles 6",
        "bufdb fit --limit 14GiB --vary batch=16 -- python train.py --batch {batch}",
    ),
    "summary": (
        "bufdb summary data/demo/gpu_b8",
        "bufdb summary --run gpu_b8 --limit 16GiB",
        "bufdb summary --run cpu_b16 --function eval_step --format json",
    ),
    "show": (
        "bufdb show",
        "bufdb show train_step --run gpu_b8 --peak 2",
        "bufdb show init --run cpu_b8 --by op",
    ),
    "report": (
        "bufdb report --run gpu_b8 -o report.html",
        "bufdb report --run cpu_b8 --diff cpu_b8_remat --limit 16GiB -o report.html",
    ),
    "query": (
        "bufdb query advice",
        "bufdb query peak --run gpu_b8 --function train_step --top 5",
        "bufdb query peak-by -p run gpu_b8 -p loops carrier --format csv",
    ),
    "queries": ("bufdb queries", "bufdb queries --format json"),
    "sql": (
        "bufdb sql 'SELECT run_name, function_name, peak_bytes FROM memory_figures'",
        "bufdb sql 'SELECT count(*) AS value_count FROM value_details' --format csv",
    ),
    "schema": (
        "bufdb schema --brief",
        "bufdb schema modules value_details",
        "bufdb schema --format json",
    ),
    "check": ("bufdb check", "bufdb check --examples 10 --format json"),
    "runs": ("bufdb runs", "bufdb runs --help"),
    "runs list": ("bufdb runs list", "bufdb runs list --format json"),
    "runs label": (
        "bufdb runs label cpu_b8 batch=8",
        "bufdb runs label gpu_b8 device='TPU v5e' --metadata",
    ),
    "runs unlabel": ("bufdb runs unlabel cpu_b8 batch", "bufdb runs unlabel gpu_b8 device"),
    "runs remove": ("bufdb runs remove base", "bufdb runs remove cpu_b8 cpu_b16"),
    "compact": ("bufdb compact dataset", "bufdb compact dataset --grace 0"),
    "budget": (
        "bufdb budget budget.toml --run cpu_b8",
        "bufdb budget budget.toml --run cpu_b8 --base cpu_b8_remat --format markdown",
    ),
    "diff": (
        "bufdb diff cpu_b8_remat cpu_b8",
        "bufdb diff cpu_b8 cpu_b16 --function train_step --by source --top 5",
        "bufdb diff cpu_b8_remat cpu_b8 --format markdown -o diff.md",
    ),
    "blame": (
        "bufdb blame cpu_b8 cpu_b8_remat",
        "bufdb blame train.py:step --args 'args(8)' --jax 0.7.1,0.7.2",
    ),
    "what-if": (
        "bufdb what-if train_step --run gpu_b8 --without line:train.py:66",
        "bufdb what-if train_step --run gpu_b8 --keep 1/8 --without 'line:saved *train.py:65'",
        "bufdb what-if train_step --run cpu_b8 --until 5MiB",
    ),
    "verify": (
        "bufdb verify cpu_b8 cpu_b8_remat",
        "bufdb verify cpu_b8 cpu_b8_remat --function train_step --format json",
    ),
    "advice": (
        "bufdb advice",
        "bufdb advice train_step --run gpu_b8 --code",
    ),
    "export": (
        "bufdb export --format parquet -o tables",
        "bufdb export --format speedscope --run gpu_b8 --function train_step -o peak.json",
        "bufdb export --format bundle --run cpu_b8 --anonymize -o bug.duckdb",
    ),
    "mcp": ("bufdb mcp", "bufdb mcp --db runs.duckdb", "bufdb mcp --allow-run ."),
    "skill": ("bufdb skill", "bufdb skill --to .claude/skills"),
    "lint": ("bufdb lint", "bufdb lint query.sql"),
}
"""Example command lines, by command."""


def with_examples(command: click.Command, name: str) -> click.Command:
    """Return the command with its examples at the end of its help, and so its subcommands."""
    lines = "".join(f"\n  {line}" for line in EXAMPLES.get(name, ()))
    if lines:
        before = f"{command.epilog}\n\n" if command.epilog else ""
        command.epilog = f"{before}\b\nExamples:{lines}"
    for below, part in getattr(command, "commands", {}).items():
        with_examples(part, f"{name} {below}")
    return command


# -- The command line: finds the command, turns errors into one line and an exit code --------------

GROUPS = {
    "Begin": {
        "doctor": "Say what to type next, from an error or file.",
    },
    "Read dumps and keep them": {
        "ingest": "Read dumps into the database.",
        "profile": "Read the time of each instruction.",
        "runs": "List, label and remove runs.",
        "upgrade": "Make a database of this version from an older one.",
        "check": "Check invariants of the stored dumps.",
        "compact": "Merge a dataset's many small files into few.",
    },
    "Compile and ingest in one step": {
        "capture": "Run a command and ingest what it compiles.",
        "calls": "List the jitted calls of a command.",
        "explain": "Compile a function, also for a TPU, and summarize it.",
    },
    "Make it fit": {"fit": "Find what to change so that a function fits; patch it."},
    "See a module at a glance": {
        "summary": "Show the highest peak and what holds it.",
        "advice": "Show changes that lower the peak, and code to type.",
        "show": "Draw a module: memory over the program.",
        "report": "Write an offline page: curve, block map, flame graph.",
    },
    "Ask a question": {
        "query": "Answer a saved query.",
        "queries": "List the saved queries.",
        "sql": "Answer your own SELECT.",
        "schema": "Describe the tables, views and macros.",
        "lint": "Check saved queries.",
    },
    "Compare, predict, set limits": {
        "diff": "Compare two runs: what changed, and why.",
        "blame": "Find the version or flag that grew the memory.",
        "what-if": "Predict the peak without some lines or ops.",
        "verify": "Compare what a change brought with what was promised.",
        "budget": "Check a run against a file of memory limits.",
    },
    "Use other tools": {
        "export": "Write tables, flame graphs and traces for other tools.",
        "mcp": "Serve the answers to coding assistants, over stdio.",
        "skill": "Write an instruction file for coding assistants.",
    },
}
"""Commands by what they are for, in the order of --help, with the first sentence of their help.

A page of bufdb/commands/ is about each group. A command is that of the module of its name in
`bufdb.commands`, which --help does not import.
"""
SITUATIONS = (
    ("It failed, of memory?", "bufdb doctor stderr.log"),
    ("It ran out of memory:", "bufdb capture --watch --limit 16GiB -- python train.py"),
    ("It needs more than before:", "bufdb diff OLD_RUN NEW_RUN"),
    ("Will it fit?", "bufdb explain --target v5e-8 --limit 16GiB -- python train.py"),
)
"""The first lines of --help."""
OTHER_WORDS = {
    "bisect": "blame",
    "browse": "report",
    "compare": "diff",
    "compile": "explain",
    "debug": "doctor",
    "diagnose": "doctor",
    "dump": "capture",
    "estimate": "explain",
    "flamegraph": "report",
    "html": "report",
    "import": "ingest",
    "leak": "capture --watch",
    "limit": "budget",
    "load": "ingest",
    "memory": "summary",
    "monitor": "capture --watch",
    "oom": "doctor",
    "optimize": "fit",
    "peak": "summary",
    "plot": "show",
    "predict": "what-if",
    "record": "capture",
    "regression": "blame",
    "remat": "fit",
    "run": "capture",
    "serve": "mcp",
    "stats": "summary",
    "suggest": "advice",
    "tables": "schema",
    "top": "query top-values",
    "view": "show",
    "watch": "capture --watch",
}
"""What people type for a command that has another name."""
COMMANDS = tuple(name for names in GROUPS.values() for name in names)

INTERRUPTED = 130


def keep_lines(command: click.Command) -> click.Command:
    r"""Return the command, with lines below a \b in its docstring shown unchanged.

    Click expects the character; a raw docstring, which ruff requires, has a backslash and a b.
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
            raise UsageError(f"no command {quote(cmd_name)}{_hint(cmd_name)}")
        module = importlib.import_module(f"bufdb.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        if not command.epilog or "Examples:" not in command.epilog:  # not added by an earlier call
            with_examples(command, cmd_name)
        return keep_lines(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in commands.items()])


def _hint(word: str) -> str:
    """Return which command may be meant by a word that is none."""
    if word.lower() in OTHER_WORDS:
        return f"; 'bufdb {OTHER_WORDS[word.lower()]}' may be meant"
    return did_you_mean(word, COMMANDS) or f"; there are {', '.join(COMMANDS)}"


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="bufdb", message="%(prog)s %(version)s")
def bufdb() -> None:
    """XLA buffer-assignment dumps as DuckDB tables, with saved SQL queries."""


_EXIT_CODES = """\b
Exit codes:
  0    success
  1    a query or an ingest failed, or an invariant does not hold
  2    wrong usage
  3    database missing, in use, damaged, not writable or of another version
  4    ingest finished, but part of a dump was not understood
  130  interrupted"""

bufdb.help = "\n".join(
    [f"{bufdb.help}\n\n\b", *(f"{situation:<27}{line}" for situation, line in SITUATIONS)]
)
bufdb.epilog = _EXIT_CODES
keep_lines(bufdb)


def main() -> None:
    """Run the `bufdb` script: its entry point."""
    # What it refers to is not closed, nor are modules torn down: 10 and 45 ms of CPU.
    state: dict[str, Any] = {"last": None}
    code = run(sys.argv[1:], state)
    _settle_streams()
    if code != INTERRUPTED:  # then a query may still be running on its thread
        if threading.active_count() > 1:
            sys.exit(code)
        atexit._run_exitfuncs()
        _settle_streams()
    spill.remove_spilled()
    os._exit(code)


def run(arguments: list[str], state: dict[str, Any] | None = None) -> int:
    """Run one command and return its exit code; `state` has "last" if the process ends with it."""
    state = {} if state is None else state
    try:
        code = bufdb.main(arguments, prog_name="bufdb", standalone_mode=False, obj=state)
    except click.exceptions.NoArgsIsHelpError as error:
        _say(error.format_message())
        return error.exit_code
    except click.ClickException as error:
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"; try '{error.ctx.command_path} --help'"
        # Click puts the choices of an option on separate lines, each after a tab.
        text = error.format_message().rstrip(".").replace("\n\t", " ")
        _say(f"bufdb: error: {one_line(text)}{hint}")
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _interrupted()
    except Exception as error:  # raised again below unless known to come from outside
        if faults.is_interrupt(error):
            return _interrupted()
        known = faults.as_known(error, state.get("db"))
        if known is None and not _is_utf8(arguments):
            known = faults.NOT_UTF8
        if known is None:
            raise
        _say(f"bufdb: error: {one_line(str(known))}")
        return known.exit_code
    # Outside standalone mode click returns the code of ctx.exit(), or the command's result.
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
    """Print a message to standard error, if that can be written."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def _settle_streams() -> None:
    """Flush the streams; a failure was reported before, and must not occur again at exit."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
