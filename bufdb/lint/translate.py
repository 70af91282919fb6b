"""A saved query in another dialect of SQL."""

from collections.abc import Iterator

from sqlglot import ErrorLevel, exp, parse_one
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from bufdb.errors import BufdbError, UsageError
from bufdb.lint.portable import is_getvariable, with_asked_views
from bufdb.query.header import SavedQuery


def transpile(query: SavedQuery, dialect: str) -> str:
    """The query's text for another engine, its parameters as that engine's placeholders.

    The header goes along as it is; a first line says so if the query does not claim the engine.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    if Dialect.get(dialect) is None:
        raise UsageError(f"no SQL dialect {dialect!r}; tried is spark")
    try:
        tree = with_asked_views(parse_one(query.sql, read="duckdb"))
        tree.comments = None
        for node in tree.walk():
            node.comments = None
        body = _rewritten(tree).sql(
            dialect, pretty=True, identify=True, unsupported_level=ErrorLevel.RAISE
        )
    except SqlglotError as error:
        raise BufdbError(f"{query.name}: cannot be written for {dialect}: {error}") from error
    header = list(_header_lines(query.sql))
    if dialect not in query.engines:
        header.insert(0, f"-- unverified: the query claims {', '.join(query.engines)} only")
    return "\n".join([*header, body]) + "\n"


def _header_lines(sql: str) -> Iterator[str]:
    for line in sql.splitlines():
        if not line.startswith("--"):
            return
        yield line


def _rewritten(tree: exp.Expr) -> exp.Expr:
    """The tree with what only DuckDB has replaced: variables, GLOB, LIMIT by a subquery."""
    params = {
        column.alias: column
        for cte in tree.find_all(exp.CTE)
        if cte.alias == "params"
        for column in cte.this.expressions
    }
    uses = [column for column in tree.find_all(exp.Column) if column.table == "params"]
    globs = {name for name in params if _is_glob([use for use in uses if use.name == name])}
    for name in globs:
        params[name].set("this", _glob_regex(params[name].this))

    def rewrite(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Limit) and isinstance(node.expression, exp.Subquery):
            # Spark wants a constant there; the parameter with its default is one once bound.
            node.set("expression", params[node.expression.this.expressions[0].name].this.copy())
        if isinstance(node, exp.Glob):
            pattern = node.expression
            if not (isinstance(pattern, exp.Column) and pattern.name in globs):
                pattern = exp.Paren(this=_glob_regex(pattern))
            return exp.RegexpLike(this=node.this, expression=pattern)
        return node

    def place(node: exp.Expr) -> exp.Expr:
        return exp.Placeholder(this=node.expressions[0].name) if is_getvariable(node) else node

    return tree.transform(rewrite).transform(place)


def _is_glob(uses: list[exp.Column]) -> bool:
    """Whether a parameter serves as a glob only, so that it can be turned into one regex."""
    kinds = [type(use.parent) for use in uses]
    return exp.Glob in kinds and set(kinds) <= {exp.Glob, exp.Is}


def _glob_regex(pattern: exp.Expr) -> exp.Expr:
    """An SQL expression that turns a glob into a regular expression with the same matches."""
    replacements = [
        ("^", r"\^"),
        *((char, f"[{char}]") for char in ".+(){}|$"),
        ("[!", "[^"),
        ("*", ".*"),
        ("?", "."),
    ]
    for found, instead in replacements:
        pattern = exp.Anonymous(
            this="replace",
            expressions=[pattern, exp.Literal.string(found), exp.Literal.string(instead)],
        )
    start = exp.DPipe(this=exp.Literal.string("^"), expression=pattern)
    return exp.DPipe(this=start, expression=exp.Literal.string("$"))
