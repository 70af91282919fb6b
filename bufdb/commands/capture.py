"""`bufdb capture`: run a command, ingest XLA's dumps, show the peaks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from bufdb.answers.devices import limit_of
from bufdb.capture.environment import (
    run_name,
)
from bufdb.commands import common, summary, sweep
from bufdb.commands.captured import (
    Dumps,
    capture,
    check_database,
    dump_folder,
    peaks,
    show_result,
)
from bufdb.errors import UsageError
from bufdb.render import FORMATS


@click.command(
    name="capture",
    context_settings={"allow_interspersed_args": False},
    short_help="Run a command and ingest what it compiles.",
)
@click.argument("command_line", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@common.db_option
@click.option("--run", metavar="NAME", help="Name of the run; the program's and the time if none.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the run.")
@common.own_option
@click.option(
    "--sweep",
    "sweeps",
    metavar="K=V1,V2,…",
    multiple=True,
    help="Run COMMAND once with each value for {K} in it; several give every combination.",
)
@common.limit_option
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
    help="Form of the table of peaks, which is shown in place of the summary.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=common.not_dash,
    help="Write the table of peaks to FILE, in place of a summary on standard error.",
)
def command(
    command_line: tuple[str, ...],
    db: str,
    run: str | None,
    labels: tuple[str, ...],
    own: tuple[str, ...],
    sweeps: tuple[str, ...],
    limit: str | None,
    keep_dumps: Path | None,
    is_quiet: bool,
    format_name: str,
    output: Path | None,
) -> None:
    r"""Run COMMAND, ingest what XLA compiles in it, and show the highest peak.

    \b
      bufdb capture --run b16 --label batch=16 -- python train.py --batch 16

    Standard input and output belong to COMMAND; signals are passed on to it. What bufdb says
    goes to standard error: after the end of COMMAND a summary, or the table of peaks. Also when
    COMMAND fails or is interrupted, what was dumped until then is ingested.

    What XLA says when it refuses a kernel is in no dump: it is taken from standard error and stored
    with the run.

    XLA_FLAGS is added to: XLA dumps to a fresh directory, in place of one that --xla_dump_to names
    there. JAX's persistent compilation cache is off, since a hit compiles and so dumps nothing.
    Processes that COMMAND starts dump to the same directory; two that compile overwrite each
    other's dumps, which is noted. A run of the same name is replaced.

    The run gets metadata, which selects it (--run 'exit_code=*') and is listed by 'bufdb runs', but
    keeps no runs apart where those alike in their labels are compared: jax and jaxlib (versions; of
    the Python on PATH if COMMAND is neither a Python nor a script for one), xla_flags, git_commit
    of the working directory (+dirty if files were changed), command (the whole command line: mind
    secrets in it) and exit_code. A --label of the same name goes before them.

    \b
      bufdb capture --sweep batch=8,16,32 --sweep remat=none,full --limit 16GiB \
        -- python train.py --batch {batch} --remat {remat}

    With --sweep COMMAND is run once for each combination of values, the first --sweep outermost,
    and the values replace their names in braces; a literal brace is written twice. Each
    run is labeled with its values and named after them (NAME-8-none); all have the metadata
    sweep=NAME. A run that fails stops no other: what it planned is in its dumps. Ctrl-C stops, and
    what is stored stays. At the end come the table of peaks, the curves that 'bufdb query scaling'
    finds, and the largest value that fits --limit, as a range.

    \b
    Exit codes:
      that of COMMAND, 128+N if signal N ended it; 126 and 127 if it cannot be started.
      If that is 0:
      0  what was compiled is in the database
      2  wrong usage
      3  database in use, damaged, not writable or of another version
      4  nothing was dumped, or part of a dump was not understood
      Dumps that were not stored, or not in full, are kept, and the command to ingest them is shown.
      A sweep has the code of the first of its runs that is not 0; stopped by a signal, that of the
      run that was stopped, or 130.
    """
    if not command_line:
        raise UsageError("which command? bufdb capture -- COMMAND...")
    given_labels = common.parse_labels(labels)
    limits = limit_of(limit)
    name = run or run_name(command_line, datetime.now(UTC))
    if sweeps:
        planned = sweep.plan(command_line, sweeps, given_labels, name, common.own_globs(own))
        planned = replace(planned, is_quiet=is_quiet)
        check_database(db)
        code = sweep.run(planned, db, keep_dumps, limits, format_name, output)
        click.get_current_context().exit(code)

    has_summary = format_name == "table" and output is None
    if limit is not None and not has_summary:
        raise UsageError("--limit is for the summary or a --sweep; the table of peaks has no limit")

    def show() -> None:
        if has_summary and is_quiet:
            return
        if has_summary:
            summary.show_after(db, [name], ("lines",), limit)
        else:
            show_result(*peaks(db, name), format_name, output)

    check_database(db)
    with Dumps(dump_folder(keep_dumps), keep_dumps is not None, db, name, given_labels) as dumps:
        dumps.own_globs, dumps.is_quiet = common.own_globs(own), is_quiet
        done = capture(dumps, command_line, show)
    click.get_current_context().exit(done.code)
