"""Saved queries in other dialects: the whole text, or its CTEs in parts."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from bufdb.database import definitions, store
from bufdb.errors import BufdbError, UsageError
from bufdb.lint import spark
from bufdb.lint.lint import catalog_schema
from bufdb.lint.spark import Unportable
from bufdb.query.header import SavedQuery

# -- A statement in parts: what would be read too often is computed first, once --------------------
#
# DuckDB computes a CTE that several others read once. Spark and Sail put its text wherever its name
# stands, and so do the CTEs that it reads: a few steps of two readers each, and the plan reads
# tables ten thousand times, for which their planners have neither the time nor the memory.
#
# Reads and rewrites syntax trees only; runs nothing.

MOST_READS = 100
"""Of tables in one plan. Over plain tables Spark plans 1,300 (query advice), but not 2,200; over a
dataset, of which each read is a join with the owners that count, 1,300 fill a gigabyte in 14
minutes. In eight parts of at most 100 that query takes 75 s there; 50 instead gain nothing."""


def parted(tree: exp.Query) -> list[tuple[str, exp.Query]]:
    """The statement as parts, each with its name; the last one, which has none, is the answer.

    A part reads earlier ones by their names, which are those of the CTEs that they were.

    Args:
        tree: a statement of `bufdb.lint.translate` or `bufdb.lint.spark`, of which a CTE reads none
            but those before it; it stays as it is.
    """
    ctes = {cte.alias: cte.this for cte in tree.ctes}
    body = tree.copy()
    body.set("with_", None)
    readings = {name: _read_names(part) for name, part in {**ctes, "": body}.items()}
    first: set[str] = set()
    while wanted := _most_saving(readings, first):
        first.add(wanted)
    names = [name for name in ctes if name in first]
    return [(name, _with_ctes(ctes[name], ctes, first)) for name in names] + [
        ("", _with_ctes(body, ctes, first))
    ]


def _read_names(tree: exp.Expr) -> Counter[str]:
    """How often a SELECT names each table or CTE."""
    return Counter(table.name for table in tree.find_all(exp.Table))


def _most_saving(readings: Mapping[str, Counter[str]], first: set[str]) -> str | None:
    """Return the CTE that makes most of the largest part; None where no part is too large."""
    reads: dict[str, int] = {}
    for name, counts in readings.items():
        reads[name] = sum(
            count * (1 if other in first else reads.get(other, 1))
            for other, count in counts.items()
        )
    largest = max((name for name in readings if name in first or not name), key=reads.__getitem__)
    if reads[largest] <= MOST_READS:
        return None
    times = Counter({largest: 1})
    for name in reversed(list(readings)):
        if name == largest or name not in first:
            for other, count in readings[name].items():
                times[other] += count * times[name]
    saving = {
        name: (times[name] - 1) * (reads[name] - 1)
        for name in readings
        if name and name not in first
    }
    best = max(saving, key=saving.__getitem__, default="")
    return best if saving.get(best, 0) > 0 else None


def _with_ctes(body: exp.Expr, ctes: Mapping[str, exp.Expr], first: set[str]) -> exp.Query:
    """Return a SELECT with the CTEs that it needs, without those that are computed first."""
    needed = set(_read_names(body))
    for name in reversed(list(ctes)):
        if name in needed and name not in first:
            needed |= _read_names(ctes[name]).keys()
    parts = [
        exp.CTE(this=cte.copy(), alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        for name, cte in ctes.items()
        if name in needed and name not in first
    ]
    made = body.copy()
    assert isinstance(made, exp.Query)
    if parts:
        made.set("with_", exp.With(expressions=parts))
    return made


# -- A saved query as one statement over tables: views and macros put into it ----------------------
#
# Other engines have the tables alone. A view becomes a CTE, and its own CTEs stand before it as
# `VIEW__CTE`; a macro's text takes the place of its call. Nothing is left that reads in two ways: a
# name is that of a table or of one CTE.
#
# Reads and rewrites syntax trees only; runs nothing. Invariant: DuckDB gives the same rows for the
# statement as for the query (`test_translate.py`).

_MACRO = re.compile(
    r"CREATE OR REPLACE MACRO \w+\((?P<params>[^()]*)\) AS(?P<table> TABLE)?\s(?P<body>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class _Macro:
    """A macro with the names of its parameters, each with its default or None."""

    params: Mapping[str, exp.Expr | None]
    is_table: bool
    body: exp.Expr

    def called(self, arguments: Iterable[exp.Expr]) -> exp.Expr:
        """Return the body with arguments in place of the parameters."""
        given = dict(self.params)
        for place, argument in enumerate(arguments):
            if isinstance(argument, exp.PropertyEQ):
                given[argument.this.name] = argument.expression
            else:
                given[list(given)[place]] = argument
        return self.body.copy().transform(lambda node: _argument(node, given))


def _argument(node: exp.Expr, given: Mapping[str, exp.Expr | None]) -> exp.Expr:
    if isinstance(node, exp.Column) and not node.table and node.name in given:
        value = given[node.name] or exp.Null()
        is_atom = isinstance(value, exp.Column | exp.Literal | exp.Paren | exp.Subquery | exp.Func)
        return value.copy() if is_atom else exp.Paren(this=value.copy())
    return node


class Whole:
    """What a query needs besides tables, collected into one list of CTEs."""

    def __init__(self, sql: str) -> None:
        """Take the views and macros that `sql` names, by itself or by others."""
        self.macros: dict[str, _Macro] = {}
        self.views: dict[str, exp.Expr] = {}
        self.ctes: dict[str, exp.Expr] = {}
        for name, text in definitions.views(sql, comments=False).items():
            made = _MACRO.search(text)
            if made is None:
                self.views[name] = self._inlined(_parsed(text).expression)
            else:
                body = _parsed(made["body"]).unnest()
                params = dict(map(_parameter, filter(None, made["params"].split(","))))
                self.macros[name] = _Macro(params, bool(made["table"]), self._inlined(body))

    def statement(self, sql: str) -> exp.Query:
        """Return the query with all that it needs as CTEs before its own."""
        tree = self._inlined(parse_one(sql, read="duckdb"))
        if not isinstance(tree, exp.Query):
            raise Unportable("it is no SELECT")
        params = next((cte.this for cte in tree.ctes if cte.alias == "params"), None)
        result = self._named(tree, {}, "", params)
        parts = [
            exp.CTE(this=body, alias=exp.TableAlias(this=exp.to_identifier(name)))
            for name, body in self.ctes.items()
        ]
        if parts:
            is_recursive = any(map(_names_itself, parts))
            result.set("with_", exp.With(expressions=parts, recursive=is_recursive))
        assert isinstance(result, exp.Query)
        return result

    def _inlined(self, tree: exp.Expr) -> exp.Expr:
        """The tree with the text of scalar macros in place of their calls, innermost first."""

        def inline(node: exp.Expr) -> exp.Expr:
            macro = self.macros.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
            if macro is None or macro.is_table:
                return node
            arguments = [argument.transform(inline) for argument in node.expressions]
            return exp.Paren(this=macro.called(arguments))

        return tree.transform(inline)

    def _named(
        self, tree: exp.Expr, outer: Mapping[str, str], prefix: str, params: exp.Expr | None
    ) -> exp.Expr:
        """Return the tree with its CTEs among those of all, and each name as it is there.

        Args:
            tree: a SELECT, or a UNION of them.
            outer: names of CTEs around it, and what they are called among those of all.
            prefix: what the tree is called there.
            params: the SELECT of the CTE `params`, of which macros take their arguments.
        """
        known = dict(outer)
        is_recursive = tree.args.get("with_") and tree.args["with_"].args.get("recursive")
        for cte in _popped_ctes(tree):
            name = f"{prefix}__{cte.alias}" if prefix else cte.alias
            inner = {**known, cte.alias: name} if is_recursive else known
            self.ctes[name] = self._named(cte.this, inner, name, params)
            known[cte.alias] = name
        for select in [node for node in tree.find_all(exp.Query) if node.args.get("with_")]:
            select.replace(self._named(select.copy(), known, f"{prefix}__inner", params))
        for table in list(tree.find_all(exp.Table)):
            name = table.name
            if isinstance(table.this, exp.Anonymous):
                name = table.this.name.lower()
                macro = self.macros[name]
                arguments = [_bound(argument, params) for argument in table.this.expressions]
                number = sum(key.startswith(f"{name}_") for key in self.ctes)
                made = f"{name}_{number + 1}"
                body = macro.called(arguments)
                body.set("order", None)  # rows of a table have no order
                self.ctes[made] = self._named(body, {}, made, params)
            elif name in known:
                made = known[name]
            elif name in self.views:
                made = name
                if made not in self.ctes:
                    self.ctes[made] = self._named(self.views[name].copy(), {}, name, params)
            else:
                continue
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
            table.replace(exp.Table(this=exp.to_identifier(made), alias=alias))
        return tree


@functools.cache
def _parsed(text: str) -> exp.Expr:
    """The tree of a view or of a macro's body, which many queries need; copied, never changed."""
    return parse_one(text, read="duckdb")


