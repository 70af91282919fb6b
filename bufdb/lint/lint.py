"""Check the header of a saved query against its SQL, and both against the catalog.

Parses with sqlglot and asks DuckDB to bind the query; executes nothing. Findings have the file, the
line if known, and what to change.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
from sqlglot import exp, parse
from sqlglot.errors import OptimizeError, ParseError, SqlglotError
from sqlglot.optimizer.qualify import qualify

from bufdb.errors import BufdbError
from bufdb.lint import portable
from bufdb.query import catalogue, header
from bufdb.query.execute import require_select
from bufdb.query.header import Alias, Column, Parameter, QueryFileError, SavedQuery

LINE_LIMIT = 100

FILTERS = ("run", "function", "platform", "color", "module")
"""The parameters that filter, in the order in which bufdb's own queries have them."""
EVERY_SPACE = "Memory space: its number; NULL or all is every one."
"""Text of color in a query that shows memory spaces next to each other."""

UNITS = {
    "_bytes": ("[bytes]",),
    "_time": ("[program order]",),
    "_steps": ("x program order]",),
    "_ratio": ("(0 to 1)", "divided by"),
    "_at": ("[UTC]",),
}
"""By ending of a column's name, alternatives that its text must contain in bufdb's queries."""

_TYPES = {
    exp.DataType.Type.BIGINT: "BIGINT",
    exp.DataType.Type.DOUBLE: "DOUBLE",
    exp.DataType.Type.TEXT: "VARCHAR",
    exp.DataType.Type.BOOLEAN: "BOOLEAN",
}


@dataclass(frozen=True)
class Finding:
    """Something to change in a query file."""

    path: Path
    line_number: int | None
    message: str

    def __str__(self) -> str:
        where = str(self.path) if self.line_number is None else f"{self.path}:{self.line_number}"
        return f"{where}: {self.message}"


def lint(con: duckdb.DuckDBPyConnection, path: Path) -> list[Finding]:
    """Return findings in a query file, against the tables, views and macros of a database."""
    try:
        query = catalogue.load(path)
    except QueryFileError as error:
        return [Finding(path, None, str(error).removeprefix(f"{path}:").lstrip())]
    findings = [
        Finding(path, number, f"longer than {LINE_LIMIT} characters")
        for number, line in enumerate(query.sql.splitlines(), start=1)
        if len(line) > LINE_LIMIT
    ]
    try:
        trees = [tree for tree in parse(query.sql, read="duckdb") if tree is not None]
    except ParseError as error:
        place = error.errors[0] if error.errors else {}
        message = f"does not parse: {place.get('description', error)}"
        if "Values" in message:
            message += '; sqlglot takes values for VALUES (…): write "values" for the table'
        return [*findings, Finding(path, place.get("line"), message)]
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        kinds = ", ".join(tree.key.upper() for tree in trees)
        return [*findings, Finding(path, None, f"expected one SELECT, found {kinds or 'nothing'}")]
    messages = [
        *_shape(trees[0]),
        *_params(query, trees[0]),
        *(filter_findings(query.params) if query.is_own else ()),
        *(unit_findings(query.columns) if query.is_own else ()),
        *_columns(con, query),
        *_names(con, trees[0]),
        *(_repeated(query) if query.is_own else ()),
        *(
            f"alias {alias.name}: {message}"
            for alias in query.aliases
            for message in _alias(con, query, alias)
        ),
    ]
    if query.engines != ("duckdb",):
        messages.extend(portable.findings(portable.with_asked_views(trees[0])))
    return [*findings, *(Finding(path, None, message) for message in messages)]


def catalog_schema(con: duckdb.DuckDBPyConnection) -> dict[str, object]:
    """Return the columns and types of every table and view, in sqlglot's form."""
    tables: dict[str, dict[str, str]] = {}
    rows = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal"
    ).fetchall()
    for table, column, data_type in rows:
        tables.setdefault(table, {})[column] = data_type
    return dict(tables)


def _shape(tree: exp.Query) -> Iterator[str]:
    """Yield violations of rules for the text itself, regardless of the catalog."""
    if not tree.args.get("order"):
        yield "no final ORDER BY; rows must come in a total order"
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            yield "SELECT *: list the columns"
            break
    for table in sorted({table.name for table in tree.find_all(exp.Table)}):
        if table.startswith("_"):
            yield f"{table} is a helper of the schema; use a table or a public view"


def _params(query: SavedQuery, tree: exp.Query) -> Iterator[str]:
    """Yield differences between the params CTE, the variables that views read, and param lines."""
    ctes = tree.ctes
    first = ctes[0] if ctes and ctes[0].alias == "params" else None
    declared = {param.name: param for param in query.params}
    read = _variables(portable.asked_views(tree).values())
    for name, kind in read.items():
        param = declared.get(name)
        if param is None:
            yield f"a view reads the variable {name}, which has no param line"
        elif (param.type, param.default) != kind:
            yield f"param {name}: a view reads it as {kind[0]} = {kind[1] or 'NULL'}"
    if first is None:
        if declared.keys() - read.keys():
            yield "the first CTE must be params"
    else:
        columns = {item.alias_or_name: item for item in first.this.expressions}
        for name in sorted(declared.keys() - columns.keys() - read.keys()):
            yield f"param {name} is declared, but not in the CTE params"
        for name, item in columns.items():
            if name not in declared:
                yield f"{name} is in the CTE params without a param line"
            else:
                yield from _param(declared[name], item.unalias())
        used = {c.name for c in tree.find_all(exp.Column) if c.table == "params"} | {
            c.name for limit in tree.find_all(exp.Limit) for c in limit.find_all(exp.Column)
        }
        for name in sorted(declared.keys() & columns.keys() - used):
            yield f"param {name} is not used; write params.{name}"
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() == "getvariable" and call.find_ancestor(exp.CTE) is not first:
            yield f"{call.sql('duckdb')} outside the CTE params"


