"""The environment of a captured program: flags, labels, and what came of it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bufdb.capture.processes import DUMP_TO, FLAG, dumping
from bufdb.dumps.files import PARTS
from bufdb.errors import UsageError

# -- The environment of a captured command: dumps switched on, the user's flags kept ---------------

_HIDING = re.compile(
    r"--?(xla_enable_dumping|xla_dump_hlo_module_re|xla_dump_max_hlo_modules"
    r"|xla_dump_buffer_assignment_analysis)(=|$)"
)


@dataclass(frozen=True)
class Environment:
    """The environment of a captured command."""

    variables: dict[str, str]
    flags: str
    """The user's own XLA flags, without the dump directory; '' if there are none."""
    notes: tuple[str, ...]
    """Notes for the user."""
    hiding_flags: tuple[str, ...]
    """User's flags that keep XLA from dumping some or all modules."""


def flags_of(environ: Mapping[str, str]) -> list[str]:
    """Return the flags of XLA in an environment.

    Raises:
        UsageError: XLA_FLAGS names a file of flags that cannot be read.
    """
    text = environ.get("XLA_FLAGS", "").strip()
    if text and not text.startswith("-"):
        # XLA's rule: a value that does not begin like a flag is the name of a file with flags.
        try:
            text = Path(text).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(
                f"XLA_FLAGS names a file of flags, {text}, that cannot be read: {error.strerror}"
            ) from error
    return FLAG.findall(text)