def _parameter(text: str) -> tuple[str, exp.Expr | None]:
    name, _, default = text.partition(":=")
    return name.strip(), parse_one(default, read="duckdb") if default else None


def _popped_ctes(tree: exp.Expr) -> list[exp.CTE]:
    """Return the CTEs of a statement, which no longer has them."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return []
    tree.set("with_", None)
    return list(with_.expressions)


def _names_itself(cte: exp.CTE) -> bool:
    return any(table.name == cte.alias for table in cte.this.find_all(exp.Table))


def _bound(argument: exp.Expr, params: exp.Expr | None) -> exp.Expr:
    """Return what `(SELECT params.x FROM params)` stands for: the expression of the parameter."""
    if not isinstance(argument, exp.Subquery) or params is None:
        return argument
    (wanted,) = argument.this.expressions
    found: exp.Expr = next(item.this for item in params.expressions if item.alias == wanted.name)
    return found


# -- A saved query in another dialect of SQL, over bufdb's tables alone ----------------------------


def transpile(query: SavedQuery, dialect: str) -> str:
    """Return the query's text for another engine, its parameters as that engine's placeholders.

    Views and macros are part of it. The header goes along as it is; a first line says so if the
    query does not claim the engine.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    lines = list(_header_lines(query.sql))
    if dialect not in query.engines:
        lines.insert(0, f"-- unverified: the query claims {', '.join(query.engines)} only")
    return "\n".join([*lines, body(query, dialect)]) + "\n"


