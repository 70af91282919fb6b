"""A directory whose sub-directories are runs: which runs, and labels from their names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bufdb.errors import UsageError, quote

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class LabelPattern:
    """A pattern such as `transformer_b{batch}_{dtype}_{remat}` for names of directories."""

    text: str
    labels: tuple[str, ...]
    _regex: re.Pattern[str]

    def labels_of(self, name: str) -> dict[str, str] | None:
        """Labels from a name that the whole pattern fits; None if it does not.

        Each placeholder takes at least one character and as few as it can.
        """
        found = self._regex.fullmatch(name)
        return None if found is None else dict(zip(self.labels, found.groups(), strict=True))


def parse_pattern(text: str) -> LabelPattern:
    """A pattern from its text.

    Raises:
        UsageError: no placeholder, a bad or repeated name in one, or two with nothing between.
    """
    parts = _PLACEHOLDER.split(text)
    literals, labels = parts[::2], parts[1::2]
    where = f"--labels-from {quote(text)}"
    if not labels:
        raise UsageError(f"{where}: expected a placeholder such as {{batch}}, found none")
    for label in labels:
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", label):
            raise UsageError(f"{where}: expected a label's name in braces, found {quote(label)}")
        if labels.count(label) > 1:
            raise UsageError(f"{where}: placeholder {label} is there twice")
    if any("{" in literal or "}" in literal for literal in literals):
        raise UsageError(f"{where}: expected braces in pairs")
    if "" in literals[1:-1]:
        raise UsageError(f"{where}: expected some text between two placeholders")
    regex = "(.+?)".join(re.escape(literal) for literal in literals)
    return LabelPattern(text, tuple(labels), re.compile(regex, re.DOTALL))


def run_folders(folder: Path, note: Callable[[str], None]) -> list[Path]:
    """The sub-directories of a directory, in order of their names, each once.

    A link to one of the others, such as `latest`, or to a directory above is left out, which `note`
    takes.

    Raises:
        UsageError: it is no directory, cannot be read, or has no sub-directory.
    """
    if not folder.is_dir():
        raise UsageError(f"--run-from-dir wants a directory of directories, {folder} is a file")
    try:
        folders = [path for path in folder.iterdir() if path.is_dir()]
    except OSError as error:
        raise UsageError(f"--run-from-dir: cannot read {folder}: {error.strerror}") from error
    real = folder.resolve()
    first = {above: str(above) for above in (real, *real.parents)}
    found = []
    for path in sorted(folders, key=lambda path: (path.is_symlink(), path.name)):
        target = path.resolve()
        if target in first:
            note(f"left out: {path} is a link to {first[target]}")
            continue
        first[target] = str(path)
        found.append(path)
    if not found:
        raise UsageError(f"--run-from-dir: no directory in {folder}; without it, it is one run")
    return sorted(found, key=lambda path: path.name)