def environment(environ: Mapping[str, str], folder: Path) -> Environment:
    """Return the given environment plus flags that make XLA dump every module to `folder`.

    The user's flags are kept, except a dump directory, which is overridden: its files may belong to
    another program, and module numbers start over in each process.

    Raises:
        UsageError: XLA_FLAGS names a file of flags that cannot be read.
    """
    variables = dict(environ)
    flags = flags_of(environ)
    kept = [flag for flag in flags if not DUMP_TO.match(flag)]
    notes = []
    for flag in flags:
        if DUMP_TO.match(flag):
            notes.append(f"{flag} in XLA_FLAGS is overridden; --keep-dumps DIR keeps the dumps")
    hiding = tuple(flag for flag in kept if _HIDING.match(flag))
    if hiding:
        notes.append(f"not every module may be dumped: XLA_FLAGS have {' '.join(hiding)}")
    variables["XLA_FLAGS"] = dumping(" ".join(kept), folder)
    # Takes precedence over a directory that the program sets by jax.config; a variable for the
    # directory would not.
    variables["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    # For versions of JAX that do not know the former.
    variables.pop("JAX_COMPILATION_CACHE_DIR", None)
    notes.append("JAX's persistent compilation cache is off for the command: a hit dumps nothing")
    return Environment(variables, " ".join(kept), tuple(notes), hiding)


# -- Label a command's run: versions, flags, commit, command line ----------------------------------

PROBE_SECONDS = 30
"""Time limit for finding a version; without an answer there is no label."""
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_VERSIONS = """
import sys
sys.path = [folder for folder in sys.path if folder]  # without the working directory
import importlib.metadata as metadata
for name in ("jax", "jaxlib"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""


def program_labels(command: Sequence[str], environ: Environment) -> dict[str, str]:
    """Return labels that describe the command: versions, flags, commit, command line."""
    labels = {"command": shlex.join(command)}
    if environ.flags:
        labels["xla_flags"] = environ.flags
    labels |= pool_labels(environ.variables)
    labels.update(_versions(command, environ.variables))
    commit = _output(
        ["git", "describe", "--always", "--dirty=+dirty", "--abbrev=40", "--exclude=*"],
        {**environ.variables, "GIT_OPTIONAL_LOCKS": "0"},
    )
    if commit:
        labels["git_commit"] = commit
    return labels


_POOL = {
    "memory_fraction": ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
    "preallocate": ("XLA_PYTHON_CLIENT_PREALLOCATE",),
    "allocator": ("XLA_PYTHON_CLIENT_ALLOCATOR",),
    "collective_memory_mib": ("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",),
}
"""By label the variables that size the pool of a GPU's memory; JAX refuses both of the first."""


def pool_labels(variables: Mapping[str, str]) -> dict[str, str]:
    """Return labels that say how JAX sizes the pool of a GPU's memory, as far as it is set."""
    known = {label: [variables.get(name, "").strip() for name in names]
             for label, names in _POOL.items()}  # fmt: skip
    return {label: next(filter(None, texts)) for label, texts in known.items() if any(texts)}


def run_name(command: Sequence[str], now: datetime) -> str:
    """Return a default run name: the program's and the time, such as train-20260131-235959."""
    words = [word for word in command[1:] if word.endswith(".py")]
    if "-m" in command[1:-1]:
        words.append(command[command.index("-m") + 1])
    program = Path(words[0] if words and _PYTHON.fullmatch(Path(command[0]).name) else command[0])
    return f"{program.name.removesuffix('.py')}-{now:%Y%m%d-%H%M%S}"


def script_folder(program: Sequence[str]) -> Path | None:
    """Return the folder of the script in a command, or of FILE:FUNCTION; None if there is none.

    That of a module is the folder of its package, where that is in the working directory.
    """
    words = [word.rpartition(":")[0] if ":" in word else word for word in program]
    for word in words:
        if word.endswith(".py") and Path(word).is_file():
            return Path(word).absolute().parent
    names = [program[program.index("-m") + 1]] if "-m" in program[:-1] else words[:1]
    packages = (Path(name.partition(".")[0]).absolute() for name in names)
    return next((package for package in packages if package.is_dir()), None)


def _versions(command: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of jax and jaxlib for the command's Python, or else that on PATH."""
    python = _python_of(command[0], variables)
    if python is None:
        return {}
    lines = (_output([python, "-c", _VERSIONS], variables) or "").splitlines()
    words = [line.split() for line in lines]
    return {word[0]: word[1] for word in words if len(word) == 2 and word[0] in ("jax", "jaxlib")}


def _python_of(program: str, variables: Mapping[str, str]) -> str | None:
    path = variables.get("PATH")
    executable = shutil.which(program, path=path)
    if executable is not None and not _PYTHON.fullmatch(Path(executable).name):
        executable = _script_python(executable, path)
    return executable or shutil.which("python3", path=path) or shutil.which("python", path=path)


def _script_python(script: str, path: str | None) -> str | None:
    """Return the Python in a script's #! line (pytest, torchrun, …); None if not Python."""
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
    """Return what a command prints; None if it fails."""
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


# -- Examine a command's dump directory, or explain why it is empty --------------------------------


_PARTS = tuple(PARTS)


def cached_modules(folder: Path) -> list[str]:
    """Return the names of modules from a compilation cache: dumped as HLO text only."""
    paths = [path for path in folder.rglob("module_*") if path.is_file()]
    compiled = {(path.parent, _id(path.name)) for path in paths if path.name.endswith(_PARTS)}
    text = ".after_optimizations.txt"
    return sorted(
        path.name.removesuffix(text)
        for path in paths
        if path.name.endswith(text) and (path.parent, _id(path.name)) not in compiled
    )


def why_nothing(folder: Path, environ: Environment, exit_code: int) -> str:
    """Explain why a command left no buffer assignment in the directory, and what to do."""
    cached = cached_modules(folder)
    if cached:
        return (
            f"nothing was compiled: {len(cached)} modules came from a compilation cache, such as "
            f"{cached[0]}. The program turns the cache on itself "
            "(jax_enable_compilation_cache); turn it off there, or remove the cached files"
        )
    reasons = []
    if exit_code:
        reasons.append(f"the command failed (exit code {exit_code}) before it compiled anything")
    if environ.hiding_flags:
        reasons.append(f"XLA_FLAGS have {' '.join(environ.hiding_flags)}: try without")
    if any(folder.iterdir()):
        reasons.append("XLA dumped other files only: a compilation did not get far enough")
    else:
        reasons += [
            "nothing was jitted: no function under jax.jit was called, lowered and compiled",
            "the program sets XLA_FLAGS itself, or starts its worker without this environment "
            "(sudo, ssh, a scheduler): it must add to XLA_FLAGS, not replace them",
            "it does not use XLA, such as PyTorch without torch_xla",
        ]
    return "nothing was dumped. Usual reasons:\n" + "\n".join(f"  - {text}" for text in reasons)


def _id(name: str) -> str:
    """Return `module_0007` of a dump file's name, which identifies the files of a module."""
    match = re.search(r"module_\d+", name)
    return match[0] if match else name
