"""Every line of a file is read, known and left out, or reported; nothing is lost in silence.

The counts of `files` must balance on whole and damaged dumps of every generation. Tests for the
accidents that once lost rows with exit code 0 and no diagnostic follow, one for each.
"""

from __future__ import annotations

import os
import random
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from damage import samples
from ingesting import ingest_into
from isolation import DEFAULT, TINY, Base, Dump, base
from places import DEMO

from bufdb.dumps.discover import discover
from bufdb.errors import UsageError
from bufdb.ingest.rows import MODULE_TABLES

DUMPS = int(os.environ.get("BUFDB_ACCOUNTING_DUMPS", "800"))
"""Damaged dumps whose counts are held in a test run."""
CHUNKS = 8
COUNTS = ("line_count", "read_line_count", "known_line_count", "unread_line_count")
REPORTS = ("unreadable_line", "unreadable_file", "truncated_file")
"""Codes of diagnostics that say where lines were not understood."""

SPLIT = "cpu_b8", "module_0000.jit_init.cpu_after_optimizations"
WHOLE = "cpu_b8_old", "module_0000.jit_init.cpu_after_optimizations"
TRAIN = "cpu_b8_old", "module_0001.jit_train_step.cpu_after_optimizations"
SPLIT_TRAIN = "cpu_b8", "module_0002.jit_train_step.cpu_after_optimizations"
ASSIGNMENT, VALUES, LIVE = (
    "-buffer-assignment.txt",
    "-buffer-assignment-values.txt",
    "-live-range.txt",
)


# -- the counts ------------------------------------------------------------------------------------


def wrong_counts(folder: Path, dumps: Mapping[int, Dump]) -> list[str]:
    """Files of the ingested folder whose counts do not hold, for people."""
    con = base().con
    reported = Counter(
        con.execute(
            "SELECT path, count(*) FROM diagnostics WHERE code IN (SELECT unnest(?)) "
            "AND path IS NOT NULL GROUP BY path",
            [list(REPORTS)],
        ).fetchall()
    )
    named = {path for path, _ in reported}
    messages = []
    rows = con.execute(f"SELECT path, size_bytes, {', '.join(COUNTS)} FROM files").fetchall()
    for path, size, lines, read, known, unread in rows:
        text = (folder / path).read_bytes()
        wrong = []
        if size != len(text):
            wrong.append(f"size_bytes {size} of {len(text)}")
        if lines != line_count(text):
            wrong.append(f"line_count {lines} of {line_count(text)}")
        if min(read, known, unread) < 0 or read + known + unread != lines:
            wrong.append(f"{read} read + {known} known + {unread} unread of {lines}")
        if (unread > 0) != (path in named):
            wrong.append(f"{unread} unread, {'a' if path in named else 'no'} diagnostic")
        if wrong:
            number = int(re.findall(r"(?:module_)?(\d{4,})[._]", Path(path).name)[-1])
            dump = next((d for d in dumps.values() if str(d.number) in path), None)
            messages.append(
                f"{dump.description if dump else number}\n  {Path(path).name}: {', '.join(wrong)}"
            )
    return messages


