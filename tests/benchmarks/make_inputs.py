"""Make large, well-formed inputs out of genuine dumps: replicas merged section by section.

Every replica gets new allocation indexes, value ids, instruction names, parameter numbers,
program positions, op_names, stack frames and source lines. The totals and the peak listing of
the merged module are computed by XLA's own rules, so each result is one consistent dump. Only
the optional stack trace breakdown is omitted. With --hlo, an HLO text with the computations and
stack frames of all replicas is also written.
"""

import argparse
import itertools
import math
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
SEED = 1
PARTS = ("-buffer-assignment", "-buffer-assignment-values", "-live-range")
NAME = rb"[A-Za-z_][\w.-]*"
SHORT = re.compile(rb"<(\d+) (" + NAME + rb")(\{[\d,]*\})?( \(phi\))?( @\d+)>")
HEAD = re.compile(rb"allocation (\d+): size (\d+)(,[^\n]*)?:")
ASSIGNED = re.compile(SHORT.pattern + rb" \(size=\d+,offset=\d+\): (.+)")
PARAMETER = re.compile(rb", parameter (\d+)(?=,)")
OUTPUT = re.compile(rb", output shape is \|[^|]*\|")
PLACE = re.compile(rb"  (" + NAME + rb")((?:, operand \d+)?(?: \{[\d,]*\})?)")
RANGE = re.compile(rb"    (" + NAME + rb")(\{[\d,]*\}):(\d+)-(\d+)")
STEP = re.compile(rb"    (\d+):(" + NAME + rb")")
INSTRUCTION = re.compile(
    rb"%(?P<name>" + NAME + rb')|op_name="(?P<jit>(?:jit|pmap)\([^()"]*\)/)?(?P<scope>)'
    rb"|stack_frame_id=(?P<frame>\d+)|source_(?:end_)?line=(?P<line>\d+)"
    rb"|(?<= parameter\()(?P<parameter>\d+)(?=\))"
)
ARRAY = re.compile(rb"([a-z]+\d*[a-z0-9]*)\[((?:(?:<=)?\d+(?:,(?:<=)?\d+)*)?)\](?:\{.*\})?")
KINDS = ("name", "value", "allocation", "parameter", "frame", "line", "position", "special")
FILE_NAME = re.compile(
    r"module_\d+\.(.+?)\.((?:cl_\d+\.|cpu_|(?:sm_|gfx)[\w.]+_gpu_)after_optimizations)"
)
SPECIAL = (b"scope", b"end of program")
HLO_TABLES = (b"FileNames", b"FunctionNames", b"FileLocations", b"StackFrames")
HLO_NAME = re.compile(rb"%(" + NAME + rb")|stack_frame_id=(\d+)")
# An outermost frame has the parent 1, which stays.
HLO_NUMBER = re.compile(rb"(^|(?<!parent_frame)_id=|parent_frame_id=(?!1\}))(\d+)", re.M)


class Unfit(Exception):
    """A dump that cannot serve as a base; the message says why."""


def match(pattern: re.Pattern[bytes], line: bytes) -> re.Match[bytes]:
    if (line_match := pattern.fullmatch(line)) is None:
        raise Unfit(f"irregular line {line[:80]!r}")
    return line_match


def split_name(name: bytes) -> tuple[bytes, int]:
    stem, dot, number = name.rpartition(b".")
    if dot and stem and number.isdigit() and (number == b"0" or number[:1] != b"0"):
        return stem, int(number)
    return name, 0


def first_shape(text: bytes) -> bytes:
    """The shape that an instruction's text has after "= "."""
    if text[:1] != b"(":
        return text.partition(b" ")[0]
    depth = 0
    for at in re.finditer(rb"[()]", text):
        depth += 1 if at[0] == b"(" else -1
        if depth == 0:
            return text[: at.end()]
    raise Unfit("a tuple shape does not end")


