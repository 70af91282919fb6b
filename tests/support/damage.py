"""Damage to dump files, realistic and hostile, and the dumps it is done to.

`SAMPLES` are small real dumps of every generation that is at hand (data/demo always, ../shared
where it is there) and dumps that `dump_writer` makes up. `damage` gives the files of a sample as
they are after an accident that its number chooses: the same number, the same damage, on every
machine. Number 0 leaves a dump whole.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import shared_dumps
from places import DEMO

MADE_UP = Path(__file__).parent / "made_up_dumps.json"
LOOPS = shared_dumps.DUMPS.parent / "loops" / "dumps"
SMALL_BYTES = 40_000
"""Size of a sample [bytes of all its files]; a set without one so small gives its smallest."""
LOOP_STEP = 12
"""Step between the sets of loops that are used, since they are large and many."""
PER_SET = 8
"""Samples taken of every set of real dumps, and made up for every era."""

_NUMBER = re.compile(r"^(?P<time>\d+\.)?module_\d+(?=\.)")
STEM = "module_0001.jit_f"
_SUFFIXES = {
    "buffer_assignment": ".cpu_after_optimizations-buffer-assignment.txt",
    "values": ".cpu_after_optimizations-buffer-assignment-values.txt",
    "live_range": ".cpu_after_optimizations-live-range.txt",
    "hlo": ".cpu_after_optimizations.txt",
    "before_optimizations": ".before_optimizations.txt",
    "debug_options": ".debug_options",
}


@dataclass(frozen=True)
class Sample:
    """The files of one small dump."""

    number: int
    name: str
    """Where the dump comes from."""
    generation: str
    """Set of real dumps, or `made up` and an era of dump_writer."""
    files: dict[str, bytes] = field(hash=False)
    """Contents by file name."""

    @property
    def has_xla_names(self) -> bool:
        """Whether its files are recognized by their names rather than by their contents."""
        return any(_NUMBER.match(name) for name in self.files)

    def renamed(self, number: int, files: dict[str, bytes]) -> dict[str, bytes]:
        """Return the files, named with this module number so that several dumps fit in a folder."""
        return {_renamed(name, number): text for name, text in files.items()}


def _renamed(name: str, number: int) -> str:
    if _NUMBER.match(name):
        return _NUMBER.sub(lambda m: f"{m['time'] or ''}module_{number:04d}", name)
    return f"{number:04d}_{name}"


@cache
def samples() -> list[Sample]:
    """Every sample; those of data/demo and the made-up ones come first, and on every machine."""
    entries: list[tuple[str, str, dict[str, bytes]]] = []
    for run in sorted(path for path in DEMO.iterdir() if path.is_dir()):
        entries += _real(f"demo {run.name}", run)
    for era, made in _made().items():
        for n, kinds in enumerate(made):
            files = {STEM + _SUFFIXES[kind]: text.encode() for kind, text in kinds.items()}
            entries.append((f"made up {era}/{n}", f"made up {era}", files))
    for root in (shared_dumps.DUMPS, LOOPS):
        sets = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
        for folder in sets[:: LOOP_STEP if root == LOOPS else 1]:
            entries += _real(folder.name, folder)
    return [Sample(n, name, kind, files) for n, (name, kind, files) in enumerate(entries)]


def _real(generation: str, folder: Path) -> list[tuple[str, str, dict[str, bytes]]]:
    """Modules of a folder that are small, evenly taken from all of them; or the smallest one."""
    modules = sorted(shared_dumps.group(folder).items())
    size = {key: sum(path.stat().st_size for path in files.values()) for key, files in modules}
    least = min(size.values(), default=0)
    small = [(key, files) for key, files in modules if size[key] <= max(SMALL_BYTES, least)]
    chosen = small[:: max(1, len(small) // PER_SET)][:PER_SET]
    return [
        (f"{generation}/{key}", generation, {p.name: p.read_bytes() for p in files.values()})
        for key, files in chosen
    ]


@cache
def _made() -> dict[str, list[dict[str, str]]]:
    """Return dumps that dump_writer generated, by era and by kind of file.

    They are kept, since hypothesis draws others in another version or with other modules loaded.
    `python tests/support/damage.py` makes them again, and with them every damaged dump.
    """
    kept: dict[str, list[dict[str, str]]] = json.loads(MADE_UP.read_text(encoding="utf-8"))
    return kept


def _make() -> None:
    made = {}
    for era in ("2019-04", "2019-07", "A", "B", "C"):
        drawn = _drawn(era)
        step = len(drawn) / PER_SET
        made[era] = [drawn[int(n * step)] for n in range(PER_SET)]
    MADE_UP.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _drawn(era: str) -> list[dict[str, str]]:
    """Dumps of an era as hypothesis draws them, by size."""
    from dump_writer import dialects, modules, write
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    made: list[dict[str, str]] = []

    @settings(
        max_examples=12 * PER_SET,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(modules(), dialects(era)))
    def collect(drawn: tuple[Any, Any]) -> None:
        files = {kind: text.decode() for kind, text in write(*drawn).items()}
        if 300 < sum(map(len, files.values())) < 8000 and files not in made:
            made.append(files)

    collect()
    return sorted(made, key=lambda files: sum(map(len, files.values())))


# -- damage ----------------------------------------------------------------------------------------

Damage = Callable[[random.Random, bytes, bytes], bytes]
"""Takes chance, the text, and the text of a file of another dump."""

TITLES = (
    rb"BufferAssignment:",
    rb"Total bytes used:.*",
    rb"Used values:",
    rb"HloLiveRange \(max \d+\):",
    rb"  InstructionSequence:",
    rb"  BufferLiveRange:",
    rb"  Live ranges at .*",
    rb"  Stack trace breakdown.*",
    rb" positions:",
    rb" uses:",
    rb" from instruction:",
    rb"allocation \d+:",
    rb"HloModule ",
    rb"FileNames",
    rb"FunctionNames",
    rb"FileLocations",
    rb"StackFrames",
)
_TITLE = re.compile(rb"^(?:" + rb"|".join(TITLES) + rb")", re.MULTILINE)
_SECTION = re.compile(
    rb"^(?:BufferAssignment:|Total bytes used:|Used values:|HloLiveRange \(max|"
    rb"  InstructionSequence:|  BufferLiveRange:|  Live ranges at|  Stack trace breakdown)",
    re.MULTILINE,
)
_DIGITS = re.compile(rb"\d+")
_SIZES = re.compile(rb"(?:size[ =]|offset=|bytes: |\(max |color |@|, operand |parameter )(-?\d+)")
_NAME = re.compile(rb"[A-Za-z_][\w.-]{2,}")
NUMBERS = (
    *(b"0", b"1", b"-1", b"-5", b"-0", b"00", b"", b"+3", b"1e9", b"0x10", b"1 024", b"1,024"),
    *(b"%d" % (2**n + d) for n in (31, 32, 53, 62, 63, 64) for d in (-1, 0, 1)),
    *(b"-%d" % (2**63 + d) for d in (-1, 0, 1)),
    *(b"9" * 19, b"9" * 20, b"9" * 40, b"9" * 9000, b"-" + b"9" * 9000),
)
BROKEN_UTF8 = (
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x80",
    b"\xe9",
)
NESTS = (
    *((b"(", b")"), (b"{", b"}"), (b"[", b"]"), (b"P(f32[2]{", b"})"), (b"/*", b"*/")),
    *((b"(", b""), (b"", b"}"), (b'"', b'"'), (b"(s32[], ", b")"), (b"jit(", b")")),
)
INSERTS = (
    *(b"\n", b"\n\n", b'"', b"}", b"{", b"(", b")", b"<", b">", b"|", b"-", b"  ", b"\t", b"\\"),
    *(b", metadata={", b'", op_name="', b'"}, backend_config={"', b"/*index=5*/", b"%", b" = "),
    *(b"\n<5 look.alike @0>\n positions:\n", b"\n positions:\n", b"\n uses:\n"),
    *(b"\n from instruction: %x = f32[] add(a, b)\n", b"\nHloLiveRange (max 3):\n"),
    *(b"\nTotal bytes used: 3\n", b"\nBufferAssignment:\n", b"\nUsed values:\n"),
    *(b"\n  Live ranges at 2 (peak):\n", b"\n  BufferLiveRange:\n", b"\nHloLiveRange not avail"),
    *(b"allocation 0: size 8, color 1, preallocated-temp:\n", b"*** Begin a.txt ***\n"),
    *(
        b"\x0b",
        b"\x0c",
        b"\x1c",
        b"\x85",
        "\u2028".encode(),
        "\u202e".encode(),
        b"\x1b[2J",
        b"\x07",
    ),
)


def _lines(text: bytes) -> list[bytes]:
    return text.splitlines(keepends=True) if b"\r" not in text else re.findall(rb".*\n|.+$", text)


def _put(text: bytes, start: int, stop: int, new: bytes) -> bytes:
    return text[:start] + new + text[stop:]


def _place(rng: random.Random, pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    matches = list(pattern.finditer(text))
    return rng.choice(matches) if matches else None


def flip_bytes(rng: random.Random, text: bytes, other: bytes) -> bytes:
    changed = bytearray(text)
    for _ in range(rng.choice((1, 1, 1, 3, 20))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice(
                (rng.randrange(256), rng.randrange(32, 127))
            )
    return bytes(changed)


def flip_bit(rng: random.Random, text: bytes, other: bytes) -> bytes:
    changed = bytearray(text)
    if changed:
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def drop_bytes(rng: random.Random, text: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(text) + 1)
    return _put(text, start, start + rng.choice((1, 2, 8, 40, 400)), b"")


def insert(rng: random.Random, text: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(text) + 1)
    return _put(text, start, start, rng.choice(INSERTS))


def delete_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    start = rng.randrange(len(lines) + 1)
    del lines[start : start + rng.choice((1, 1, 2, 5, 50))]
    return b"".join(lines)


def double_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    start = rng.randrange(len(lines) + 1)
    stop = start + rng.choice((1, 1, 2, 5, 50))
    return b"".join((*lines[:stop], *lines[start:]))


def swap_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    if len(lines) > 1:
        a = rng.randrange(len(lines))
        b = rng.choice((rng.randrange(len(lines)), (a + 1) % len(lines)))
        lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def move_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    start = rng.randrange(len(lines) + 1)
    moved = lines[start : start + rng.choice((1, 2, 5, 20))]
    del lines[start : start + len(moved)]
    place = rng.randrange(len(lines) + 1)
    return b"".join((*lines[:place], *moved, *lines[place:]))


def shuffle_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    start = rng.randrange(len(lines) + 1)
    some = lines[start : start + rng.choice((3, 10, 1000))]
    rng.shuffle(some)
    return b"".join((*lines[:start], *some, *lines[start + len(some) :]))


def truncate(rng: random.Random, text: bytes, other: bytes) -> bytes:
    return text[: rng.randrange(len(text) + 1)]


def truncate_at_a_line(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """Truncate between two lines, so that nothing at the file's end shows it."""
    lines = _lines(text)
    return b"".join(lines[: rng.randrange(len(lines) + 1)])


