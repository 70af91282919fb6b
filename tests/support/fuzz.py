"""Fuzzing of every reader: text near its grammar, damaged, and noise.

A case is a reader and a number; the same number is the same text on every machine. Many cases go
through a reader as one section, each as a module of its own, and again in another order and other
company: no exception, the counts of lines add up, and every module has the same rows, findings and
counts both times. Readers that go in rounds are also given each text cut into rounds.

    python tests/support/fuzz.py --cases 1000000                 # spread over the readers
    python tests/support/fuzz.py --reader live_ranges --case 77  # one again, in full
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import chain, pairwise
from typing import Any

import damage
import numpy as np

from bufdb.columnar.scan import Block, Columns, Numbers, Text
from bufdb.columnar.section import Account, Piece, Section
from bufdb.read import (
    allocations,
    boundaries,
    hlo,
    instruction,
    layout_2019,
    live_ranges,
    other_files,
    shape,
    used_values,
)

BATCH = 400
"""Cases read together."""
HEAVY = (damage.nest, damage.long_line, damage.many_bad_lines, damage.be_noise)
"""Damage that makes a text of a line one of 100 kB: rare, or nothing else would be tried."""
LIGHT = tuple(accident for accident in damage.DAMAGES if accident not in HEAVY)

Case = tuple[int, bytes]
Outcome = dict[int, Any]
"""Result of a reader by case, in a form that can be compared."""


# -- texts -----------------------------------------------------------------------------------------

_LINE = {
    "allocations": re.compile(
        rb"^(?:BufferAssignment|allocation | value: |  value: | reused |  \d+ ).*\n", re.M
    ),
    "live_ranges": re.compile(
        rb"^(?:HloLiveRange |    \d+:|    [\w.-]+\{.*\}[:(]|    [\w.-]+: \d+ bytes|"
        rb"  InstructionSeq|  BufferLiveR|  Live ranges at|  Stack trace|  Peak memory|"
        rb".*remaining: ).*\n",
        re.M,
    ),
    "hlo": re.compile(
        rb"^(?:HloModule |FileNames|FunctionNames|FileLocations|StackFrames|"
        rb"\d+ [\"{]|ENTRY |%|}).*\n",
        re.M,
    ),
    "before_optimizations": re.compile(
        rb"^(?:HloModule .*|ENTRY .*|  .* parameter\(.*|%.*|\}|)\n", re.M
    ),
    "options": re.compile(rb"^[a-z_]+: .*\n", re.M),
}
_PARTS = {
    "used_values": re.compile(rb"^<\d+ .*\n(?: positions:\n)(?:.*\n)*?(?=<\d+ |\n|\Z)", re.M),
    "instruction": re.compile(rb" from instruction: ?(%?.*(?:\n[^<\n ].*)*)"),
    "shape": re.compile(rb"(?<=\): ).*(?=\n)|(?<=[|]).*(?=[|])"),
}


@cache
def corpus(reader: str) -> list[bytes]:
    """Lines or longer parts of the samples that every machine has, as the reader reads them."""
    own = [s for s in damage.samples() if s.generation.startswith(("demo ", "made up "))]
    texts = [text for sample in own for _, text in sorted(sample.files.items())]
    parts: dict[bytes, None] = {}
    if reader in ("cut", "scan"):
        for text in texts:
            parts.update(dict.fromkeys(text.splitlines(keepends=True)[:40]))
    elif reader == "block_layout":
        old = [s for s in own if "2019" in s.generation]
        for sample in old:
            for text in sample.files.values():
                parts.update(dict.fromkeys(text.splitlines(keepends=True)))
    else:
        pattern = _LINE.get(reader) or _PARTS[reader]
        for text in texts:
            parts.update(
                dict.fromkeys(m[1] if m.re.groups else m[0] for m in pattern.finditer(text))
            )
    return list(parts)


TITLES = (
    *(b"BufferAssignment:\n", b"Total bytes used: 12 (12B)\n", b"\n", b"Used values:\n"),
    *(b"HloLiveRange (max 3):\n", b"  InstructionSequence:\n", b"  BufferLiveRange:\n"),
    *(b"  Live ranges at 2 (peak):\n", b"  Peak memory could not be determined\n"),
    *(b"  Stack trace breakdown for peak usage: 1 024 bytes\n", b" positions:\n", b" uses:\n"),
)


def text_of(reader: str, number: int) -> bytes:
    """The text of a case."""
    rng = random.Random(f"{reader} {number}")
    lines = corpus(reader)
    kind = rng.random()
    if kind < 0.03:
        return rng.randbytes(rng.randrange(200))
    if kind < 0.06:
        return bytes(rng.choices(b'<>(){}[]|,:;@%="\\ \n0123456789abxyz-', k=rng.randrange(120)))
    count = 1 if reader in ("instruction", "shape") else rng.choice((1, 2, 3, 5, 8))
    start = rng.randrange(len(lines))
    some = lines[start : start + count] if rng.random() < 0.6 else rng.choices(lines, k=count)
    if reader not in ("instruction", "shape", "options"):
        for _ in range(rng.choice((0, 0, 1, 2))):
            some.insert(rng.randrange(len(some) + 1), rng.choice(TITLES))
    text = b"".join(some)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        accident = rng.choice(HEAVY if rng.random() < 0.0005 else LIGHT)
        text = accident(rng, text, rng.choice(lines))
    return text


# -- readers ---------------------------------------------------------------------------------------


def cells(column: Any) -> list[Any]:
    """A column as values that can be compared."""
    if isinstance(column, Text):
        return column.tolist()
    if isinstance(column, Numbers):
        valid = np.ones(len(column), np.bool_) if column.valid is None else column.valid
        pairs = zip(column.values.tolist(), valid.tolist(), strict=True)
        return [number if there else None for number, there in pairs]
    return list(column.tolist()) if hasattr(column, "tolist") else list(column)


def rows_by_module(columns: Columns, first_head: Any = None) -> dict[int, list[Any]]:
    """The rows of each module; rows of heads are counted from the module's first."""
    if not columns:
        return {}
    modules = cells(columns["module"])
    named = []
    for name in sorted(columns):
        values = cells(columns[name])
        if name == "head":
            values = [v - first_head[m] for v, m in zip(values, modules, strict=True)]
        if name not in ("module", "line"):
            named.append(values)
    rows: dict[int, list[Any]] = {}
    for module, *row in zip(modules, *named, strict=True):
        rows.setdefault(module, []).append(tuple(row))
    return rows