def logical_size(shape: bytes) -> int:
    """Bytes as XLA's live-range section counts them: 8 per tuple element, no padding."""
    if shape.startswith(b"("):
        inner = re.sub(rb"/\*.*?\*/", b"", shape[1:-1])
        depth, elements = 0, 1 if inner.strip() else 0
        for character in re.findall(rb"[][(){},]", inner):
            depth += (character in b"([{") - (character in b")]}")
            elements += character == b"," and depth == 0
        return 8 * elements
    if (array_match := ARRAY.fullmatch(shape)) is None:
        raise Unfit(f"unknown shape {shape[:60]!r}")
    kind = array_match[1]
    if kind in (b"token", b"opaque"):
        return 0 if kind == b"token" else 8
    width = re.match(rb"(?:pred|bf(\d+)|[sufc](\d+)).*", kind)
    if width is None or b":E(" in shape:
        raise Unfit(f"unknown element type in {shape[:60]!r}")
    count = math.prod(int(n.lstrip(b"<=")) for n in array_match[2].split(b",") if n)
    return count * max(8, int(width[1] or width[2] or 8)) // 8


@dataclass
class Symbols:
    """Names and numbers that differ between replicas: one entry for each distinct one of a base."""

    entries: dict[str, dict[Any, int]] = field(default_factory=lambda: {k: {} for k in KINDS})

    def slot(self, kind: str, entry: Any) -> tuple[str, int]:
        entries = self.entries[kind]
        return kind, entries.setdefault(entry, len(entries))

    def top(self, kind: str) -> int:
        return max((int(str(e)) for e in self.entries[kind]), default=-1) + 1


class Template:
    """Text with slots; `render` fills them from a replica's table of new names and numbers."""

    def __init__(self) -> None:
        self.texts: list[bytes] = [b""]
        self.marks: list[tuple[str, int]] = []
        self.fill: Callable[[list[bytes]], tuple[bytes, ...]] | None = None

    def add(self, *pieces: bytes | tuple[str, int]) -> None:
        for piece in pieces:
            if isinstance(piece, bytes):
                self.texts[-1] += piece
            else:
                self.marks.append(piece)
                self.texts.append(b"")

    def close(self, start: dict[str, int]) -> None:
        slots = [start[kind] + number for kind, number in self.marks]
        self.fill = itemgetter(*slots, 0, 0)
        self.parts = list(itertools.chain.from_iterable((t, b"") for t in self.texts))
        del self.texts, self.marks

    def render(self, table: list[bytes]) -> bytes:
        assert self.fill is not None
        parts = self.parts.copy()
        parts[1::2] = [*self.fill(table)[:-2], b""]
        return b"".join(parts)


