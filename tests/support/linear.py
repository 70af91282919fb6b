"""Time and memory grow as the text does, whatever the text is.

Held on counts, not on clocks: calls made (Python's own and those into NumPy, `re` and others),
bytes given to the scanner, and the most memory held at once. Each dump, ordinary or hostile, is
read at one, two and four times a size; where a count is linear, the step from two to four costs
twice the step from one to two, and where it is quadratic four times.

    python tests/support/linear.py                          # the counts as a table
"""

from __future__ import annotations

import gc
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ingesting import ingest_into
from isolation import DEFAULT, base

from bufdb.columnar import scan

STEM = "module_0001.jit_f.cpu_after_optimizations"
ASSIGNMENT, VALUES, LIVE, HLO = (
    f"{STEM}-buffer-assignment.txt",
    f"{STEM}-buffer-assignment-values.txt",
    f"{STEM}-live-range.txt",
    f"{STEM}.txt",
)
Files = dict[str, bytes]
LIMIT = 2.7
"""Limit on the cost ratio of a step twice as large."""
SLACK = {"calls": 4000, "scanned bytes": 20_000, "peak bytes": 600_000}
"""Allowed extra cost of the largest size: buffers grow in leaps, there are up to 50 findings."""


def small(**changes: bytes) -> Files:
    """A whole dump of two values, with parts replaced."""
    part = {
        "head": b"BufferAssignment:\n",
        "allocations": b"allocation 0: size 64, preallocated-temp:\n"
        b" value: <0 a @0> (size=64,offset=0): f32[16]{0}\n",
        "total": b"\nTotal bytes used: 64 (64B)\n\nUsed values:\n",
        "used": b"<0 a @0>\n positions:\n  a\n uses:\n  b, operand 0\n"
        b' from instruction: %a = f32[16]{0} add(%x, %y), metadata={op_name="jit(f)/add"}\n',
        "live": b"HloLiveRange (max 1):\n  InstructionSequence:\n    0:a\n"
        b"  BufferLiveRange:\n    a{}:0-1\n",
        "peak": b"  Live ranges at 0 (peak):\n    a{}: 64 bytes (cumulative: 64 bytes)\n",
        "hlo": b"HloModule jit_f, is_scheduled=true\n\nENTRY %main () -> f32[16] {\n"
        b"  %a = f32[16]{0} add(%x, %y)\n}\n",
    } | changes
    return {
        ASSIGNMENT: part["head"] + part["allocations"],
        VALUES: part["total"] + part["used"],
        LIVE: part["live"] + part["peak"],
        HLO: part["hlo"],
    }


def many(count: int) -> Files:
    """Return an ordinary dump with this many values."""
    lines: dict[str, list[bytes]] = {"allocations": [], "used": [], "order": [], "ranges": []}
    lines["allocations"].append(b"allocation 0: size %d, preallocated-temp:\n" % (64 * count))
    for n in range(count):
        lines["allocations"].append(
            b" value: <%d a.%d @0> (size=64,offset=%d): f32[16]{0}\n" % (n, n, 64 * n)
        )
        lines["used"].append(
            b"<%d a.%d @0>\n positions:\n  a.%d\n uses:\n  b, operand 0\n from instruction: "
            b'%%a.%d = f32[16]{0} add(%%x, %%y), metadata={op_name="jit(f)/add"}\n' % (n, n, n, n)
        )
        lines["order"].append(b"    %d:a.%d\n" % (n, n))
        lines["ranges"].append(b"    a.%d{}:%d-%d\n" % (n, n, n + 1))
    live = b"HloLiveRange (max %d):\n  InstructionSequence:\n" % count + b"".join(lines["order"])
    return small(
        allocations=b"".join(lines["allocations"]),
        used=b"".join(lines["used"]),
        live=live + b"  BufferLiveRange:\n" + b"".join(lines["ranges"]),
        total=b"\nTotal bytes used: %d\n\nUsed values:\n" % (64 * count),
        peak=b"",
    )


def value(shape: bytes) -> bytes:
    return (
        b"allocation 0: size 64, preallocated-temp:\n"
        b" value: <0 a @0> (size=64,offset=0): " + shape + b"\n"
    )


def described(text: bytes) -> bytes:
    return (
        b"<0 a @0>\n positions:\n  a\n uses:\n  b, operand 0\n from instruction: %a = "
        + text
        + b"\n"
    )


def frames(count: int) -> bytes:
    """A chain of stack frames, each called by the one before."""
    chain = b"".join(
        b"%d {file_location_id=1 parent_frame_id=%d}\n" % (n, n) for n in range(1, count)
    )
    return (
        b'HloModule jit_f\n\nFileNames\n1 "/usr/lib/python3.11/a.py"\n\nFunctionNames\n1 "f"\n\n'
        b"FileLocations\n1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=1 "
        b"end_column=1}\n\nStackFrames\n" + chain + b"\nENTRY %main () -> f32[] {\n}\n"
    )


