"""A directory whose sub-directories are runs: which runs, and labels from their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bufdb.dumps.discover import discover
from bufdb.dumps.files import Problem
from bufdb.dumps.memory_profiles import MemoryFile
from bufdb.dumps.modules import NO_BUFFERS
from bufdb.errors import UsageError, quote

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True)
class LabelPattern:
    """A pattern such as `transformer_b{batch}_{dtype}_{remat}` for names of directories."""

    text: str
    labels: tuple[str, ...]
    _regex: re.Pattern[str]

    def labels_of(self, name: str) -> dict[str, str] | None:
        """Return labels from a name that matches the whole pattern; None if it does not.

        Each placeholder takes at least one character and as few as it can.
        """
        match = self._regex.fullmatch(name)
        return None if match is None else dict(zip(self.labels, match.groups(), strict=True))


def parse_pattern(text: str) -> LabelPattern:
    """Parse a pattern.

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
            raise UsageError(f"{where}: placeholder {label} appears twice")
    if any("{" in literal or "}" in literal for literal in literals):
        raise UsageError(f"{where}: expected braces in pairs")
    if "" in literals[1:-1]:
        raise UsageError(f"{where}: expected some text between two placeholders")
    regex = "(.+?)".join(re.escape(literal) for literal in literals)
    return LabelPattern(text, tuple(labels), re.compile(regex, re.DOTALL))


def find_run_folders(folder: Path, note: Callable[[str], None]) -> list[Path]:
    """Return the sub-directories of a directory, in order of their names, each once.

    A link to one of the others, such as `latest`, or to a directory above is left out and reported
    to `note`.

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
    run_folders = []
    for path in sorted(folders, key=lambda path: (path.is_symlink(), path.name)):
        target = path.resolve()
        if target in first:
            note(f"skipped: {path} is a link to {first[target]}")
            continue
        first[target] = str(path)
        run_folders.append(path)
    if not run_folders:
        raise UsageError(f"--run-from-dir: no directory in {folder}; without it, it is one run")
    return sorted(run_folders, key=lambda path: path.name)


def labels_by_folder(
    paths: Sequence[Path],
    pattern_text: str | None,
    labels: Collection[str],
    note: Callable[[str], None],
) -> dict[Path, dict[str, str]]:
    """Return the sub-directories of some directories that are runs, with their own labels.

    Args:
        paths: directories whose sub-directories are runs, named after these.
        pattern_text: see `parse_pattern`; None for no labels.
        labels: names of labels that all runs have.
        note: receives what is left out.

    Raises:
        UsageError: two would be the same run, a label is in `labels`, or there is no dump.
    """
    pattern = None if pattern_text is None else parse_pattern(pattern_text)
    both = sorted(set(labels) & set(pattern.labels if pattern else ()))
    if both:
        raise UsageError(f"label {both[0]} is in --label and in --labels-from")
    folders: dict[str, Path] = {}
    for path in paths:
        for folder in find_run_folders(path, note):
            if folder.name in folders:
                raise UsageError(
                    f"{folders[folder.name]} and {folder} would both be run {folder.name}"
                )
            folders[folder.name] = folder
        # Each directory becomes a run; files next to them belong to none.
        loose = [file for file in path.iterdir() if file.name.endswith("-buffer-assignment.txt")]
        if loose:
            note(f"skipped: {len(loose)} dumps in {path} outside its sub-directories")
    labels_by_folder: dict[Path, dict[str, str]] = {}
    for name, folder in folders.items():
        problems: list[Problem] = []
        profiles: list[MemoryFile] = []
        modules = discover(folder, problems, profiles)
        if not (modules or profiles or any(o.severity == "error" for o in problems)):
            why = "".join(f": {o.message}" for o in problems if o.code == NO_BUFFERS)
            note(f"skipped: {folder} has no buffer assignment{why}")
            continue
        own = pattern.labels_of(name) if pattern else {}
        if own is None:
            note(f"no labels for run {name}: {pattern_text} does not match its name")
        labels_by_folder[folder] = own or {}
    if not labels_by_folder:
        raise UsageError(f"no buffer assignment in a sub-directory of {paths[0]}")
    return labels_by_folder
