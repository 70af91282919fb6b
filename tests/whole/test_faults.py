"""Faults from outside, one test each: odd directories, full disks, damaged files, closed streams.

`pytest --collect-only -q tests/whole/test_faults.py` counts the faults tried.
"""

import errno
import gzip
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, opened, rows
from places import DEMO

from bufdb import cli
from bufdb.database import faults, store
from bufdb.dumps import discover, files, load, modules
from bufdb.dumps import modules as captured_output
from bufdb.errors import BufdbError
from bufdb.ingest import group as group_module
from bufdb.ingest import storing
from bufdb.ingest.ingest import ingest
from bufdb.ingest.rows import MODULE_TABLES
from bufdb.ingest.writer import TableWriter
from bufdb.proto.reader import hlo_proto
from bufdb.query import check

BUFDB = [sys.executable, "-c", "from bufdb.cli import main; main()"]
STEM = "module_0001.jit_f.cpu_after_optimizations"
DUMP = f"{STEM}-buffer-assignment.txt"
TEXT = """BufferAssignment:
allocation 0: size 4, preallocated-temp:
 value: <1 a @0> (size=4,offset=0): f32[]
"""
SECONDS = 60


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path, empty_folder):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def make_empty(empty_db):
    """Make a database without rows: a command that creates its own takes twice as long."""
    return lambda name="t.duckdb": shutil.copy(empty_db, name)


@dataclass(frozen=True)
class Content:
    """All rows of a database, each table in one order."""

    tables: dict[str, list[str]]
    """Without times of day and sums of them."""
    modules: dict[str, dict[int, list[str]]]
    """Those of every module, by table and module_id."""

    def part(self, module_ids):
        """Return the rows of some modules."""
        return {t: {i: of[i] for i in module_ids if i in of} for t, of in self.modules.items()}


def content(db):
    tables, modules = {}, {}
    with opened(db) as con:
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            cursor = con.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            keep = [n for n, name in enumerate(names) if name != "ingested_at"]
            table_rows = cursor.fetchall()
            tables[table] = sorted(repr([row[n] for n in keep]) for row in table_rows)
            if table in MODULE_TABLES:
                place = names.index("module_id")
                of = modules.setdefault(table, {})
                for row in table_rows:
                    if row[place] is not None:
                        of.setdefault(row[place], []).append(repr(row))
    return Content(tables, {t: {i: sorted(r) for i, r in of.items()} for t, of in modules.items()})


def only_whole_modules(db, whole):
    """Every module in `db` has the rows that it has in the content `whole`; their number."""
    here = content(db)
    ids = here.modules["modules"].keys()
    assert here.modules == whole.part(ids)
    return len(ids)


