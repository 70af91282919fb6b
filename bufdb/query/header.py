"""The header of a query file: its question, parameters and columns.

Defines the grammar. Does not access a database: `bufdb.query.execute` executes a query, and
`bufdb.lint.lint` checks the header against the SQL.

    -- title: One line
    -- group: peak | saving | change | store
    -- engines: duckdb, spark, sail                optional; (why no others) may follow
    --
    -- Free prose: why, definitions.
    --
    -- wrong when: Prose up to an empty line.      optional
    --
    -- param NAME TYPE = DEFAULT | OTHER: Text     values after | are the only other ones allowed
    -- column NAME TYPE: Text
    -- alias NAME = THIS-QUERY -p NAME VALUE|OTHER …: COLUMN, COLUMN AS NAME, …

A field goes on in following lines that are indented by two blanks or more. Of what many queries
share, which `queries/common/header.sql` declares, the names are enough: `param run, top_n = 5` and
`column run_name, color`. An alias is another name of the query, with defaults of its own; without
columns it has all.

Invariant: `SavedQuery.sql` is the file's text, unchanged; the text on disk is what runs.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bufdb import resources
from bufdb.database.quoting import sql_text
from bufdb.errors import BufdbError, quote

_FORMER_GROUPS = {
    "overview": "store",
    "live": "peak",
    "meaning": "peak",
    "waste": "saving",
    "runs": "change",
    "comparison": "change",
}
"""What query files of users may still say, and the group that it is."""
GROUPS = {
    "peak": "What holds the peak",
    "saving": "What can I save",
    "change": "What changed between runs",
    "store": "What is in the store",
}
"""Groups of the catalogue in the order of its list, with their headings."""

ENGINES = ("duckdb", "spark", "sail")
TYPES = ("BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN")

Value = int | float | str | bool | None

_FILE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FIELD = re.compile(
    r"(title|group|engines|wrong when):(?: +(?P<text>.*))?$|(?P<kind>param|column|alias) "
)
_LITERAL = r"(?:'(?:[^']|'')*'|[^\s:|']+)"
_PARAM = re.compile(
    r"param (?P<name>[a-z_][a-z0-9_]*) (?P<type>[A-Z]+) = "
    rf"(?P<values>{_LITERAL}(?: \| {_LITERAL})*): (?P<text>.+)"
)
_COMMON = r"[a-z_][a-z0-9_]*(?: = [^\s:,|]+)?"
_NAMES = re.compile(rf"(?:param|column) (?P<names>{_COMMON}(?:, *{_COMMON})*)")
_ALIAS = re.compile(
    r"alias (?P<name>[a-z][a-z0-9-]*) = (?P<query>[a-z][a-z0-9-]*)"
    r"(?P<settings>(?: -p [a-z_][a-z0-9_]* [^\s:]+)*)(?:: (?P<columns>.+))?"
)
_SETTING = re.compile(r" -p (\w+) (\S+)")
_ALIAS_NAME = re.compile(r"^-- alias ([a-z][a-z0-9-]*) =", re.MULTILINE)
_COLUMN = re.compile(r"column (?P<name>[a-z_][a-z0-9_]*) (?P<type>[A-Z][^:]*): (?P<text>.+)")


class QueryFileError(BufdbError):
    """A query file that does not follow the grammar."""

    def __init__(self, path: Path, line_number: int | None, message: str) -> None:
        where = str(path) if line_number is None else f"{path}:{line_number}"
        super().__init__(f"{where}: {message}")
        self.path = path


class Parameter(NamedTuple):
    """One `param` line."""

    name: str
    type: str
    default: Value
    choices: tuple[Value, ...]
    """The allowed values, the default first; empty if any value of the type is allowed."""
    text: str


class Column(NamedTuple):
    """One `column` line."""

    name: str
    type: str
    """A DuckDB type as DESCRIBE prints it."""
    text: str


class Alias(NamedTuple):
    """One `alias` line: another name of a query, mostly one that it had as a query of its own."""

    name: str
    choices: tuple[tuple[str, tuple[Value, ...]], ...]
    """Parameters with a default of their own, the first; any others are all else that is allowed,
    and nothing else is where the query's own values are a choice."""
    columns: tuple[tuple[str, str], ...]
    """Columns of the query, each with its name in the alias; empty if it has them all."""
    text: str
    """What it is short for, as the command line takes it: peak-by -p by dtype."""

    @property
    def settings(self) -> dict[str, Value]:
        """The defaults that are its own."""
        return {name: values[0] for name, values in self.choices}


