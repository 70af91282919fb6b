"""The environment of a captured command: dumps switched on, the user's flags kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bufdb.errors import UsageError

_FLAG = re.compile(r"""\S*?=(?:"(?:\\.|[^"\\])*"|'[^']*')|\S+""", re.DOTALL)
_DUMP_TO = re.compile(r"--?xla_dump_to(=|$)")
_HIDING = re.compile(
    r"--?(xla_enable_dumping|xla_dump_hlo_module_re|xla_dump_max_hlo_modules"
    r"|xla_dump_buffer_assignment_analysis)(=|$)"
)


@dataclass(frozen=True)
class Environment:
    """The environment of a captured command."""

    variables: dict[str, str]
    flags: str
    """The user's own XLA flags, without where to dump; '' if there are none."""
    notes: tuple[str, ...]
    """What the user should know about it."""
    hiding_flags: tuple[str, ...]
    """Flags of the user that keep XLA from dumping, or from dumping all."""


def environment(given: Mapping[str, str], folder: Path) -> Environment:
    """The given environment plus what makes XLA dump every module to `folder`.

    The flags of the user stay. A dump directory among them is overridden: what lies there may be
    another program's, and module numbers begin anew in each process.

    Raises:
        UsageError: XLA_FLAGS names a file of flags that cannot be read.
    """
    variables = dict(given)
    text = given.get("XLA_FLAGS", "").strip()
    if text and not text.startswith("-"):
        # XLA's rule: what does not begin like a flag is the name of a file with flags.
        try:
            text = Path(text).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(
                f"XLA_FLAGS names a file of flags, {text}, that cannot be read: {error.strerror}"
            ) from error
    flags = _FLAG.findall(text)
    kept = [flag for flag in flags if not _DUMP_TO.match(flag)]
    notes = []
    for flag in flags:
        if _DUMP_TO.match(flag):
            notes.append(f"{flag} in XLA_FLAGS is overridden; --keep-dumps DIR keeps the dumps")
    hiding = tuple(flag for flag in kept if _HIDING.match(flag))
    if hiding:
        notes.append(f"not every module may be dumped: XLA_FLAGS have {' '.join(hiding)}")
    # Other forms of dump would replace the text, which is the default only if none is named.
    added = [f"--xla_dump_to={_quoted(str(folder))}", "--xla_dump_hlo_as_text"]
    variables["XLA_FLAGS"] = " ".join([*kept, *added])
    # Wins over a directory that the program sets by jax.config; a variable for the directory
    # would not.
    variables["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    # Versions of JAX that do not know the former.
    variables.pop("JAX_COMPILATION_CACHE_DIR", None)
    notes.append("JAX's persistent compilation cache is off for the command: a hit dumps nothing")
    return Environment(variables, " ".join(kept), tuple(notes), hiding)


def _quoted(value: str) -> str:
    """A flag's value in the quotes that XLA takes off, if it needs any."""
    if not re.search(r"[\s\"'\\]", value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