def merged(numbers: Sequence[int], *parts: dict[int, Any]) -> Outcome:
    """Per module what each part has of it."""
    return {number: tuple(part.get(number) for part in parts) for number in numbers}


def findings(numbers: Sequence[int], account: Account) -> dict[int, Any]:
    """Return findings and counts of each module."""
    by_module: dict[int, list[Any]] = {number: [] for number in numbers}
    for one in account.findings():
        by_module[one.module].append((one.severity, one.code, one.line_number, one.message))
    counts = {module: vars(tally).copy() for (module, _), tally in account.tallies.items()}
    return {n: (sorted(map(repr, by_module[n])), counts.get(n)) for n in numbers}


def pieces_of(cases: Sequence[Case]) -> list[Piece]:
    return [Piece(number, f"{number}.txt", text) for number, text in cases]


def line_count(text: bytes) -> int:
    return text.count(b"\n") + (text[-1:] not in (b"", b"\n"))


def counts_add_up(cases: Sequence[Case], account: Account) -> None:
    for number, text in cases:
        tally = account.tallies.get((number, f"{number}.txt"))
        seen = 0 if tally is None else tally.read_count + tally.known_count + tally.unread_count
        assert seen == line_count(text), (number, seen, line_count(text))


class NoneAssigned:
    """No allocations are known: a head counts by its text alone."""

    def by_number(self, module: Any, value_id: Any) -> Any:
        return np.full(len(module), -1, np.int64)

    def checks(self, rows: Any) -> Any:
        return np.zeros(len(rows), np.uint64)

    def modules(self) -> Any:
        return np.empty(0, np.int64)