class Base:
    """One genuine dump, taken apart; raises Unfit for what is not regular enough to multiply."""

    def __init__(self, path: Path) -> None:
        stem = path.name.removesuffix(f"{PARTS[0]}.txt")
        if (name_match := FILE_NAME.fullmatch(stem)) is None:
            raise Unfit("file name without module name or stage")
        self.name, self.stage = name_match.groups()
        texts = [path.with_name(path.name.replace(PARTS[0], part)) for part in PARTS]
        text = b"\n".join(t.read_bytes().strip(b"\n") for t in texts if t.exists()) + b"\n"
        try:
            allocations, text = text.split(b"Total bytes used: ", 1)
            used, text = text.split(b"HloLiveRange (max ", 1)
            self.total, used = used.split(b"Used values:\n", 1)
            sequence, text = text.split(b"  BufferLiveRange:\n", 1)
            ranges, text = text.split(b"  Live ranges at ", 1)
        except ValueError:
            raise Unfit("a section is missing") from None
        self.symbols = Symbols()
        self.templates = {s: Template() for s in ("allocations", "used", "sequence", "ranges")}
        self.shapes: dict[tuple[bytes, bytes], bytes] = {}
        self.parameters: set[bytes] = set()
        self.pinned: set[tuple[bytes, bytes]] = set()
        self.whole: dict[bytes, int] = {}
        for special in SPECIAL:
            self.symbols.slot("special", special)
        self._allocations(allocations.strip(b"\n").split(b"\n"))
        self._used(used.strip(b"\n").split(b"\n"))
        self._sequence(sequence.strip(b"\n").split(b"\n"))
        self._ranges(ranges.strip(b"\n").split(b"\n"))
        self._hlo(path.with_name(f"{stem}.txt"))
        self._close()
        self.bytes = sum(len(part) for part in (allocations, used, sequence, ranges))

    def _name(self, name: bytes) -> tuple[str, int]:
        return self.symbols.slot("name", name)

    def _number(self, kind: str, number: bytes) -> tuple[str, int]:
        return self.symbols.slot(kind, int(number))

    def _short(self, short: re.Match[bytes]) -> list[bytes | tuple[str, int]]:
        rest = b"".join(group or b"" for group in short.group(3, 4, 5))
        return [b"<", self._number("value", short[1]), b" ", self._name(short[2]), rest + b">"]

    def _allocations(self, lines: list[bytes]) -> None:
        add = self.templates["allocations"].add
        self.allocation_bytes = 0
        in_parameter = False
        for line in lines[1:]:
            if line.startswith(b"allocation "):
                matched = match(HEAD, line)
                self.allocation_bytes += int(matched[2])
                add(b"allocation ", self._number("allocation", matched[1]), b": size ", matched[2])
                rest = matched[3] or b""
                if parameter := PARAMETER.search(rest):
                    add(rest[: parameter.start(1)], self._number("parameter", parameter[1]))
                    rest = rest[parameter.end(1) :]
                in_parameter = parameter is not None
                if output := OUTPUT.search(rest):
                    add(rest[: output.start()], self.symbols.slot("special", output[0]))
                    rest = rest[output.end() :]
                add(rest + b":\n")
            elif line:
                matched = match(ASSIGNED, line.removeprefix(b" value: "))
                add(b" value: ", *self._short(matched), line[7 + matched.end(5) + 2 :] + b"\n")
                self.shapes[matched[2], matched[3] or b"{}"] = matched[6]
                if in_parameter:
                    self.parameters.add(matched[1])

    def _used(self, lines: list[bytes]) -> None:
        add = self.templates["used"].add
        number, name, is_described = b"", b"", True
        for line in lines:
            if line.startswith(b"<"):
                matched = match(SHORT, line)
                if not is_described:
                    raise Unfit(f"no instruction for value {number!r}")
                number, name, is_described = matched[1], matched[2], False
                self.index = matched[3] or b"{}"
                add(*self._short(matched), b"\n")
            elif line in (b" positions:", b" uses:"):
                add(line + b"\n")
            elif line == b"  (none)":
                continue
            elif line.startswith(b"  "):
                matched = match(PLACE, line)
                add(b"  ", self._name(matched[1]), matched[2] + b"\n")
            elif line.startswith(b" from instruction:"):
                self._instruction(number, name, line[18:].lstrip(b" "))
                is_described = True
            else:
                raise Unfit(f"irregular line {line[:80]!r}")

    def _instruction(self, number: bytes, name: bytes, text: bytes) -> None:
        template = self.templates["used"]
        template.add(b" from instruction: ")
        at = 0
        equals = text.index(b" = ") + 3
        shape = first_shape(text[equals:])
        self.whole[name] = logical_size(shape)
        is_parameter = number in self.parameters and text[equals + len(shape) :].startswith(
            b" parameter("
        )
        if is_parameter:
            self.pinned.add((name, self.index))
        for token in INSTRUCTION.finditer(text):
            kind = str(token.lastgroup)
            if kind == "parameter" and not is_parameter:
                continue
            template.add(text[at : token.start(kind)])
            at = token.end(kind)
            if kind == "scope":
                template.add(self.symbols.slot("special", b"scope"))
            elif kind == "name":
                template.add(self._name(token[kind]))
            else:
                template.add(self._number(kind, token[kind]))
        template.add(text[at:] + b"\n")

    def _sequence(self, lines: list[bytes]) -> None:
        self.length = int(lines[0].split(b")")[0])
        if lines[1:2] != [b"  InstructionSequence:"] or len(lines) != self.length + 2:
            raise Unfit("the instruction sequence is not complete")
        for line in lines[2:]:
            matched = match(STEP, line)
            position = self._number("position", matched[1])
            self.templates["sequence"].add(b"    ", position, b":", self._name(matched[2]), b"\n")

    def _ranges(self, lines: list[bytes]) -> None:
        rows = []
        end_of_program = self.symbols.slot("special", b"end of program")
        self.listed: list[tuple[bytes, bytes]] = []
        for line in lines:
            name, index, start, end = match(RANGE, line).groups()
            pinned = (name, index) in self.pinned and start == b"0"
            if (name, index) not in self.shapes or name not in self.whole:
                raise Unfit(f"live range of {name!r}, which has no allocation or no instruction")
            last = int(end) == self.length
            self.templates["ranges"].add(b"    ", self._name(name), index + b":")
            self.templates["ranges"].add(b"0" if pinned else self._number("position", start), b"-")
            self.templates["ranges"].add(end_of_program if last else self._number("position", end))
            self.templates["ranges"].add(b"\n")
            sizes = self.whole[name], logical_size(self.shapes[name, index])
            rows.append((int(start), int(end), pinned, last, *sizes))
            self.listed.append((name, index))
        self.ranges = np.array(rows, np.int64).reshape(-1, 6)

    def _hlo(self, path: Path) -> None:
        """Tables of stack frames and computations of the HLO text, if there is one."""
        text = path.read_bytes() if path.exists() else b""
        top, begin = 0, text.find(b"\n\n%")
        for token in HLO_NAME.finditer(text):
            top = max(top, split_name(token[1])[1] if token[1] else 0)
            if token[2]:
                self.symbols.slot("frame", int(token[2]))
        self.top_in_hlo, self.computations = top, text[begin:]
        self.hlo_tables: dict[bytes, list[bytes]] = {}
        for title in HLO_TABLES:
            _, _, rows = text[:begin].partition(b"\n" + title + b"\n")
            self.hlo_tables[title] = rows.partition(b"\n\n")[0].split(b"\n") if rows else []

    def _close(self) -> None:
        entries = self.symbols.entries
        self.names = [split_name(name) for name in entries["name"]]
        self.top_name = max([number for _, number in self.names] + [self.top_in_hlo]) + 1
        if len(set(self.names)) != len(self.names):
            raise Unfit("two names differ only in a number that replicas would change")
        self.tops = {kind: self.symbols.top(kind) for kind in KINDS[1:-1]}
        self.numbers = {kind: np.array(list(entries[kind]), np.int64) for kind in KINDS[1:-1]}
        self.outputs: list[bytes] = list(entries["special"])[len(SPECIAL) :]
        counts = [len(entries[kind]) for kind in KINDS]
        start = dict(zip(KINDS, itertools.accumulate([0, *counts]), strict=False))
        for template in self.templates.values():
            template.close(start)