def _variables(trees: Iterable[exp.Expr]) -> dict[str, tuple[str, header.Value]]:
    """Return the variables that the views read, each with its type and its default."""
    return {
        cast.this.expressions[0].name: (_TYPES[cast.to.this], _default(cast))
        for tree in trees
        for cast in tree.find_all(exp.Cast)
        if portable.is_getvariable(cast.this)
    }


def _default(cast: exp.Expr) -> header.Value:
    """Return the constant that replaces a variable that is not set."""
    around = cast.parent
    if isinstance(around, exp.Coalesce) and len(around.expressions) == 1:
        return _constant(around.expressions[0])
    return None


def filter_findings(params: Sequence[Parameter]) -> Iterator[str]:
    """Yield the parameters that filter come first, in one order, and are the common ones."""
    names = [name for name in FILTERS if name in {param.name for param in params}]
    right = [
        param.name
        for param in params[: len(names)]
        if param == header.common().get(("param", param.name))
        or (param.name, param.text) == ("color", EVERY_SPACE)
    ]
    if right != names:
        yield f"the first param line must be: param {', '.join(names)}"


def unit_findings(columns: Sequence[Column]) -> Iterator[str]:
    """Yield findings on quantities whose column text does not give the unit."""
    for column in columns:
        for ending, units in UNITS.items():
            if column.name.endswith(ending) and not any(unit in column.text for unit in units):
                yield f"column line {column.name}: its text must say {' or '.join(units)}"


def _param(param: Parameter, expression: exp.Expr) -> Iterator[str]:
    """Check a column of the CTE: `getvariable('x')::T`, or that in `coalesce(…, DEFAULT)`."""
    expected = f"getvariable('{param.name}')::{param.type}"
    default: header.Value = None
    cast = expression
    if isinstance(expression, exp.Coalesce) and len(expression.expressions) == 1:
        cast = expression.this
        default = _constant(expression.expressions[0])
    named = (
        isinstance(cast, exp.Cast)
        and portable.is_getvariable(cast.this)
        and cast.this.expressions[0].name == param.name
        and _TYPES.get(cast.to.this) == param.type
    )
    if not named:
        text = expression.sql("duckdb")
        yield f"param {param.name}: expected {expected} in the CTE params, found {text}"
    elif (type(default), default) != (type(param.default), param.default):
        yield f"param {param.name}: default is {param.default!r} in its line, {default!r} in params"


def _constant(node: exp.Expr) -> header.Value:
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return -inner if isinstance(inner, int | float) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return int(node.this) if node.is_int else float(node.this)
    return None


def _columns(con: duckdb.DuckDBPyConnection, query: SavedQuery) -> Iterator[str]:
    """Yield differences between the column lines and DuckDB's description of the query."""
    try:
        # A text that sqlglot parses as one SELECT may be something else to DuckDB.
        require_select(con, query.sql, query.name)
    except BufdbError as error:
        yield str(error).removeprefix(f"{query.name}: ")
        return
    try:
        rows = con.execute(f"DESCRIBE {query.sql}").fetchall()
    except duckdb.Error as error:
        yield " ".join(str(error).split("LINE ")[0].split())
        return
    described = [(row[0], row[1]) for row in rows]
    declared = [(column.name, column.type) for column in query.columns]
    for name, type_name in described:
        if (name, type_name) not in declared:
            yield f"column {name} {type_name} has no column line"
    for name, type_name in declared:
        if (name, type_name) not in described:
            yield f"column line {name} {type_name}: the query gives no such column"
    if sorted(described) == sorted(declared) and described != declared:
        order = ", ".join(name for name, _ in described)
        yield f"the column lines are not in the query's order: {order}"


def _repeated(query: SavedQuery) -> Iterator[str]:
    """Entries that the header has in full, and that are the common ones by their names alone."""
    entries: list[Parameter | Column] = [*query.params, *query.columns]
    for entry in entries:
        kind = "param" if isinstance(entry, Parameter) else "column"
        in_full = f"-- {kind} {entry.name} {entry.type}"
        if header.common().get((kind, entry.name)) == entry and in_full in query.sql:
            yield f"{kind} {entry.name} is a common one: write '{kind} {entry.name}'"


def _alias(con: duckdb.DuckDBPyConnection, query: SavedQuery, alias: Alias) -> Iterator[str]:
    """Whether the query under that name is bound, with the columns that it declares."""
    try:
        yield from _columns(con, query.under(alias.name))
    except QueryFileError as error:
        yield str(error).removeprefix(f"{query.path}: alias {alias.name}: ")


def _names(con: duckdb.DuckDBPyConnection, tree: exp.Query) -> Iterator[str]:
    """Yield an error if sqlglot cannot resolve a column, since it could not translate it either."""
    try:
        qualify(tree.copy(), schema=catalog_schema(con), dialect="duckdb")
    except (OptimizeError, SqlglotError) as error:
        yield str(error).splitlines()[0]
