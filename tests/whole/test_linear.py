"""Time and memory grow as the text does: every kind of dump, and hostile ones to their end."""

from __future__ import annotations

import pytest
from isolation import DEFAULT, base
from linear import (
    BLOCK,
    IN_ROUNDS,
    KINDS,
    SLACK,
    Files,
    described,
    frames,
    helpers,
    ingest_of,
    measured,
    small,
    too_much,
    uses,
    value,
)


@pytest.mark.sample(40)
@pytest.mark.parametrize("kind", KINDS)
def test_cost_grows_as_the_text_does(kind: str) -> None:
    size, make = KINDS[kind]
    assert not too_much(*measured(make, size, DEFAULT))


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize("kind", IN_ROUNDS)
def test_cost_grows_as_the_text_does_in_rounds(kind: str) -> None:
    size, make = KINDS[kind]
    assert not too_much(*measured(make, size // 4, BLOCK))


def test_a_square_is_found_out() -> None:
    counts = [{name: n * n * 10_000 for name in SLACK} for n in (10, 20, 40)]
    assert len(too_much(counts, [10, 20, 40])) == len(SLACK)


HOSTILE: dict[str, tuple[Files, int]] = {
    "a line of 10 MB": (small(allocations=b"allocation " + b"x" * 10_000_000 + b"\n"), DEFAULT),
    "a line of 10 MB in blocks": (
        small(used=described(b"f32[] add(" + b"%x, " * 2_500_000)),
        1 << 20,
    ),
    "a shape of 10,000 brackets": (
        small(allocations=value(b"(" * 10_000 + b")" * 10_000)),
        DEFAULT,
    ),
    "metadata of 10,000 braces": (
        small(used=described(b"f32[] add(), metadata={a=" + b"{" * 10_000 + b"}" * 10_000 + b"}")),
        DEFAULT,
    ),
    "100,000 unreadable lines": (small(allocations=b"allocation x\n" * 100_000), DEFAULT),
    "100,000 unreadable uses in blocks": (small(used=uses(1) + b"  x\n" * 100_000), 5000),
    "100,000 uses in blocks": (small(used=uses(100_000)), 5000),
    "a chain of 100,000 frames": (small(hlo=frames(100_000)), DEFAULT),
    "100,000 helpers in a line": (small(hlo=helpers(100_000)), DEFAULT),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_dumps_are_read_to_their_end(kind: str) -> None:
    files, block_bytes = HOSTILE[kind]
    ingest_of(files, block_bytes)
    con = base().con
    assert con.execute("SELECT count(*) FROM modules").fetchall() == [(1,)]
    if "uses in blocks" in kind:
        count = 1 if "unreadable" in kind else 100_000
        assert con.execute("SELECT count(*) FROM uses").fetchall() == [(count,)]
