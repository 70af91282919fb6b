"""The folders of saved queries, and the query files in them."""

import os
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path

from bufdb import resources
from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.query import header
from bufdb.query.header import GROUPS, QueryFileError, SavedQuery, parse, query_name


def load(path: Path) -> SavedQuery:
    """Read and parse one query file.

    Raises:
        QueryFileError: it cannot be read or does not follow the grammar.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryFileError(path, None, f"cannot read the query: {error}") from error
    return parse(text, path)


class Catalogue:
    """The query files of several folders, by name; parses only the files that are used.

    An invalid file does not affect other queries.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        """Search `folders` in order; of files with the same name the first is the query."""
        self.paths: dict[str, Path] = {}
        self._aliases: dict[str, Path] = {}
        self._clashes: list[QueryFileError] = []
        self._unread: list[Path] = []
        """Files of the last folder, whose aliases are not known yet: to read them takes 3 ms."""
        self._loaded_files: dict[Path, SavedQuery] = {}
        for folder in dict.fromkeys(folder.resolve() for folder in folders):
            self._read_aliases()
            self._unread = sorted(folder.glob("*.sql"))
            for path in self._unread:
                self._add(self.paths, query_name(path.stem), path)

    @property
    def aliases(self) -> dict[str, Path]:
        """Other names of queries, with defaults of their own, and the file that declares each."""
        self._read_aliases()
        return self._aliases

    @property
    def clashes(self) -> list[QueryFileError]:
        """The other files, each with a remedy; none is hidden silently."""
        self._read_aliases()
        return self._clashes

    def _read_aliases(self) -> None:
        for path in self._unread:
            for name in _alias_names(path):
                self._add(self._aliases, name, path)
        self._unread = []

    def _add(self, names: dict[str, Path], name: str, path: Path) -> None:
        other = self.paths.get(name) or self._aliases.get(name)
        if other is None:
            names[name] = path
        else:
            message = f"left out, for {other} is named '{name}' too; rename it"
            self._clashes.append(QueryFileError(path, None, message))

    def find(self, name: str) -> SavedQuery:
        """Return the query of that name or alias, written with dashes or underscores.

        Raises:
            UsageError: there is no such query; the message suggests a similar name.
            QueryFileError: its file does not follow the grammar.
        """
        wanted = query_name(name)
        if wanted in self.paths:
            return self._load(self.paths[wanted])
        # Most aliases begin with the name of their query.
        near = (path for name, path in self.paths.items() if wanted.startswith(f"{name}-"))
        alias_path = next((path for path in near if wanted in _alias_names(path)), None)
        alias_path = alias_path or self.aliases.get(wanted)
        if alias_path is not None:
            return self._load(alias_path).under(wanted)
        hint = did_you_mean(wanted, [*self.paths, *self.aliases]) or ";"
        raise UsageError(f"no saved query {quote(name)}{hint} 'bufdb queries' lists them")

    def _load(self, path: Path) -> SavedQuery:
        if path not in self._loaded_files:
            self._loaded_files[path] = load(path)
        return self._loaded_files[path]

    def load_all(self) -> list[SavedQuery]:
        """Return all queries with valid files, by group and name."""
        order = list(GROUPS)
        return sorted(self._loaded[0], key=lambda query: (order.index(query.group), query.name))

    def problems(self) -> list[QueryFileError]:
        """Return the errors in the files that `load_all` leaves out."""
        return [*self.clashes, *self._loaded[1]]

    @cached_property
    def _loaded(self) -> tuple[list[SavedQuery], list[QueryFileError]]:
        queries, problems = [], []
        for path in self.paths.values():
            try:
                queries.append(load(path))
            except QueryFileError as error:
                problems.append(error)
        return queries, problems


@cache
def own() -> Catalogue:
    """Return the saved queries that come with bufdb: files that do not change."""
    return Catalogue([resources.query_folder()])


def _alias_names(path: Path) -> list[str]:
    """Aliases that a file declares; none if it cannot be read, which `load` reports."""
    try:
        return header.alias_names(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []


def query_folders(folders: Iterable[Path], environ: Mapping[str, str]) -> list[Path]:
    """Return bufdb's own folder, the given ones, those of BUFDB_QUERIES, the user's default.

    Raises:
        UsageError: a folder that the user named does not exist.
    """
    named = [*folders, *(Path(p) for p in environ.get("BUFDB_QUERIES", "").split(os.pathsep) if p)]
    for folder in named:
        if not folder.is_dir():
            raise UsageError(f"no folder {folder} to take queries from")
    home = environ.get("HOME")
    config = environ.get("XDG_CONFIG_HOME") or (os.path.join(home, ".config") if home else "")  # noqa: PTH118
    default = Path(config, "bufdb", "queries")
    # Unlike Path.is_dir, this returns False for a home that cannot be read.
    has_default = bool(config) and os.path.isdir(default)  # noqa: PTH112
    return [resources.query_folder(), *named, *([default] if has_default else [])]
