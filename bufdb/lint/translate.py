"""Saved queries in other dialects: the whole text, or its CTEs in parts."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
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

# -- Split a statement: CTEs that would be read too often are computed first, once -----------------
#
# DuckDB computes a CTE that several others read only once. Spark and Sail inline its text at each
# use, and with it the CTEs that it reads: after a few levels with two readers each, the plan reads
# tables ten thousand times, which takes their planners too much time and memory.
#
# Reads and rewrites syntax trees only; runs nothing.

MOST_READS = 100
"""Maximum table reads in one plan. Over plain tables Spark can plan 1,300 (query advice), but not
2,200; over a dataset, where each read is a join with the current owners, 1,300 fill a gigabyte in
14 minutes. In eight parts of at most 100 that query takes 75 s there; 50 instead gain nothing."""


def parted(tree: exp.Query) -> list[tuple[str, exp.Query]]:
    """Split a statement into named parts; the last one, without a name, is the answer.

    A part reads earlier ones by the names of the CTEs that they were. CTEs that the statement has
    AS MATERIALIZED are parts, others where reading them again is too much.

    Args:
        tree: a statement of `bufdb.lint.translate` or `bufdb.lint.spark`, whose CTEs read only
            earlier ones; it is used up, since to copy a tree takes as long as to parse it.
    """
    own = _popped_ctes(tree)
    first = {cte.alias for cte in own if cte.args.get("materialized")}
    parts = {**{cte.alias: cte.this.pop() for cte in own}, "": tree}
    readings = {name: _read_names(part) for name, part in parts.items()}
    while wanted := _most_saving(readings, first):
        first.add(wanted)
    return [
        (name, _with_ctes(name, parts, readings, first))
        for name in parts
        if name in first or not name
    ]


def _read_names(tree: exp.Expr) -> Counter[str]:
    """Count how often a SELECT names each table or CTE."""
    return Counter(table.name for table in tree.find_all(exp.Table))


def _most_saving(readings: Mapping[str, Counter[str]], first: set[str]) -> str | None:
    """Return the CTE that contributes most to the largest part; None if no part is too large."""
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


def _with_ctes(
    name: str,
    parts: Mapping[str, exp.Expr],
    readings: Mapping[str, Counter[str]],
    first: set[str],
) -> exp.Query:
    """Return a part with the CTEs that it needs, except those that are computed first."""
    needed = set(readings[name])
    for other in reversed(list(parts)):
        if other in needed and other not in first:
            needed |= readings[other].keys()
    ctes = [
        exp.CTE(this=cte.copy(), alias=exp.TableAlias(this=exp.to_identifier(other, quoted=True)))
        for other, cte in parts.items()
        if other in needed and other not in first
    ]
    made = parts[name]
    assert isinstance(made, exp.Query)
    if ctes:
        made.set("with_", exp.With(expressions=ctes))
    return made


# -- Rewrite a saved query as one statement over tables: inline views and macros -------------------
#
# Other engines have only the tables. A view becomes a CTE, and its own CTEs precede it as
# `VIEW__CTE`; a macro's text replaces its call. No ambiguity is left: a name is that of a table or
# of one CTE.
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
        by_parameter = dict(self.params)
        for place, argument in enumerate(arguments):
            if isinstance(argument, exp.PropertyEQ):
                by_parameter[argument.this.name] = argument.expression
            else:
                by_parameter[list(by_parameter)[place]] = argument
        return self.body.copy().transform(lambda node: _argument(node, by_parameter))


def _argument(node: exp.Expr, arguments: Mapping[str, exp.Expr | None]) -> exp.Expr:
    if isinstance(node, exp.Column) and not node.table and node.name in arguments:
        value = arguments[node.name] or exp.Null()
        is_atom = isinstance(value, exp.Column | exp.Literal | exp.Paren | exp.Subquery | exp.Func)
        return value.copy() if is_atom else exp.Paren(this=value.copy())
    return node


class Whole:
    """The views and macros that a query needs, collected into one list of CTEs."""

    def __init__(self, sql: str) -> None:
        """Collect the views and macros that `sql` uses, directly or through others."""
        self.macros: dict[str, _Macro] = {}
        self.views: dict[str, exp.Expr] = {}
        self.ctes: dict[str, exp.Expr] = {}
        self.kept: set[str] = set()
        """CTEs of the query that are AS MATERIALIZED."""
        for name, text in definitions.views(sql, comments=False).items():
            made = _MACRO.search(text)
            if made is None:
                self.views[name] = self._inlined(_parsed(text).expression)
            else:
                body = _parsed(made["body"]).unnest()
                params = dict(map(_parameter, filter(None, made["params"].split(","))))
                self.macros[name] = _Macro(params, bool(made["table"]), self._inlined(body))

    def statement(self, sql: str) -> exp.Query:
        """Return the query with everything that it needs as CTEs before its own."""
        tree = self._inlined(parse_one(sql, read="duckdb"))
        if not isinstance(tree, exp.Query):
            raise Unportable("it is not a SELECT")
        params = next((cte.this for cte in tree.ctes if cte.alias == "params"), None)
        result = self._named(tree, {}, "", params)
        parts = [
            exp.CTE(
                this=body,
                alias=exp.TableAlias(this=exp.to_identifier(name)),
                materialized=name in self.kept or None,
            )
            for name, body in self.ctes.items()
        ]
        if parts:
            is_recursive = any(map(_names_itself, parts))
            result.set("with_", exp.With(expressions=parts, recursive=is_recursive))
        assert isinstance(result, exp.Query)
        return result

    def _inlined(self, tree: exp.Expr) -> exp.Expr:
        """Replace calls of scalar macros in the tree by their text, innermost first."""

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
        """Move the CTEs of the tree to the common list, and rename references to them.

        Args:
            tree: a SELECT, or a UNION of them.
            outer: names of enclosing CTEs, with their names in the common list.
            prefix: the name of the tree in that list.
            params: the SELECT of the CTE `params`, from which macros take their arguments.
        """
        known = dict(outer)
        is_recursive = tree.args.get("with_") and tree.args["with_"].args.get("recursive")
        for cte in _popped_ctes(tree):
            name = f"{prefix}__{cte.alias}" if prefix else cte.alias
            inner = {**known, cte.alias: name} if is_recursive else known
            self.ctes[name] = self._named(cte.this, inner, name, params)
            if cte.args.get("materialized"):
                self.kept.add(name)
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
                body.set("order", None)  # the rows of a table have no order
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
    """Parse a view or a macro's body, cached since many queries need it; copy it, do not modify."""
    tree = parse_one(text, read="duckdb")
    spark.drop_places(tree)
    return tree