def line_count(text: bytes) -> int:
    """Lines of a text, the last one with or without its end."""
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):  # line ends of two bytes
        text = text.decode("utf-16", "replace").encode()
    return text.count(b"\n") + (text[-1:] not in (b"", b"\n"))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_read_known_and_unread_lines_are_all_lines_of_a_file(chunk: int) -> None:
    messages: list[str] = []
    step = DUMPS // CHUNKS
    rng = random.Random(f"accounting {chunk}")
    dumps: dict[int, Dump] = {}
    while len(dumps) < step:
        dump = Dump(rng.choice(samples()), rng.choice((0, *[rng.randrange(1, 10**6)] * 9)))
        dumps[dump.number] = dump
    for block_bytes in (DEFAULT, rng.choice(TINY)):
        with tempfile.TemporaryDirectory() as folder:
            some = list(dumps.values())[: step if block_bytes == DEFAULT else step // 4]
            for n, dump in enumerate(some):
                dump.put(Path(folder) / f"d{n % 10}")
            base().ingest(Path(folder), block_bytes)
            messages += wrong_counts(Path(folder), dumps)
    assert not messages, f"{len(messages)} files:\n" + "\n".join(messages[:10])


# -- what was lost in silence ----------------------------------------------------------------------


@dataclass
class Ingested:
    """Result of an ingest."""

    exit_code: int
    tables: dict[str, Counter[str]]
    diagnostics: list[tuple[str, str, str | None, int | None, str]] = field(default_factory=list)
    """(severity, code, path, line number, message)."""

    @property
    def codes(self) -> set[str]:
        """Codes of the diagnostics."""
        return {code for _, code, *_ in self.diagnostics}

    def names(self, suffix: str) -> bool:
        """Return whether a diagnostic names a file with this suffix."""
        return any(
            path is not None and path.endswith(suffix) for _, _, path, _, _ in self.diagnostics
        )


def texts(run: str, stem: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((DEMO / run).glob(f"{stem}*"))}


def ingested(files: Mapping[str, bytes], block_bytes: int = DEFAULT) -> Ingested:
    """Ingest these files and return rows as text, without hashes, sizes and counts."""
    some: Base = base()
    some.empty()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_bytes(text)
        summary = ingest_into(some.con, Path(folder), "r", block_bytes)
    tables = {}
    for table in MODULE_TABLES:
        if table not in ("files", "diagnostics", "row_counts"):
            rows = some.con.execute(f'SELECT * FROM "{table}"').fetchall()
            tables[table] = Counter(map(repr, rows))
    diagnostics = some.con.execute(
        "SELECT severity, code, path, line_number, message FROM diagnostics ORDER BY ALL"
    ).fetchall()
    return Ingested(summary.exit_code, tables, diagnostics)


@cache
def undamaged(dump: tuple[str, str]) -> Ingested:
    """Ingest a demo dump unchanged."""
    return ingested(texts(*dump))


def lost(whole: Ingested, damaged: Ingested) -> dict[str, int]:
    """Rows that the whole dump has and the damaged one has not, by table."""
    missing = {t: (rows - damaged.tables[t]).total() for t, rows in whole.tables.items()}
    return {table: count for table, count in missing.items() if count}


def changed(files: Mapping[str, bytes], suffix: str, old: bytes, new: bytes) -> dict[str, bytes]:
    """The files with a text replaced once in the file that ends so."""
    (name,) = [name for name in files if name.endswith(suffix)]
    assert old in files[name], (name, old)
    return {**files, name: files[name].replace(old, new, 1)}


BLOCKS = pytest.mark.parametrize("block_bytes", [DEFAULT, 300], ids=["whole", "in rounds"])
BOTH = pytest.mark.parametrize("dump", [SPLIT, WHOLE], ids=["split", "one file"])


@pytest.mark.sample(4)
@BLOCKS
@BOTH
def test_a_byte_order_mark_is_read_over(dump: tuple[str, str], block_bytes: int) -> None:
    files = texts(*dump)
    marked = {name: b"\xef\xbb\xbf" + text for name, text in files.items()}
    whole, actual = undamaged(dump), ingested(marked, block_bytes)
    assert (lost(whole, actual), lost(actual, whole)) == ({}, {})
    assert (actual.diagnostics, actual.exit_code) == (whole.diagnostics, 0)


@pytest.mark.sample(4)
@BLOCKS
@BOTH
def test_line_ends_of_two_bytes_are_simply_read(dump: tuple[str, str], block_bytes: int) -> None:
    files = texts(*dump)
    pasted = {name: text.replace(b"\n", b"\r\n") for name, text in files.items()}
    whole, actual = undamaged(dump), ingested(pasted, block_bytes)
    assert (lost(whole, actual), lost(actual, whole)) == ({}, {})
    assert (actual.diagnostics, actual.exit_code) == (whole.diagnostics, 0)


@pytest.mark.slow
@BLOCKS
def test_mixed_line_ends_lose_no_row_in_silence(
    block_bytes: int,
) -> None:
    files = texts(*WHOLE)
    ((name, text),) = files.items()
    lines = text.split(b"\n")
    some = [line + b"\r" if n % 3 else line for n, line in enumerate(lines[:-1])]
    result = ingested({name: b"\n".join([*some, lines[-1]])}, block_bytes)
    assert result.exit_code == 4 or not lost(ingested(files), result)


@pytest.mark.slow
def test_a_large_file_with_two_byte_line_ends_is_read() -> None:
    (name, text), *_ = texts(*WHOLE).items()
    head, _, rest = text.partition(b"\nTotal bytes used:")
    more = b"".join(
        b"allocation %d: size 0, thread-local:\n value: <%d x.%d @0> (size=0,offset=0): "
        b"(f32[], s32[], /*index=2*/u8[%s])\n" % (n, n, n, b"1," * 500 + b"1")
        for n in range(1000, 11500)
    )
    large = head + more + b"\nTotal bytes used:" + rest
    assert len(large) > 11e6
    whole, actual = ingested({name: large}), ingested({name: large.replace(b"\n", b"\r\n")})
    assert (lost(whole, actual), lost(actual, whole)) == ({}, {})
    assert whole.tables["allocations"].total() > 10_000
    assert actual.diagnostics == whole.diagnostics


FIRST_LINES = {
    "letter lost": b"ufferAssignment:\n",
    "letter changed": b"BufferAssignmant:\n",
    "colon lost": b"BufferAssignment\n",
    "blank in front": b" BufferAssignment:\n",
    "text in front": b"$ cat dump.txt BufferAssignment:\n",
    "bytes in front": b"\0\0BufferAssignment:\n",
    "text after": b"BufferAssignment: x\n",
    "lower case": b"bufferassignment:\n",
    "glued": b"BufferAssignment:",
}


@pytest.mark.sample(10)
@BLOCKS
@BOTH
@pytest.mark.parametrize("first", FIRST_LINES)
def test_a_damaged_first_line_is_reported(
    first: str, dump: tuple[str, str], block_bytes: int
) -> None:
    files = changed(texts(*dump), ASSIGNMENT, b"BufferAssignment:\n", FIRST_LINES[first])
    result = ingested(files, block_bytes)
    assert result.names(ASSIGNMENT), result.diagnostics
    assert result.exit_code == 4


@pytest.mark.sample(5)
@BLOCKS
@BOTH
@pytest.mark.parametrize("first", [b"", b"\n", b"\r\n"])
def test_a_lost_first_line_loses_no_row_in_silence(
    first: bytes, dump: tuple[str, str], block_bytes: int
) -> None:
    files = texts(*dump)
    result = ingested(changed(files, ASSIGNMENT, b"BufferAssignment:\n", first), block_bytes)
    assert (result.names(ASSIGNMENT) and result.exit_code == 4) or not lost(undamaged(dump), result)


TITLES = [
    (SPLIT, VALUES, rb"Total bytes used: \d+"),
    (SPLIT, VALUES, rb"Used values:"),
    (SPLIT, LIVE, rb"HloLiveRange \(max \d+\):"),
    (SPLIT, LIVE, rb"  InstructionSequence:"),
    (SPLIT, LIVE, rb"  BufferLiveRange:"),
    (SPLIT, LIVE, rb"  Live ranges at \d+ \(peak\):"),
    (SPLIT, LIVE, rb"  Stack trace breakdown for peak usage: .*"),
    (WHOLE, ASSIGNMENT, rb"Total bytes used: \d+"),
    (WHOLE, ASSIGNMENT, rb"Used values:"),
    (WHOLE, ASSIGNMENT, rb"HloLiveRange \(max \d+\):"),
    (WHOLE, ASSIGNMENT, rb"  InstructionSequence:"),
    (WHOLE, ASSIGNMENT, rb"  BufferLiveRange:"),
    (WHOLE, ASSIGNMENT, rb"  Live ranges at \d+ \(peak\):"),
]
DAMAGES = {
    "letter lost": lambda title: title[:4] + title[5:],
    "letter changed": lambda title: title[:4] + b"#" + title[5:],
    "blank after": lambda title: title + b" ",
    "text after": lambda title: title + b"x",
    "blank in front": lambda title: b" " + title,
    "outdented": lambda title: title.lstrip()[1:],
    "colon lost": lambda title: title[:-1],
    "lower case": lambda title: title.lower(),
    "number huge": lambda title: re.sub(rb"\d+", b"9" * 30, title),
    "number lost": lambda title: re.sub(rb"\d+", b"", title),
    "split": lambda title: title[:8] + b"\n" + title[8:],
    "doubled": lambda title: title + b"\n" + title,
    "gone": lambda title: b"",
}


@pytest.mark.sample(30)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "place",
    range(len(TITLES)),
    ids=[f"{'one file' if d == WHOLE else 'split'} {t[:14].decode()}" for d, _, t in TITLES],
)
def test_a_damaged_title_loses_no_row_in_silence(place: int, damage: str) -> None:
    dump, suffix, pattern = TITLES[place]
    # Each title occurs twice, seven cases apart: once read whole, once in rounds.
    block_bytes = (DEFAULT, 400)[(place + [*DAMAGES].index(damage)) % 2]
    files = texts(*dump)
    (name,) = [name for name in files if name.endswith(suffix)]
    title = re.search(rb"(?m)^" + pattern, files[name])
    if title is None:
        pytest.skip("the dump has no such title")
    result = ingested(changed(files, suffix, title[0], DAMAGES[damage](title[0])), block_bytes)
    missing = lost(undamaged(dump), result)
    if missing:
        assert result.diagnostics, missing
        assert result.exit_code == 4 or damage == "gone", (missing, result.diagnostics)


