"""An ingest as it is asked for and its result; the modules of every run; progress."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb.dumps import memory_profiles
from bufdb.dumps.archives import is_archive
from bufdb.dumps.discover import Source, base_of, discover
from bufdb.dumps.files import BLOCK_BYTES, PARTS, ModuleFiles, Problem, as_text
from bufdb.dumps.memory_profiles import MemoryFile
from bufdb.dumps.modules import NO_BUFFERS, NOT_A_DUMP
from bufdb.dumps.place import Bytes, Place
from bufdb.errors import UsageError

if TYPE_CHECKING:
    from bufdb.proto.xplane import Profile

Progress = Callable[[int, int], None]
"""Is given the bytes done and the bytes in total."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """How to read dumps, and what to store of their runs; the result does not depend on `jobs`."""

    run: str | None = None
    """Name of the run; by default each path makes a run named after its directory."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the run or runs, added to those they have."""
    labels_by_run: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Further labels of single runs."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Labels that say how the runs were made and keep none apart; `labels` take precedence."""
    own_globs: Sequence[str] | None = None
    """Paths and packages that count as the user's own although they are installed
    (`bufdb.read.own.parse_own`); by default what the run was read with before."""
    replace: bool = False
    """Whether the earlier contents of the runs are removed, when the new are stored."""
    prune: bool = False
    """Whether modules of the runs that are not among the paths are removed."""
    jobs: int | None = 1
    """Processes that read while this one stores, at the most; None for as many as this machine has
    use for. With 1, or little to read, this one does everything."""
    memory_limit: str | None = None
    """DuckDB's memory limit, such as "512MB"; by default that of `bufdb.database.memory`."""
    block_bytes: int = BLOCK_BYTES
    """Text read at a time; changes no row."""
    progress: Progress | None = None
    keeps_sources: bool = True
    """Whether the bytes of the files are stored, for a later bufdb to read them again."""
    profile: Profile | None = None
    """Times of instructions, of the one run."""

    def labels_of(self, run: str) -> dict[str, str]:
        """Return the labels of a run, without metadata."""
        return {**self.labels, **self.labels_by_run.get(run, {})}


@dataclass
class Summary:
    """The result of an ingest."""

    run_names: list[str] = field(default_factory=list)
    """Runs that the dumps belong to."""
    module_count: int = 0
    """Modules stored, replaced ones included."""
    replaced_count: int = 0
    unchanged_count: int = 0
    skipped_count: int = 0
    """Modules, and directories and files that might hold some, that could not be read."""
    row_count: int = 0
    text_bytes: int = 0
    """Size of the files that were read."""
    seconds: float = 0.0
    problem_counts: dict[str, int] = field(default_factory=dict)
    """Number of diagnostics by severity."""
    removed_count: int = 0
    """Modules that the run had before, when it was to be replaced as a whole."""
    pruned_count: int = 0
    """Modules and memory profiles removed because their files are gone."""
    profile_count: int = 0
    """Memory profiles that were read."""
    notes: list[str] = field(default_factory=list)
    """What people should know in addition to the summary."""
    refusals: list[str] = field(default_factory=list)
    """By function, what XLA said when it planned the memory and then gave up."""

    @property
    def exit_code(self) -> int:
        """0, or 4 if something could not be read or contradicts itself."""
        return 4 if any(self.problem_counts.get(s) for s in ("data_loss", "error")) else 0

    def line(self) -> str:
        """Return one line for people."""
        parts = [
            f"ingested {self.module_count} modules ({self.replaced_count} replaced)",
            f"{self.row_count} rows",
            f"{self.text_bytes / 1e6:.1f} MB in {self.seconds:.2f} s",
            f"unchanged {self.unchanged_count}",
            f"skipped {self.skipped_count}",
        ]
        if self.profile_count:
            parts.append(f"memory profiles {self.profile_count}")
        if self.pruned_count:
            parts.append(f"removed {self.pruned_count} that are gone")
        problems = [f"{n} {severity}" for severity, n in sorted(self.problem_counts.items()) if n]
        if problems:
            where = "; 'bufdb query diagnostics' lists them" if self.exit_code else ""
            parts.append(f"diagnostics: {', '.join(problems)}{where}")
        return ", ".join(parts)


Stamp = tuple[int, int, int]
"""A file's number on the device, when it was written [ns since 1970], its size [bytes]."""


@dataclass
class Job:
    """A module to be read, with the run and the key it is stored under."""

    run: str
    module_id: int
    files: ModuleFiles
    stamps: tuple[Stamp, ...] = ()
    """Stamps of its files, taken before they were read."""

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes in its files by kind; none if one is gone, which is reported when it is read."""
        try:
            return {kind: file.size() for kind, file in self.files.files.items()}
        except OSError:
            return {}


@dataclass
class PlannedRun:
    """What is planned for one run."""

    path: Source
    """The path that the run was named by."""
    jobs: list[Job] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """What is left out or could not be read."""
    memory_files: list[MemoryFile] = field(default_factory=list)
    """Memory profiles of the run's processes."""
    are_given: bool = False
    """Whether one of them was named itself, and not a directory that has it."""

    @property
    def is_memory_alone(self) -> bool:
        """Whether memory profiles are added to a run, and no module."""
        return bool(self.memory_files) and not self.jobs


