"""`bufdb capture`: run a command, ingest XLA's dumps, show the peaks."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.answers.devices import limit_of
from bufdb.capture import process
from bufdb.capture.environment import (
    cached_modules,
    environment,
    is_shared,
    program_labels,
    run_name,
    why_nothing,
)
from bufdb.commands import common, summary
from bufdb.commands.progress import progress
from bufdb.database import faults
from bufdb.dumps.files import Oddity
from bufdb.errors import DatabaseError, UsageError
from bufdb.ingest.ingest import ingest
from bufdb.query.figures import METRICS
from bufdb.query.result import Result
from bufdb.render import FORMATS, formats
from bufdb.render.text import terminal_safe

if TYPE_CHECKING:
    from bufdb.capture.environment import Environment
    from bufdb.query.result import Result

TABLE_ROWS = 20
"""Modules shown at the end, those with the largest need."""


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

    Standard input and output belong to COMMAND; signals are passed on to it. All that bufdb says
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
    and the values stand where it has their names in braces; a literal brace is written twice. Each
    run is labelled with its values and named after them (NAME-8-none); all have the metadata
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
        from bufdb.commands import sweep  # which needs this module

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
            summary.show_after(db, [name], ("lines",), limits)
        else:
            show_result(*_peaks(db, name), format_name, output)

    check_database(db)
    with Dumps(dump_folder(keep_dumps), keep_dumps is not None, db, name, given_labels) as dumps:
        dumps.own_globs, dumps.is_quiet = common.own_globs(own), is_quiet
        done = capture(dumps, command_line, show)
    click.get_current_context().exit(done.code)


@dataclass(frozen=True)
class Captured:
    """The outcome of one command."""

    exit_code: int
    """The command's."""
    own_code: int | None
    """Exit code of bufdb's ingest of the dumps; None if there were none."""
    is_stopped: bool = False
    """Whether bufdb received a signal meant to end the command."""
    is_started: bool = True

    @property
    def is_stored(self) -> bool:
        """Whether dumps of it are in the database, at least in part."""
        return self.own_code in (0, 4)

    @property
    def outcome(self) -> str:
        """The outcome in words."""
        if not self.is_started:
            return "not started"
        names = {None: "nothing dumped", 0: "stored", 4: "stored in part"}
        return names.get(self.own_code, "not stored")

    @property
    def code(self) -> int:
        """The combined exit code of the command and of bufdb."""
        return self.exit_code or (4 if self.own_code is None else self.own_code)


def capture(
    dumps: Dumps,
    command_line: Sequence[str],
    show: Callable[[], None] | None = None,
    said: set[str] | None = None,
) -> Captured:
    """Run a command with dumps to a directory, ingest them, and show them with `show`.

    Notes about the environment that are in `said` are not repeated.

    Raises:
        CommandError: the command cannot be started.
    """
    from bufdb.dumps.pasted import other_spaces

    said = set() if said is None else said
    changed = environment(os.environ, dumps.folder)
    for text in changed.notes:
        if text not in said:
            common.note(text)
        said.add(text)
    dumps.metadata |= program_labels(command_line, changed)
    written = process.Said()
    ended = process.run(command_line, changed.variables, written)
    dumps.metadata["exit_code"] = str(ended.exit_code)
    if ended.exit_code and (text := other_spaces(written.text, dumps.folder)):
        # XLA's message about a kernel's memory is not in any dump.
        (dumps.folder / "compiler.log").write_text(text, encoding="utf-8")
    own_code = _store(dumps, changed, ended.exit_code, show)
    return Captured(ended.exit_code, own_code, ended.is_stopped)


@dataclass
class Dumps:
    """The dump directory; dumps not stored are kept, with a note on how to ingest them."""

    folder: Path
    is_to_keep: bool
    db: str
    run: str
    labels: dict[str, str]
    """Labels given by the user."""
    metadata: dict[str, str] = field(default_factory=dict)
    """What is known about the capture so far."""
    own_globs: list[str] | None = None
    is_quiet: bool = False
    is_stored: bool = False

    def __enter__(self) -> Dumps:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_stored or not _holds_files(self.folder):
            if not self.is_to_keep:
                shutil.rmtree(self.folder, ignore_errors=True)
            return
        pairs = [f"--label={label}={value}" for label, value in self.labels.items()]
        pairs += [f"--metadata={label}={value}" for label, value in self.metadata.items()]
        pairs += [f"--own={glob}" for glob in self.own_globs or ()]
        again = ["bufdb", "ingest", str(self.folder), "--db", self.db, "--run", self.run, *pairs]
        common.note(f"the dumps are kept: {shlex.join(again)}")


