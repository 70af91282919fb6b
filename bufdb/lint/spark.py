"""DuckDB's SQL rewritten for Spark and Sail, regular expressions included."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.optimizer.annotate_types import TypeAnnotator, annotate_types
from sqlglot.optimizer.qualify import qualify

from bufdb.errors import BufdbError
from bufdb.lint.portable import is_getvariable, is_whole

# -- Regular expressions and globs that RE2, Java and Rust interpret alike -------------------------
#
# DuckDB uses RE2, Spark Java's expressions, Sail Rust's. They differ silently where a text has line
# ends (`.` and `$`), and raise errors at brackets within brackets.

_REFERENCE = re.compile(r"\\([0-9])|([$\\])")


class Unportable(BufdbError):
    """Something that cannot be expressed for another engine."""


def portable_regex(pattern: str) -> str:
    """Return an RE2 pattern in a form with the same matches in all three."""
    made, place, in_class, first = [], 0, False, 0
    dot = "." if pattern.startswith("(?s)") else r"[^\n]"
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            made.append(pattern[place : place + 2])
            place += 2
            continue
        if in_class:
            if char == "^" and place == first:
                first += 1
            if char == "]" and place != first:
                in_class = False
                made.append(char)
            else:
                made.append("\\" + char if char in "[]&~" else char)
        else:
            in_class, first = char == "[", place + 1
            made.append(dot if char == "." else r"\z" if char == "$" else char)
        place += 1
    return "".join(made)


def literal_regex(text: str) -> str:
    """Return a pattern that matches a text literally."""
    return "".join(
        f"[{char}]" if char in ".+*?(){}|$," else f"\\{char}" if char in "^[]\\" else char
        for char in text
    )


def matches_once(pattern: str) -> bool:
    """Return whether a pattern is anchored to one end of the text, so that it matches once."""
    depth, in_class, parts = 0, False, [""]
    for place, char in enumerate(pattern):
        escaped = place > 0 and pattern[place - 1] == "\\"
        if not escaped:
            in_class = char == "[" or (in_class and char != "]")
            if not in_class:
                depth += (char == "(") - (char == ")")
        if char == "|" and not depth and not in_class and not escaped:
            parts.append("")
        else:
            parts[-1] += char
    at_start = all(part.removeprefix("(?s)").startswith("^") for part in parts)
    return at_start or (len(parts) == 1 and pattern.endswith("$"))


def replacement(text: str) -> str:
    r"""Return a replacement: RE2 refers to groups by \1, Java and Rust by $1."""
    return _REFERENCE.sub(lambda match: f"${match[1]}" if match[1] else "\\" + match[2], text)


def glob_regex(pattern: exp.Expr) -> exp.Expr:
    """Return an SQL expression that turns a glob into an equivalent regular expression."""
    replacements = [
        ("[*]", r"\x2A"),
        ("[?]", r"\x3F"),
        ("[[", r"[\["),
        ("^", r"\^"),
        *((char, f"[{char}]") for char in ".+(){}|$"),
        ("[!", "[^"),
        ("*", ".*"),
        ("?", "."),
    ]
    for regex, instead in replacements:
        pattern = exp.Anonymous(
            this="replace",
            expressions=[pattern, exp.Literal.string(regex), exp.Literal.string(instead)],
        )
    start = exp.DPipe(this=exp.Literal.string("(?s)^"), expression=pattern)
    return exp.DPipe(this=start, expression=exp.Literal.string(r"\z"))


def whole_regex(pattern: exp.Expr) -> exp.Expr:
    """Return an SQL expression for a regular expression that must match a whole text."""
    start = exp.DPipe(this=exp.Literal.string("^(?:"), expression=pattern)
    return exp.DPipe(this=start, expression=exp.Literal.string(r")\z"))


# -- A statement over tables in Spark's SQL, which Sail reads too ---------------------------------
#
# sqlglot writes the dialect; here is what it writes wrongly, or not at all: each rule says which
# difference it closes. Two engines read the text, so it has only what both of them take: regular
# expressions, for one, that Java's and Rust's read alike.
#
# Reads and rewrites syntax trees only; runs nothing.

_WIDE = exp.DataType.build("DECIMAL(38, 0)")
_TEXT = exp.DataType.build("VARCHAR")
_LONG = exp.DataType.build("BIGINT")
_DOUBLE = exp.DataType.build("DOUBLE")
_LARGEST_LIMIT = 2**31 - 1
_WIDE_TYPES = ("INT128", "UINT128", "DECIMAL", "HUGEINT")


def rewritten(tree: exp.Query, schema: Mapping[str, object]) -> exp.Query:
    """Return a statement of `bufdb.lint.translate` as a tree in Spark's SQL, for `text`.

    Args:
        tree: the statement, which is modified.
        schema: columns and their types by table, from `catalog_schema`.

    Raises:
        Unportable: the statement uses something that Spark's SQL lacks.
        SqlglotError: sqlglot cannot resolve it.
    """
    for node in tree.walk():
        node.comments = None
    _refuse(tree)
    _write_windows_out(tree)
    tree = qualify(tree, schema=dict(schema), dialect="duckdb", quote_identifiers=True)
    tree = annotate_types(
        tree,
        schema=dict(schema),
        dialect="duckdb",
        expression_metadata={**DuckDB.EXPRESSION_METADATA, **_LIST_METADATA},
    )
    _bind_limits(tree)
    # Inner nodes first: the replacement of an outer node contains them.
    for node in reversed(list(tree.bfs())):
        made = node
        for rule in _RULES:
            made = rule(made)
        if made is not node:
            if isinstance(made, exp.Anonymous):
                made.type = node.type
            node.replace(made)
    drop_places(tree)
    return tree


def drop_places(tree: exp.Expr) -> None:
    """Drop where in the text each name was: most of what a copy of the tree copies."""
    for node in tree.walk():
        node._meta = None


def text(tree: exp.Query, dialect: str = "spark") -> str:
    """Return the text of a statement from `rewritten`.

    Args:
        tree: the statement, or a part of it, which cannot be used afterwards.
        dialect: another dialect of sqlglot, whose text is untested.

    Raises:
        SqlglotError: sqlglot cannot write it.
    """
    return str(tree.sql(dialect, pretty=True, unsupported_level=ErrorLevel.RAISE, copy=False))


def _refuse(tree: exp.Query) -> None:
    """Raise an error for what cannot be expressed in both engines."""
    if (tree.args.get("with_") or exp.With()).args.get("recursive"):
        raise Unportable(
            "it is recursive: Sail has no such queries, and Spark takes minutes for it"
        )
    if tree.find(exp.JarowinklerSimilarity):
        raise Unportable("jaro_winkler_similarity is only in DuckDB")
    if any(isinstance(first.this, exp.Order) for first in tree.find_all(exp.First)):
        raise Unportable("first(… ORDER BY …) is only in DuckDB")


def _write_windows_out(tree: exp.Expr) -> None:
    """Replace references to named windows by their definitions."""
    for select in list(tree.find_all(exp.Select)):
        named = {window.this.name: window for window in select.args.get("windows") or ()}
        select.set("windows", None)
        if not named:
            continue
        for window in list(select.find_all(exp.Window)):
            definition = named.get(window.alias) if window.alias else None
            if definition is None or window.find_ancestor(exp.Select) is not select:
                continue
            window.set("alias", None)
            for part in ("partition_by", "order", "spec"):
                if not window.args.get(part) and definition.args.get(part):
                    value = definition.args[part]
                    copied = (
                        [item.copy() for item in value] if isinstance(value, list) else value.copy()
                    )
                    window.set(part, copied)


def _bind_limits(tree: exp.Expr) -> None:
    """Replace a LIMIT by its parameter with default, which is a 32-bit constant once bound."""
    params = next((cte.this for cte in tree.find_all(exp.CTE) if cte.alias == "params"), None)
    for limit in list(tree.find_all(exp.Limit)):
        bound = limit.expression
        if isinstance(bound, exp.Subquery) and params is not None:
            wanted = bound.this.expressions[0].unalias().name
            column = next(item for item in params.expressions if item.alias == wanted)
            most = exp.Least(
                this=column.this.copy(), expressions=[exp.Literal.number(_LARGEST_LIMIT)]
            )
            limit.set("expression", exp.Cast(this=most, to=exp.DataType.build("INT")))


def _kind(node: exp.Expr) -> str:
    return node.type.this.name if node.type is not None else "UNKNOWN"


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _number(number: int) -> exp.Expr:
    return exp.Literal.number(number)


def _variable(node: exp.Expr) -> exp.Expr:
    """Replace a variable by a placeholder: parameters are bound by name."""
    return exp.Placeholder(this=node.expressions[0].name) if is_getvariable(node) else node


def _type(node: exp.Expr) -> exp.Expr:
    """Replace 128-bit integers by decimals, which have the same width."""
    if isinstance(node, exp.DataType) and node.this.name in _WIDE_TYPES:
        return _WIDE.copy()
    return node


def _sum(node: exp.Expr) -> exp.Expr:
    """Cast sums of integers to 128 bits; Sail's would wrap around at 2^63, silently."""
    if isinstance(node, exp.Sum) and _kind(node.this) not in ("DOUBLE", "FLOAT"):
        return exp.Sum(this=exp.Cast(this=node.this, to=_WIDE.copy()))
    return node