def test_a_dump_of_2024_whose_live_ranges_are_cut_is_reported() -> None:
    (name, text), *_ = texts(*TRAIN).items()
    start = text.index(b"\nHloLiveRange (max")
    for end in (start, start + 1):
        result = ingested({name: text[:end]})
        assert result.exit_code == 4, end
        assert result.names(ASSIGNMENT), result.diagnostics


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "title", [b"  BufferLiveRange:\n", b"  Live ranges at ", b"    broadcast.7{}:", b"    5:"]
)
def test_live_ranges_cut_between_two_lines_are_reported(title: bytes) -> None:
    (name, text), *_ = texts(*WHOLE).items()
    result = ingested({name: text[: text.index(title)]})
    assert result.diagnostics
    assert result.exit_code == 4


@pytest.mark.sample(4)
@pytest.mark.parametrize("dump", [(WHOLE, ASSIGNMENT), (SPLIT, VALUES)], ids=["one file", "split"])
@BLOCKS
def test_a_file_without_its_total_line_is_reported(
    dump: tuple[tuple[str, str], str], block_bytes: int
) -> None:
    files, suffix = texts(*dump[0]), dump[1]
    (name,) = [name for name in files if name.endswith(suffix)]
    without = re.sub(rb"(?m)^Total bytes used: .*\n", b"", files[name])
    whole, result = ingested(files), ingested({**files, name: without}, block_bytes)
    assert {t: n for t, n in lost(whole, result).items() if t != "modules"} == {}
    assert any("total" in message.lower() for *_, message in result.diagnostics), result.diagnostics


