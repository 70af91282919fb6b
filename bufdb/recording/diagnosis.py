"""What a text, a path or a folder is about, what is known of it, and the command to type next."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bufdb.answers.opening import open_readable
from bufdb.answers.summary import Overview, need, summary
from bufdb.database import other_versions, store
from bufdb.dumps.discover import Source
from bufdb.dumps.place import Bytes
from bufdb.errors import DatabaseError, UsageError
from bufdb.read.own import parse_own
from bufdb.render.text import escape_control, human_bytes

PROGRAM = "python train.py"
"""In place of the user's command where nothing names it."""
MOST_TEXT_BYTES = 64 << 20
"""Of a text that is searched; the end counts, where programs print why they ended."""
_FRAME = re.compile(r'^.*?File "(?P<file>[^"]+)", line \d+, in (?P<function>\S+)$', re.MULTILINE)
_AVAILABLE = re.compile(r"needed, (\d[\d.]* [KMGT]?i?B) of \S+ available")
_JAX = re.compile(r"^\s*(?:import|from)\s+(?:jax|flax|equinox|haiku|optax|keras)\b", re.MULTILINE)


@dataclass
class Diagnosis:
    """An answer of `bufdb doctor`."""

    what: str
    """What this is."""
    next: str
    """The command to type next."""
    known: list[str] = field(default_factory=list)
    """What is known of it, a line each."""
    why: str = ""
    """What the command shows."""

    def text(self) -> str:
        """Return the answer as lines."""
        lines = [("this is", self.what), *(("known", line) for line in self.known)]
        lines.append(("type next", self.next))
        if self.why:
            lines.append(("it shows", self.why))
        shown, before = [], ""
        for title, line in lines:
            # A command stays on one line, to be copied.
            parts = [line] if line == self.next else textwrap.wrap(escape_control(line), _WIDTH)
            for part in parts:
                shown.append(f"{'' if title == before else title:<11}{part}".rstrip())
                before = title
        return "".join(f"{line}\n" for line in shown)


class _Rule(NamedTuple):
    """A kind of text, by what one of its lines says."""

    pattern: re.Pattern[str]
    what: str
    next: str
    why: str = ""
    known: str = ""


_WATCH = "bufdb capture --watch -- {command}"
_WATCHED = "what the process holds when memory runs out, next to what the program needs"
_CHIP = "an error of the compiler: a memory of the chip is too small, not the device's main memory"
_SPACES = "the need in each memory space: the compiler dumps a module before it gives up"
_SCOPED = "--also vmem"
"""Option of `bufdb fit` that the advice about a kernel's vector memory names."""
_FIGURES = ("memory_limit", "memory_not_reduced", "peak_at_least")
"""Notes about a message that say what is known; the others say what to do."""
_NUMBERED = re.compile(r"message_\d+$")
"""Name of the module of a message that names none."""
_WIDTH = 100
_RULES = (
    _Rule(
        re.compile(r"bufdb: error: .*schema version", re.IGNORECASE),
        "a database of another version of bufdb",
        "bufdb ingest DUMPS --db new.duckdb",
        "the same dumps in a database of this version",
    ),
    _Rule(
        re.compile(r"bufdb: error: no buffer assignment in"),
        "a folder without XLA's dumps",
        "bufdb capture -- {command}",
        "what the command compiles: it switches XLA's dumps on by itself",
    ),
    _Rule(
        re.compile(r"memory space (?:smem|sflag|sparsecore\w*)\b"),
        _CHIP,
        "bufdb explain -- {command}",
        _SPACES,
    ),
    _Rule(
        re.compile(r"RESOURCE_EXHAUSTED|ran out of memory trying|CUDA_ERROR_OUT_OF_MEMORY", re.I),
        "an error of a device that ran out of memory, without its figures",
        _WATCH,
        _WATCHED,
    ),
    _Rule(
        re.compile(
            r"oom-kill|Out of memory: Killed process|\bOOMKilled\b|^Killed\b|exit(?:ed with)? "
            r"code:? (?:137|-9)\b|SIGKILL|signal 9\b",
            re.MULTILINE,
        ),
        "the end of a process by signal 9: mostly the kernel's, when the host's memory is used up",
        _WATCH,
        _WATCHED,
        "this is memory of the host, not of a device; the compiler needs it, too",
    ),
    _Rule(
        re.compile(r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory"),
        "an error of a process that the host gave no more memory",
        _WATCH,
        _WATCHED,
    ),
)


def of_text(text: str, read: Callable[[], Overview | None]) -> Diagnosis:
    """Return what a text is: the output of a program, a log, a traceback.

    Args:
        text: its end, as far as it is searched.
        read: returns what bufdb's readers find in all of it; None if that is nothing.
    """
    command = command_of(text) or PROGRAM
    overview = read()
    if overview is not None and overview.largest is not None:
        return _of_message(overview, command)
    if overview is not None and "memory_limit" in overview.out_of_memory:
        return _of_chip(overview, command)
    for rule in _RULES:
        if (match := rule.pattern.search(text)) is not None:
            known = [rule.known] if rule.known else []
            line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0].strip()
            return Diagnosis(
                rule.what, rule.next.format(command=command), [line[:200], *known], rule.why
            )
    if "Traceback (most recent call last)" in text:
        last = text.rstrip().rpartition("\n")[2].strip()
        return Diagnosis(
            "a traceback that says nothing of memory",
            f"bufdb explain -- {command}",
            [last[:200]],
            "what the program needs, if it gets as far as its first training step",
        )
    raise UsageError(
        "this text has no error about memory that bufdb knows; 'bufdb doctor' alone looks at the "
        "working directory"
    )


