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

_KEPT = re.compile(rb'/body/jit\(dynamic_(?:update_)?index_in_dim\)([/"][^}\n]{0,4095})\}')
_STEP = b"/body/closed_call"
_BODY = len(b"/body/")
_LONGEST = 1 << 12
"""An op_name is shorter; its beginning is not looked for farther away."""


def kept_steps(text: bytes) -> list[tuple[bytes, Fields]]:
    """What stands behind the names of what JAX may have kept from another scan, each once.

    Of 16,464 such in 13 MB four differ, which takes 16 ms; to look at each one 70.

    Returns:
        The end of their metadata, and the fields in it, where the line is.
    """
    ends = dict.fromkeys(_KEPT.findall(text))
    return [(end, metadata_of(b', metadata={op_name="%b}' % end)) for end in ends]


def bodies_of(text: bytes, ends: Iterable[bytes]) -> set[tuple[bytes, bytes]]:
    """The ends again, each with the op_names of the bodies in which it stands."""
    wanted = set(ends)
    marks = _KEPT.finditer(text) if wanted else ()
    found = {(mark[1], _body(text, mark)) for mark in marks if mark[1] in wanted}
    return {(end, body) for end, body in found if body is not None}


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