@dataclass
class Replica:
    """A base at its place in the merged module."""

    base: Base
    number: int
    offsets: dict[str, int]
    is_last: bool = False

    def table(self, length: int) -> list[bytes]:
        """Return new text for every symbol of the base, in the order of KINDS."""
        offset = self.offsets["name"]
        table = [b"%b.%d" % (stem, number + offset) for stem, number in self.base.names]
        for kind, numbers in self.base.numbers.items():
            table += [b"%d" % n for n in (numbers + self.offsets[kind]).tolist()]
        table += [b"block_%d/" % self.number, b"%d" % length]
        table += self.base.outputs if self.is_last else [b""] * len(self.base.outputs)
        return table

    def name(self, name: bytes) -> bytes:
        stem, number = split_name(name)
        return b"%b.%d" % (stem, number + self.offsets["name"])

    def hlo_text(self) -> bytes:
        """The computations of this replica."""

        def renamed(token: re.Match[bytes]) -> bytes:
            if token[1]:
                return b"%" + self.name(token[1])
            return b"stack_frame_id=%d" % (int(token[2]) + self.offsets["frame"])

        return HLO_NAME.sub(renamed, self.base.computations)

    def starts_and_ends(self, length: int) -> tuple[np.ndarray, np.ndarray]:
        start, end, pinned, last = self.base.ranges[:, :4].T
        offset = self.offsets["position"]
        return np.where(pinned, 0, start + offset), np.where(last, length, end + offset)


