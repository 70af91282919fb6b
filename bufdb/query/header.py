"""The header of a query file: what it asks, takes and gives.

Owns the grammar. Knows no database: `bufdb.query.execute` executes a query, `bufdb.lint.lint` holds
the header and the SQL together.

    -- title: One line
    -- group: overview | live | meaning | waste | runs | comparison
    -- engines: duckdb, spark, sail                optional; (why no others) may follow
    --
    -- Free prose: why, definitions.
    --
    -- wrong when: Prose up to an empty line.      optional
    --
    -- param NAME TYPE = DEFAULT | OTHER: Text     values after | are the only other ones allowed
    -- column NAME TYPE: Text

A field goes on in following lines that are indented by two blanks or more.

Invariant: `SavedQuery.sql` is the file's text, unchanged; what is on disk is what runs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bufdb import resources
from bufdb.errors import BufdbError, quote

GROUPS = {
    "overview": "Overview",
    "live": "What is live",
    "meaning": "By meaning",
    "waste": "Waste and advice",
    "runs": "Across runs",
    "comparison": "Comparing runs",
}
"""Groups of the catalogue in the order in which it lists them, with their headings."""

ENGINES = ("duckdb", "spark", "sail")
TYPES = ("BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN")

Value = int | float | str | bool | None

_FILE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FIELD = re.compile(
    r"(title|group|engines|wrong when):(?: +(?P<text>.*))?$|(?P<kind>param|column) "
)
_LITERAL = r"(?:'(?:[^']|'')*'|[^\s:|']+)"
_PARAM = re.compile(
    r"param (?P<name>[a-z_][a-z0-9_]*) (?P<type>[A-Z]+) = "
    rf"(?P<values>{_LITERAL}(?: \| {_LITERAL})*): (?P<text>.+)"
)
_COLUMN = re.compile(r"column (?P<name>[a-z_][a-z0-9_]*) (?P<type>[A-Z][^:]*): (?P<text>.+)")


class QueryFileError(BufdbError):
    """A query file that does not follow the grammar."""

    def __init__(self, path: Path, line_number: int | None, message: str) -> None:
        where = str(path) if line_number is None else f"{path}:{line_number}"
        super().__init__(f"{where}: {message}")
        self.path = path


@dataclass(frozen=True)
class Parameter:
    """One `param` line."""

    name: str
    type: str
    default: Value
    choices: tuple[Value, ...]
    """The only values allowed, the default first; empty if any value of the type is."""
    text: str


@dataclass(frozen=True)
class Column:
    """One `column` line."""

    name: str
    type: str
    """A DuckDB type as DESCRIBE prints it."""
    text: str


@dataclass(frozen=True)
class SavedQuery:
    """A query file, its header taken apart."""

    name: str
    """With dashes, as the command line shows it; the file's name has underscores."""
    title: str
    group: str
    engines: tuple[str, ...]
    """Where it gives the same rows; duckdb is the first."""
    engines_reason: str | None
    """Why it has no others, as its header says."""
    description: str
    """Paragraphs separated by an empty line; '' if there is no prose."""
    wrong_when: str | None
    """When the answer can be wrong; None for a query that gives no advice."""
    params: tuple[Parameter, ...]
    columns: tuple[Column, ...]
    sql: str
    path: Path

    @property
    def is_own(self) -> bool:
        """Whether the query comes with bufdb."""
        return self.path.parent == resources.query_folder()

    def param(self, name: str) -> Parameter | None:
        """The parameter of that name, or None."""
        return next((param for param in self.params if param.name == name), None)


def parse(text: str, path: Path) -> SavedQuery:
    """Take a query file's text apart; `path` gives the name and the place for messages.

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


def query_name(text: str) -> str:
    """A query's name with dashes, however it was written."""
    return text.replace("_", "-")


def parse_value(type_name: str, text: str) -> Value:
    """A parameter's value from its text.

    Raises:
        ValueError: the text is no value of the type.
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


@dataclass
class _Header:
    """Header lines read so far."""

    path: Path
    fields: dict[str, str] = field(default_factory=dict)
    entries: list[tuple[int, str]] = field(default_factory=list)
    """(line number, text) of every param and column line, continuation lines joined."""
    paragraphs: list[list[str]] = field(default_factory=lambda: [[]])
    open_field: str | None = None
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
        group = self._one_of("group", self.fields["group"], GROUPS)
        listed, _, reason = self.fields.get("engines", "duckdb").partition("(")
        engines = tuple(self._one_of("engine", name.strip(), ENGINES) for name in listed.split(","))
        params: list[Parameter] = []
        columns: list[Column] = []
        for line_number, text in self.entries:
            known: list[Parameter] | list[Column]
            if text.startswith("param "):
                known = params
                params.append(self._param(line_number, text))
            else:
                known = columns
                columns.append(self._column(line_number, text))
            names = [entry.name for entry in known]
            if names.count(names[-1]) > 1:
                kind = text.split(" ")[0]
                raise QueryFileError(self.path, line_number, f"a second {kind} '{names[-1]}'")
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
        values = []
        for literal in re.findall(_LITERAL, match["values"]):
            try:
                values.append(_default(match["type"], literal))
            except (ValueError, KeyError) as error:
                message = f"{match['name']}: {literal} is no {match['type']}"
                raise QueryFileError(self.path, line_number, message) from error
        return Parameter(
            name=match["name"],
            type=match["type"],
            default=values[0],
            choices=tuple(values) if len(values) > 1 else (),
            text=match["text"],
        )

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