def truncate_at_a_section(rng: random.Random, text: bytes, other: bytes) -> bytes:
    match = _place(rng, _SECTION, text)
    if match is None:
        return truncate(rng, text, other)
    return text[: rng.choice((match.start(), match.end(), text.find(b"\n", match.end()) + 1))]


def behead(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """Lose the beginning: at any byte, line or section."""
    match = _place(rng, _SECTION, text)
    start = rng.randrange(len(text) + 1)
    line = text.find(b"\n", start) + 1
    return text[rng.choice((start, line, match.start() if match else line)) :]


def no_last_line_end(rng: random.Random, text: bytes, other: bytes) -> bytes:
    return text.rstrip(b"\n")


def hole(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """Lose a part in the middle, or have it as NULs, as after a crash of the machine."""
    start, stop = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    return _put(text, start, stop, rng.choice((b"", b"\0" * (stop - start))))


def paste_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines, more = _lines(text), _lines(other)
    place, start = rng.randrange(len(lines) + 1), rng.randrange(len(more) + 1)
    some = more[start : start + rng.choice((1, 2, 10, 100))]
    return b"".join((*lines[:place], *some, *lines[place:]))


def overwrite_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """Put the tail of one file after the head of another, as if two processes wrote one file."""
    place = rng.randrange(len(text) + 1)
    return text[:place] + other[rng.choice((place, rng.randrange(len(other) + 1))) :]


def append_other(rng: random.Random, text: bytes, other: bytes) -> bytes:
    return rng.choice((text + other, other + text, text + text))


def be_other(rng: random.Random, text: bytes, other: bytes) -> bytes:
    return other


def damage_first_line(rng: random.Random, text: bytes, other: bytes) -> bytes:
    first, end, rest = text.partition(b"\n")
    at = rng.randrange(len(first) + 1)
    return rng.choice(
        (
            rest,
            end + text,
            b" " + text,
            b"$ cat dump.txt\n" + text,
            first.lower() + end + rest,
            first[:at] + first[at + 1 :] + end + rest,
            first[:at] + b"#" + first[at:] + end + rest,
            first + b" " + end + rest,
            first.rstrip(b":") + end + rest,
            first + rest,
            b"\x00" + text,
            b"x" * 5000 + end + text,
        )
    )


def damage_title(rng: random.Random, text: bytes, other: bytes) -> bytes:
    match = _place(rng, _TITLE, text)
    if match is None:
        return damage_first_line(rng, text, other)
    title, (start, stop) = match[0], match.span()
    at = rng.randrange(len(title))
    line_stop = text.find(b"\n", stop) + 1 or len(text)
    new = rng.choice(
        (
            title[:at] + title[at + 1 :],
            title[:at] + bytes([rng.randrange(33, 127)]) + title[at + 1 :],
            title.rstrip(b":") if title.endswith(b":") else title + b":",
            title.strip(),
            b" " + title,
            title + b" ",
            title + b" x",
            title.lower(),
            _DIGITS.sub(rng.choice(NUMBERS), title),
            title + b"\n" + title,
            b"",
            None,
            None,
        )
    )
    return _put(text, start, line_stop, b"") if new is None else _put(text, start, stop, new)


def remove_section(rng: random.Random, text: bytes, other: bytes) -> bytes:
    starts = [m.start() for m in _SECTION.finditer(text)]
    if not starts:
        return hole(rng, text, other)
    chosen = rng.randrange(len(starts))
    stop = starts[chosen + 1] if chosen + 1 < len(starts) else len(text)
    return _put(text, starts[chosen], stop, b"")


def double_section(rng: random.Random, text: bytes, other: bytes) -> bytes:
    starts = [m.start() for m in _SECTION.finditer(text)]
    if not starts:
        return double_lines(rng, text, other)
    chosen = rng.randrange(len(starts))
    stop = starts[chosen + 1] if chosen + 1 < len(starts) else len(text)
    place = rng.choice([*starts, len(text)])
    return _put(text, place, place, text[starts[chosen] : stop])


def remove_total(rng: random.Random, text: bytes, other: bytes) -> bytes:
    return re.sub(rb"(?m)^Total bytes used:.*\n?", b"", text)


def byte_order_mark(rng: random.Random, text: bytes, other: bytes) -> bytes:
    marked = (b"\xef\xbb\xbf" + text, text.decode(errors="replace").encode("utf-16"))
    return rng.choice((marked[0], marked[0], marked[0], marked[1]))


def carriage_returns(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    share = rng.choice((1.0, 1.0, 0.5, 0.02))
    first = rng.choice((True, False))
    ends = (b"\r\n", b"\r\n", b"\r\n", b"\r\r\n", b"\r")
    end = rng.choice(ends)
    return b"".join(
        line[:-1] + end
        if line.endswith(b"\n") and (rng.random() < share or (first and number == 0))
        else line
        for number, line in enumerate(lines)
    )


def nuls(rng: random.Random, text: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(text) + 1)
    return _put(text, start, start, b"\0" * rng.choice((1, 1, 8, 4096)))


def broken_utf8(rng: random.Random, text: bytes, other: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 5))):
        start = rng.randrange(len(text) + 1)
        text = _put(text, start, start, rng.choice(BROKEN_UTF8))
    return text


def change_number(rng: random.Random, text: bytes, other: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 5))):
        match = _place(rng, _DIGITS, text)
        if match is not None:
            text = _put(text, *match.span(), rng.choice(NUMBERS))
    return text


