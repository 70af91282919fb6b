"""Run one command with dumps switched on, and store what it has dumped."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb.capture import ending, process, processes, watched
from bufdb.capture.environment import cached_modules, environment, program_labels, why_nothing
from bufdb.database import faults
from bufdb.dumps.files import Problem
from bufdb.dumps.memory_profiles import LOG, MemoryFile
from bufdb.errors import UsageError
from bufdb.ingest.ingest import ingest
from bufdb.read import allocator_text

if TYPE_CHECKING:
    from bufdb.capture.environment import Environment
    from bufdb.ingest.plan import Progress

MOST_PROCESSES = 8
"""Processes that are named at the end; the run's metadata has all."""


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
    noted: set[str] | None = None,
) -> Captured:
    """Run a command with dumps to a directory, ingest them, and show them with `show`.

    Notes about the environment that are in `noted` are not repeated.

    Raises:
        CommandError: the command cannot be started.
    """
    from bufdb.dumps.refusals import other_spaces

    noted = set() if noted is None else noted
    changed = environment(os.environ, dumps.folder)
    for text in changed.notes:
        if text not in noted:
            dumps.note(text)
        noted.add(text)
    dumps.metadata |= program_labels(command_line, changed)
    written = process.StandardError()
    with _own_folders(dumps, changed.variables) as variables:
        before = max(_max_host_bytes(is_own=True), _max_host_bytes())
        ended = process.run(command_line, variables, written)
        after = _max_host_bytes()
    dumps.metadata["exit_code"] = str(ended.exit_code)
    # Else an earlier command was larger, or bufdb: a child begins with what its parent had.
    if after > before:
        dumps.metadata["max_host_bytes"] = str(after)
    if dumps.is_watched:
        signals = {} if ended.signal is None else {ended.pid: ended.signal}
        ending.note_ended(dumps.folder, signals)
    several = processes.gather(dumps.folder)
    dumps.metadata |= several
    for name, what in list(several.items())[:MOST_PROCESSES]:
        dumps.note(f"{name} is {what}")
    if ended.exit_code and (text := other_spaces(written.text, dumps.folder)):
        # XLA's message about a kernel's memory is not in any dump.
        (dumps.folder / "compiler.log").write_text(text, encoding="utf-8")
    if dumps.is_watched:
        _note_watched(dumps, written.text)
    own_code = _store(dumps, changed, ended.exit_code, show)
    return Captured(ended.exit_code, own_code, ended.is_stopped)


def _max_host_bytes(*, is_own: bool = False) -> int:
    """Return the most memory that one process of the commands until here, or bufdb, has had.

    It is 0 if not known.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return 0
    who = resource.RUSAGE_SELF if is_own else resource.RUSAGE_CHILDREN
    size = resource.getrusage(who).ru_maxrss
    return size if sys.platform == "darwin" else size << 10


@contextmanager
def _own_folders(dumps: Dumps, variables: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """Yield the environment of a command, in which each process of its Pythons has a folder.

    If wanted, they watch themselves.
    """
    with tempfile.TemporaryDirectory(prefix="bufdb-site-") as site:
        changed = processes.environment(
            variables, Path(site), dumps.folder, is_watched=dumps.is_watched
        )
        if dumps.limit_bytes is not None:
            changed[ending.LIMIT] = str(dumps.limit_bytes)
        if dumps.every_seconds is not None:
            changed[ending.EVERY] = str(dumps.every_seconds)
        if dumps.has_holders:
            changed[ending.HOLDERS] = "1"
        yield changed


def _note_watched(dumps: Dumps, printed: str) -> None:
    """Keep the report of the command's allocator with its profiles; note if there are none."""
    profiles = sorted(dumps.folder.rglob(f"{watched.NAME}{watched.PROFILE}"))
    if not profiles and not any(dumps.folder.rglob(f"{watched.NAME}{watched.WATCHED}")):
        dumps.note(
            "no process was watched: the command called no program of JAX, or is not a Python that "
            "imports sitecustomize (python -I, -S, another PYTHONPATH)"
        )
        return
    lines: list[str] = []
    if len(profiles) != 1:
        return  # the report does not name its process
    if allocator_text.read(printed.splitlines(), lines):
        log = profiles[0].with_name(profiles[0].name.removesuffix(watched.PROFILE) + LOG)
        log.write_text("\n".join(lines), encoding="utf-8")


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
    is_watched: bool = False
    """Whether the command's processes write what they hold."""
    every_seconds: float | None = None
    """How often they do while they run; None only at their end."""
    has_holders: bool = False
    """Whether they search for what holds arrays."""
    limit_bytes: int | None = None
    note: Callable[[str], None] = lambda text: None
    """Receives what the user should know, a line or more at a time."""
    observed: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
    """Yields what receives the progress of the ingest."""
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
        self.note(f"the dumps are kept: {shlex.join(again)}")


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
        dumps.note(f"error: {known}")
        return known.exit_code
    return own_code


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
            f"--keep-dumps {keep_dumps} has files already; name a new or an empty directory"
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

    problems: list[Problem] = []
    profiles: list[MemoryFile] = []
    modules = discover(dumps.folder, problems, profiles)
    if (
        not modules
        and not profiles
        and not any(problem.severity == "error" for problem in problems)
    ):
        dumps.note(why_nothing(dumps.folder, changed, code))
        return None
    cached = cached_modules(dumps.folder)
    if cached:
        dumps.note(f"{len(cached)} modules came from a compilation cache and are not in the run")
    with dumps.observed() as observer:
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
        dumps.note(f"replaced run {dumps.run}, which had {done.removed_count} modules")
    # For cached modules, ingest's note says to turn the cache off; for the command it was off.
    for text in [] if cached else done.notes:
        dumps.note(text)
    if not dumps.is_quiet or done.exit_code:
        dumps.note(f"run {dumps.run} in {dumps.db}: {done.line()}")
    return done.exit_code
