"""Text that was pasted, quoted, logged or saved by another system; and what is no dump at all."""

import re

import pytest
from ingesting import ingest_into, rows
from places import DEMO, ROOT

from bufdb.dumps.discover import discover
from bufdb.dumps.load import load
from bufdb.dumps.pasted import is_plain, looks_like, plain
from bufdb.errors import UsageError

OLD = DEMO / "cpu_b8_old"
INIT = "module_0000.jit_init.cpu_after_optimizations"
WHOLE = (OLD / f"{INIT}-buffer-assignment.txt").read_text(encoding="utf-8")
LIVE = (DEMO / "cpu_b8" / f"{INIT}-live-range.txt").read_text(encoding="utf-8")


def in_front(front):
    return lambda text: "".join(front + line for line in text.splitlines(keepends=True))


def stamped(text):
    """Each line with a time of its own, as `kubectl logs --timestamps` prints them."""
    lines = text.splitlines(keepends=True)
    return "".join(
        f"2026-03-{n % 28 + 1}T10:{n % 60}:07.{n}Z stdout F {line}" for n, line in enumerate(lines)
    )


def quoted_like_mail(text):
    """An editor takes the blank away where nothing follows it."""
    return re.sub(r"^> $", ">", in_front("> ")(text), flags=re.MULTILINE)


PASTED = {
    "mark": lambda text: ("\ufeff" + text).encode(),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16-le without mark": lambda text: text.encode("utf-16-le"),
    "utf-16-be without mark": lambda text: text.encode("utf-16-be"),
    "utf-16 and CR LF": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "utf-32": lambda text: text.encode("utf-32"),
    "CR LF": lambda text: text.replace("\n", "\r\n").encode(),
    "mail": lambda text: quoted_like_mail(text).encode(),
    "mail with CR LF": lambda text: quoted_like_mail(text).replace("\n", "\r\n").encode(),
    "indented": lambda text: in_front("    ")(text).encode(),
    "indented by a tab": lambda text: in_front("\t")(text).encode(),
    "times": lambda text: stamped(text).encode(),
    "log": lambda text: in_front("I0302 11:20:43.118 71204 worker.py:30] ")(text).encode(),
    "process": lambda text: in_front("(pid=489, ip=10.0.0.7) ")(text).encode(),
    "quotes": lambda text: f'"{text}"'.encode(),
    "three quotes": lambda text: f"'''{text}'''\n".encode(),
    "mail with a fence": lambda text: quoted_like_mail(f"```\n{text}```\n").encode(),
}
AROUND = {
    "prose": lambda text: f"Hi all,\n\nthis is what XLA wrote:\n\n{text}\nThanks!\nSam\n",
    "a fence": lambda text: f"## Steps\n\nRun it.\n\n```text\n{text}```\n\nWhy is it so large?\n",
    "a heading": lambda text: f"### The assignment\n{text}\n### What I tried\n- nothing\n",
    "details": lambda text: f"<details>\n<summary>it</summary>\n\n```\n{text}```\n</details>\n",
    "a mail": lambda text: f"On Monday Sam wrote:\n\n{quoted_like_mail(text)}\nIt is the temp.\n",
    "a long text": lambda text: "One line more.\n" * 90 + f"\n{text}",
    "code below": lambda text: f"{text}\nIt came from:\n\n    python train.py\n\nas said.\n",
    "sections apart": lambda text: re.sub(
        r"\n(?=Used values|HloLive)", "\n```\n## Next\n```\n", text
    ),
}
TABLES = {
    "allocations": "*",
    "values": "*",
    "live_ranges": "*",
    "peak_values": "*",
    "positions": "*",
    "instructions": "*",
    "diagnostics": "code, message",
}


def content(con):
    tables = {}
    for table, what in TABLES.items():
        tables[table] = rows(con, f"SELECT {what} FROM {table} ORDER BY ALL")
    return tables


