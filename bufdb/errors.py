"""Errors that bufdb raises on purpose; everything else is a bug.

    BufdbError                  exit 1
    ├── UsageError              exit 2  a wrong name, parameter or path
    ├── DatabaseError           exit 3  database missing, locked, damaged or of another version
    ├── TooSlowError            exit 124  the limit of --timeout was exceeded
    └── CommandError            exit 126 or 127  the command of `bufdb capture` cannot be started

Messages are one line: where, what was expected, what was found, what to do next.
Only `bufdb.cli` turns them into text and exit codes.
"""

import re
from collections.abc import Iterable, Sequence

QUOTE_LIMIT = 80
OBEYED = "\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Terminal control characters besides C0: DEL, C1, line separators, bidirectional controls."""
_CONTROL = re.compile(f"[\x00-\x1f{OBEYED}]")


def quote(text: str) -> str:
    """Quote text of a dump for a message: one line of at most 80 characters."""
    return repr(text if len(text) <= QUOTE_LIMIT else text[: QUOTE_LIMIT - 1] + "…")


def one_line(text: str) -> str:
    """Escape control characters in text that may name files or quote a dump, for a terminal."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names with commas, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean …?' for a misspelled name, '' if nothing is close."""
    from difflib import get_close_matches  # only needed for errors

    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


class BufdbError(Exception):
    """Base of all errors meant for the user."""

    exit_code = 1
    is_worded = True
    """Its message is for the user, also when it is raised in a child (`bufdb.capture.worker`)."""


class UsageError(BufdbError):
    """A wrong name, parameter or path."""

    exit_code = 2


class DatabaseError(BufdbError):
    """The database is missing, in use, damaged, not writable, or has another schema version."""

    exit_code = 3


class TooSlowError(BufdbError):
    """The limit of --timeout was exceeded; the code is that of timeout(1)."""

    exit_code = 124


class CommandError(BufdbError):
    """The command of `bufdb capture` cannot be started; the code is that of a shell."""

    def __init__(self, message: str, *, is_found: bool) -> None:
        super().__init__(message)
        self.exit_code = 126 if is_found else 127