@pytest.mark.parametrize("suffix", [ASSIGNMENT, VALUES, LIVE])
def test_a_missing_file_of_a_split_dump_is_reported(suffix: str) -> None:
    files = {n: text for n, text in texts(*SPLIT).items() if not n.endswith(suffix)}
    result = ingested(files)
    assert [message for _, code, _, _, message in result.diagnostics if code == "missing_file"]
    assert suffix in " ".join(message for *_, message in result.diagnostics)


def peaks() -> list[Any]:
    query = "SELECT occupied_temp_bytes, peak_bytes FROM memory_figures WHERE temp_bytes > 0"
    return base().con.execute(query).fetchall()


@pytest.mark.sample(4)
@BLOCKS
@pytest.mark.parametrize("dump", [TRAIN, SPLIT_TRAIN], ids=["one file", "split"])
def test_a_temp_allocation_without_values_is_unknown(
    dump: tuple[str, str], block_bytes: int
) -> None:
    files = texts(*dump)
    (name,) = [name for name in files if name.endswith(ASSIGNMENT)]
    ingested(files)
    assert all(occupied > 0 for occupied, _ in peaks())
    values = rb"(?m)^(allocation \d+: size [1-9]\d*, preallocated-temp:\n)(?: value: .*\n)+"
    without, count = re.subn(values, rb"\1", files[name])
    assert count
    result = ingested({**files, name: without}, block_bytes * 100)
    assert peaks() == [(None, None)]
    assert result.diagnostics


def test_an_allocation_file_alone_has_an_unknown_peak() -> None:
    files = {n: t for n, t in texts(*SPLIT_TRAIN).items() if n.endswith((ASSIGNMENT, VALUES))}
    result = ingested(files)
    assert peaks() == [(None, None)]
    assert "missing_file" in result.codes


def test_optimized_hlo_alone_lacks_a_file(tmp_path: Path) -> None:
    files = texts(*SPLIT)
    for name, text in files.items():
        if name.endswith("after_optimizations.txt"):
            (tmp_path / name).write_bytes(text)
    assert discover(tmp_path) == []
    with pytest.raises(UsageError, match=r"HLO") as error:
        ingest_into(base().con, tmp_path, "r")
    assert "\n" not in str(error.value)
    assert "--xla_" in str(error.value)