def helpers(count: int) -> bytes:
    """Open metadata of helpers in one line, whose frames are on two lines of one function."""
    text = frames(1).replace(b"/usr/lib/python3.11/", b"")
    text = text.replace(
        b"StackFrames\n",
        b"2 {file_name_id=1 function_name_id=1 line=2 end_line=2 column=1 end_column=1}\n\n"
        b"StackFrames\n1 {file_location_id=1 parent_frame_id=1}\n"
        b"2 {file_location_id=2 parent_frame_id=2}\n",
    ).replace(b"\n\n2 {", b"\n2 {")
    loop = b'/while/body/jit(dynamic_index_in_dim)/b" '
    line = b"  %a = f32[] add(), metadata={op_name=" + loop * count
    return text.replace(b"\n}\n", b"\n" + line + b"\n}\n")


def before(lines: bytes) -> Files:
    """Return a dump whose entry before optimizations has these lines."""
    text = b"HloModule jit_f\n\nENTRY %main () -> f32[] {\n" + lines + b"}\n\n"
    return small() | {"module_0001.jit_f.before_optimizations.txt": text}


def uses(count: int) -> bytes:
    listed = b"".join(b"  b.%d, operand 0\n" % n for n in range(count))
    return b"<0 a @0>\n positions:\n  a\n uses:\n" + listed


def tree(count: int) -> bytes:
    rest = b" (1.0%, total: 1 bytes, current: 0 bytes, remaining: 1 bytes)\n"
    nodes = (
        b"  " + b"    " * depth + b"\xe2\x94\x94\xe2\x94\x80\xe2\x94\x80 n" + rest
        for depth in range(count)
    )
    return (
        b"  Live ranges at 0 (peak):\n    a{}: 64 bytes (cumulative: 64 bytes)\n"
        b"  Stack trace breakdown for peak usage: 1 bytes\n    n" + rest + b"".join(nodes)
    )


Make = Callable[[int], Files]
KINDS: dict[str, tuple[int, Make]] = {
    "ordinary values": (500, many),
    "one allocation line": (50_000, lambda n: small(allocations=b"allocation " + b"x" * n + b"\n")),
    "attributes of one allocation": (
        2000,
        lambda n: small(allocations=b"allocation 0: size 64" + b", constant" * n + b":\n"),
    ),
    "one shape": (50_000, lambda n: small(allocations=value(b"f32[" + b"1," * n + b"1]"))),
    "one tuple shape": (
        10_000,
        lambda n: small(allocations=value(b"(" + b"f32[], " * n + b"f32[])")),
    ),
    "one name": (
        50_000,
        lambda n: small(allocations=value(b"f32[]").replace(b"<0 a", b"<0 " + b"a" * n)),
    ),
    "one instruction": (
        20_000,
        lambda n: small(used=described(b"f32[] add(" + b"%x, " * n + b"%x)")),
    ),
    "one line of a tree": (50_000, lambda n: small(peak=tree(1) + b"    " + b"n" * n + b"\n")),
    "one line of options": (
        50_000,
        lambda n: small() | {"module_0001.jit_f.debug_options": b"a" * n},
    ),
    "nested parentheses in a shape": (
        2500,
        lambda n: small(allocations=value(b"(" * n + b")" * n)),
    ),
    "nested buffers in a shape": (2500, lambda n: small(allocations=value(b"b(" * n + b")" * n))),
    "nested layouts in a shape": (
        2500,
        lambda n: small(allocations=value(b"f32[2]" + b"{0:P(f32[2]" * n + b")}" * n)),
    ),
    "nested braces in metadata": (
        2500,
        lambda n: small(used=described(b"f32[] add(), metadata={a=" + b"{" * n + b"}" * n + b"}")),
    ),
    "open braces in an instruction": (
        5000,
        lambda n: small(used=described(b"f32[] add(), a=" + b"{" * n)),
    ),
    "open quotes in an instruction": (
        5000,
        lambda n: small(used=described(b'f32[] add(), a="' + b'" "' * n)),
    ),
    "backslashes in an instruction": (
        10_000,
        lambda n: small(used=described(b'f32[] add(), metadata={op_name="' + b"\\" * n + b'"}')),
    ),
    "marks of metadata": (
        2000,
        lambda n: small(used=described(b"f32[] add()" + b", metadata={" * n)),
    ),
    "op_names of an instruction": (
        2000,
        lambda n: small(used=described(b"f32[] add(), metadata={" + b'op_name="x" ' * n + b"}")),
    ),
    "heads in one line": (2000, lambda n: small(used=b"<0 a @0>" * n + b"\n positions:\n")),
    "unreadable allocations": (2000, lambda n: small(allocations=b"allocation x\n" * n)),
    "unreadable values": (2000, lambda n: small(allocations=b" value: x\n" * n)),
    "unreadable uses": (2000, lambda n: small(used=uses(1) + b"  x\n" * n)),
    "unreadable live ranges": (2000, lambda n: small(live=b"HloLiveRange (max 3):\nx\n" * n)),
    "unreadable nodes of a tree": (2000, lambda n: small(peak=tree(1) + b"x\n" * n)),
    "unreadable lines of the HLO text": (2000, lambda n: small(hlo=b"HloModule a\n" + b"x\n" * n)),
    "parameters before optimization": (
        2000,
        lambda n: before(b"".join(b"  %%p.%d = f32[] parameter(%d)\n" % (k, k) for k in range(n))),
    ),
    "one parameter before optimization": (
        20_000,
        lambda n: before(b"  %p = (" + b"f32[], " * n + b"f32[]) parameter(0)\n"),
    ),
    "unreadable parameters before optimization": (
        2000,
        lambda n: before(b"  %p = f32[] parameter(x)\n" * n),
    ),
    "ends within the entry before optimization": (2000, lambda n: before(b"}\n  x\n" * n)),
    "unreadable options": (
        2000,
        lambda n: small() | {"module_0001.jit_f.debug_options": b"x\n" * n},
    ),
    "heads that are none": (1000, lambda n: small(used=b"<0 a @0>\n positions:\n" * n)),
    "titles": (1000, lambda n: small(live=b"HloLiveRange (max 3):\n  BufferLiveRange:\n" * n)),
    "values of one name": (
        500,
        lambda n: small(
            allocations=b"allocation 0: size 64, preallocated-temp:\n"
            + b" value: <0 a @0> (size=64,offset=0): f32[16]{0}\n" * n
        ),
    ),
    "one value with many uses": (2000, lambda n: small(used=uses(n))),
    "a chain of stack frames": (1000, lambda n: small(hlo=frames(n))),
    "a deep tree": (100, lambda n: small(peak=tree(n))),
}
IN_ROUNDS = (
    "ordinary values",
    "one value with many uses",
    "one instruction",
    "one line of a tree",
    "unreadable uses",
    "unreadable live ranges",
    "heads that are none",
)
SQUARE = {"a deep tree"}
"""Cases whose text itself grows with the square: counts are compared with its bytes."""
BLOCK = 2000