def relative(cases: Sequence[Case]) -> tuple[list[Case], dict[int, int]]:
    """The cases under small module ordinals, which arrays can be indexed by."""
    back = dict(enumerate(number for number, _ in cases))
    return [(n, text) for n, (_, text) in enumerate(cases)], back


def read_allocations(cases: Sequence[Case]) -> Outcome:
    account = Account()
    section = Section(pieces_of(cases), account)
    result = allocations.read(section)
    section.close()
    counts_add_up(cases, account)
    numbers = [number for number, _ in cases]
    parts = (result.allocations, result.values)
    return merged(numbers, *map(rows_by_module, parts), findings(numbers, account))


def read_used_values(cases: Sequence[Case]) -> Outcome:
    account = Account()
    seeds = np.full(1 + max(number for number, _ in cases), 7, np.uint64)
    section = Section(pieces_of(cases), account)
    result = used_values.read(section, NoneAssigned(), seeds, True)
    section.close()
    counts_add_up(cases, account)
    return used_outcome([number for number, _ in cases], result, account)


def used_outcome(numbers: Sequence[int], result: Any, account: Account) -> Outcome:
    modules = cells(result.heads["module"]) if result.heads else []
    first: dict[int, int] = {}
    for row, module in enumerate(modules):
        first.setdefault(module, row)
    parts = (result.heads, result.positions, result.uses, result.descriptions)
    totals: dict[int, Any] = {}
    for module, *rest in result.totals:
        totals.setdefault(module, []).append(rest[:2])
    heads, *others = (rows_by_module(part, first) for part in parts)
    # What could not be read as a head has the value_id -1, and its other cells mean nothing.
    place = sorted(set(result.heads) - {"module", "line"}).index("value_id") if result.heads else 0
    heads = {
        module: [row if row[place] >= 0 else None for row in rows] for module, rows in heads.items()
    }
    return merged(numbers, heads, *others, totals, findings(numbers, account))


def read_live_ranges(cases: Sequence[Case]) -> Outcome:
    account = Account()
    section = Section(pieces_of(cases), account)
    result = live_ranges.read(section)
    section.close()
    counts_add_up(cases, account)
    return live_outcome([number for number, _ in cases], result, account)


def live_outcome(numbers: Sequence[int], result: Any, account: Account) -> Outcome:
    parts = (result.sequence, result.ranges, result.peak, result.tree)
    facts = {module: vars(live).copy() for module, live in result.facts.items()}
    return merged(numbers, *map(rows_by_module, parts), facts, findings(numbers, account))


def read_instruction(cases: Sequence[Case]) -> Outcome:
    block = Block(b"".join(text + b"\n" for _, text in cases))
    sizes = np.array([len(text) + 1 for _, text in cases], np.int64)
    stops = np.cumsum(sizes) - 1
    columns, c = instruction.read(Text(block, stops - sizes + 1, stops))
    columns = {name: cells(column) for name, column in columns.items()}
    bad = c.problems
    outcome: Outcome = {}
    for row, (number, _) in enumerate(cases):
        # Where a line failed its cells mean nothing: it is reported and left out.
        ok = row not in bad
        outcome[number] = [cells[row] for _, cells in sorted(columns.items())] if ok else "unread"
    return outcome


def read_hlo(cases: Sequence[Case]) -> Outcome:
    outcome: Outcome = {}
    for number, text in cases:
        end = hlo.header_end(text)
        assert 0 <= end <= len(text)
        header = hlo.read(text[:end])
        lines = line_count(text[:end])
        assert header.read_count + len(header.problems) <= max(lines, 1), number
        assert all(1 <= line <= max(lines, 1) for line, _ in header.problems), number
        outcome[number] = repr(header)
    return outcome