def command_of(text: str) -> str | None:
    """Return the command that a traceback is of, by its outermost frame of the user's own code."""
    own = parse_own(())
    for frame in _FRAME.finditer(text):
        file = frame["file"]
        if (
            frame["function"] == "<module>"
            and not file.startswith("<")
            and not own.is_library(file)
        ):
            return shlex.join(["python", file])
    return None


def _of_message(overview: Overview, command: str) -> Diagnosis:
    """Return the answer to what a log says of a device's memory."""
    row = overview.largest
    assert row is not None
    figures = [text for code, text in overview.out_of_memory.items() if code in _FIGURES]
    name = row["function_name"]
    function = "the program" if _NUMBERED.search(name) else name
    available = next((match[1] for one in figures if (match := _AVAILABLE.search(one))), None)
    is_of_program = available is not None or "peak_at_least" not in overview.out_of_memory
    if "compiled" in overview.out_of_memory:
        return Diagnosis(
            f"XLA's account of a compilation of {function}: nothing ran out of memory",
            f"bufdb explain -- {command}",
            [f"it needs {human_bytes(need(row) or 0)}", *figures],
            "what holds the peak, by line",
        )
    if not is_of_program:
        return Diagnosis(
            "an error of a device that ran out of memory, for whatever else the process holds",
            _WATCH.format(command=command),
            figures,
            _WATCHED,
        )
    limit = f" --limit {available.replace(' ', '')}" if available else ""
    return Diagnosis(
        f"an error of a device that ran out of memory: {function} needs more than there is",
        f"bufdb explain{limit} -- {command}",
        [f"{function} needs {human_bytes(need(row) or 0)}", *figures],
        "what holds the peak, by line, and what lowers it; the program is compiled, not run",
    )


def _of_chip(overview: Overview, command: str) -> Diagnosis:
    """Return the answer to what a log says of a memory of the chip, such as a kernel's."""
    known = [overview.out_of_memory[code] for code in (*_FIGURES, "out_of_memory")
             if code in overview.out_of_memory]  # fmt: skip
    if _SCOPED in overview.out_of_memory.get("out_of_memory", ""):
        return Diagnosis(
            _CHIP,
            f"bufdb fit {_SCOPED} -- {command}",
            known,
            "the least vmem_limit_bytes with which the kernel compiles, as a patch",
        )
    return Diagnosis(_CHIP, f"bufdb explain -- {command}", known, _SPACES)


def of_dumps(overview: Overview, path: str) -> Diagnosis:
    """Return what a folder, an archive or a file of XLA's dumps is."""
    counts = overview.counts
    known = [f"{counts['module_count']} modules of {counts['function_count']} functions"]
    if (row := overview.largest or overview.peak) is not None:
        known.append(f"{row['function_name']} needs most: {human_bytes(need(row) or 0)}")
    line = shlex.join(["bufdb", "summary", path])
    return Diagnosis("XLA's dumps of compiled programs", line, known, "what holds the peak")


