"""`bufdb capture`: run a command, ingest XLA's dumps, show the peaks."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.answers.devices import limit_of
from bufdb.capture import ending
from bufdb.capture.environment import run_name
from bufdb.capture.runner import signals_heeded
from bufdb.capture.simulated import Devices
from bufdb.capture.words import seconds_of
from bufdb.commands import common, summary
from bufdb.errors import UsageError
from bufdb.recording import sweep
from bufdb.recording.command import Dumps, capture, dump_folder
from bufdb.render import FORMATS, formats
from bufdb.render.progress import progress
from bufdb.render.sources import spare
from bufdb.render.text import terminal_safe

if TYPE_CHECKING:
    from bufdb.query.result import Result


@click.command(
    name="capture",
    context_settings={"allow_interspersed_args": False},
    short_help="Run a command and ingest what it compiles.",
)
@click.argument("command_line", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@common.db_option
@click.option("--run", metavar="NAME", help="Name of the run.  [default: the program and the time]")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the run.")
@common.own_option
@click.option(
    "--sweep",
    "sweeps",
    metavar="K=V1,V2,…",
    multiple=True,
    help="Run COMMAND once with each value for {K} in it; if repeated, with every combination.",
)
@common.call_option
@common.devices_options
@common.limit_option
@click.option(
    "--watch",
    "is_watched",
    is_flag=True,
    help="Also write down what the process holds: when memory runs out, else at the end.",
)
@click.option(
    "--watch-every",
    "every",
    metavar="TIME",
    envvar=ending.EVERY,
    help="Also while it runs, every TIME such as 60s or 5m; implies --watch.",
)
@click.option(
    "--watch-holders",
    "has_holders",
    is_flag=True,
    envvar=ending.HOLDERS,
    help="Search for the variables that hold arrays, with Python's gc; implies --watch.",
)
@click.option(
    "--keep-dumps",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Dump to DIR, which must be new or empty, and keep it.",
)
@common.quiet_option
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="table",
    show_default=True,
    help="Format of a table of peaks, which replaces the summary.",
)
@common.output_file("Write the table of peaks to FILE instead of a summary to standard error.")
def command(  # long: a parameter for each option
    command_line: tuple[str, ...],
    db: str,
    run: str | None,
    labels: tuple[str, ...],
    own: tuple[str, ...],
    sweeps: tuple[str, ...],
    call: str | None,
    device_count: int | None,
    mesh: str | None,
    limit: str | None,
    is_watched: bool,
    every: str | None,
    has_holders: bool,
    keep_dumps: Path | None,
    is_quiet: bool,
    format_name: str,
    output: Path | None,
) -> None:
    r"""Run COMMAND, ingest what XLA compiles in it, and show the highest peak.

    \b
      bufdb capture --run b16 --label batch=16 -- python train.py --batch 16

    Standard input and output belong to COMMAND, and signals are passed on to it. bufdb prints to
    standard error: after COMMAND ends a summary, or the table of peaks. If COMMAND fails or is
    interrupted, its dumps until then are ingested.

    XLA's message when it refuses a kernel is in no dump: it is taken from standard error and stored
    with the run.

    With --watch, processes of COMMAND that run Python and JAX write a memory profile into the run:
    when a device first runs out of memory (RESOURCE_EXHAUSTED), else at their end or at SIGTERM.
    'bufdb query process' and the summary show what is alive next to what the program needs, by
    line. With --sweep each run is watched.

    With --watch-every they do so while they run, too: 'bufdb query process-growth' shows what
    grows, and of a process that was killed the last such snapshot is there.

    XLA_FLAGS is extended: XLA dumps to a fresh directory instead of its --xla_dump_to. JAX's
    persistent compilation cache is off, since a hit dumps nothing. Each Python process of COMMAND
    dumps to a folder of its own; if several compile, modules and the run's metadata name them
    process-1, process-2 and so on. A run of the same name is replaced.

    The run gets metadata, which selects it (--run 'exit_code=*') and is listed by 'bufdb runs', but
    does not separate runs that are compared by label: jax and jaxlib (versions; those of the Python
    on PATH if COMMAND is neither a Python nor a script for one), xla_flags, git_commit of the
    working directory (+dirty if files were changed), command (the whole command line: beware of
    secrets) and exit_code. A --label of the same name wins.

    \b
      bufdb capture --sweep batch=8,16,32 --sweep remat=none,full --limit 16GiB \
        -- python train.py --batch {batch} --remat {remat}

    With --sweep, COMMAND is run once for each combination of values, the first --sweep outermost,
    and the values replace their names in braces; write a literal brace twice. Each run is labeled
    with its values and named after them (NAME-8-none); all have the metadata sweep=NAME. A run that
    fails does not stop the others: XLA's plan is in its dumps. Ctrl-C stops and keeps what is
    stored. At the end are the table of peaks, the curves of 'bufdb query scaling', and the largest
    value that fits --limit, as a range. With --call each run is stopped at that call, which is
    compiled instead, and nothing is trained; --devices and --mesh are then as of 'bufdb explain'.

    \b
    Exit codes:
      COMMAND's, 128+N if signal N ended it; 126 and 127 if it cannot be started.
      If that is 0:
      0  the compiled modules are in the database
      2  wrong usage
      3  database in use, damaged, not writable or of another version
      4  nothing was dumped, or part of a dump was not understood
      Dumps that were not stored, or not in full, are kept, and the command to ingest them is shown.
      A sweep ends with the code of its first run that failed; stopped by a signal, with that of the
      stopped run, or 130.
    """
    from bufdb.answers.run_peaks import peaks
    from bufdb.database.store import require_storable

    if not command_line:
        raise UsageError("which command? bufdb capture -- COMMAND...")
    spare("-o", output, command_line)
    given_labels = common.parse_labels(labels)
    is_watched = is_watched or every is not None or has_holders
    limits = limit_of(limit)
    name = run or run_name(command_line, datetime.now(UTC))
    how: dict[str, Any] = {
        "own_globs": common.own_globs(own, command_line),
        "is_quiet": is_quiet,
        "is_watched": is_watched,
        "every_seconds": None if every is None else seconds_of(every),
        "has_holders": has_holders,
        "note": common.note,
        "observed": partial(progress, "MB", is_quiet=is_quiet),
    }
    devices = Devices.of(device_count, mesh, has_target=False)
    _require_stopped(
        call, sweeps, command_line, devices, is_watched=is_watched, keep_dumps=keep_dumps
    )
    if sweeps:
        how |= {
            "call": call,
            "devices": devices,
            "relay": common.relay,
            "db": db,
            "limits": limits,
            "is_timed": common.is_terminal(sys.stderr),
        }
        planned = sweep.plan(command_line, sweeps, given_labels, name, **how)
        require_storable(db)
        code = _sweep(planned, keep_dumps, format_name, output)
        click.get_current_context().exit(code)

    has_summary = format_name == "table" and output is None
    if limit is not None and not has_summary and not is_watched:
        raise UsageError("--limit is for the summary or a --sweep; the table of peaks has no limit")

    def show() -> None:
        if has_summary and is_quiet:
            return
        if has_summary:
            summary.show_after(db, [name], ("lines", "library_lines"), limit)
        else:
            show_result(*peaks(db, name), format_name, output)

    require_storable(db)
    folder = dump_folder(keep_dumps)
    how["limit_bytes"] = limits[0]
    with Dumps(folder, keep_dumps is not None, db, name, given_labels, **how) as dumps:
        done = capture(dumps, command_line, show)
    click.get_current_context().exit(done.code)


def _require_stopped(
    call: str | None,
    sweeps: tuple[str, ...],
    command_line: tuple[str, ...],
    devices: Devices,
    *,
    is_watched: bool,
    keep_dumps: Path | None,
) -> None:
    """Check that --call goes with the other options.

    Raises:
        UsageError: it does not.
    """
    named = [f"--{name}" for name in devices.metadata]
    if call is None and named:
        raise UsageError(f"{' and '.join(named)}: only with --call; a whole command has its own")
    if call is None:
        return
    devices.require(None)
    if not sweeps:
        line = shlex.join(["bufdb", "explain", "--call", call, *devices.words, "--", *command_line])
        raise UsageError(f"--call is for a --sweep; for one run: {line}")
    options = {"--watch": is_watched, "--keep-dumps": keep_dumps is not None}
    if named := [name for name, is_set in options.items() if is_set]:
        raise UsageError(f"{' and '.join(named)}: nothing is run after the call of --call")


def _sweep(
    planned: sweep.Plan, keep_dumps: Path | None, format_name: str, output: Path | None
) -> int:
    """Run the combinations and show how they compare; return the exit code."""
    from bufdb.database import faults

    with nullcontext() if planned.call is None else signals_heeded(), common.failure_shown():
        done, code = sweep.run(planned, keep_dumps)
    try:
        table, notes = sweep.compared(planned, done)
        show_result(table, None, format_name, output)
        for text in notes:
            common.note(text)
    except Exception as error:  # raised again unless it is known to come from outside
        known = faults.as_known(error, planned.db)
        if known is None or faults.is_interrupt(error):
            raise
        common.note(f"error: {known}")
        return code or known.exit_code
    return code


def show_result(result: Result, more: str | None, format_name: str, output: Path | None) -> None:
    """Print a table to standard error, or write it to the file of -o; then note `more`."""
    width = None
    if output is None and sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
    text, _ = formats.render(result, format_name, width)
    if output is not None:
        common.write(text, output)
    else:
        click.echo(terminal_safe(text) if sys.stderr.isatty() else text, nl=False, err=True)
    if more is not None:
        common.note(more)