@contextmanager
def counting(counts: dict[str, int]) -> Any:
    """Count calls and what the scanner is given."""
    calls = scanned = 0
    init = scan.Block.__init__

    def block(self: scan.Block, *texts: bytes) -> None:
        nonlocal scanned
        scanned += sum(map(len, texts))
        init(self, *texts)

    def called(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    # For mypy a method is no variable; to count what is scanned it is replaced, and put back below.
    scan.Block.__init__ = block  # type: ignore[method-assign]
    gc.collect()
    tracemalloc.start()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)
        counts["peak bytes"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        scan.Block.__init__ = init  # type: ignore[method-assign]
        counts["calls"], counts["scanned bytes"] = calls, scanned


def ingest_of(files: Files, block_bytes: int, counts: dict[str, int] | None = None) -> int:
    """Ingest a dump; its exit code. Counts are taken of a second ingest: caches are warm then."""
    some = base()
    some.empty()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_bytes(text)
        if counts is None:
            return ingest_into(some.con, Path(folder), "r", block_bytes).exit_code
        with counting(counts):
            return ingest_into(some.con, Path(folder), "r", block_bytes).exit_code


def measured(make: Make, size: int, block_bytes: int) -> tuple[list[dict[str, int]], list[int]]:
    """Return counts at one, two and four times a size, and the bytes of text."""
    # Counted too, for what counts takes 260 KB when it is first used.
    ingest_of(make(size // 4 or 1), block_bytes, {})
    all_counts, sizes = [], []
    for times in (1, 2, 4):
        counts: dict[str, int] = {}
        files = make(size * times)
        ingest_of(files, block_bytes, counts)
        all_counts.append(counts)
        sizes.append(sum(map(len, files.values())))
    return all_counts, sizes


def too_much(counts: list[dict[str, int]], sizes: list[int]) -> list[str]:
    """The counts that grow faster than the text."""
    first, second, third = counts
    share = (sizes[2] - sizes[1]) / max(1, sizes[1] - sizes[0]) / 2
    return [
        f"{name}: {first[name]}, {second[name]}, {third[name]} at {sizes} bytes"
        for name, slack in SLACK.items()
        if third[name] - second[name] > LIMIT * share * (second[name] - first[name]) + slack
    ]


def main() -> None:
    """Print the counts per byte of text at the largest size, and the steps between sizes."""
    print("| dump | bytes | calls per kB | scanned per byte | peak per byte | linear |")
    print("|---|--:|--:|--:|--:|---|")
    for kind, (size, make) in KINDS.items():
        for block_bytes in (DEFAULT, BLOCK) if kind in IN_ROUNDS else (DEFAULT,):
            name = kind if block_bytes == DEFAULT else f"{kind}, in rounds"
            step = size if block_bytes == DEFAULT else size // 4
            try:
                counts, sizes = measured(make, step, block_bytes)
            except Exception as error:  # a row of the table; the tests let it through
                print(f"| {name} | | | | | {type(error).__name__} |")
                continue
            last, text = counts[-1], sizes[-1]
            wrong = too_much(counts, sizes)
            print(
                f"| {name} | {text} | {1000 * last['calls'] / text:.0f} | "
                f"{last['scanned bytes'] / text:.1f} | {last['peak bytes'] / text:.1f} | "
                f"{'; '.join(wrong) or 'yes'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
