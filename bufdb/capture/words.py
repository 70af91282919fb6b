"""The words of a user's command: which is its Python, and whether bufdb can see its calls."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from bufdb.capture import hooked
from bufdb.errors import UsageError

_PYTHON = r"python(?:\d+(?:\.\d+)?t?)?(?:\.exe)?"
_AROUND = (
    "conda", "env", "hatch", "ionice", "nice", "nohup", "numactl", "pdm", "poetry", "stdbuf",
    "taskset", "time", "timeout", "uv", "xvfb-run",
)  # fmt: skip
"""Programs that run the command that is among their words, and change nothing else of it."""
_UNSEEN = {"I": "-I", "S": "-S", "E": "-E"}
"""Options with which Python does not import the sitecustomize of PYTHONPATH."""


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = r"(\d+(?:\.\d+)?)(ms|s|m|h)?"
LEAST_SECONDS = 0.01
"""The shortest time between two snapshots, each of which takes some milliseconds."""


def seconds_of(duration: str | float) -> float:
    """Return a duration such as 60s, 5m or 500ms in seconds; a number alone is seconds.

    Raises:
        UsageError: it is not one, or so short that snapshots would take most of the time.
    """
    match = re.fullmatch(_DURATION, str(duration).strip())
    seconds = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
    if seconds < LEAST_SECONDS:
        raise UsageError(f"a time between snapshots is such as 60s or 5m, got {duration!r}")
    return seconds


def is_python(word: str) -> bool:
    """Return whether a word is the name or a path of a Python."""
    return re.fullmatch(_PYTHON, os.path.basename(word)) is not None  # noqa: PTH119 - it is a word


def python_at(words: Sequence[str]) -> int | None:
    """Return the place of the Python that a command runs; None if another program may start it."""
    if not words or not (is_python(words[0]) or os.path.basename(words[0]) in _AROUND):  # noqa: PTH119
        return None
    return next((at for at, word in enumerate(words) if is_python(word)), None)


def with_python(words: Sequence[str], python: str) -> tuple[str, ...] | None:
    """Return a command with another Python; None where it names none."""
    at = python_at(words)
    return None if at is None else (*words[:at], python, *words[at + 1 :])


def require_seen(words: Sequence[str]) -> None:
    """Refuse a command whose calls would not be seen, so that all of it would run.

    Raises:
        UsageError: its Python does not import sitecustomize, or has another PYTHONPATH.
    """
    at = python_at(words)
    if at is None:
        return
    for word in words[:at]:
        if word.startswith("PYTHONPATH="):
            raise UsageError(f"{word} is for bufdb's own environment: {word} bufdb …, not after --")
    letters, _ = hooked.options(list(words[at:]))
    unseen = [option for letter, option in _UNSEEN.items() if letter in letters]
    if unseen:
        raise UsageError(
            f"{words[at]} {unseen[0]} does not import sitecustomize, by which bufdb sees the calls "
            f"of a command; leave {unseen[0]} out"
        )
