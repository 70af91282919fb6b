"""What a command runs with: versions, flags, commit, command line."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from bufdb.capture.environment import Environment

PROBE_SECONDS = 30
"""Time that finding out a version may take; without an answer there is no label."""
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_VERSIONS = """
import importlib.metadata as metadata
for name in ("jax", "jaxlib"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""


def program_labels(command: Sequence[str], given: Environment) -> dict[str, str]:
    """Labels that say what the command runs with: versions, flags, commit, command line."""
    found = {"command": shlex.join(command)}
    if given.flags:
        found["xla_flags"] = given.flags
    found.update(_versions(command, given.variables))
    commit = _output(
        ["git", "describe", "--always", "--dirty=+dirty", "--abbrev=40", "--exclude=*"],
        {**given.variables, "GIT_OPTIONAL_LOCKS": "0"},
    )
    if commit:
        found["git_commit"] = commit
    return found


def run_name(command: Sequence[str], now: datetime) -> str:
    """Name for a run without one: the program's and the time, such as train-20260131-235959."""
    words = [word for word in command[1:] if word.endswith(".py")]
    if "-m" in command[1:-1]:
        words.append(command[command.index("-m") + 1])
    program = Path(words[0] if words and _PYTHON.fullmatch(Path(command[0]).name) else command[0])
    return f"{program.name.removesuffix('.py')}-{now:%Y%m%d-%H%M%S}"


def _versions(command: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Versions of jax and jaxlib that the command's Python would import, else that on PATH."""
    python = _python_of(command[0], variables)
    if python is None:
        return {}
    lines = (_output([python, "-c", _VERSIONS], variables) or "").splitlines()
    words = [line.split() for line in lines]
    return {word[0]: word[1] for word in words if len(word) == 2 and word[0] in ("jax", "jaxlib")}


def _python_of(program: str, variables: Mapping[str, str]) -> str | None:
    path = variables.get("PATH")
    found = shutil.which(program, path=path)
    if found is not None and not _PYTHON.fullmatch(Path(found).name):
        found = _script_python(found, path)
    return found or shutil.which("python3", path=path) or shutil.which("python", path=path)


def _script_python(script: str, path: str | None) -> str | None:
    """The Python in the first line of a script, such as pytest or torchrun; None if not Python."""
    try:
        with Path(script).open("rb") as file:
            first = file.readline(1024)
    except OSError:
        return None
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    for word in words:
        if _PYTHON.fullmatch(Path(word).name):
            return shutil.which(word, path=path)
    return None


def _output(command: Sequence[str], variables: Mapping[str, str]) -> str | None:
    """What a command prints; None if it fails."""
    try:
        done = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace").strip()
