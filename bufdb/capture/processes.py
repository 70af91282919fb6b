"""A folder for each process of a captured command: XLA numbers modules in each from 0.

The first part runs in the user's processes, also in a Python without bufdb: it imports only the
standard library, and the program runs all the same if it fails. The second, in bufdb, makes one
dump directory of the folders.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = "BUFDB_CAPTURE_FOLDER"
"""Variable of the environment of a captured command: the directory that has the folders."""
PREFIX = "process-"
ABOUT = ".process.json"
"""File in a folder: the process that it is of."""
_RANKS = (
    *("PYTEST_XDIST_WORKER", "JAX_PROCESS_ID", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"),
    "PMI_RANK",
)
"""Variables in which launchers number the processes that they start."""

FLAG = re.compile(r"""\S*?=(?:"(?:\\.|[^"\\])*"|'[^']*')|\S+""", re.DOTALL)
DUMP_TO = re.compile(r"--?xla_dump_to(=|$)")


def dumping(flags: str, folder: Path) -> str:
    """Return XLA flags with a dump directory, in place of any other, and text as the format."""
    kept = [flag for flag in FLAG.findall(flags) if not DUMP_TO.match(flag)]
    # Other dump formats would replace the text, which is the default only if none is named.
    added = [f"--xla_dump_to={_quoted(str(folder))}", "--xla_dump_hlo_as_text"]
    return " ".join([*(flag for flag in kept if flag != added[1]), *added])


def _quoted(value: str) -> str:
    """Return a flag's value, in quotes if it needs any; XLA removes them."""
    if not re.search(r"[\s\"'\\]", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


# -- In a process of the command, before it imports JAX --------------------------------------------


class OwnFolder:
    """The folder of this process, which is another one after a fork or an exec."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.begin()

    def begin(self) -> None:
        """Choose a folder that no other process has, and dump to it."""
        self.path = self.root / f"{PREFIX}{time.time_ns()}-{os.getpid()}"
        self.switch_on()

    def switch_on(self) -> None:
        """Dump to the folder unless the program itself named another; its other flags stay."""
        flags = os.environ.get("XLA_FLAGS", "").strip()
        if flags and not flags.startswith("-"):  # XLA's rule: the name of a file with flags
            with suppress(OSError):
                flags = Path(flags).read_text(encoding="utf-8").strip()
        places = [flag for flag in FLAG.findall(flags) if DUMP_TO.match(flag)]
        if not places or str(self.root) in _unquoted(places[-1]):
            os.environ["XLA_FLAGS"] = dumping(flags, self.path)

    def describe(self) -> None:
        """Write which process it is."""
        ranks = [f"{name}={os.environ[name]}" for name in _RANKS if name in os.environ]
        command = " ".join([*sys.argv, *ranks])
        about = {"pid": os.getpid(), "command": command[:400]}
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _unquoted(flag: str) -> str:
    return flag.replace("\\", "") if '"' in flag else flag


class _Importing:
    """Switches dumps on again when JAX is imported: the program may have set the flags itself."""

    def __init__(self, own: OwnFolder) -> None:
        self.own = own
        self.is_imported = False

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> None:
        """Find nothing: it is imported by the other finders."""
        if name == "jaxlib":
            sys.meta_path[:] = [one for one in sys.meta_path if one is not self]
            self.is_imported = True
            with suppress(Exception):
                self.own.switch_on()
                self.own.describe()

    def forked(self) -> None:
        """Take a folder of its own in a forked process."""
        with suppress(Exception):
            self.own.begin()
            if self.is_imported:
                self.own.describe()


def install() -> OwnFolder:
    """Give this process, and each that it forks, a folder of its own."""
    own = OwnFolder(Path(os.environ[FOLDER]))
    importing = _Importing(own)
    sys.meta_path.insert(0, importing)
    os.register_at_fork(after_in_child=importing.forked)
    return own


# -- In bufdb: before the command, and after it ----------------------------------------------------

CHAINED = """\
# Written by bufdb, see bufdb.capture.processes; first it imports the module that this one hides.
import importlib.util, os, sys
_here = os.path.dirname(os.path.abspath(__file__))
_path = sys.path[:]
sys.path[:] = [one for one in _path if os.path.abspath(one or ".") != _here]
_mine = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError as error:
    if error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _mine

def _loaded(name, file):
    spec = importlib.util.spec_from_file_location(name, file)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
"""
"""Beginning of a sitecustomize.py: a format without fields."""

SITE = (
    CHAINED
    + """
# Gives this process a folder of its own for what XLA dumps, and watches it with --watch.
if "_bufdb_processes" not in sys.modules:
    try:
        _own = _loaded("_bufdb_processes", {processes!r}).install()
        if {is_watched!r}:
            _loaded("_bufdb_ending", {ending!r}).install(
                _own,
                _loaded("_bufdb_watched", {watched!r}),
                _loaded("_bufdb_snapshots", {snapshots!r}),
                _loaded("_bufdb_holders", {holders!r}),
            )
    except Exception as error:  # the user's program runs all the same
        print(f"bufdb: this process is not captured by itself: {{error}}", file=sys.stderr)
"""
)


def environment(
    variables: Mapping[str, str], site: Path, folder: Path, *, is_watched: bool = False
) -> dict[str, str]:
    """Return an environment in which each Python process dumps to a folder of its own.

    Args:
        variables: the environment.
        site: a folder, to which the module is written that Python imports at its start.
        folder: the directory that has the folders.
        is_watched: whether each process writes what it holds (`bufdb.capture.watched`).
    """
    site.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).absolute()
    names = ("watched", "ending", "snapshots", "holders")
    files = {name: str(here.with_name(f"{name}.py")) for name in names}
    text = SITE.format(processes=str(here), is_watched=is_watched, **files)
    (site / "sitecustomize.py").write_text(text, encoding="utf-8")
    places = [str(site.absolute()), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(places), FOLDER: str(folder.absolute())}


def gather(folder: Path) -> dict[str, str]:
    """Name the folders of processes that dumped something by the order in which these began.

    The files of a single process are moved to the directory itself, as without folders.

    Returns:
        By the name of the folder, pid and command of its process; empty if there is only one.
    """
    held = []
    for path in sorted(folder.glob(f"{PREFIX}*"), key=lambda path: _began(path.name)):
        about = _about(path)
        if any(path.iterdir()):
            held.append((path, about))
        else:
            path.rmdir()
    is_alone = len(held) == 1 and [*folder.iterdir()] == [held[0][0]]
    named = {}
    for number, (path, about) in enumerate(held, 1):
        name = f"{PREFIX}{number}"
        with suppress(OSError):  # it runs on, and makes its folder again
            if is_alone:
                for file in path.iterdir():
                    file.rename(folder / file.name)
                path.rmdir()
            else:
                path.rename(folder / name)
                named[name] = about
    return named


def _began(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", name))


def _about(folder: Path) -> str:
    """Return pid and command of a folder's process, whose file is removed."""
    file = folder / ABOUT
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
    except (OSError, ValueError):
        return "unknown process"
    return f"pid {about['pid']}: {about['command']}"