def _parameter(text: str) -> tuple[str, exp.Expr | None]:
    name, _, default = text.partition(":=")
    return name.strip(), parse_one(default, read="duckdb") if default else None


def _popped_ctes(tree: exp.Expr) -> list[exp.CTE]:
    """Remove the CTEs from a statement and return them."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return []
    tree.set("with_", None)
    return list(with_.expressions)


def _names_itself(cte: exp.CTE) -> bool:
    return any(table.name == cte.alias for table in cte.this.find_all(exp.Table))


def _bound(argument: exp.Expr, params: exp.Expr | None) -> exp.Expr:
    """Return the expression of the parameter that `(SELECT params.x FROM params)` refers to."""
    if not isinstance(argument, exp.Subquery) or params is None:
        return argument
    (wanted,) = argument.this.expressions
    expression: exp.Expr = next(
        item.this for item in params.expressions if item.alias == wanted.name
    )
    return expression


# -- Translate a saved query to another dialect of SQL, over bufdb's tables only -------------------


def transpile(query: SavedQuery, dialect: str) -> str:
    """Return the query's text for another engine, its parameters as that engine's placeholders.

    It includes views and macros. The header is kept unchanged; a line before it warns if the query
    does not claim the engine.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    lines = list(_header_lines(query.sql))
    if dialect not in query.engines:
        lines.insert(0, f"-- unverified: the query claims {', '.join(query.engines)} only")
    return "\n".join([*lines, body(query, dialect)]) + "\n"


def body(query: SavedQuery, dialect: str) -> str:
    """Return the translated query without the header.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    return _written(query, dialect, is_parted=False)[0][1]


def parts(query: SavedQuery, dialect: str) -> tuple[tuple[str, str], ...]:
    """Return the translated query in named parts of a size that engines can plan (`parted`).

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    return _written(query, dialect, is_parted=True)


def _written(query: SavedQuery, dialect: str, is_parted: bool) -> tuple[tuple[str, str], ...]:
    """Return the text of the whole statement, or of each part into which it is divided."""
    name = "spark" if dialect == "sail" else dialect
    if Dialect.get(name) is None:
        raise UsageError(f"no SQL dialect {dialect!r}; tried are spark and sail")
    try:
        return _texts(query.sql, name, is_parted)
    except (SqlglotError, Unportable) as error:
        raise BufdbError(f"{query.name}: cannot be written for {dialect}: {error}") from error


# A translation takes up to seconds, half of an answer of Sail's, and is the same whatever the
# values of the parameters are: a session asks for it again with others.
@functools.lru_cache(maxsize=256)
def _texts(sql: str, name: str, is_parted: bool) -> tuple[tuple[str, str], ...]:
    tree = spark.rewritten(Whole(sql).statement(sql), _table_columns())
    if is_parted:
        made = parted(tree)
    else:
        for cte in tree.ctes:  # Spark does not know the word
            cte.set("materialized", None)
        made = [("", tree)]
    return tuple((part, spark.text(one, name)) for part, one in made)


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
