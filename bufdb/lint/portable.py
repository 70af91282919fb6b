"""Saved queries on engines other than DuckDB: the portable subset and the translation.

sqlglot translates but does not check: of 26 queries in DuckDB's own style it complained about one
when writing Spark, while eleven failed there and two gave wrong values. So a query that claims
another engine must follow an allowlist: a kind of expression that is not listed is rejected.

Tables and views are assumed to exist under their names. Views that read variables are an exception:
their text becomes part of the query, and so must follow the same rules.

Reads and rewrites syntax trees only; runs nothing.
"""

import functools
from collections.abc import Callable, Iterator

from sqlglot import exp, parse_one

from bufdb.database import definitions

_STRUCTURE = (
    "Select With CTE From Join Where Group Having Order Ordered Limit Union Subquery Table "
    "TableAlias Alias Column Identifier Paren Star Window WindowSpec Qualify Distinct Exists "
    "Filter Values Tuple"
)
_OPERATORS = (
    "In Between Like Glob Is Null Not And Or EQ NEQ NullSafeEQ GT GTE LT LTE Add Sub Mul Div "
    "IntDiv Mod Neg DPipe Case If Literal Boolean Cast DataType"
)
_FUNCTIONS = (
    "Coalesce Nullif Greatest Least Abs Round Floor Ceil Count Sum Min Max Avg RowNumber Rank "
    "DenseRank Lag Lead Lower Upper Length RegexpExtract RegexpLike RegexpReplace GroupConcat "
    "Split ArrayToString LogicalOr RegexpExtractAll TryCast Replace Contains Bracket Pow Sqrt "
    "Substring"
)
ALLOWED = frozenset(f"{_STRUCTURE} {_OPERATORS} {_FUNCTIONS}".split())
"""Names of sqlglot's node classes that mean the same everywhere, given the rules below."""

_CAST_TYPES = (
    exp.DataType.Type.BIGINT,
    exp.DataType.Type.DOUBLE,
    exp.DataType.Type.TEXT,
    exp.DataType.Type.BOOLEAN,
    exp.DataType.Type.INT128,
)
_REWRITTEN = (
    *("list_slice", "isfinite", "error", "name_likeness", "base_name", "is_library_path"),
    *("jax_names", "is_backward", "is_forward", "checkout_pattern", "library_source"),
    "python_name",
)
"""Functions, and scalar macros, for which Spark and Sail returned the same as DuckDB."""
_LISTS = (exp.DataType.Type.ARRAY, exp.DataType.Type.LIST)


def findings(tree: exp.Expr) -> list[str]:
    """Return the reasons why a query is not in the portable subset, one line per finding."""
    reasons: dict[str, None] = {}
    for node in tree.walk():
        name = type(node).__name__
        if name not in ALLOWED and not is_getvariable(node) and not _is_rewritten(node):
            reasons[f"{_excerpt(node)}: {name} is not in the portable subset"] = None
        for rule in _RULES.get(name, ()):
            for message in rule(node):
                reasons[f"{_excerpt(node)}: {message}"] = None
    return list(reasons)


def with_asked_views(tree: exp.Expr) -> exp.Expr:
    """Return the query with each view that reads variables as a CTE before its own CTEs."""
    whole = tree.copy()
    needed = [
        exp.CTE(this=view.copy(), alias=exp.TableAlias(this=exp.to_identifier(name)))
        for name, view in asked_views(tree).items()
    ]
    if needed:
        own = whole.args.get("with_") or exp.With(expressions=[])
        own.set("expressions", [*needed, *own.expressions])
        whole.set("with_", own)
    return whole


def asked_views(tree: exp.Expr) -> dict[str, exp.Expr]:
    """Return the views that read variables and that the query needs, in order of use.

    Their trees are shared: a caller copies what it changes.
    """
    texts = definitions.asked_views(" ".join(table.name for table in tree.find_all(exp.Table)))
    return {name: _view(text) for name, text in texts.items()}


@functools.cache
def _view(text: str) -> exp.Expr:
    view: exp.Expr = parse_one(text, read="duckdb").expression
    return view


def is_getvariable(node: exp.Expr) -> bool:
    """Return whether the node is a call of getvariable with a literal name."""
    return (
        isinstance(node, exp.Anonymous)
        and node.name.lower() == "getvariable"
        and len(node.expressions) == 1
        and isinstance(node.expressions[0], exp.Literal)
    )


def is_whole(node: exp.Expr) -> bool:
    """Return whether the node is TRY_CAST(floor(x) AS BIGINT), or of ceil: NULL beyond 2^63."""
    is_cast = isinstance(node, exp.TryCast) and node.to.this == exp.DataType.Type.BIGINT
    return is_cast and isinstance(node.this, exp.Floor | exp.Ceil)


def _is_rewritten(node: exp.Expr) -> bool:
    """Return whether `bufdb.lint.spark` rewrites it, or it calls a macro that is inlined."""
    if not isinstance(node, exp.Anonymous):
        return False
    return node.name.lower() in _REWRITTEN or isinstance(node.parent, exp.Table)


def _excerpt(node: exp.Expr) -> str:
    text = node.sql("duckdb", comments=False)
    return text if len(text) <= 60 else text[:59] + "…"


def _star(node: exp.Expr) -> Iterator[str]:
    if not isinstance(node.parent, exp.Count):
        yield "list the columns"


def _join(node: exp.Expr) -> Iterator[str]:
    if node.args.get("using") or node.args.get("method"):
        yield "join with ON; no USING, NATURAL or ASOF"
    elif not node.args.get("on") and node.args.get("kind") != "CROSS":
        yield "join with ON or CROSS JOIN"