def change_size(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """Numbers that mean something: sizes, offsets, times, colors."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        match = _place(rng, _SIZES, text)
        if match is not None:
            text = _put(text, *match.span(1), rng.choice(NUMBERS))
    return text


def huge_sizes(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """Sizes near 2^63 on every allocation, whose sums 64 bits do not hold."""
    new = b"%d" % rng.choice((2**62, 2**63 - 1, 2**63 - 4096, 2**61 + 7))
    return re.sub(rb"(?<=size[ =])\d+", lambda m: new if rng.random() < 0.7 else m[0], text)


def shift_numbers(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """Replace every occurrence of one number with another."""
    match = _place(rng, _DIGITS, text)
    if match is None:
        return text
    return re.sub(rb"(?<!\d)" + match[0] + rb"(?!\d)", lambda m: b"%d" % rng.randrange(9), text)


def nest(rng: random.Random, text: bytes, other: bytes) -> bytes:
    opener, closer = rng.choice(NESTS)
    depth = rng.choice((3, 100, 1100, 10_000))
    match = _place(rng, re.compile(rb"[(){}\[\]]"), text)
    start = match.start() if match else rng.randrange(len(text) + 1)
    return _put(text, start, start, opener * depth + closer * depth)


def long_line(rng: random.Random, text: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(text) + 1)
    piece = rng.choice(
        (b"x", b"x, ", b"<1 a @0> ", b"\\", b'"', b"1", b" ", b"\xc3\xa9", b"(f32[2]{0}, ")
    )
    return _put(text, start, start, piece * (rng.choice((300, 5000, 100_000)) // len(piece)))


def join_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    start = rng.randrange(len(lines) + 1)
    stop = start + rng.choice((2, 3, 20))
    joined = b"".join(line.rstrip(b"\r\n") for line in lines[start:stop])
    return b"".join((*lines[:start], joined, b"\n", *lines[stop:]))


def split_line(rng: random.Random, text: bytes, other: bytes) -> bytes:
    start = rng.randrange(len(text) + 1)
    return _put(text, start, start, b"\n")


def ids_out_of_order(rng: random.Random, text: bytes, other: bytes) -> bytes:
    matches = list(
        re.finditer(rb"(?<=<)\d+(?= )|(?<=^allocation )\d+(?=:)|^    \d+(?=:)", text, re.MULTILINE)
    )
    if len(matches) < 2:
        return swap_lines(rng, text, other)
    one, two = sorted(rng.sample(matches, 2), key=lambda m: m.start())
    text = _put(text, *two.span(), one[0])
    return _put(text, *one.span(), two[0])


def change_name(rng: random.Random, text: bytes, other: bytes) -> bytes:
    matches = [m for m in _NAME.finditer(text)]
    if not matches:
        return insert(rng, text, other)
    one, two = rng.choice(matches), rng.choice(matches)
    new = rng.choice((two[0], b"", b"a" * 3000, one[0] + b" x", b"\xe2\x82\xac", b"=1+1", b"x{0}"))
    if rng.random() < 0.3:
        return text.replace(one[0], new)
    return _put(text, *one.span(), new)


def change_mark(rng: random.Random, text: bytes, other: bytes) -> bytes:
    """One sign of the grammar dropped, doubled or taken for another."""
    match = _place(rng, re.compile(rb"[<>(){}\[\]|,:;@%=\"'\\ ]"), text)
    if match is None:
        return insert(rng, text, other)
    return _put(text, *match.span(), rng.choice((b"", match[0] * 2, b" ", b",", b'"', b">")))


def change_indent(rng: random.Random, text: bytes, other: bytes) -> bytes:
    match = _place(rng, re.compile(rb"^ *", re.MULTILINE), text)
    if match is None:
        return b" " + text
    return _put(text, *match.span(), rng.choice((b"", b" ", b"  ", b"\t", b"    ", b"  " * 500)))


def be_empty(rng: random.Random, text: bytes, other: bytes) -> bytes:
    return rng.choice((b"", b"\n", b"\n" * 50, b" ", b"\0", b"x", b"\xef\xbb\xbf", b"\r\n"))


def be_noise(rng: random.Random, text: bytes, other: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 100, 3000)))


def many_bad_lines(rng: random.Random, text: bytes, other: bytes) -> bytes:
    lines = _lines(text)
    place = rng.randrange(len(lines) + 1)
    bad = rng.choice(
        (b"bad\n", b" value: x\n", b"allocation x\n", b"  x\n", b"    x{}:1\n", b"<1 x\n")
    )
    return b"".join((*lines[:place], bad * rng.choice((49, 51, 2000)), *lines[place:]))


DAMAGES: tuple[Damage, ...] = (
    flip_bytes,
    flip_bit,
    drop_bytes,
    insert,
    delete_lines,
    double_lines,
    swap_lines,
    move_lines,
    shuffle_lines,
    truncate,
    truncate,
    truncate_at_a_line,
    truncate_at_a_line,
    truncate_at_a_section,
    truncate_at_a_section,
    behead,
    no_last_line_end,
    hole,
    paste_lines,
    overwrite_lines,
    append_other,
    be_other,
    damage_first_line,
    damage_first_line,
    damage_title,
    damage_title,
    damage_title,
    remove_section,
    double_section,
    remove_total,
    byte_order_mark,
    carriage_returns,
    carriage_returns,
    nuls,
    broken_utf8,
    change_number,
    change_number,
    change_size,
    change_size,
    huge_sizes,
    huge_sizes,
    shift_numbers,
    nest,
    long_line,
    join_lines,
    split_line,
    ids_out_of_order,
    change_name,
    change_mark,
    change_indent,
    be_empty,
    be_noise,
    many_bad_lines,
)


def damage(sample: Sample, number: int) -> tuple[dict[str, bytes], str]:
    """The files of a sample after accident `number`, and what happened to it, for people.

    A sample keeps at least one file of its buffer assignment, so that there is still a module.
    """
    files = dict(sample.files)
    if number == 0:
        return files, "whole"
    rng = random.Random(f"{sample.name} {number}")
    damages = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(files))
        buffers = [one for one in files if _is_buffer_file(one)]
        if rng.random() < 0.05 and (len(buffers) > 1 or name not in buffers):
            del files[name]
            damages.append(f"no {name}")
            continue
        if rng.random() < 0.04 and len(files) > 1:
            other = rng.choice(sorted(files))
            files[name], files[other] = files[other], files[name]
            damages.append(f"{name} and {other} exchanged")
            continue
        foreign = rng.choice(samples()[: _own_count()])
        other_text = foreign.files[rng.choice(sorted(foreign.files))]
        accident = rng.choice(DAMAGES)
        files[name] = accident(rng, files[name], other_text)
        damages.append(f"{accident.__name__} in {name}")
    return files, "; ".join(damages)


def _is_buffer_file(name: str) -> bool:
    is_part = name.endswith(tuple(shared_dumps.PARTS))
    return is_part or not _NUMBER.match(name)


@cache
def _own_count() -> int:
    """Return samples that exist on every machine: only these are pasted from."""
    names = ("demo ", "made up ")
    return sum(sample.generation.startswith(names) for sample in samples())


if __name__ == "__main__":
    _make()
