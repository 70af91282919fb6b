"""The text that a user gives a parameter, as the value that a person means by it.

A size may have a unit where the header says [bytes], a list may have blanks after its commas, and
a memory space may have a name, which stays a text here: only a database knows its number.
"""

from __future__ import annotations

import re

from bufdb.errors import UsageError, quote
from bufdb.query.header import Parameter, SavedQuery, Value, parse_value
from bufdb.query.sizes import parse_size, require_unit

_SPACE_NAME = re.compile(r"[A-Za-z_]\w*")


def glob(name: str) -> str:
    """A glob that a name alone matches: in brackets each character stands for itself."""
    return re.sub(r"[*?[]", lambda found: f"[{found[0]}]", name)


def is_size(param: Parameter) -> bool:
    """Whether the parameter is a number of bytes, which may be written with a unit."""
    return param.type == "BIGINT" and "[bytes]" in param.text


def is_list(param: Parameter) -> bool:
    """Whether the parameter is a list with commas in between."""
    return param.type == "VARCHAR" and "separated by commas" in param.text


def is_space(param: Parameter) -> bool:
    """Whether the parameter is a memory space: its number, or a name for `spaces.numbered`."""
    return param.name == "color" and param.type == "VARCHAR"


def value(query: SavedQuery, param: Parameter, text: str) -> Value:
    """The value of a parameter; the name of a memory space is left as it is.

    Raises:
        UsageError: the text is none; the message says what would be.
    """
    try:
        found = _parsed(param, text)
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{query.name}: parameter {param.name} wants {_wanted(param)}, got {quote(text)}"
        ) from error
    if param.choices and found not in param.choices:
        choices = ", ".join(repr(choice) for choice in param.choices)
        raise UsageError(
            f"{query.name}: parameter {param.name} is one of {choices}, got {quote(text)}"
        )
    return found


def _parsed(param: Parameter, text: str) -> Value:
    if is_space(param):
        name = text.strip()
        return name if _SPACE_NAME.fullmatch(name) else str(parse_value("BIGINT", name))
    if is_size(param):
        if param.name == "budget":
            require_unit(text.strip(), f"{param.name} {text}")
        return parse_value(param.type, str(parse_size(text)))
    if is_list(param):
        items = [item.strip() for item in text.split(",")]
        return ",".join(item for item in items if item)
    return parse_value(param.type, text)


def _wanted(param: Parameter) -> str:
    if is_space(param):
        return "a memory space, such as 0, hbm or all"
    if is_size(param):
        return "bytes, such as 33554432 or 32MiB"
    return param.type