def _store(
    dumps: Dumps, changed: Environment, code: int, show: Callable[[], None] | None
) -> int | None:
    """Ingest the dumps and show the result; return the exit code, None without dumps."""
    try:
        own_code = _ingest(dumps, changed, code)
        dumps.is_stored = own_code in (0, None)
        if own_code is not None and show is not None:
            show()
    except Exception as error:  # raised again unless known to come from outside
        known = faults.as_known(error, dumps.db)
        if known is None or faults.is_interrupt(error):
            raise
        common.note(f"error: {known}")
        return known.exit_code
    return own_code


def check_database(db: str) -> None:
    """Check before a long command, not after it, that its results can be stored."""
    from bufdb.database import store

    path = Path(os.path.realpath(db))
    if os.path.lexists(path):
        store.open_writable(db).close()
        return
    try:
        path.touch(exist_ok=False)
        path.unlink()
    except OSError as error:
        folder = Path(db).parent
        reason = error.strerror if folder.is_dir() else f"no directory {folder}"
        raise DatabaseError(f"cannot make {db}: {reason}; name another file with --db") from error


def dump_folder(keep_dumps: Path | None) -> Path:
    """Return a fresh directory as an absolute path: the command may change the current one."""
    if keep_dumps is None:
        return Path(tempfile.mkdtemp(prefix="bufdb-dumps-"))
    try:
        keep_dumps.mkdir(parents=True, exist_ok=True)
        is_empty = not any(keep_dumps.iterdir())
    except OSError as error:
        raise UsageError(f"--keep-dumps {keep_dumps}: {error.strerror}") from error
    if not is_empty:
        raise UsageError(
            f"--keep-dumps {keep_dumps} holds files already; name a new or an empty directory"
        )
    return keep_dumps.absolute()


def _holds_files(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return folder.exists()


def _ingest(dumps: Dumps, changed: Environment, code: int) -> int | None:
    """Ingest the dumps in place of a run of the same name; the exit code, None without dumps."""
    from bufdb.dumps.discover import discover

    oddities: list[Oddity] = []
    modules = discover(dumps.folder, oddities)
    if not modules and not any(oddity.severity == "error" for oddity in oddities):
        common.note(why_nothing(dumps.folder, changed, code))
        return None
    if is_shared(modules):
        common.note(
            "several processes dumped to one directory, where modules of one number and name "
            "overwrite each other; capture one process at a time to have all"
        )
    cached = cached_modules(dumps.folder)
    if cached:
        common.note(f"{len(cached)} modules came out of a compilation cache and are not in the run")
    with progress("MB", is_quiet=dumps.is_quiet) as observer:
        done = ingest(
            dumps.db,
            [dumps.folder],
            run=dumps.run,
            labels=dumps.labels,
            metadata=dumps.metadata,
            replace=True,
            own_globs=dumps.own_globs,
            progress=observer,
        )
    if done.removed_count:
        common.note(f"replaced run {dumps.run}, which had {done.removed_count} modules")
    # For cached modules, ingest's note says to turn the cache off; for the command it was off.
    for text in [] if cached else done.notes:
        common.note(text)
    if not dumps.is_quiet or done.exit_code:
        common.note(f"run {dumps.run} in {dumps.db}: {done.line()}")
    return done.exit_code


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


def _peaks(db: str, name: str) -> tuple[Result, str | None]:
    """Return the modules with the largest needs, and a note on the rest if there are more."""
    from bufdb.database import store
    from bufdb.query import figures

    with store.open_readable(db) as con:
        found = [f for f in figures.of_run(con, name) if f.is_device_memory or f.color is None]
    metrics = ("peak", "need", "arguments", "outputs", "temp", "constants", "fragmentation")
    # An unknown peak may be the highest, so it comes first.
    found.sort(
        key=lambda f: [
            f.values["peak"] is not None,
            *(
                (f.values[metric] is not None, -(f.values[metric] or 0))
                for metric in ("need", "peak")
            ),
        ]
    )
    columns = [
        ("function_name", "VARCHAR"),
        ("memory_space", "VARCHAR"),
        *((METRICS[metric], "HUGEINT") for metric in metrics),
        ("module_key", "VARCHAR"),
        ("unknown_reason", "VARCHAR"),
    ]
    rows = [
        (
            figure.function,
            figure.memory_space or (None if figure.color is None else f"color {figure.color}"),
            *(figure.values[metric] for metric in metrics),
            figure.module_key,
            figure.unknown_reason,
        )
        for figure in found
    ]
    left_out = len(rows[TABLE_ROWS:])
    more = f"{left_out} more rows: bufdb query modules --run {name}" if left_out else None
    return Result(columns, rows[:TABLE_ROWS]), more