def read_before(cases: Sequence[Case]) -> Outcome:
    """However the text comes in parts of whole lines, the same is kept."""
    outcome: Outcome = {}
    for number, text in cases:
        whole, in_parts = (other_files.BeforeOptimizations() for _ in range(2))
        whole.feed(text)
        for part in parts_of(random.Random(number), text):
            in_parts.feed(part)
        lines = max(line_count(text), 1)
        assert all(1 <= line <= lines for line, _ in whole.problems), number
        assert whole.read_count + len(whole.problems) <= lines, number
        assert all(0 <= key < 10**18 for key in whole.parameters), number
        assert vars(whole) == vars(in_parts) or not text, number
        outcome[number] = repr((whole.header, whole.parameters, whole.problems))
    return outcome


def read_options(cases: Sequence[Case]) -> Outcome:
    outcome: Outcome = {}
    for number, text in cases:
        rows, problems = other_files.read_debug_options(text)[:2]
        lines = text.decode(errors="replace").split("\n")
        blank = sum(not line.strip() for line in lines)
        read = len(rows) + len(problems)
        assert len(lines) - blank <= read <= len(lines), (number, read, len(lines), blank)
        outcome[number] = (rows, problems)
    return outcome


def read_shape(cases: Sequence[Case]) -> Outcome:
    outcome: Outcome = {}
    for number, raw in cases:
        text = raw.decode(errors="replace")
        one = shape.shape_of(text)
        assert one.text == text
        for size in (one.logical_bytes, one.element_count, one.memory_space):
            assert size is None or 0 <= size < 2**63, (number, size)
        outcome[number] = one
    return outcome


def read_cut(cases: Sequence[Case]) -> Outcome:
    """Every byte belongs to one section, however the file comes in parts."""
    outcome: Outcome = {}
    for number, text in cases:
        rng = random.Random(number)
        for kind in ("buffer_assignment", "values", "live_range"):
            whole, in_parts = boundaries.Titles(kind), boundaries.Titles(kind)
            whole.feed(text)
            for part in parts_of(rng, text):
                in_parts.feed(part)
            assert vars(whole) == vars(in_parts) or not text, (number, vars(whole), vars(in_parts))
            spans = boundaries.cut(whole)
            sections = (spans.allocations, spans.used_values, spans.live_ranges)
            places = [span for span in sections if span[1]]
            assert places == [] or (places[0][0], places[-1][1]) == (0, len(text)), (number, spans)
            for (_, stop), (start, _) in pairwise(places):
                assert stop == start, (number, spans)
            outcome[number] = (*outcome.get(number, ()), spans)
        outcome[number] = (*outcome[number], boundaries.kind_of(text))
    return outcome


def read_block_layout(cases: Sequence[Case]) -> Outcome:
    outcome: Outcome = {}
    for number, text in cases:
        layout_2019.is_block_layout(text)
        whole = text if text.endswith(b"\n") or not text else text + b"\n"
        later = layout_2019.rewrite(whole)
        assert len(later.allocations) == len(later.allocation_lines), number
        assert len(later.used_values) == len(later.used_lines), number
        seen = {*later.allocation_lines, *later.used_lines}
        assert seen <= set(range(1, line_count(whole) + 1)), number
        assert len(seen) == line_count(whole), (number, sorted(seen))
        outcome[number] = repr(later)
    return outcome