def bufdb(*arguments, **options):
    """Return exit code, standard output and standard error of bufdb in its own process.

    Coverage is not measured there, since it prints its own errors under a limit on file size.
    Bytecode is not written, since Python would keep truncated files for later processes.
    """
    variables = options.pop("env", os.environ)
    options["env"] = {k: v for k, v in variables.items() if not k.startswith("COVERAGE_")}
    options["env"]["PYTHONDONTWRITEBYTECODE"] = "1"
    done = subprocess.run(
        [*BUFDB, *map(str, arguments)], capture_output=True, timeout=SECONDS, check=False, **options
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace")


def is_one_line(err, *words):
    """One line for people: no traceback, and no bare message of DuckDB's."""
    (line,) = err.splitlines()
    assert line.startswith("bufdb: error: ")
    assert "Traceback" not in line
    for word in words:
        assert word in line
    return True


# -- odd directories --------------------------------------------------------------------------


def put(path, text=TEXT):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def link(path, target, is_directory=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target, target_is_directory=is_directory)


def listen(path):
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket may have 108 bytes
        server.bind(path.name)
        os.chdir(here)


def nest(folder, name, depth):
    """Directories below one another, made by steps, so that no path is too long."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    file = os.open(DUMP, os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(file, TEXT.encode())
    os.close(file)
    os.close(here)


ELSEWHERE = "../elsewhere"
NEST = "/".join(["d"] * 1500)
"""A directory next to the ingested one, with one dump."""

# What is created in a directory; the keys of modules found in addition to the one in `good/`; the
# diagnostics: severity, path and a piece of the message. An error makes exit code 4.
ODD = {
    "link to itself": (lambda d: link(d / "a", "a"), [], [("info", "a", "is a broken link")]),
    "link to itself with a dump's name": (
        lambda d: link(d / DUMP, DUMP), [], [("error", DUMP, "is a broken link: Too many levels")]),
    "link to its directory": (
        lambda d: link(d / "x/up", "."), [], [("info", "x/up", "leads to the directory x, which")]),
    "link to the directory given": (
        lambda d: link(d / "x/up", ".."), [], [("info", "x/up", "leads to the directory given")]),
    "link to a directory above": (
        lambda d: link(d / "up", "../.."), [], [("info", "up", "it was not followed")]),
    "link to the root": (lambda d: link(d / "root", "/"), [], [("info", "root", "not followed")]),
    "links in a circle": (
        lambda d: (link(d / "x/y", "../z"), link(d / "z/x", "../x")), [],
        [("info", "x/y", "directory z, which"), ("info", "z/x", "directory x, which")]),
    "link to a sibling that sorts later": (
        lambda d: link(d / "a", "good"), [], [("info", "a", "leads to the directory good, which")]),
    "link to a sibling that sorts earlier": (
        lambda d: link(d / "z", "good"), [], [("info", "z", "leads to the directory good, which")]),
    "link to a link to a sibling": (
        lambda d: (link(d / "a", "b"), link(d / "b", "good")), [],
        [("info", "a", "directory good"), ("info", "b", "directory good")]),
    "link to a directory elsewhere": (lambda d: link(d / "a", ELSEWHERE), [f"a/{STEM}"], []),
    "two links to a directory elsewhere": (
        lambda d: (link(d / "b", ELSEWHERE), link(d / "a", ELSEWHERE)), [f"a/{STEM}"],
        [("info", "b", "leads to the directory a, which")]),
    "link below a directory elsewhere": (
        lambda d: (link(d / "a", ELSEWHERE), link(d / ELSEWHERE / "back", d)), [f"a/{STEM}"],
        [("info", "a/back", "leads to the directory given")]),
    "dangling link": (lambda d: link(d / "a", "nothing"), [], [("info", "a", "is a broken link")]),
    "dangling link with a dump's name": (
        lambda d: link(d / DUMP, "nothing"), [],
        [("error", DUMP, "is a broken link: No such file or directory")]),
    "dangling link with the name of an HLO text": (
        lambda d: link(d / f"{STEM}.txt", "no"), [], [("error", f"{STEM}.txt", "a broken link")]),
    "link to a file that is there": (
        lambda d: link(d / "again-buffer-assignment.txt", f"good/{DUMP}"), [],
        [("info", "again-buffer-assignment.txt", f"link to good/{DUMP}, which is read under")]),
    "link to a file elsewhere": (
        lambda d: link(d / DUMP, f"{ELSEWHERE}/{DUMP}"), [STEM], []),
    "links into a store of contents": (
        lambda d: (put(d / "blobs/1f"), link(d / DUMP, "blobs/1f")), [STEM], []),
    "FIFO": (lambda d: os.mkfifo(d / "a"), [], [("info", "a", "is a FIFO, not a file")]),
    "FIFO with a dump's name": (
        lambda d: os.mkfifo(d / DUMP), [], [("error", DUMP, "is a FIFO, not a file; it was not")]),
    "link to a FIFO": (
        lambda d: (os.mkfifo(d / "a"), link(d / DUMP, "a")), [],
        [("info", "a", "is a FIFO"), ("error", DUMP, "is a link to a FIFO")]),
    "socket": (lambda d: listen(d / "a"), [], [("info", "a", "is a socket, not a file")]),
    "socket with a dump's name": (
        lambda d: listen(d / DUMP), [], [("error", DUMP, "is a socket, not a file")]),
    "device": (lambda d: link(d / "a", "/dev/zero"), [], [("info", "a", "a link to a device")]),
    "device with a dump's name": (
        lambda d: link(d / DUMP, "/dev/zero"), [], [("error", DUMP, "is a link to a device")]),
    "file name that is not UTF-8": (
        lambda d: put(d / os.fsdecode(b"m\xff-buffer-assignment.txt")), ["m\\xff"],
        [("info", "m\\xff-buffer-assignment.txt", "is not UTF-8")]),
    "directory name that is not UTF-8": (
        lambda d: put(d / os.fsdecode(b"\xe9") / DUMP), [f"\\xe9/{STEM}"],
        [("info", "\\xe9", "is not UTF-8")]),
    "file name with a line end": (
        lambda d: put(d / "a\nb-buffer-assignment.txt"), ["a\nb"],
        [("info", "a\nb-buffer-assignment.txt", "is not UTF-8")]),
    "directory name with a line end": (
        lambda d: put(d / "a\nb" / DUMP), [f"a\nb/{STEM}"], [("info", "a\nb", "is not UTF-8")]),
    "directory name with a terminal's commands": (
        lambda d: put(d / "\x1b[2J" / DUMP), [f"\x1b[2J/{STEM}"],
        [("info", "\x1b[2J", "is not UTF-8")]),
    "two names that are one as text": (
        lambda d: (put(d / os.fsdecode(b"m\xff.dump")), put(d / "m\\xff.dump")), ["m\\xff.dump"],
        [("error", "m\\xff.dump", "rename one"), ("info", "m\\xff.dump", "is not UTF-8")]),
    "1,500 directories below one another": (
        lambda d: nest(d, "d", 1500), [f"{NEST}/{STEM}"], []),
    "a path too long for the system": (
        lambda d: nest(d, "e" * 200, 30), [],
        [("error", "/".join(["e" * 200] * 20), "File name too long; ingest a directory further")]),
    "empty directory": (lambda d: (d / "a").mkdir(), [], []),
    "directory with a dump's name": (lambda d: put(d / DUMP / DUMP), [f"{DUMP}/{STEM}"], []),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A directory to put things into; before Python 3.12 shutil.rmtree fails at 1,000 levels."""
    yield tmp_path / "dumps"
    subprocess.run(["rm", "-rf", tmp_path / "dumps"], check=True)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ODD)
