"""Text between quotes, as XLA escapes it (format section 7)."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}


def unescape(text: bytes) -> bytes:
    """Return text between quotes, C escapes undone, as valid UTF-8 (format section 7)."""
    if b"\\" in text:
        # Most of JAX's names, as `args[\'x\']`, have no other escape.
        simple = text.replace(rb"\'", b"'")
        text = _ESCAPE.sub(_unescaped, text) if b"\\" in simple else simple
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


def _unescaped(match: re.Match[bytes]) -> bytes:
    code: bytes = match[1]
    if code[:1] in b"01234567":
        return bytes([int(code, 8) & 0xFF])
    if len(code) == 3:
        return bytes([int(code[1:], 16)])
    return _ESCAPES.get(code, code)