def merge(bases: Iterable[Base]) -> tuple[list[Replica], int]:
    offsets = dict.fromkeys(KINDS, 0) | {"name": 1}
    replicas = []
    for number, base in enumerate(bases):
        replicas.append(Replica(base, number, offsets.copy()))
        for kind, top in base.tops.items():
            offsets[kind] += 7 if kind == "line" else top
        offsets["name"] += base.top_name
        offsets["position"] += base.length - base.tops["position"]
    replicas[-1].is_last = True
    return replicas, offsets["position"]


def human(size: int) -> bytes:
    """Size as XLA prints it: divided with truncation until below 1 MiB, then two decimals."""
    if size < 1024:
        return b"%dB" % size
    if size < 1 << 20:
        return b"%.1fKiB" % (size / 1024)
    units = iter(("MiB", "GiB", "TiB", "PiB", "EiB"))
    size, unit = size // 1024, next(units)
    while size >= 1 << 20:
        size, unit = size // 1024, next(units)
    return f"{size / 1024:.2f}{unit}".encode()


def peak(replicas: list[Replica], length: int) -> tuple[int, list[tuple[int, bytes, bytes]]]:
    """The instant that XLA prints as the peak and the values live then: size, name, index."""
    change = np.zeros(length + 3, np.int64)
    for replica in replicas:
        start, end = replica.starts_and_ends(length)
        whole = replica.base.ranges[:, 4]
        np.add.at(change, start, whole)
        np.subtract.at(change, end + 2, whole)
    at = int(np.argmax(np.cumsum(change)))
    rows = []
    for replica in replicas:
        start, end = replica.starts_and_ends(length)
        for row in np.flatnonzero((start <= at) & (at <= end)).tolist():
            name, index = replica.base.listed[row]
            rows.append((int(replica.base.ranges[row, 5]), replica.name(name), index))
    rows.sort(key=lambda row: (-row[0], row[1], [int(n) for n in row[2][1:-1].split(b",") if n]))
    return at, rows


def write_module(bases: list[Base], stem: Path, era: str, with_hlo: bool = False) -> int:
    """Write one module; its number of bytes."""
    replicas, length = merge(bases)

    def section(name: str) -> Iterator[bytes]:
        for replica in replicas:
            yield replica.base.templates[name].render(replica.table(length))

    def used_values() -> Iterator[bytes]:
        total = sum(replica.base.allocation_bytes for replica in replicas)
        yield b"\nTotal bytes used: %d (%b)\n\nUsed values:\n" % (total, human(total))
        for text in section("used"):
            yield text if era == "B" else text.replace(b" uses:\n f", b" uses:\n  (none)\n f")

    def live_ranges() -> Iterator[bytes]:
        yield b"HloLiveRange (max %d):\n  InstructionSequence:\n" % length
        yield from section("sequence")
        yield b"  BufferLiveRange:\n"
        yield from section("ranges")
        at, rows = peak(replicas, length)
        yield b"  Live ranges at %d (peak):\n" % at
        cumulative = 0
        for size, name, index in rows:
            cumulative += size
            line = b"    %b%b: %d bytes (cumulative: %d bytes)\n"
            yield line % (name, index, size, cumulative)
        # A root alone: what XLA's tree says beyond the listing costs nothing to read.
        spaced = f"{cumulative:,}".replace(",", " ").encode()
        yield b"  Stack trace breakdown for peak usage: %b bytes\n" % spaced
        if cumulative:
            node = b"    main (100.0%%, total: %b bytes, current: %b bytes, remaining: 0 bytes)\n"
            yield node % (spaced, spaced)

    allocations = itertools.chain([b"BufferAssignment:\n"], section("allocations"))
    files: dict[str, Iterator[bytes]]
    if era == "B":
        files = {PARTS[0]: itertools.chain(allocations, used_values(), [b"\n\n"], live_ranges())}
    else:
        files = dict(zip(PARTS, (allocations, used_values(), live_ranges()), strict=True))
    written = 0
    for part, chunks in files.items():
        with stem.with_name(f"{stem.name}{part}.txt").open("wb") as file:
            written += write(file, chunks)
    if with_hlo:
        with stem.with_name(f"{stem.name}.txt").open("wb") as file:
            written += write(file, hlo_text(replicas))
    return written


def write(file: BinaryIO, chunks: Iterable[bytes]) -> int:
    return sum(file.write(chunk) for chunk in chunks)