def test_odd_directory(con, tmp_path, folder, name):
    make, keys, expected = ODD[name]
    put(folder / "good" / DUMP)
    put(tmp_path / "elsewhere" / DUMP)
    make(folder)
    summary = ingest_into(con, folder, "r")
    module_keys = rows(con, "SELECT module_key FROM modules ORDER BY ALL")
    assert [key for (key,) in module_keys] == sorted([f"good/{STEM}", *keys])
    reported_here = rows(
        con,
        "SELECT path, severity, message FROM diagnostics WHERE module_id IS NULL ORDER BY ALL",
    )
    assert len(reported_here) == len(expected)
    for (path, severity, message), (expected_severity, expected_path, piece) in zip(
        reported_here, sorted(expected, key=lambda row: (row[1], row[0])), strict=True
    ):
        assert (severity, path[: len(expected_path)]) == (expected_severity, expected_path)
        assert piece in message
    errors = sum(severity == "error" for severity, _, _ in expected)
    assert (summary.skipped_count, summary.exit_code) == (errors, 4 if errors else 0)
    again = ingest_into(con, folder, "r")
    assert (again.module_count, again.unchanged_count) == (0, 1 + len(keys))


def test_unreadable_directory(con, tmp_path):
    folder = tmp_path / "dumps"
    put(folder / "good" / DUMP)
    put(folder / "closed" / DUMP)
    (folder / "closed").chmod(0)
    if os.access(folder / "closed", os.R_OK):
        pytest.skip("this user may read everything")
    assert ingest_into(con, folder, "r").exit_code == 4
    reported = rows(con, "SELECT path, message FROM diagnostics WHERE module_id IS NULL")
    assert reported == [("closed", "cannot be read: Permission denied")]
    (folder / "closed").chmod(0o755)


class Broken(files.FileIO):
    def read(self, size=-1):
        raise OSError(errno.EIO, "Input/output error")

    readall = read


@pytest.mark.parametrize("name", [DUMP, "plain.txt"])
@pytest.mark.parametrize("fault", ["open", "read"])
def test_unreadable_file(con, tmp_path, monkeypatch, fault, name):
    folder = tmp_path / "dumps"
    put(folder / "good" / DUMP)
    put(folder / name)
    real = files.open_file

    def open_file(path):
        if path != folder / name:
            return real(path)
        if fault == "open":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return Broken(path)

    for module in (load, modules, captured_output):
        monkeypatch.setattr(module, "open_file", open_file)
    summary = ingest_into(con, folder, "r")
    assert (summary.module_count, summary.skipped_count, summary.exit_code) == (1, 1, 4)
    message = {"open": "Permission denied", "read": "Input/output error"}[fault]
    reported = rows(con, "SELECT path, message FROM diagnostics WHERE module_id IS NULL")
    assert reported == [(name, f"cannot be read: {message}")]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: os.mkfifo(p), "is a FIFO; dumps are read from files and directories"),
        (lambda p: link(p, "/dev/null"), "is a device; dumps are read from"),
        (lambda p: listen(p), "is a socket; dumps are read from"),
        (lambda p: link(p, p.name), "does not exist"),
        (lambda p: link(p, "nothing"), "does not exist"),
    ],
    ids=["FIFO", "device", "socket", "link to itself", "dangling link"],
)
def test_odd_path(tmp_path, call, make, message):
    make(tmp_path / DUMP)
    code, out, err = call("ingest", DUMP, "--db", "t.duckdb")
    assert (code, out) == (2, "")
    assert is_one_line(err, message)


@pytest.mark.slow
def test_directory_given_by_a_name_that_is_not_utf8(tmp_path, make_empty):
    make_empty("bufdb.duckdb")
    folder = tmp_path / os.fsdecode(b"d\xff")
    put(folder / DUMP)
    assert cli.run(["ingest", str(folder), "--label", os.fsdecode(b"a=\xff")]) == 0
    assert rows("bufdb.duckdb", "SELECT run_name FROM runs") == [("d\\xff",)]
    assert rows("bufdb.duckdb", "SELECT label_value FROM run_labels") == [("\\xff",)]


def test_runs_from_directories_with_a_link_to_the_latest(tmp_path, capfd, make_empty):
    make_empty("bufdb.duckdb")
    for name in ("1", "2"):
        put(tmp_path / "runs" / name / DUMP)
    link(tmp_path / "runs" / "0-latest", "2")
    link(tmp_path / "runs" / "up", "..")
    assert cli.run(["ingest", "runs", "--run-from-dir"]) == 0
    assert rows("bufdb.duckdb", "SELECT run_name FROM runs ORDER BY ALL") == [("1",), ("2",)]
    assert "skipped: runs/0-latest is a link to runs/2\n" in capfd.readouterr().err


# -- files that change ------------------------------------------------------------------------


def grow(path):
    with path.open("a") as file:
        file.write(" value: <2 b @0> (size=4,offset=0): f32[]\n")


def overwrite(path):
    text = path.read_text()
    path.write_text(text.replace("size=4", "size=8"))
    os.utime(path, ns=(1, 1))


def to_fifo(path):
    path.unlink()
    os.mkfifo(path)


CHANGES = {
    "grows": grow,
    "shrinks": lambda path: os.truncate(path, 60),
    "becomes empty": lambda path: os.truncate(path, 0),
    "vanishes": Path.unlink,
    "is rewritten": overwrite,
    "becomes a FIFO": to_fifo,
    "becomes a directory": lambda path: (path.unlink(), path.mkdir()),
}


def put_three(folder):
    for number in range(3):
        put(folder / DUMP.replace("0001", f"000{number}"))
    return folder


@pytest.fixture(scope="module")
def three(fresh, tmp_path_factory):
    """Return the content after an undisturbed ingest of three modules."""
    with fresh() as con:
        ingest_into(con, put_three(tmp_path_factory.mktemp("three") / "dumps"), "dumps")
        return content(con)