def read_scan(cases: Sequence[Case]) -> Outcome:
    """Compare steps of a cursor with the same in plain Python."""
    lines = [text.replace(b"\n", b" ") for _, text in cases]
    block = Block(b"".join(line + b"\n" for line in lines))
    everything = np.arange(len(block))
    c = block.cursor(everything)
    signed = c.integer(signed=True).tolist()
    names = block.cursor(everything)
    until = names.until(b" ", b",").tolist()
    found_at = (block.cursor(everything).find(b'"', b"\\") - block.starts).tolist()
    searched = (block.cursor(everything).find(b") ") - block.starts).tolist()
    hashes = block.cursor(everything).rest().hashes(np.uint64(3)).tolist()
    outcome: Outcome = {}
    for row, ((number, _), line) in enumerate(zip(cases, lines, strict=True)):
        digits = re.match(rb"-?\d+", line)
        fits = digits is not None and len(digits[0].lstrip(b"-")) <= 19
        value = int(digits[0]) if digits is not None and fits else None
        if value is not None and -(2**63) <= value < 2**63:
            assert row not in c.problems, (number, line[:80])
            assert signed[row] == value, (number, line[:80])
        else:
            assert row in c.problems, (number, line[:80])
        stop = min((p for p in (line.find(b" "), line.find(b",")) if p >= 0), default=len(line))
        assert until[row] == line[:stop], (number, line[:80])
        mark = min((p for p in (line.find(b'"'), line.find(b"\\")) if p >= 0), default=len(line))
        assert found_at[row] == mark, (number, line[:80])
        place = line.find(b") ")
        assert searched[row] == (place if place >= 0 else len(line)), (number, line[:80])
        outcome[number] = hashes[row]
    return outcome


READERS: dict[str, Callable[[Sequence[Case]], Outcome]] = {
    "allocations": read_allocations,
    "used_values": read_used_values,
    "live_ranges": read_live_ranges,
    "instruction": read_instruction,
    "hlo": read_hlo,
    "before_optimizations": read_before,
    "options": read_options,
    "shape": read_shape,
    "cut": read_cut,
    "block_layout": read_block_layout,
    "scan": read_scan,
}


# -- rounds ----------------------------------------------------------------------------------------


def parts_of(rng: random.Random, text: bytes, limit: int | None = None) -> list[bytes]:
    """The text cut at line borders (none above `limit`)."""
    borders = [m.end() for m in re.finditer(rb"\n", text)]
    borders = [b for b in borders if b < len(text) and (limit is None or b <= limit)]
    chosen = sorted(rng.sample(borders, min(len(borders), rng.choice((1, 2, 30)))))
    places = [0, *chosen, len(text)]
    return [text[a:b] for a, b in pairwise(places) if b > a]


def rounds_of(text: bytes, parts: Sequence[bytes]) -> list[Piece]:
    pieces, above = [], 0
    for number, part in enumerate(parts):
        before = above
        pieces.append(Piece(0, "0.txt", part, lambda before=before: before, begins=number == 0))
        above += part.count(b"\n")
    return pieces


def allocations_in_rounds(rng: random.Random, text: bytes) -> tuple[Any, Any]:
    account, last, rows = Account(), -1, []
    for piece in rounds_of(text, parts_of(rng, text)):
        section = Section([piece], account)
        result = allocations.read(section, last)
        section.close()
        last = result.last_index
        rows.append([rows_by_module(p).get(0, []) for p in (result.allocations, result.values)])
    one = [list(chain(*some)) or None for some in zip(*rows, strict=True)] if rows else [None, None]
    whole = read_allocations([(0, text)])[0]
    return (*one, findings([0], account)[0]), whole


def live_ranges_in_rounds(rng: random.Random, text: bytes) -> tuple[Any, Any]:
    """The peak listing and its tree come in one round."""
    listing = re.search(rb"^  (?:Live r|Peak m|Stack )", text, re.M)
    account, kind, rows, facts = Account(), live_ranges.START, [], {}
    limit = listing.start() if listing else None
    for piece in rounds_of(text, parts_of(rng, text, limit)):
        section = Section([piece], account)
        result = live_ranges.read(section, kind)
        section.close()
        kind = result.last_kind
        parts = (result.sequence, result.ranges, result.peak, result.tree)
        rows.append([rows_by_module(p).get(0, []) for p in parts])
        for live in result.facts.values():
            facts.update({k: v for k, v in vars(live).items() if v is not None})
    one = [list(chain(*some)) or None for some in zip(*rows, strict=True)] if rows else [None] * 4
    *whole, whole_facts, whole_findings = read_live_ranges([(0, text)])[0]
    filled = {k: v for k, v in (whole_facts or {}).items() if v is not None}
    return (*one, facts, findings([0], account)[0]), (*whole, filled, whole_findings)