def hlo_text(replicas: list[Replica]) -> Iterator[bytes]:
    """An HLO text of all replicas: each has its rows of the tables, shifted as its frames are."""
    yield b"HloModule merged, is_scheduled=true\n"
    for title in HLO_TABLES:
        yield b"\n" + title + b"\n"
        for replica in replicas:
            # What a row refers to is shifted as it is itself: by what frames are shifted by.
            shift = replica.offsets["frame"]
            rows = b"\n".join(replica.base.hlo_tables[title]) + b"\n"
            yield HLO_NUMBER.sub(lambda n, by=shift: b"%b%d" % (n[1], int(n[2]) + by), rows)
    for replica in replicas:
        yield replica.hlo_text()


class Chooser:
    """Chooses bases for a number of bytes."""

    def __init__(self, bases: list[Base]) -> None:
        self.bases = bases
        self.by_stage = {b.stage: [c for c in bases if c.stage == b.stage] for b in bases}
        self.random = random.Random(SEED)

    def __call__(self, target: float, stage: str | None = None) -> list[Base]:
        small_enough = (b.stage for b in self.bases if b.bytes <= target)
        stages = sorted(set(small_enough)) or sorted(self.by_stage)
        stage = stage or self.random.choice(stages)
        chosen: list[Base] = []
        while fitting := [b for b in self.by_stage[stage] if b.bytes <= target] or (
            not chosen and sorted(self.by_stage[stage], key=lambda b: b.bytes)[:1]
        ):
            largest = max(b.bytes for b in fitting)
            base = self.random.choice([b for b in fitting if b.bytes >= largest / 2.5])
            chosen.append(base)
            target -= base.bytes * 1.03
        return chosen


def read_bases() -> list[Base]:
    bases, unfit = [], 0
    for path in sorted(DEMO.rglob(f"module_*{PARTS[0]}.txt")):
        try:
            bases.append(Base(path))
        except Unfit as reason:
            unfit += 1
            print(f"not used: {path.name}: {reason}", file=sys.stderr)
    print(f"{len(bases)} bases, {unfit} dumps not used", file=sys.stderr)
    return bases


def targets(kind: str, modules: int, size: float) -> Iterator[float]:
    """Bytes for each module: one alone; drifting as over many runs; or small, 2 to 54 kB."""
    if kind == "one":
        yield size
        return
    shape = random.Random(SEED)
    if kind == "small":
        weights = [shape.triangular(2.0, 54.0, 24.0) for _ in range(modules)]
    else:
        weights = [
            (4.0 if i % 12 < 2 else 0.4) * (1 + 0.3 * math.sin(i / 80)) * shape.uniform(0.8, 1.2)
            for i in range(modules)
        ]
    for weight in weights:
        yield weight * size / sum(weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="new directory for the dumps")
    parser.add_argument("--kind", choices=("one", "many", "small"), required=True)
    parser.add_argument(
        "--mb", type=float, help="megabytes of text (small: about 26 kB per module)"
    )
    parser.add_argument("--modules", type=int, help="default: 1000 (many), 2000 (small)")
    parser.add_argument("--era", choices=("B", "C"), default="B", help="one file, or three")
    parser.add_argument("--hlo", action="store_true", help="write HLO texts too")
    args = parser.parse_args()
    if args.kind != "small" and args.mb is None:
        parser.error("--mb is needed")
    modules = args.modules or {"one": 1, "many": 1000, "small": 2000}[args.kind]
    size = 1e6 * args.mb if args.mb else 28.0e3 * modules
    bases = read_bases()
    main_stage = max(bases, key=lambda b: (b.stage.startswith("cpu"), b.bytes)).stage
    choose = Chooser(bases)
    args.out.mkdir(parents=True)
    written = 0
    for number, target in enumerate(targets(args.kind, modules, size)):
        chosen = choose(target, None if args.kind == "small" else main_stage)
        name = f"module_{number + 1:04d}.{chosen[0].name}.{chosen[0].stage}"
        written += write_module(chosen, args.out / name, args.era, args.hlo)
    print(f"{args.out}: {written / 1e6:.1f} MB in {modules} modules, era {args.era}")


if __name__ == "__main__":
    main()
