"""Regular expressions and globs that RE2, Java and Rust read alike.

DuckDB has RE2, Spark Java's expressions, Sail Rust's. They differ silently where a text holds line
ends (`.` and `$`), and loudly at brackets within brackets.
"""

from __future__ import annotations

import re

from sqlglot import exp

from bufdb.errors import BufdbError

_REFERENCE = re.compile(r"\\([0-9])|([$\\])")


class Unportable(BufdbError):
    """Something that cannot be said to another engine."""


def portable_regex(pattern: str) -> str:
    """A pattern of RE2 with the same matches in all three."""
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
    """A pattern that matches a text as it is."""
    return "".join(
        f"[{char}]" if char in ".+*?(){}|$," else f"\\{char}" if char in "^[]\\" else char
        for char in text
    )


def matches_once(pattern: str) -> bool:
    """Whether a pattern is bound to one end of the text, so that it is found there once."""
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
    r"""What takes the place of a match: RE2 refers to groups by \1, Java and Rust by $1."""
    return _REFERENCE.sub(lambda found: f"${found[1]}" if found[1] else "\\" + found[2], text)


def glob_regex(pattern: exp.Expr) -> exp.Expr:
    """An SQL expression that turns a glob into a regular expression with the same matches."""
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
    for found, instead in replacements:
        pattern = exp.Anonymous(
            this="replace",
            expressions=[pattern, exp.Literal.string(found), exp.Literal.string(instead)],
        )
    start = exp.DPipe(this=exp.Literal.string("(?s)^"), expression=pattern)
    return exp.DPipe(this=start, expression=exp.Literal.string(r"\z"))


def whole_regex(pattern: exp.Expr) -> exp.Expr:
    """An SQL expression for a regular expression that a whole text has to match."""
    start = exp.DPipe(this=exp.Literal.string("^(?:"), expression=pattern)
    return exp.DPipe(this=start, expression=exp.Literal.string(r")\z"))