def body(query: SavedQuery, dialect: str) -> str:
    """Return the same without the header.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    return _written(query, dialect, lambda tree: [("", tree)])[0][1]


def parts(query: SavedQuery, dialect: str) -> list[tuple[str, str]]:
    """The same in parts of a size that engines plan (`bufdb.lint.translate`), each with its name.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    return _written(query, dialect, parted)


def _written(
    query: SavedQuery, dialect: str, divided: Callable[[exp.Query], list[tuple[str, exp.Query]]]
) -> list[tuple[str, str]]:
    """Return the text of each part that a statement is divided into."""
    name = "spark" if dialect == "sail" else dialect
    if Dialect.get(name) is None:
        raise UsageError(f"no SQL dialect {dialect!r}; tried are spark and sail")
    try:
        tree = spark.rewritten(Whole(query.sql).statement(query.sql), _table_columns())
        return [(part, spark.text(made, name)) for part, made in divided(tree)]
    except (SqlglotError, Unportable) as error:
        raise BufdbError(f"{query.name}: cannot be written for {dialect}: {error}") from error


@functools.cache
def _table_columns() -> dict[str, object]:
    """Columns and their types of bufdb's tables."""
    with store.open_empty() as con:
        columns = catalog_schema(con)
    return {table: columns[table] for table in definitions.tables()}


def _header_lines(sql: str) -> Iterator[str]:
    for line in sql.splitlines():
        if not line.startswith("--"):
            return
        yield line