def of_script(path: Path) -> Diagnosis:
    """Return what a Python file is.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    known = [] if _JAX.search(text) else ["it imports no JAX itself"]
    line = f"bufdb explain -- {shlex.join(['python', str(path)])}"
    why = "what its training step needs: the program runs up to it, and it is compiled"
    return Diagnosis("a Python program", line, known, why)


def of_command(words: Sequence[str]) -> Diagnosis:
    """Return what to do about a command."""
    return Diagnosis("a command", _WATCH.format(command=shlex.join(words)), [], _WATCHED)


def of_folder(folder: Path, db: str) -> Diagnosis:
    """Return where to begin in a folder: with what is there of databases, dumps, logs, programs."""
    if (folder / db).exists():
        answer = of_database(folder / db, "bufdb summary")
        answer.what = f"a folder with {answer.what}, {db}"
        return answer
    files = sorted(path for path in folder.iterdir() if path.is_file())
    for path in files:
        if path.suffix in (".log", ".out", ".err", ".txt") and _is_exhausted(path):
            line = shlex.join(["bufdb", "doctor", path.name])
            return Diagnosis(f"a folder with a log that says so: {path.name}", line)
    for below in sorted(path for path in folder.iterdir() if path.is_dir()):
        if next(below.glob("module_*after_optimizations*"), None) is not None:
            line = shlex.join(["bufdb", "summary", f"{below.name}/"])
            return Diagnosis(f"a folder with XLA's dumps in {below.name}", line)
    scripts = [path for path in files if path.suffix == ".py" and _JAX.search(_end_of(path))]
    if len(scripts) == 1:
        answer = of_script(scripts[0].relative_to(folder))
        answer.what = f"a folder with one program of JAX, {scripts[0].name}"
        return answer
    known = [f"programs of JAX: {', '.join(path.name for path in scripts[:9])}"] if scripts else []
    return Diagnosis(
        "a folder without a database, dumps or a log about memory",
        _WATCH.format(command=PROGRAM),
        known,
        f"{_WATCHED}; 'bufdb explain -- {PROGRAM}' compiles it and ends there",
    )


def of_database(path: Path, line: str) -> Diagnosis:
    """Return what a database file is, of this version (`line` asks it) or of another.

    Raises:
        DatabaseError: it is not bufdb's, or cannot be opened.
    """
    with closing(store.open_memory()) as con:
        other_versions.attach(con, str(path), "asked")
        try:
            version = other_versions.schema_version(con, "asked", str(path))
        except DatabaseError as error:
            if store.LATER not in str(error):
                raise
            return Diagnosis("a database of a later bufdb", store.LATER, [str(error)])
    return _of_version("a database of bufdb", [version], line, path)


def of_dataset(path: Path) -> Diagnosis:
    """Return what a folder with a dataset is.

    Raises:
        DatabaseError: it cannot be read, or is of a later version.
    """
    from bufdb.dataset.snapshot import Snapshot
    from bufdb.dataset.storage import storage_of

    with closing(store.open_memory()) as con:
        versions = Snapshot(con, storage_of(str(path)), "owners", of_earlier=True).versions
    line = shlex.join(["bufdb", "summary", "--on", str(path)])
    return _of_version("a dataset of bufdb", versions, line, path)


def _of_version(what: str, versions: Sequence[int], line: str, path: Path) -> Diagnosis:
    oldest = min(versions, default=store.SCHEMA_VERSION)
    if oldest == store.SCHEMA_VERSION:
        return Diagnosis(what, line, [], "the highest peak of all its runs")
    return Diagnosis(
        f"{what} of an earlier version",
        shlex.join(["bufdb", "upgrade", str(path)]),
        [
            f"it has schema version {oldest}, this bufdb needs {store.SCHEMA_VERSION}; "
            "upgrade keeps everything that it holds"
        ],
    )


def _end_of(path: Path) -> str:
    """Return the text of a file, as far as it is searched; '' if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - MOST_TEXT_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _is_exhausted(path: Path) -> bool:
    return "RESOURCE_EXHAUSTED" in _end_of(path)


def diagnosis(
    source: Source | None,
    words: Sequence[str] | None,
    db: str,
    database: Callable[[], str],
) -> Diagnosis:
    """Return what something is, and the command to type next.

    Args:
        source: a path, or bytes of standard input; None to look at the working directory.
        words: a command instead.
        db: the database file that commands ask.
        database: reads the source into a database.

    Raises:
        UsageError: it is nothing that bufdb knows.
    """
    if words is not None:
        return of_command(words)
    if source is None:
        return of_folder(Path(), db)
    if isinstance(source, Path) and source.suffix == ".py":
        return of_script(source)
    if isinstance(source, Path) and source.suffix in (".duckdb", ".db"):
        return of_database(source, shlex.join(["bufdb", "summary", "--db", str(source)]))
    if isinstance(source, Path) and next(source.glob("runs/dt=*/*.parquet"), None) is not None:
        return of_dataset(source)

    def read() -> Overview | None:
        try:
            return summary(partial(open_readable, database()), names=("advice",)).overview
        except UsageError:
            return None

    if isinstance(source, Bytes):
        text = source.content[-MOST_TEXT_BYTES:].decode("utf-8", "replace")
        return of_text(text, read)
    if isinstance(source, Path) and source.is_file() and not _has_modules(overview := read()):
        return of_text(_end_of(source), lambda: overview)
    overview = read()
    if overview is None:
        raise UsageError(f"{source} holds no dump, and no error about memory that bufdb knows")
    return of_dumps(overview, str(source))


def _has_modules(overview: Overview | None) -> bool:
    return overview is not None and not overview.out_of_memory and overview.largest is not None