def _division(node: exp.Expr) -> exp.Expr:
    """Divide as floating point, as DuckDB does; Spark divides decimals as decimals."""
    if isinstance(node, exp.Literal) and not node.is_string and not node.is_int:
        return exp.Cast(this=node.copy(), to=_DOUBLE.copy())
    if not isinstance(node, exp.Div):
        return node
    top, bottom = node.this, node.expression
    if isinstance(bottom, exp.Nullif) and bottom.expression.name == "0":
        divided = exp.Div(this=_double(top), expression=_double(bottom.this), typed=True)
        is_some = exp.NEQ(this=bottom.this.copy(), expression=_number(0))
        return exp.Case(ifs=[exp.If(this=is_some, true=divided)])
    return exp.Div(this=_double(top), expression=_double(bottom), typed=True)


def _double(node: exp.Expr) -> exp.Expr:
    is_double = isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DOUBLE
    return node if is_double else exp.Cast(this=node, to=_DOUBLE.copy())


def _whole(node: exp.Expr) -> exp.Expr:
    """Give NULL beyond 2^63: Spark's floor() and Sail's TRY_CAST() give the nearest number."""
    if not is_whole(node):
        return node
    low, high = (
        exp.Cast(this=exp.Literal.string(bound), to=_DOUBLE.copy())
        for bound in ("-9223372036854775808", "9223372036854775808")
    )
    number = node.this.this
    is_there = exp.And(
        this=exp.GTE(this=number.copy(), expression=low),
        expression=exp.LT(this=number.copy(), expression=high),
    )
    return exp.Case(ifs=[exp.If(this=is_there, true=exp.Cast(this=node.this, to=_LONG.copy()))])


