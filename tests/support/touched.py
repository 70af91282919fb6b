"""Tests that a change touches, for `pytest --touched`: a loop of seconds; CI runs all of them.

A Python module touches the tests that import it, and those that import what imports it. A SQL file
touches the tests that name it, and those of the SQL files that read it. Everything else (golden
files, data) touches the tests that name it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

from places import ROOT

IMPORTS = 2
"""How many imports may lie between a test and what has changed: of more, everything is touched."""
_IMPORT = re.compile(r"^\s*(?:from ([\w.]+) import ([\w, ]+|\()|import ([\w.]+))", re.MULTILINE)


def changed(base: str) -> list[PurePosixPath]:
    """Return the files that differ from a commit, those that git does not know yet among them."""
    listed = [
        subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True)
        for words in (
            ["diff", "--name-only", "--no-renames", base],
            ["ls-files", "--others", "--exclude-standard"],
        )
    ]
    return [PurePosixPath(line) for done in listed for line in done.stdout.splitlines()]


class Touched:
    """The test files that some changed files touch."""

    def __init__(self, files: Iterable[PurePosixPath]) -> None:
        self.files = set(files)

    @cached_property
    def tests(self) -> dict[PurePosixPath, str]:
        """The text of each test file and each file that tests share, by its path."""
        return dict(_texts("tests/**/*.py"))

    @cached_property
    def chosen(self) -> set[PurePosixPath]:
        """The test files."""
        words: set[str] = set()
        """Expressions of what tests write to name a file."""
        modules: set[str] = set()
        for file in self.files:
            if file.suffix == ".py" and file.parts[0] == "bufdb":
                modules.add(_module(file))
            elif file.suffix == ".sql":
                words |= self._names_of_sql(file)
            elif file.suffix not in (".py", ".md"):
                words.add(re.escape(file.name))
        modules = self._importers(modules)
        own = {file for file in self.files if file in self.tests}
        files = {file for file, text in self.tests.items() if self._is_about(file, text, modules)}
        files |= {file for file, text in self.tests.items() if _names_any(text, words)}
        shared = {file.stem for file in own if "support" in file.parts}
        files |= {
            file for file, text in self.tests.items() if shared & {one for one, _ in _imports(text)}
        }
        return {file for file in files | own if file.name.startswith("test_")}

    def _importers(self, modules: set[str]) -> set[str]:
        """Return the modules, and those that import them over fewer than IMPORTS imports."""
        import grimp  # 50 ms, which other runs need not spend

        graph = grimp.build_graph("bufdb", cache_dir=None)
        modules &= graph.modules
        for _ in range(IMPORTS - 1):
            modules |= {
                one for name in modules for one in graph.find_modules_that_directly_import(name)
            }
        return modules - {"bufdb"}

    def _is_about(self, file: PurePosixPath, text: str, modules: set[str]) -> bool:
        """Return whether a test imports a module, or is named after it."""
        mirrored = _module(PurePosixPath("bufdb", *file.parts[1:]).with_name(file.name[5:]))
        names = {full for name, parts in _imports(text) for full in (name, *parts)}
        return mirrored in modules or bool(modules & names)

    def _names_of_sql(self, file: PurePosixPath) -> set[str]:
        """Return how tests name a SQL file, and those that read it."""
        files = {file}
        for path, text in (*_texts("schema/**/*.sql"), *_texts("queries/**/*.sql")):
            if re.search(rf"\b(?:FROM|JOIN) {file.stem}\b|\b{file.stem}\(", text):
                files.add(path)
        # Queries are called by name, and many have everyday names.
        return {
            f'"{one.stem.replace("_", "-")}"' if one.parts[0] == "queries" else one.stem
            for one in files
        }


def _texts(pattern: str) -> Iterator[tuple[PurePosixPath, str]]:
    for path in sorted(ROOT.glob(pattern)):
        yield PurePosixPath(path.relative_to(ROOT).as_posix()), path.read_text(encoding="utf-8")


def _module(file: PurePosixPath) -> str:
    return ".".join(file.with_suffix("").parts).removesuffix(".__init__")


def _imports(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each module that a text imports, with the names that it takes of it, in full."""
    for home, taken, plain in _IMPORT.findall(text):
        names = re.findall(r"\w+", taken)
        yield home or plain, [f"{home}.{name}" for name in names]


def _names_any(text: str, words: set[str]) -> bool:
    return bool(words) and bool(
        re.search(rf"(?<![\w-])(?:{'|'.join(sorted(words))})(?![\w-])", text)
    )


@cache
def choose(base: str) -> set[Path]:
    """Return the test files that the change since a commit touches."""
    return {ROOT / file for file in Touched(changed(base)).chosen}