def module_id_of(run: str, key: str) -> int:
    """Return the 63-bit hash of a run and a module key: modules.module_id."""
    digest = hashlib.blake2b(f"{run}\0{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def plan(paths: Sequence[Source], run: str | None) -> dict[str, PlannedRun]:
    """Return the modules of every run, by its name."""
    plan: dict[str, PlannedRun] = {}
    taken: dict[int, Path] = {}
    for path in paths:
        problems: list[Problem] = []
        memory_files: list[MemoryFile] = []
        profile = _memory_profile(path)
        if profile is not None:
            modules: list[ModuleFiles] = []
            memory_files.append(profile)
        else:
            modules = discover(path, problems, memory_files)
            memory_files += _log_with_reports(path)
        is_empty = not modules and not memory_files
        if is_empty and not any(problem.severity == "error" for problem in problems):
            raise UsageError(_nothing_in(path, problems))
        base = Path(os.path.abspath(base_of(path)))  # noqa: PTH100 - a link keeps its own name
        name = as_text(run or base.name or "dumps")
        planned = plan.setdefault(name, PlannedRun(path))
        planned.problems += problems
        planned.are_given |= profile is not None
        _add_memory(planned, name, memory_files)
        for files in modules:
            module_id = module_id_of(name, files.key)
            first = taken.get(module_id)
            if first is None:
                planned.jobs.append(Job(name, module_id, files))
                taken[module_id] = base
            elif first != base:
                raise UsageError(
                    f"run {name}: {files.key} is in {first} and in {base}; give the directories "
                    "different --run names, or ingest the directory above both"
                )
    return plan


def _memory_profile(path: Source) -> MemoryFile | None:
    """Return the memory profile that a path is, if it is one."""
    if not isinstance(path, Bytes) and not (isinstance(path, Path) and path.is_file()):
        return None
    try:
        return memory_profiles.named(path) if memory_profiles.is_memory_profile(path) else None
    except OSError:  # reported when it is read as a dump
        return None


def _log_with_reports(path: Source) -> list[MemoryFile]:
    """Return a file that was named itself, if it is a log with reports of allocators."""
    if not isinstance(path, Bytes) and not (isinstance(path, Path) and path.is_file()):
        return []
    if is_archive(path.name) or path.name.endswith(tuple(PARTS)):
        return []
    log = memory_profiles.log_of(path, as_text(path.name))
    return [] if log is None else [log]


def _add_memory(planned: PlannedRun, run: str, files: Sequence[MemoryFile]) -> None:
    """Add memory profiles to a run, whose names must differ."""
    has = {file.name: file for file in planned.memory_files}
    for file in files:
        first = has.setdefault(file.name, file)
        if first is file:
            planned.memory_files.append(file)
        elif _absolute(first.path) != _absolute(file.path):
            raise UsageError(
                f"run {run}: {first.path} and {file.path} have the same name; ingest the directory "
                "above both, or rename one"
            )


def _absolute(path: Path | Place) -> Path | Place:
    return path.absolute() if isinstance(path, Path) else path


def _nothing_in(path: Source, problems: Sequence[Problem]) -> str:
    """Return the message about a path without dumps."""
    reasons = [o.message for o in problems if o.code in (NO_BUFFERS, NOT_A_DUMP)]
    if reasons:
        return f"no buffer assignment in {path}: {reasons[0]}"
    odd = [f"{problem.name} {problem.message}" for problem in problems]
    return (
        f"no buffer assignment in {path}; dumps are made with "
        "XLA_FLAGS=--xla_dump_to=DIR (text, which is the default)"
        + (f"; of {len(odd)} skipped entries the first: {odd[0]}" if odd else "")
    )


def stamps_of(files: ModuleFiles) -> tuple[Stamp, ...]:
    """Return what changes when one of a module's files does.

    Raises:
        OSError: a file is gone.
    """
    stamps = []
    for file in files.files.values():
        status = file.path.stat()
        # A captured output may grow below the frames that were found in it.
        whole = file.stop < 0
        stamps.append((status.st_ino, *((status.st_mtime_ns, status.st_size) if whole else (0, 0))))
    return tuple(stamps)


def check_unchanged(job: Job) -> None:
    """Check that the files of a module are those that were found.

    Raises:
        OSError: one has changed since, or is gone.
    """
    if stamps_of(job.files) != job.stamps:
        raise OSError(errno.ESTALE, "it changed while it was read; ingest again when it is whole")


# -- Progress of an ingest, as it is reported ------------------------------------------------------


class Reporter:
    """The bytes of the files that were dealt with: read, unchanged or skipped."""

    def __init__(self, jobs: Iterable[Job], progress: Progress | None) -> None:
        self.sizes = {job.module_id: sum(job.sizes.values()) for job in jobs}
        self.progress = progress
        self.done_bytes, self.total_bytes = 0, sum(self.sizes.values())
        self.part_bytes = 0
        """Bytes read of the large module that is being read."""

    def done(self, ids: Iterable[int]) -> None:
        """Report these modules, by module_id, as done."""
        self.done_bytes += sum(self.sizes[module_id] for module_id in ids)
        self.part_bytes = 0
        if self.progress is not None:
            self.progress(self.done_bytes, self.total_bytes)

    def part(self, module_id: int, size: int) -> None:
        """Report bytes read of a large module, which is not done before all of it is read."""
        self.part_bytes = min(self.part_bytes + size, max(0, self.sizes[module_id] - 1))
        if self.progress is not None:
            self.progress(self.done_bytes + self.part_bytes, self.total_bytes)