@pytest.mark.sample(10)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("stored_before", "block_bytes"),
    [(False, 40), (True, 40), (True, 1 << 20)],
    ids=["new, large", "stored before, large", "stored before, small"],
)
def test_file_that_changes_while_it_is_read(
    con, tmp_path, monkeypatch, three, change, stored_before, block_bytes
):
    folder = put_three(tmp_path / "dumps")
    path = folder / DUMP
    if stored_before:
        put(path, TEXT.replace("4", "2"))
        ingest_into(con, folder, "dumps")
        put(path)
    before = rows(con, "SELECT size_bytes FROM allocations") if stored_before else []
    # The large module is changed between its hash and its text, the small one after its text.
    real = group_module.load

    def load(files, size):
        loaded = real(files, size)
        if files.key == STEM:
            CHANGES[change](path)
        return loaded

    real_read = group_module._read_large

    def read_late(group, one, *more):
        if one.job.files.key == STEM:
            CHANGES[change](path)
        return real_read(group, one, *more)

    if block_bytes == 40:
        monkeypatch.setattr(group_module, "_read_large", read_late)
    else:
        monkeypatch.setattr(group_module, "load", load)
    summary = ingest_into(con, folder, "dumps", block_bytes)
    assert (summary.skipped_count, summary.exit_code) == (1, 4)
    assert summary.module_count == (0 if stored_before else 2)
    assert (summary.replaced_count, summary.unchanged_count) == (0, 2 if stored_before else 0)
    reported = rows(con, "SELECT path, severity, code FROM diagnostics WHERE module_id IS NULL")
    assert reported == [(DUMP, "error", "unreadable_file")]
    if stored_before:
        assert rows(con, "SELECT size_bytes FROM allocations") == before
    else:
        assert only_whole_modules(con, three) == 2
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    put(path)
    ingest_into(con, folder, "dumps")
    left_out = ("runs",)  # the time of the dumps
    one, other = content(con).tables, three.tables
    assert {t: one[t] for t in one if t not in left_out} == {
        t: other[t] for t in other if t not in left_out
    }


def test_captured_output_that_grows_below_what_was_found(con, tmp_path, monkeypatch):
    folder = tmp_path / "dumps"
    put(folder / "log", f"*** Begin {DUMP} ***\n{TEXT}\n*** End {DUMP} ***\n")
    real = group_module.load

    def load(files, size):
        with (folder / "log").open("a") as file:
            file.write("the program goes on\n")
        return real(files, size)

    monkeypatch.setattr(group_module, "load", load)
    assert ingest_into(con, folder, "r").module_count == 1
    assert rows(con, "SELECT * FROM diagnostics WHERE module_id IS NULL") == []


# -- no buffer assignment ---------------------------------------------------------------------

LONG = f"module_0009.{'x' * 210}.cpu_after_optimizations"
WITHOUT = {
    "protobuf": (
        [f"{STEM}.hlo.pb"],
        "1 dumped only as protobuf, without its buffer assignment: add --xla_dump_hlo_as_text"),
    "compressed protobuf": ([f"{STEM}.hlo.pb.gz"], "add --xla_dump_hlo_as_text to XLA_FLAGS"),
    "riegeli": ([f"{STEM}.riegeli"], "add --xla_dump_hlo_as_text to XLA_FLAGS"),
    "cache": (
        ["module_0001.jit_f.after_optimizations.txt"],
        "1 from a compilation cache, which compiles nothing: "
        "run with JAX_ENABLE_COMPILATION_CACHE=false"),
    "name too long": ([f"{LONG}.txt"], "1 with names too long for XLA to write the files"),
    "not copied": ([f"{STEM}.txt"], "take the whole dump directory, or dump again"),
    "TPU": (
        ["module_0001.jit_f.cl_7.after_optimizations.txt"], "take the whole dump directory, or"),
    "text and protobuf": ([f"{STEM}.hlo.pb", f"{STEM}.txt"], "1 without their *-buffer-assign"),
    "several": (
        [f"{STEM}.hlo.pb", f"a/{STEM}.hlo.pb", "module_0002.g.after_optimizations.txt"],
        "2 dumped only as protobuf, without its buffer assignment: add --xla_dump_hlo_as_text "
        "to XLA_FLAGS "
        f"(such as a/{STEM}.hlo.pb); 1 from a compilation cache"),
}  # fmt: skip


def hlo(name):
    """An HLO module as a file of this name holds it, without buffer assignment."""
    if "pb" not in name:
        return "HloModule jit_f\n"
    data = hlo_proto(b"\x0a\x05jit_f", b"")
    return gzip.compress(data) if name.endswith(".gz") else data


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WITHOUT)
def test_hlo_without_buffer_assignment(con, tmp_path, name, capfd):
    names, message = WITHOUT[name]
    for file in names:
        put(tmp_path / "dumps" / file, hlo(file))
    put(tmp_path / "dumps" / "module_0001.jit_f.before_optimizations.txt", "HloModule jit_f\n")
    assert cli.run(["ingest", "dumps"]) == 2
    assert is_one_line(capfd.readouterr().err, "no buffer assignment in dumps: modules", message)
    assert not Path("bufdb.duckdb").exists()
    put(tmp_path / "dumps" / "z" / DUMP)
    summary = ingest_into(con, tmp_path / "dumps")
    assert summary.exit_code == 0
    (note,) = summary.notes
    assert message in note
    reported = rows(con, "SELECT severity, code, path, message FROM diagnostics "
                "WHERE module_id IS NULL")  # fmt: skip
    assert [row[:3] for row in reported] == [("notice", "no_buffer_assignment", None)]
    assert message in reported[0][3]