class SavedQuery(NamedTuple):
    """A query file, its header taken apart; or what it is under the name of an alias."""

    name: str
    """The name with dashes, as on the command line; the file's name has underscores."""
    title: str
    group: str
    engines: tuple[str, ...]
    """Engines on which it returns the same rows; duckdb is the first."""
    engines_reason: str | None
    """Why it has no others, from its header."""
    description: str
    """Paragraphs separated by an empty line; '' if there is no prose."""
    wrong_when: str | None
    """When the answer can be wrong; None for a query that gives no advice."""
    params: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    sql: str
    path: Path
    aliases: tuple[Alias, ...] = ()
    alias: Alias | None = None
    """What made it of another query; None for one with a file of its own."""

    @property
    def is_own(self) -> bool:
        """Whether the query comes with bufdb."""
        return self.path.parent == resources.query_folder()

    def param(self, name: str) -> Parameter | None:
        """Return the parameter of that name, or None."""
        return next((param for param in self.params if param.name == name), None)

    def with_settings(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values with the defaults that are the alias's own."""
        set_values = {name: value for name, value in values.items() if value is not None}
        return {**values, **(self.alias.settings if self.alias else {}), **set_values}

    def unasked_columns(self, values: Mapping[str, Value]) -> set[str]:
        """Columns that have no meaning with these values: the alias of the same choice has none."""
        settings = {param.name: param.default for param in self.params}
        settings |= {name: value for name, value in values.items() if value is not None}
        chosen = {param.name for param in self.params if param.choices}
        for alias in self.aliases:
            choice = {name: known for name, known in alias.choices if name in chosen}
            if choice and alias.columns and all(settings[name] in choice[name] for name in choice):
                shown = {column for column, _ in alias.columns}
                return {column.name for column in self.columns} - shown
        return set()

    def under(self, name: str) -> "SavedQuery":
        """Return the query that an alias of this one names.

        Raises:
            QueryFileError: the alias names a column that the query does not have.
        """
        alias = next(alias for alias in self.aliases if alias.name == name)
        own = dict(alias.choices)
        params = (
            param._replace(default=own[param.name][0], choices=param.choices and own[param.name])
            if param.name in own
            else param
            for param in self.params
        )
        known = {column.name: column for column in self.columns}
        shown = alias.columns or tuple((column, column) for column in known)
        missing = [column for column, _ in shown if column not in known]
        if missing:
            raise QueryFileError(self.path, None, f"alias {name}: there is no column {missing[0]}")
        columns = (known[column]._replace(name=as_name) for column, as_name in shown)
        chosen = ", ".join(f"{key} {value}" for key, value in alias.settings.items())
        return self._replace(
            name=name,
            title=f"{self.title} ({chosen})",
            params=tuple(params),
            columns=tuple(columns),
            sql=f"-- {name}: {alias.text}\n{_projected(self.sql, shown)}",
            aliases=(),
            alias=alias,
        )


def parse(text: str, path: Path) -> SavedQuery:
    """Parse a query file's text; `path` gives the name, and the place for messages.

    Raises:
        QueryFileError: the file's name or header does not follow the grammar.
    """
    if not _FILE_NAME.fullmatch(path.stem):
        raise QueryFileError(path, None, "a query file is named in snake_case: [a-z][a-z0-9_]*.sql")
    header = _Header(path)
    lines = text.splitlines()
    body_start = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    for line_number, line in enumerate(lines[:body_start], start=1):
        header.read(line_number, line.removeprefix("--").removeprefix(" ").rstrip())
    if not any(line.strip() for line in lines[body_start:]):
        raise QueryFileError(path, len(lines), "expected a SELECT below the header, found nothing")
    return header.query(text)


def alias_names(text: str) -> list[str]:
    """Names of the aliases in a query file's text, without parsing it."""
    return _ALIAS_NAME.findall(text)


@functools.cache
def common() -> dict[tuple[str, str], Parameter | Column]:
    """Return the parameters and columns that many queries share, by kind and name."""
    path = resources.common_header()
    header = _Header(path)
    for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        header.read(line_number, line.removeprefix("--").removeprefix(" ").rstrip())
    return {
        ("param" if isinstance(entry, Parameter) else "column", entry.name): entry
        for line_number, text in header.entries
        for entry in header.entry(line_number, text)
    }


def query_name(text: str) -> str:
    """Return a query's name with dashes instead of underscores."""
    return text.replace("_", "-")


def parse_value(type_name: str, text: str) -> Value:
    """Return a parameter's value from its text.

    Raises:
        ValueError: the text is not a value of the type.
    """
    if type_name == "BIGINT":
        number = int(text)
        if not -(2**63) <= number < 2**63:
            raise ValueError(text)
        return number
    if type_name == "DOUBLE":
        return float(text)
    if type_name == "BOOLEAN":
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
    return text


def literal(value: Value) -> str:
    """Return the value as SQL, of a setting of an alias."""
    return sql_text(value) if isinstance(value, str) else str(value)


class _Header:
    """Header lines read so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fields: dict[str, str] = {}
        self.entries: list[tuple[int, str]] = []
        """(line number, text) of every param and column line, continuation lines joined."""
        self.paragraphs: list[list[str]] = [[]]
        self.open_field: str | None = None
        """Field that an indented line continues; 'entry' for the last param or column."""

    def read(self, line_number: int, text: str) -> None:
        match = _FIELD.match(text)
        if not text:
            self.open_field = None
            self.paragraphs.append([])
        elif match and match["kind"]:
            self.entries.append((line_number, text))
            self.open_field = "entry"
        elif match:
            if match[1] in self.fields:
                raise QueryFileError(self.path, line_number, f"a second '{match[1]}:' line")
            self.fields[match[1]] = match["text"] or ""
            self.open_field = match[1]
        elif self.open_field == "entry" and text.startswith("  "):
            number, entry = self.entries[-1]
            self.entries[-1] = (number, f"{entry} {text.strip()}")
        elif self.open_field == "wrong when" or (self.open_field and text.startswith("  ")):
            self.fields[self.open_field] = f"{self.fields[self.open_field]} {text.strip()}".strip()
        else:
            self.open_field = None
            self.paragraphs[-1].append(text)

    def query(self, sql: str) -> SavedQuery:
        for name in ("title", "group"):
            if not self.fields.get(name):
                raise QueryFileError(self.path, 1, f"expected a header line '-- {name}: …'")
        group = _FORMER_GROUPS.get(self.fields["group"], self.fields["group"])
        self._one_of("group", group, GROUPS)
        listed, _, reason = self.fields.get("engines", "duckdb").partition("(")
        engines = tuple(self._one_of("engine", name.strip(), ENGINES) for name in listed.split(","))
        params: list[Parameter] = []
        columns: list[Column] = []
        aliases: list[Alias] = []
        for line_number, text in self.entries:
            if text.startswith("alias "):
                aliases.append(self._alias(line_number, text, params))
                continue
            for entry in self.entry(line_number, text):
                known: list[Parameter] | list[Column] = (
                    params if isinstance(entry, Parameter) else columns
                )
                if entry.name in [other.name for other in known]:
                    kind = text.split(" ")[0]
                    raise QueryFileError(self.path, line_number, f"a second {kind} '{entry.name}'")
                known.append(entry)  # type: ignore[arg-type]
        if not columns:
            raise QueryFileError(self.path, 1, "expected a header line '-- column NAME TYPE: …'")
        return SavedQuery(
            name=query_name(self.path.stem),
            title=self.fields["title"],
            group=group,
            engines=engines,
            engines_reason=reason.removesuffix(")") or None,
            description="\n\n".join("\n".join(lines) for lines in self.paragraphs if lines),
            wrong_when=self.fields.get("wrong when"),
            params=tuple(params),
            columns=tuple(columns),
            sql=sql,
            path=self.path,
            aliases=tuple(aliases),
        )

    def entry(self, line_number: int, text: str) -> Iterator[Parameter | Column]:
        """Yield what a param or column line declares: one in full, or common ones by name."""
        kind = text.split(" ")[0]
        names = _NAMES.fullmatch(text)
        if names is None:
            yield (self._param if kind == "param" else self._column)(line_number, text)
            return
        for item in re.split(", *", names["names"]):
            name, _, default = item.partition(" = ")
            if (kind, name) not in common() or (default and kind == "column"):
                raise QueryFileError(
                    self.path,
                    line_number,
                    f"{kind} {name} is not in {resources.common_header().name}: "
                    "expected its type and text",
                )
            entry = common()[kind, name]
            if default and isinstance(entry, Parameter):
                value = self._literal(line_number, name, entry.type, default)
                entry = entry._replace(default=value)
            yield entry

    def _alias(self, line_number: int, text: str, params: list[Parameter]) -> Alias:
        match = _ALIAS.fullmatch(text)
        if match is None or match["query"] != query_name(self.path.stem):
            raise QueryFileError(
                self.path,
                line_number,
                f"expected 'alias NAME = {query_name(self.path.stem)} -p NAME VALUE: COLUMN, "
                f"COLUMN AS NAME', found {quote(text)}",
            )
        known = {param.name: param for param in params}
        choices = []
        for name, texts in _SETTING.findall(match["settings"]):
            try:
                values = tuple(parse_value(known[name].type, text) for text in texts.split("|"))
                if known[name].choices and not set(values) <= set(known[name].choices):
                    raise ValueError(texts)
            except (KeyError, ValueError) as error:
                message = f"alias {match['name']}: the query takes no -p {name} {texts}"
                raise QueryFileError(self.path, line_number, message) from error
            choices.append((name, values))
        shown = (item.partition(" AS ") for item in re.split(", *", match["columns"] or ""))
        return Alias(
            name=match["name"],
            choices=tuple(choices),
            columns=tuple((column, as_name or column) for column, _, as_name in shown if column),
            text=match["query"] + re.sub(r"\|\S+", "", match["settings"]),
        )

    def _one_of(self, what: str, name: str, known: Iterable[str]) -> str:
        if name not in known:
            expected = " | ".join(known)
            raise QueryFileError(
                self.path, None, f"expected {what} {expected}, found {quote(name)}"
            )
        return name

    def _param(self, line_number: int, text: str) -> Parameter:
        match = _PARAM.fullmatch(text)
        if match is None or match["type"] not in TYPES:
            raise QueryFileError(
                self.path,
                line_number,
                f"expected 'param NAME {'|'.join(TYPES)} = DEFAULT: text', found {quote(text)}",
            )
        values = [
            self._literal(line_number, match["name"], match["type"], literal)
            for literal in re.findall(_LITERAL, match["values"])
        ]
        return Parameter(
            name=match["name"],
            type=match["type"],
            default=values[0],
            choices=tuple(values) if len(values) > 1 else (),
            text=match["text"],
        )

    def _literal(self, line_number: int, name: str, type_name: str, literal: str) -> Value:
        try:
            return _default(type_name, literal)
        except (ValueError, KeyError) as error:
            message = f"{name}: {literal} is not a {type_name}"
            raise QueryFileError(self.path, line_number, message) from error

    def _column(self, line_number: int, text: str) -> Column:
        match = _COLUMN.fullmatch(text)
        if match is None:
            raise QueryFileError(
                self.path, line_number, f"expected 'column NAME TYPE: text', found {quote(text)}"
            )
        return Column(match["name"], match["type"], match["text"])


def _default(type_name: str, literal: str) -> Value:
    if literal == "NULL":
        return None
    if type_name != "VARCHAR":
        return parse_value(type_name, literal)
    if not literal.startswith("'"):
        raise ValueError(literal)
    return literal[1:-1].replace("''", "'")


def _projected(sql: str, shown: Iterable[tuple[str, str]]) -> str:
    """Return the statement without its header, with these columns of its last SELECT, renamed."""
    lines = [line for line in sql.splitlines() if not line.startswith("--")]
    first = max(place for place, line in enumerate(lines) if re.match("SELECT( |$)", line))
    last = next(
        place for place in range(first, len(lines)) if re.search("(^| )FROM ", lines[place])
    )
    listed, _, rest = "\n".join(lines[first : last + 1]).rpartition("FROM ")
    items = {
        item.split()[-1].split(".")[-1]: item for item in _items(listed.removeprefix("SELECT"))
    }
    made = ",\n  ".join(_renamed(items[column], column, name) for column, name in shown)
    tail = [f"FROM {rest}", *lines[last + 1 :]]
    return "\n".join([*lines[:first], f"SELECT\n  {made}", *tail]) + "\n"


def _items(text: str) -> list[str]:
    """Return the text in parts, cut at commas that are in no parentheses."""
    items, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            items.append("")
        else:
            items[-1] += char
    return [item.strip() for item in items]


def _renamed(item: str, column: str, name: str) -> str:
    return item if column == name else f"{item.removesuffix(f' AS {column}').rstrip()} AS {name}"