def _filter(node: exp.Expr) -> exp.Expr:
    """Rewrite an aggregate with FILTER in a window as CASE: Sail does not support it."""
    if not (isinstance(node, exp.Window) and isinstance(node.this, exp.Filter)):
        return node
    aggregate, condition = node.this.this, node.this.expression.this
    counted = _number(1) if isinstance(aggregate.this, exp.Star) else aggregate.this
    chosen = exp.Case(ifs=[exp.If(this=condition, true=counted)])
    aggregate.set("this", chosen)
    node.set("this", aggregate)
    return node


def _text_of_many(node: exp.Expr) -> exp.Expr:
    """Rewrite an ordered string_agg as a sorted list: Sail takes six times as long for listagg."""
    if isinstance(node, exp.GroupConcat) and not isinstance(node.parent, exp.Filter):
        return _sorted_text(node, None)
    if isinstance(node, exp.Filter) and isinstance(node.this, exp.GroupConcat):
        return _sorted_text(node.this, node.expression.this)
    return node


def _sorted_text(node: exp.GroupConcat, condition: exp.Expr | None) -> exp.Expr:
    """Return what gives the texts of a string_agg in its order, joined; NULL without any."""
    value, between = node.this, node.args.get("separator") or exp.Literal.string(",")
    if not isinstance(value, exp.Order):
        raise Unportable("string_agg without an order")
    if any(ordered.args.get("desc") for ordered in value.expressions):
        raise Unportable("string_agg in descending order")
    if isinstance(value.this, exp.Distinct):
        (one,) = value.this.expressions
        texts = _call("sort_array", _call("collect_set", _where(one, condition)))
    else:
        one = value.this
        # NULL comes last in DuckDB, first in a sorted list.
        cells = [
            cell
            for place, ordered in enumerate(value.expressions)
            for cell in (
                exp.Literal.string(f"is_null_{place}"),
                exp.Is(this=ordered.this.copy(), expression=exp.Null()),
                exp.Literal.string(f"key_{place}"),
                ordered.this,
            )
        ]
        row = _call("named_struct", *cells, exp.Literal.string("text"), one.copy())
        is_there = exp.Not(this=exp.Is(this=one.copy(), expression=exp.Null()))
        wanted = is_there if condition is None else exp.and_(is_there, condition.copy())
        rows = _call("sort_array", _call("collect_list", _where(row, wanted)))
        name = exp.to_identifier("item")
        text = exp.Dot(this=name.copy(), expression=exp.to_identifier("text"))
        texts = _call("transform", rows, exp.Lambda(this=text, expressions=[name]))
    there = exp.GT(this=exp.Count(this=_where(one.copy(), condition)), expression=_number(0))
    return exp.Case(ifs=[exp.If(this=there, true=_call("array_join", texts, between))])


