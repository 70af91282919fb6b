"""A saved query as one statement over tables: views and macros put into it.

Other engines have the tables alone. A view becomes a CTE, and its own CTEs stand before it as
`VIEW__CTE`; a macro's text takes the place of its call. Nothing is left that reads in two ways: a
name is that of a table or of one CTE.

Reads and rewrites syntax trees only; runs nothing. Invariant: DuckDB gives the same rows for the
statement as for the query (`test_translate.py`).
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlglot import exp, parse_one

from bufdb.database import definitions
from bufdb.lint.regex import Unportable

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
        """The body with arguments in place of the parameters."""
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
        """The query with all that it needs as CTEs before its own."""
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
        """The tree with its CTEs among those of all, and each name as it is there.

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
    """The CTEs of a statement, which no longer has them."""
    with_ = tree.args.get("with_")
    if with_ is None:
        return []
    tree.set("with_", None)
    return list(with_.expressions)


def _names_itself(cte: exp.CTE) -> bool:
    return any(table.name == cte.alias for table in cte.this.find_all(exp.Table))


def _bound(argument: exp.Expr, params: exp.Expr | None) -> exp.Expr:
    """What `(SELECT params.x FROM params)` stands for: the expression of the parameter."""
    if not isinstance(argument, exp.Subquery) or params is None:
        return argument
    (wanted,) = argument.this.expressions
    found: exp.Expr = next(item.this for item in params.expressions if item.alias == wanted.name)
    return found