def test_hlo_next_to_its_buffer_assignment_is_no_notice(tmp_path):
    put(tmp_path / "dumps" / DUMP)
    for name in (f"{STEM}.txt", f"{STEM}.hlo.pb", "module_0001.jit_f.before_optimizations.txt"):
        put(tmp_path / "dumps" / name, hlo(name))
    problems = []
    assert len(discover.discover(tmp_path / "dumps", problems)) == 1
    assert problems == []


# -- the disk ---------------------------------------------------------------------------------

RUNS = [DEMO / name for name in ("cpu_b8", "tpu_b8", "gpu_b8")]


@pytest.fixture(scope="module")
def whole_db(tmp_path_factory):
    """Return the database of an undisturbed ingest of RUNS."""
    db = tmp_path_factory.mktemp("whole") / "whole.duckdb"
    ingest(str(db), RUNS)
    return db


@pytest.fixture(scope="module")
def whole(whole_db):
    return content(whole_db)


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize(
    ("limit", "jobs"), [(0, 1), (5_000, 2), (20_000, 1), (300_000, 1), (300_000, 2), (600_000, 2)]
)
def test_file_that_may_not_grow(whole, limit, jobs):
    """A write fails, as on a full disk. Python and its children ignore SIGXFSZ."""
    arguments = ("ingest", *RUNS, "--db", "t.duckdb", "--jobs", jobs)
    code, out, err = bufdb(
        *arguments,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert out == ""
    assert code in (1, 3)
    assert is_one_line(err, "File too large")
    if Path("t.duckdb").exists():
        with duckdb.connect("t.duckdb") as con:  # reads the log of what was committed
            is_made = con.execute("SELECT count(*) FROM duckdb_tables()").fetchone() != (0,)
        if is_made:
            only_whole_modules("t.duckdb", whole)
    assert cli.run(list(map(str, arguments))) == 0
    assert content("t.duckdb") == whole


@pytest.mark.slow
def test_room_for_the_log_alone(whole_db, whole):
    """All is stored, but in two files, with a message; the next command that writes joins them."""
    limit = whole_db.stat().st_size * 2 // 3
    code, out, err = bufdb(
        "ingest", *RUNS, "--db", "t.duckdb",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert (code, out) == (0, "")
    assert "bufdb: part of the database is in t.duckdb.wal, which belongs to t.duckdb" in err
    assert content("t.duckdb") == whole
    assert cli.run(["ingest", *map(str, RUNS), "--db", "t.duckdb"]) == 0
    assert not Path("t.duckdb.wal").exists()
    assert content("t.duckdb") == whole


FULL = 'IO Error: Could not write file "t.duckdb": No space left on device'
FATAL = (
    "FATAL Error: Failed: database has been invalidated because of a previous fatal error. The "
    'database must be restarted prior to being used again.\nOriginal error: "Failed to create '
    'checkpoint because of error: Could not write file "t.duckdb": No space left on device"'
)


class Failing:
    """A connection that fails from the n-th statement of a kind on, as on a full disk."""

    def __init__(self, con, kind, number, error):
        self.con, self.kind, self.number, self.error = con, kind, number, error

    def execute(self, sql, *arguments):
        if sql.startswith(self.kind):
            self.number -= 1
        if self.number < 0 and (sql.startswith(self.kind) or isinstance(self.error, Fatal)):
            raise self.error
        # DuckDB finds it by its name in the frame that calls.
        arrow_batches = sys._getframe(1).f_locals.get("arrow_batches")  # noqa: F841
        return self.con.execute(sql, *arguments)

    def close(self):
        self.con.close()


class Fatal(duckdb.FatalException):
    """After it no statement succeeds, ROLLBACK included."""


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    ("error", "jobs"), [(duckdb.IOException(FULL), 1), (Fatal(FATAL), 2)], ids=["I/O", "fatal"]
)
@pytest.mark.parametrize(
    ("kind", "number"),
    [("BEGIN", 0), ("BEGIN", 2), ("INSERT INTO runs", 1), ('INSERT INTO "', 0),
     ('INSERT INTO "', 23), ("UPDATE", 1), ("COMMIT", 0), ("COMMIT", 2)],
    ids=lambda value: str(value).strip(),
)  # fmt: skip
def test_disk_full_at_a_statement(whole, make_empty, monkeypatch, capfd, kind, number, error, jobs):
    make_empty()
    real = store.open_writable

    def open_failing(*arguments):
        return Failing(real(*arguments), kind, number, error)

    monkeypatch.setattr(store, "open_writable", open_failing)
    arguments = ["ingest", *map(str, RUNS), "--db", "t.duckdb", "--jobs", str(jobs)]
    assert cli.run(arguments) == 1
    assert is_one_line(capfd.readouterr().err, "the disk is full", "run the same command again")
    monkeypatch.setattr(store, "open_writable", real)
    only_whole_modules("t.duckdb", whole)
    assert cli.run(arguments) == 0
    assert content("t.duckdb") == whole


@pytest.mark.sample(3)
@pytest.mark.parametrize("number", [0, 5, 20])
@pytest.mark.slow
def test_disk_full_while_modules_are_replaced(con, fresh, tmp_path, monkeypatch, number):
    """The stored rows stay, module by module."""
    folder = Path(shutil.copytree(DEMO / "cpu_b8", tmp_path / "dumps"))
    monkeypatch.setattr(storing, "TRANSACTION_BYTES", 1)
    ingest_into(con, folder, "r")
    counts = "SELECT module_id, count(*) FROM allocations GROUP BY ALL ORDER BY ALL"
    before = rows(con, counts)
    for path in folder.glob("*-live-range.txt"):
        path.write_text(path.read_text() + "\n")
    real = TableWriter._insert

    def insert(self, waiting):
        nonlocal number
        for table, batches in waiting.items():
            number -= 1
            if number < 0:
                raise duckdb.IOException(FULL)
            real(self, {table: batches})

    monkeypatch.setattr(TableWriter, "_insert", insert)
    with pytest.raises(duckdb.IOException):
        ingest_into(con, folder, "r", 1000)
    assert rows(con, counts) == before
    monkeypatch.undo()
    ingest_into(con, folder, "r")
    with fresh() as new:
        ingest_into(new, folder, "r")
        assert content(con) == content(new)


@pytest.mark.slow
def test_disk_full_when_the_database_is_closed(whole, make_empty, monkeypatch, capfd):
    real = store.open_writable

    class Closing(Failing):
        def close(self):
            self.con.close()
            raise duckdb.IOException(FULL)

    make_empty()
    monkeypatch.setattr(store, "open_writable", lambda *a: Closing(real(*a), "none", 1, None))
    assert cli.run(["ingest", *map(str, RUNS), "--db", "t.duckdb"]) == 1
    assert is_one_line(capfd.readouterr().err, "the disk is full")
    assert content("t.duckdb") == whole


# -- the database file ------------------------------------------------------------------------

TARGETS = {
    "empty name": ("", 2),
    "memory": (":memory:", 2),
    "full device": ("/dev/full", 3),
    "null device": ("/dev/null", 3),
    "directory": (".", 3),
    "no directory": ("no/where/t.duckdb", 3),
    "below a file": ("file/t.duckdb", 3),
    "directory that takes no files": ("/proc/t.duckdb", 3),
    "name too long": ("n" * 300, 3),
    "name not in UTF-8": (os.fsdecode(b"\xff.duckdb"), 2),
    "a text": ("file", 3),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("command", ["ingest", "capture", "query"])
def test_database_that_cannot_be(call, name, command):
    target, code = TARGETS[name]
    Path("file").write_text("no database\n" * 1000)
    arguments = {
        "ingest": ["ingest", DEMO / "cpu_b8", "--db", target],
        "capture": ["capture", "--db", target, "--", "touch", "was-run"],
        "query": ["query", "modules", "--db", target],
    }
    exit_code, out, err = call(*arguments[command])
    assert (exit_code, out) == (code, "")
    assert is_one_line(err)
    assert not Path("was-run").exists()
    assert Path("file").read_text() == "no database\n" * 1000


@pytest.mark.sample(22)
@pytest.mark.parametrize("command", ["query peak", "check", "sql FROM\tvalues", "ingest"])
@pytest.mark.parametrize("part", range(8), ids=lambda part: f"{part}/8 of the file")
def test_damaged_block(call, whole_db, part, command):
    """Every block of an eighth of the file is damaged: what is read of it is refused."""
    shutil.copy(whole_db, "t.duckdb")
    size = Path("t.duckdb").stat().st_size
    with Path("t.duckdb").open("r+b") as file:
        for place in range(size * part // 8, size * (part + 1) // 8, 4096):
            file.seek(place)
            file.write(b"\xa5" * 64)
    arguments = ["ingest", str(DEMO / "cpu_b8_old")] if command == "ingest" else command.split(" ")
    arguments = [word.replace("\t", " ") for word in arguments]
    code, out, err = call(*arguments, "--db", "t.duckdb")
    if code == 0:
        # What it read was in other blocks: the answer is that of the whole file.
        if command != "ingest":
            assert out == call(*arguments, "--db", whole_db)[1]
        return
    assert (code, out) == (3, "")
    assert is_one_line(err)


@pytest.mark.parametrize("size", [0, 100, 4096, 12_288, 20_000, 1_000_000])
@pytest.mark.parametrize("command", ["query", "ingest"])
def test_database_cut_off(call, whole_db, size, command):
    Path("t.duckdb").write_bytes(whole_db.read_bytes()[:size])
    words = ["modules"] if command == "query" else [DEMO / "cpu_b8"]
    code, out, err = call(command, *words, "--db", "t.duckdb")
    assert (code, out) == (3, "")
    assert is_one_line(err)


# -- standard streams and -o ------------------------------------------------------------------

ANSWERS = ["query modules", "sql FROM\truns", "queries", "schema", "runs", "check", "--help",
           "--version", "query peak --help", "query peak --sql"]  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize("command", ANSWERS)
@pytest.mark.parametrize("stream", ["full", "closed"])
def test_standard_output(whole_db, command, stream):
    arguments = [word.replace("\t", " ") for word in command.split(" ")]
    needs_db = not {"queries", "schema", "--help", "--version", "--sql"} & set(arguments)
    arguments += ["--db", str(whole_db)] if needs_db else []
    if command == "check":  # one invariant has as much to say as all
        arguments += [f"--skip={query.name}" for query in check.checks() if query.name != "total"]
    redirection = {"full": ">/dev/full", "closed": ">&-"}[stream]
    shell = f"{shlex.join([*BUFDB, *arguments])} {redirection}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=SECONDS, check=False)
    err = done.stderr.decode()
    if command == "check":
        assert "Traceback" not in err
    elif stream == "closed" and done.returncode == 0:
        assert err == ""  # click says nothing to a stream that is not there
    else:
        assert done.returncode == 1
        assert is_one_line(err)


@pytest.mark.sample(3)
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize(
    ("command", "code"), [("query modules", 0), ("query nothing", 2), ("ingest nothing", 2)]
)
def test_standard_error(whole_db, redirection, command, code):
    arguments = [*command.split(), "--db", str(whole_db)]
    shell = f"{shlex.join([*BUFDB, *arguments])} {redirection}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stderr) == (code, b"")
    assert (done.stdout != b"") == (code == 0)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("target", "code"),
    [("/dev/full", 1), (".", 2), ("no/where", 2), ("n" * 300, 2), ("/proc/a", 2)],
    ids=["full device", "directory", "no directory", "name too long", "not writable"],
)
def test_output_file(call, whole_db, target, code):
    exit_code, out, err = call("query", "modules", "--db", whole_db, "-o", target)
    assert (exit_code, out) == (code, "")
    assert is_one_line(err, "cannot write ")


# -- the surroundings -------------------------------------------------------------------------

HOMES = {"missing": "/no/home", "a file": "file", "empty": "", "unset": None, "full": "/dev/full",
         "not UTF-8": os.fsdecode(b"\xff"), "relative": "~"}  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("variable", ["HOME", "XDG_CONFIG_HOME"])
def test_home(whole_db, monkeypatch, call, home, variable):
    Path("file").touch()
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    if HOMES[home] is not None:
        monkeypatch.setenv(variable, HOMES[home])
    code, out, err = call("query", "modules", "--db", whole_db)
    assert (code, err) == (0, "")
    assert out


def test_home_that_may_not_be_looked_into(monkeypatch, capfd):
    def closed(path, **_more):
        if "home" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    real = os.stat
    monkeypatch.setenv("HOME", "/home/other")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(os, "stat", closed)
    assert cli.run(["queries"]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_working_directory_that_is_gone(tmp_path, whole_db):
    (tmp_path / "gone").mkdir()
    shell = f"cd gone && rmdir ../gone && {shlex.join([*BUFDB, 'query', 'modules'])}"
    for db, code in (("", 3), (f" --db {whole_db}", 0)):
        (tmp_path / "gone").mkdir(exist_ok=True)
        done = subprocess.run(["sh", "-c", shell + db], capture_output=True, check=False)
        assert done.returncode == code
        assert "Traceback" not in done.stderr.decode()


def test_argument_that_is_not_utf8(call, whole_db):
    code, out, err = call("sql", os.fsdecode(b"SELECT '\xff'"), "--db", whole_db)
    assert (code, out) == (1, "")
    assert is_one_line(err, "not UTF-8")


def test_directory_for_dumps_that_cannot_be(call):
    code, _, err = call("capture", "--keep-dumps", "/proc/dumps", "--", "touch", "was-run")
    assert code == 2
    assert is_one_line(err, "--keep-dumps /proc/dumps: ")
    assert not Path("was-run").exists()


def test_no_room_for_dumps(call, monkeypatch):
    def full(**_more):
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/bufdb-dumps-1")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    code, _, err = call("capture", "--", "touch", "was-run")
    assert code == 1
    assert is_one_line(err, "the disk is full (/tmp/bufdb-dumps-1: No space left on device)")
    assert not Path("was-run").exists()


# -- what reaches the top ---------------------------------------------------------------------

MESSAGES = {
    "recursion": (RecursionError("maximum recursion depth"), 1, "nested too deeply"),
    "memory": (MemoryError(), 1, "not enough memory; --memory-limit SIZE gives DuckDB more"),
    "disk full": (OSError(errno.ENOSPC, "No space left on device", "x"), 1, "the disk is full (x:"),
    "quota": (OSError(errno.EDQUOT, "Disk quota exceeded"), 1, "the disk is full (Disk quota"),
    "file limit": (OSError(errno.EFBIG, "File too large"), 1, "the file size limit is reached"),
    "other of the system": (PermissionError(13, "Permission denied", "x"), 1, "x: Permission den"),
    "not UTF-8": (UnicodeEncodeError("utf-8", "a", 0, 1, "surrogates"), 1, "are not UTF-8"),
    "DuckDB: disk full": (duckdb.IOException(FULL), 1, "the disk is full (Could not write file"),
    "DuckDB: disk full, fatal": (duckdb.FatalException(FATAL), 1, "the disk is full (Failed to cr"),
    "DuckDB: damaged block": (
        duckdb.Error("Corrupt database file: computed checksum 1 does not match stored checksum 2 "
                     "in block at location 4096"),
        3, "t.duckdb is damaged (Corrupt database file: a wrong checksum in block at location 4096)"
    ),
    "DuckDB: out of memory": (
        duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate data of size 8 (1/2)\n"
                                    "Possible solutions:\n* Reducing the number of threads"),
        1, "not enough memory (failed to allocate data of size 8 (1/2)); --memory-limit SIZE"),
    "DuckDB: permission": (
        duckdb.IOException('IO Error: Cannot open file "x": Permission denied'), 3,
        "t.duckdb cannot be written (Cannot open file"),
    "DuckDB: read-only": (
        duckdb.InvalidInputException("Invalid Input Error: Cannot execute statement of type "
        '"INSERT" on database "t" which is attached in read-only mode!'), 3, "cannot be written"),
    "DuckDB: disk error": (
        duckdb.IOException("IO Error: Could not read file: Input/output error"), 3,
        "the disk of t.duckdb fails (Could not read file: Input/output error)"),
    "DuckDB: other": (
        duckdb.InternalException("INTERNAL Error: Attempted to access\nindex 1"), 1,
        "DuckDB failed: Attempted to access index 1; if it happens again, please report it"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("is_cause", [False, True], ids=["itself", "as a query's cause"])
def test_error_at_the_top(monkeypatch, capfd, name, is_cause):
    error, code, message = MESSAGES[name]

    def fail(*_args, obj, **_more):
        obj["db"] = "t.duckdb"
        if is_cause:
            raise BufdbError("peak: what DuckDB said") from error
        raise error

    monkeypatch.setattr(cli.bufdb, "main", fail)
    exit_code = cli.run(["queries"])
    err = capfd.readouterr().err
    if is_cause and not faults.is_outside(error):
        assert (exit_code, err) == (1, "bufdb: error: peak: what DuckDB said\n")
    else:
        assert exit_code == code
        assert is_one_line(err, message)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), duckdb.InterruptException("INTERRUPT Error: Interrupted!")],
    ids=["Ctrl-C", "DuckDB"],
)  # fmt: skip
def test_interrupt(monkeypatch, capfd, error):
    def fail(*_args, **_more):
        raise error

    monkeypatch.setattr(cli.bufdb, "main", fail)
    assert (cli.run(["queries"]), capfd.readouterr().err) == (130, "bufdb: interrupted\n")


def test_line_end_in_a_message(capfd):
    assert cli.run(["ingest", "no\nwhere"]) == 2
    assert is_one_line(capfd.readouterr().err, "no\\nwhere")


# -- capture ----------------------------------------------------------------------------------

FAKE = f"""
import os, re, shutil
folder = re.findall("--xla_dump_to=(\\\\S+)", os.environ["XLA_FLAGS"])[-1]
shutil.copytree({str(DEMO / "cpu_b8")!r}, folder, dirs_exist_ok=True)
"""
LABELS = ["--label", "a b='c'", "--label", "x=$HOME\ny"]


@pytest.fixture
def my_db(make_empty):
    return make_empty("my db.duckdb")


def captured(monkeypatch, capfd, more=""):
    """Run `capture` in this process; return its exit code, stderr, and its advice."""
    Path("train.py").write_text(FAKE + more)
    command = ["capture", "--run", "my run", *LABELS, "--db", "my db.duckdb"]
    code = cli.run([*command, "--", sys.executable, "train.py"])
    monkeypatch.undo()
    err = capfd.readouterr().err
    kept = err.partition("bufdb: the dumps are kept: ")[2].partition("\nbufdb: ")[0]
    return code, err, shlex.split(kept)


def stored_by(advice, tmp_path, monkeypatch):
    """Labels of the run that the advice makes, and its number of modules."""
    assert advice[:2] == ["bufdb", "ingest"]
    monkeypatch.chdir(tmp_path)
    assert cli.run(advice[1:]) in (0, 4)
    db = "my db.duckdb"
    labels = dict(rows(db, "SELECT label, label_value FROM run_labels WHERE run_name = 'my run'"))
    assert labels["a b"] == "'c'"
    assert labels["x"] == "$HOME\ny"
    assert labels["command"].endswith("train.py")
    return len(rows(db, "SELECT * FROM modules WHERE run_name = 'my run'"))


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (duckdb.IOException(FULL), 1), (OSError(28, "No space left"), 1),
     (MemoryError(), 1), (RecursionError(), 1)],
    ids=["Ctrl-C", "disk full in DuckDB", "disk full", "memory", "recursion"],
)  # fmt: skip
def test_capture_whose_ingest_fails(tmp_path, monkeypatch, capfd, my_db, error, code):
    ingest(my_db, [DEMO / "tpu_b8"], run="my run", labels={"old": "1"})

    def fail(self, waiting):
        raise error

    monkeypatch.setattr(TableWriter, "_insert", fail)
    exit_code, err, advice = captured(monkeypatch, capfd)
    assert exit_code == code
    assert "Traceback" not in err
    # What the run had is still there, and the advice stores what it lacks.
    assert len(rows(tmp_path / "my db.duckdb", "SELECT * FROM modules")) == 2
    assert stored_by(advice, tmp_path, monkeypatch) == 2 + 3


@pytest.mark.slow
def test_capture_of_dumps_that_are_stored_in_part(tmp_path, monkeypatch, capfd, my_db):
    gone = "os.remove(f'{folder}/module_0000.jit_init.cpu_after_optimizations-live-range.txt');"
    gone += "os.mkfifo(f'{folder}/module_0000.jit_init.cpu_after_optimizations-live-range.txt')"
    code, _, advice = captured(monkeypatch, capfd, gone)
    assert code == 4
    assert stored_by(advice, tmp_path, monkeypatch) == 3


@pytest.mark.slow
def test_capture_whose_dumps_are_stored(tmp_path, monkeypatch, capfd, my_db):
    code, _, advice = captured(monkeypatch, capfd)
    assert (code, advice) == (0, [])
    assert list((tmp_path / "tmp").iterdir()) == []


def test_capture_whose_directory_is_removed(tmp_path, monkeypatch, capfd):
    code, err, advice = captured(monkeypatch, capfd, "shutil.rmtree(os.path.dirname(folder))")
    assert (code, advice) == (2, [])
    assert "no such file or directory" in err