def _where(node: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    """Return an expression that is NULL unless the condition is true."""
    return node if condition is None else exp.Case(ifs=[exp.If(this=condition.copy(), true=node)])


def _regex(node: exp.Expr) -> exp.Expr:
    """Rewrite patterns in a portable form, and groups and replacements in Spark's form."""
    if isinstance(node, exp.Glob):
        return exp.RegexpLike(
            this=node.this, expression=exp.Paren(this=glob_regex(node.expression))
        )
    if isinstance(node, exp.RegexpFullMatch):
        pattern = exp.Paren(this=whole_regex(node.expression))
        return exp.RegexpLike(this=node.this, expression=pattern)
    if not isinstance(
        node, exp.RegexpLike | exp.RegexpExtract | exp.RegexpExtractAll | exp.RegexpReplace
    ):
        return node
    text = _joined(node.expression)
    made = exp.Literal.string(portable_regex(text))
    if isinstance(node, exp.RegexpLike):
        return exp.RegexpLike(this=node.this, expression=made)
    if isinstance(node, exp.RegexpReplace):
        if not node.args.get("modifiers") and not matches_once(text):
            raise Unportable(f"regexp_replace of the first of several matches of {text}")
        new = exp.Literal.string(replacement(node.args["replacement"].name))
        return _call("regexp_replace", node.this, made, new)
    group = node.args.get("group") or _number(0)
    name = "regexp_extract_all" if isinstance(node, exp.RegexpExtractAll) else "regexp_extract"
    return _call(name, node.this, made, group)


def _joined(pattern: exp.Expr) -> str:
    """Return the text of a literal, a concatenation of literals, or a CASE of one (jax_names)."""
    if isinstance(pattern, exp.Paren):
        return _joined(pattern.this)
    if isinstance(pattern, exp.Case) and isinstance(pattern.this, exp.Literal):
        for branch in pattern.args["ifs"]:
            if branch.this == pattern.this:
                return _joined(branch.args["true"])
    if isinstance(pattern, exp.DPipe):
        return _joined(pattern.this) + _joined(pattern.expression)
    if isinstance(pattern, exp.Concat):  # what sqlglot makes of one literal on several lines
        return "".join(map(_joined, pattern.expressions))
    if not isinstance(pattern, exp.Literal):
        raise Unportable("a regular expression that is not a literal")
    return str(pattern.name)


def _list(node: exp.Expr) -> exp.Expr:
    """Rewrite list functions: missing elements are NULL, and indexes start from 1."""
    if isinstance(node, exp.Split):
        return _call("split", node.this, exp.Literal.string(literal_regex(node.expression.name)))
    if isinstance(node, exp.Length) and (
        isinstance(node.this, exp.Array) or _kind(node.this) in _LISTS
    ):
        return _call("size", node.this)
    if isinstance(node, exp.Bracket):
        (index,) = node.expressions
        if isinstance(index, exp.Slice):
            return _inner_text(node.this, index)
        # sqlglot has already converted the index to start from 0.
        return _call("get", node.this, index)
    if isinstance(node, exp.Transform):
        return _zipped(node)
    if isinstance(node, exp.Anonymous):
        known = _LIST_FUNCTIONS.get(node.name.lower())
        return known(node) if known else node
    return node


def _inner_text(text: exp.Expr, place: exp.Slice) -> exp.Expr:
    """Rewrite s[2:-2]: all but the first and the last character."""
    if place.sql("duckdb").replace(" ", "") != "2:-2":
        raise Unportable(f"a slice {place.sql('duckdb')}")
    length = exp.Sub(this=_call("length", text.copy()), expression=_number(2))
    most = exp.Greatest(this=length, expressions=[_number(0)])
    return _call("substring", text, _number(2), most)


def _zipped(node: exp.Transform) -> exp.Expr:
    """Rewrite list_transform(list_zip(a, b), …): the engines name parts of pairs differently."""
    pairs = node.this
    if not (isinstance(pairs, exp.Anonymous) and pairs.name.lower() == "list_zip"):
        return node
    left, right = pairs.expressions
    made = node.expression
    (name,) = (variable.name for variable in made.expressions)
    for call in list(made.this.find_all(exp.Anonymous)):
        if call.name == "get" and call.expressions[0].name == name:
            place = exp.to_identifier(f"{name}_place")
            is_first = call.expressions[1].name == "0"
            call.replace(exp.to_identifier(name) if is_first else _call("get", right.copy(), place))
    made.set("expressions", [exp.to_identifier(name), exp.to_identifier(f"{name}_place")])
    return _call("transform", left, made)


def _slice(node: exp.Expr) -> exp.Expr:
    """Rewrite a slice from 1 to an index or to -1 - n (all but the last n); indexes are 32-bit."""
    values, start, length = node.expressions
    if start.name != "1":
        raise Unportable("list_slice from another place than 1")
    if isinstance(length, exp.Sub) and length.this.sql() == "-1":
        length = exp.Sub(this=_call("size", values.copy()), expression=length.expression)
        length = exp.Greatest(this=length, expressions=[_number(0)])
    most = exp.Least(this=length, expressions=[_number(_LARGEST_LIMIT)])
    return _call("slice", values, start, exp.Cast(this=most, to=exp.DataType.build("INT")))


def _at(node: exp.Expr) -> exp.Expr:
    """Return the element at an index from 1 on; NULL at 0 or NULL, which both mean not found."""
    values, place = node.expressions
    before = exp.Sub(this=exp.Cast(this=place, to=exp.DataType.build("INT")), expression=_number(1))
    return _call("get", values, before)


def _finite(node: exp.Expr) -> exp.Expr:
    """Rewrite isfinite: NaN is larger than any number in Spark's order."""
    most = exp.Cast(this=exp.Literal.string("1.7976931348623157E308"), to=_DOUBLE.copy())
    return exp.Paren(this=exp.LTE(this=exp.Abs(this=node.expressions[0]), expression=most))


def _every(node: exp.Expr) -> exp.Expr:
    """Rewrite list_bool_and: it ignores NULL, and is NULL for an empty list, as in DuckDB.

    Sail 0.7 rejects forall() where a list may contain NULL.
    """
    (values,) = node.expressions
    none = exp.EQ(this=_call("array_position", values, exp.false()), expression=_number(0))
    some = exp.GT(this=_call("size", _call("array_compact", values.copy())), expression=_number(0))
    return exp.Case(ifs=[exp.If(this=some, true=none)])


def _total(node: exp.Expr) -> exp.Expr:
    return _folded(node.expressions[0], "BIGINT", 0, exp.Add)


def _product(node: exp.Expr) -> exp.Expr:
    return _folded(node.expressions[0], "DOUBLE", 1, exp.Mul)


def _folded(values: exp.Expr, kind: str, start: int, operator: type[exp.Binary]) -> exp.Expr:
    """Fold all values of a list with an operator."""
    first = exp.Cast(this=_number(start), to=exp.DataType.build(kind))
    left, right = exp.to_identifier("folded"), exp.to_identifier("next_one")
    both = operator(this=left, expression=exp.Cast(this=right, to=exp.DataType.build(kind)))
    names = [exp.to_identifier("folded"), exp.to_identifier("next_one")]
    return _call("aggregate", values, first, exp.Lambda(this=both, expressions=names))


_LISTS = ("LIST", "ARRAY")
_LIST_FUNCTIONS: dict[str, Callable[[exp.Expr], exp.Expr]] = {
    "list_product": _product,
    "list_extract": _at,
    "list_position": lambda node: _call("array_position", *node.expressions),
    "list_slice": _slice,
    "regexp_split_to_array": lambda node: _call("split", *node.expressions),
    "list_sum": _total,
    "list_bool_and": _every,
    "suffix": lambda node: _call("endswith", *node.expressions),
    "isfinite": _finite,
    "error": lambda node: _call("raise_error", *node.expressions),
}


def _list_of_known(annotator: TypeAnnotator, node: exp.Expr) -> exp.Expr:
    """Annotate the type of lists that sqlglot does not recognize as lists."""
    is_list = not isinstance(node, exp.Anonymous) or node.name.lower() in _LIST_RESULTS
    annotator._set_type(node, exp.DataType.build("VARCHAR[]") if is_list else None)
    return node


_LIST_RESULTS = ("list_slice", "list_zip", "regexp_split_to_array")
_LIST_METADATA: dict[type[exp.Expr], dict[str, object]] = {
    kind: {"annotator": _list_of_known}
    for kind in (
        exp.Split,
        exp.RegexpExtractAll,
        exp.Transform,
        exp.ArrayFilter,
        exp.ArrayDistinct,
        exp.Anonymous,
    )
}
_RULES: tuple[Callable[[exp.Expr], exp.Expr], ...] = (
    _variable,
    _filter,
    _sum,
    _type,
    _division,
    _whole,
    _text_of_many,
    _regex,
    _list,
)