def _substring(node: exp.Expr) -> Iterator[str]:
    start = node.args.get("start")
    if not isinstance(start, exp.Literal) or start.name != "1" or not node.args.get("length"):
        yield "substr from 1, with a length: engines count from 0 and from the end in other ways"


def _literal(node: exp.Expr) -> Iterator[str]:
    if node.args.get("is_string") and "\\" in node.name:
        yield "no backslash in a literal; write [0-9] for \\d and [(] for \\("


def _cast(node: exp.Expr) -> Iterator[str]:
    to = node.args["to"]
    # A list is cast element by element.
    kind = to.expressions[0].this if to.this in _LISTS and to.expressions else to.this
    if kind not in _CAST_TYPES:
        yield f"no cast to {to.sql('duckdb')}"
    elif kind == exp.DataType.Type.BIGINT and not (
        is_getvariable(node.this)
        or isinstance(_first(node.this), exp.Count | exp.Sum)
        or is_whole(node)
        or isinstance(node.this, exp.Null)
    ):
        yield "no cast to an integer: a fraction is rounded here and cut off elsewhere"


def _first(node: exp.Expr) -> exp.Expr:
    """Return the first argument of coalesce(), or else the node itself."""
    first: exp.Expr = node.this if isinstance(node, exp.Coalesce) else node
    return first


def _div(node: exp.Expr) -> Iterator[str]:
    # bufdb.lint.spark converts the operands to floating point, as DuckDB does.
    if not isinstance(node.expression.unnest(), exp.Nullif | exp.Literal):
        yield "divide by nullif(y, 0)"


def _pow(node: exp.Expr) -> Iterator[str]:
    if not (isinstance(node.expression, exp.Literal) and node.expression.is_int):
        yield "the power is a whole number written out; others are NaN here and an error there"


def _sqrt(node: exp.Expr) -> Iterator[str]:
    least = node.this.expressions if isinstance(node.this, exp.Greatest) else []
    if not any(bound.name == "0" for bound in least):
        yield "take the root of greatest(x, 0): of less it is an error here and NaN elsewhere"


def _bracket(node: exp.Expr) -> Iterator[str]:
    (place,) = node.expressions
    if not (isinstance(place, exp.Literal) and place.is_int):
        yield "a place in a list is a number written out, from 1 on"


def _tuple(node: exp.Expr) -> Iterator[str]:
    of_count = isinstance(node.parent, exp.Distinct) and isinstance(node.parent.parent, exp.Count)
    if not of_count and not isinstance(node.parent, exp.Values):
        yield "a row of values is only for VALUES or count(DISTINCT …)"


def _window(node: exp.Expr) -> Iterator[str]:
    spec = node.args.get("spec")
    if spec is not None and spec.args.get("kind") != "ROWS":
        yield "no RANGE or GROUPS frame; write ROWS BETWEEN"
    summing = isinstance(node.this, exp.Sum | exp.Min | exp.Max | exp.Avg | exp.Count)
    if node.args.get("order") and summing and spec is None:
        yield "write the frame: ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def _distinct(node: exp.Expr) -> Iterator[str]:
    if node.args.get("on"):
        yield "no DISTINCT ON; use row_number() = 1"


def _group(node: exp.Expr) -> Iterator[str]:
    known = {"expressions"}
    if any(value for name, value in node.args.items() if name not in known):
        yield "name the columns to group by; no ALL, CUBE, ROLLUP or GROUPING SETS"
    yield from _no_numbers(node.expressions)


def _order(node: exp.Expr) -> Iterator[str]:
    yield from _no_numbers([ordered.this for ordered in node.expressions])
    if isinstance(node.parent, exp.AggFunc) and not isinstance(node.parent, exp.GroupConcat):
        yield "no ordered aggregate"


def _no_numbers(expressions: list[exp.Expr]) -> Iterator[str]:
    if any(isinstance(item, exp.Literal) for item in expressions):
        yield "name the columns, not their numbers"
    if any(item.name.upper() == "ALL" for item in expressions):
        yield "name the columns; no ALL"


def _subquery(node: exp.Expr) -> Iterator[str]:
    if isinstance(node.parent, exp.From | exp.Join) and not node.alias:
        yield "a subquery needs a name"


def _limit(node: exp.Expr) -> Iterator[str]:
    bound = node.expression
    if isinstance(bound, exp.Subquery):
        source = bound.this.args.get("from_")
        if source is None or source.this.name != "params" or len(bound.this.expressions) != 1:
            yield "a LIMIT is a number or (SELECT … FROM params)"


def _where(node: exp.Expr) -> Iterator[str]:
    select = node.parent
    aliases = {
        item.alias for item in (select.expressions if select else ()) if isinstance(item, exp.Alias)
    }
    for column in node.find_all(exp.Column):
        if not column.table and column.name in aliases:
            yield f"{column.name} is an alias; WHERE cannot use it elsewhere"


_RULES: dict[str, tuple[Callable[[exp.Expr], Iterator[str]], ...]] = {
    "Substring": (_substring,),
    "Star": (_star,),
    "Join": (_join,),
    "Literal": (_literal,),
    "Cast": (_cast,),
    "TryCast": (_cast,),
    "Div": (_div,),
    "Pow": (_pow,),
    "Sqrt": (_sqrt,),
    "Bracket": (_bracket,),
    "Tuple": (_tuple,),
    "Window": (_window,),
    "Distinct": (_distinct,),
    "Group": (_group,),
    "Order": (_order,),
    "Subquery": (_subquery,),
    "Limit": (_limit,),
    "Where": (_where,),
}