ROUNDS: dict[str, Callable[[random.Random, bytes], tuple[Any, Any]]] = {
    "allocations": allocations_in_rounds,
    "live_ranges": live_ranges_in_rounds,
}
ROUND_SHARE = 20
"""One case in this many is also read in rounds, which costs a section per round."""


# -- running ---------------------------------------------------------------------------------------


def run(reader: str, first: int, count: int) -> list[str]:
    """Describe the failures in these cases."""
    failures = []
    for start in range(first, first + count, BATCH):
        numbers = range(start, min(start + BATCH, first + count))
        failures += run_batch(reader, [(number, text_of(reader, number)) for number in numbers])
    return failures


def run_batch(reader: str, cases: Sequence[Case]) -> list[str]:
    read = READERS[reader]
    small, back = relative(cases)
    shuffled = list(small)
    random.Random(cases[0][0]).shuffle(shuffled)
    half = len(shuffled) // 2 or 1
    try:
        one = read(small)
        other = read(shuffled[:half]) | (read(shuffled[half:]) if shuffled[half:] else {})
    except Exception:  # whatever it is, one_by_one finds and reports whose it is
        return one_by_one(reader, cases)
    failures = [
        f"{reader} {back[n]}: depends on its neighbours: {text_of(reader, back[n])!r:.600}"
        for n, _ in small
        if one[n] != other[n]
    ]
    if reader in ROUNDS:
        for number, text in cases:
            if number % ROUND_SHARE == 0:
                failures += in_rounds(reader, number, text)
    return failures


def in_rounds(reader: str, number: int, text: bytes) -> list[str]:
    try:
        rounds, whole = ROUNDS[reader](random.Random(number), text)
    except Exception:  # any at all is what is looked for: reported with its traceback
        return [f"{reader} {number} in rounds: {text!r:.600}\n{traceback.format_exc()}"]
    if rounds != whole:
        return [
            f"{reader} {number}: rounds differ: {text!r:.600}\n  {rounds!r:.800}\n  {whole!r:.800}"
        ]
    return []


def one_by_one(reader: str, cases: Sequence[Case]) -> list[str]:
    """The cases that fail alone; the whole batch if none does."""
    failures = []
    for number, text in cases:
        try:
            READERS[reader]([(0, text)])
        except Exception:  # any at all is what is looked for: reported with its traceback
            failures.append(f"{reader} {number}: {text!r:.600}\n{traceback.format_exc()}")
    numbers = f"{cases[0][0]} to {cases[-1][0]}"
    return failures or [f"{reader} {numbers} fail together and not alone"]


def main() -> int:
    """Run cases of all readers or of one; the last line of each says how many and how fast."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    readers = [options.reader] if options.reader else list(READERS)
    if options.case is not None:
        for reader in readers:
            print(f"{reader} {options.case}: {text_of(reader, options.case)!r}")
            print("\n".join(run(reader, options.case, 1)) or "as it should be")
            if reader in ROUNDS:
                print("\n".join(in_rounds(reader, options.case, text_of(reader, options.case))))
        return 0
    failed = 0
    each = -(-options.cases // len(readers))
    with ProcessPoolExecutor(options.jobs) as workers:
        for reader in readers:
            began = time.perf_counter()
            starts = range(options.first, options.first + each, 10 * BATCH)
            counts = [min(10 * BATCH, options.first + each - start) for start in starts]
            wrong = 0
            for some in workers.map(run, [reader] * len(starts), starts, counts):
                wrong += len(some)
                for line in some[: max(0, 5 - wrong + len(some))]:
                    print(line, flush=True)
            speed = each / (time.perf_counter() - began)
            print(f"{reader}: {each} cases, {wrong} failed, {speed:.0f}/s", flush=True)
            failed += wrong
    print(f"{each * len(readers)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
