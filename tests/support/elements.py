"""HLO texts in the form of jaxlib 0.11 and later: operands name elements of tuples.

There `%add(%while.5#1)` is written for `%add(%e)` with `%e = get-tuple-element(%while.5), index=1`,
and `%e` has no line.
"""

from __future__ import annotations

import re

_ELEMENT = re.compile(
    r"^  %([\w.\-]+) = .*? get-tuple-element\(%([\w.\-]+)\), index=(\d+).*\n", re.MULTILINE
)
_OPERAND = re.compile(r"%([\w.\-]+)(?=[,)])")


def with_elements(text: str) -> str:
    """The text with each get-tuple-element but roots in its users' operands."""
    return "".join(map(_rewritten, re.split(r"(?m)(?<=^\}\n)", text)))


def _rewritten(computation: str) -> str:
    known = {name: (of, index) for name, of, index in _ELEMENT.findall(computation)}

    def element(match: re.Match[str]) -> str:
        name, indexes = match[1], []
        while name in known:
            name, index = known[name]
            indexes.insert(0, index)
        return f"%{name}#{','.join(indexes)}" if indexes else match[0]

    lines = _ELEMENT.sub("", computation).splitlines(keepends=True)
    return "".join(_OPERAND.sub(element, line) if " = " in line else line for line in lines)