@pytest.fixture(scope="module")
def plain_rows(fresh, tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "pasted.txt"
    path.write_text(WHOLE, encoding="utf-8")
    con = fresh()
    ingest_into(con, path, "run")
    return content(con)


@pytest.mark.sample(3)
@pytest.mark.parametrize("paste", PASTED.values(), ids=PASTED)
def test_pasted_text_has_the_rows_of_the_dump(con, tmp_path, plain_rows, paste):
    path = tmp_path / "pasted.txt"
    path.write_bytes(paste(WHOLE))
    ingest_into(con, path, "run")
    tables = content(con)
    assert tables == plain_rows
    assert tables["peak_values"]


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_what_a_person_writes_around_a_dump_carries_nothing(con, tmp_path, plain_rows, around):
    path = tmp_path / "pasted.txt"
    path.write_text(around(WHOLE), encoding="utf-8")
    ingest_into(con, path, "run")
    assert content(con) == plain_rows
    assert rows(con, "SELECT unread_line_count FROM files") == [(0,)]


def test_what_is_damaged_between_prose_is_reported(con, tmp_path):
    text = AROUND["prose"](WHOLE.replace(" uses:\n", " usages:\n", 1))
    (tmp_path / "pasted.txt").write_text(text, encoding="utf-8")
    ingest_into(con, tmp_path / "pasted.txt", "run")
    lines = rows(con, "SELECT message FROM diagnostics WHERE code = 'unreadable_line'")
    assert any("usages:" in message for (message,) in lines)


def test_prose_in_a_file_of_xla_is_reported(con, tmp_path):
    path = tmp_path / f"{INIT}-buffer-assignment.txt"
    path.write_text(AROUND["prose"](WHOLE), encoding="utf-8")
    ingest_into(con, path, "run")
    assert rows(con, "SELECT unread_line_count > 0 FROM files") == [(True,)]


def test_a_large_text_may_have_prose(tmp_path):
    path = tmp_path / "pasted.txt"
    path.write_text(AROUND["a fence"](WHOLE), encoding="utf-8")
    assert load(discover(path)[0], block_bytes=100).is_large is False
    path.write_text(WHOLE, encoding="utf-8")
    assert load(discover(path)[0], block_bytes=100).is_large is True


@pytest.mark.parametrize("paste", [PASTED["utf-16"], PASTED["times"]])
def test_a_file_with_a_name_of_xlas_may_be_pasted_too(tmp_path, paste):
    path = tmp_path / f"{INIT}-live-range.txt"
    path.write_bytes(paste(LIVE))
    (module,) = discover(path)
    assert list(module.files) == ["live_range"]
    assert plain(path.read_bytes()) == LIVE.encode()


def test_findings_name_the_line_of_the_file_as_it_is(fresh, tmp_path):
    lines = stamped(WHOLE).splitlines(keepends=True)
    lines[3] = "a stray line\n"
    (tmp_path / "pasted.txt").write_text("".join(lines), encoding="utf-8")
    con = fresh()
    ingest_into(con, tmp_path, "run")
    assert rows(con, "SELECT line_number FROM diagnostics WHERE code = 'unreadable_line'") == [(4,)]


def test_a_log_in_utf_16_has_its_messages(fresh, tmp_path):
    text = (ROOT / "data/oom/tpu.log").read_text(encoding="utf-8")
    (tmp_path / "error.log").write_bytes(text.encode("utf-16"))
    con = fresh()
    ingest_into(con, tmp_path, "run")
    assert rows(con, "SELECT count(*) FROM values") == [(2,)]


@pytest.mark.parametrize("path", sorted(DEMO.glob("*/*.txt")), ids=lambda path: path.name[:40])
def test_what_xla_wrote_is_plain(path):
    assert is_plain(path.read_bytes()[:4096])


@pytest.mark.parametrize(
    "text",
    [
        "something about BufferAssignment: and so on\n",
        "see BufferAssignment:\nallocation 0 is the largest\n",
        "it has a HloModule jit_f\nin it\n",
    ],
)
def test_prose_that_names_a_title_is_prose(tmp_path, text):
    (tmp_path / "notes.txt").write_text(text, encoding="utf-8")
    assert is_plain(text.encode())
    assert discover(tmp_path) == []


# -- what is no dump -------------------------------------------------------------------------------

NO_DUMPS = {
    "": "it is empty",
    "HloModule jit_f, is_scheduled=true\n": "an HLO module without buffer assignment",
    "Total bytes used: 4 (4B)\n\nAllocations sorted by size:\n": "a memory-usage report",
    "Memory Space: hbm (color=0)\nTotal bytes: 4 (4B)\n": "a memory-usage report",
    "module @jit_f attributes {mhlo.num_partitions = 1 : i32} {\n": "a program in MLIR",
    "xla_dump_to: /tmp\nxla_cpu_x: 1\n": "only compiler options",
    '{"displayTimeUnit": "ns", "traceEvents": []}': "a profiler trace",
    "Traceback\n  File x\nXlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory\n": "without figures",
    "hello\n": "no section of a buffer assignment",
    "2025-Feb-11 14:20:32.318807   202:202   ERROR  TDRV:dmem_alloc_internal  Failed to alloc "
    "DEVICE memory: 4194304\nRESOURCE_EXHAUSTED\n": "AWS Neuron",
    'RuntimeError: nrt_tensor_allocate status=4 message="Allocation Failure"\n': "neuronx-cc",
    "critical | Always | TT_FATAL: Out of Memory: Not enough space to allocate 1073741824 B DRAM "
    "buffer across 12 banks, where each bank needs to store 89479168 B\n": "Tenstorrent",
    "Warp CUDA error 2: out of memory (in function wp_alloc_device_async, "
    "/builds/omniverse/warp/warp/native/warp.cu:769)\n": "NVIDIA Warp",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.15 GiB\n": "PyTorch's own CUDA allocator",
    "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: OutOfMemory\n": (
        "TensorRT"
    ),
    "PK\x03\x04....": "a zip archive",
    "\x1f\x8b\x08\x00": "compressed by gzip",
    "12345678DUCK": "a DuckDB database",
    "\x0a\x00\x01\x00": "not text",
}


@pytest.mark.parametrize(("text", "expected"), NO_DUMPS.items(), ids=NO_DUMPS.values())
def test_what_is_refused_says_what_it_looks_like(fresh, tmp_path, text, expected):
    path = tmp_path / "x.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=re.escape(expected)) as error:
        ingest_into(fresh(), path)
    assert "\n" not in str(error.value)


def test_pasted_text_that_is_no_dump_is_reported_too():
    assert "HLO module" in looks_like("HloModule jit_f\n".encode("utf-16"))
    assert "HLO module" in looks_like(b"> HloModule jit_f\n> ENTRY\n")
