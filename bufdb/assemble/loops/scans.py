"""Lines that a scan bears and that are those of another one.

JAX traces what a scan inserts into its stacks, and takes from them, once for each shape, and keeps
that (`jit(dynamic_update_index_in_dim)`). From then on all scans of a process bear the line of the
first one, in whatever program that was. They stand right in the body, beside the user's step, which
is a `closed_call`. The body of a `while_loop` has none: there the user may have written the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bufdb.read.instruction import metadata_of

Fields = Mapping[str, Any]
"""Metadata of an instruction (`metadata_of`)."""

_KEPT = re.compile(rb'/body/jit\(dynamic_(?:update_)?index_in_dim\)[/"]')
_STEP = b"/body/closed_call"
_BODY = len(b"/body/")
_METADATA = b", metadata={"
_LONGEST = 1 << 12
"""Metadata are shorter; nothing is looked for farther away."""


def kept_steps(text: bytes) -> list[tuple[bytes, Fields]]:
    """The body and the metadata of what JAX may have kept from another scan, each once."""
    found: dict[bytes, bytes] = {}
    for mark in _KEPT.finditer(text):
        start = text.rfind(_METADATA, max(0, mark.start() - _LONGEST), mark.start())
        stop = text.find(b"}", mark.end(), mark.end() + _LONGEST)
        if start >= 0 and stop >= 0:
            body = _body(text, mark)
            if body is not None:
                found.setdefault(text[start : stop + 1], body)
    return [(body, metadata_of(metadata)) for metadata, body in found.items()]


def bodies_of_scans(text: bytes, bodies: Iterable[bytes]) -> set[bytes]:
    """Which of these bodies, by their op_name, are those of scans."""
    wanted, found = set(bodies), set()
    for mark in re.finditer(_STEP, text) if wanted else ():
        body = _body(text, mark)
        if body in wanted:
            found.add(body)
            wanted.remove(body)
            if not wanted:
                break
    return found


def _body(text: bytes, mark: re.Match[bytes]) -> bytes | None:
    """The op_name of the body that a place in an op_name is in."""
    quote = text.rfind(b'"', max(0, mark.start() - _LONGEST), mark.start())
    return None if quote < 0 else text[quote + 1 : mark.start() + _BODY]
