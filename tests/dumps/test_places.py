"""Archives, compressed files and standard input: read like files, or refused in one line."""

import gzip
import importlib.util
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from ingesting import ingest_into, rows
from places import DEMO

from bufdb.dumps import archives, streams
from bufdb.dumps.discover import base_of, discover
from bufdb.dumps.files import base_name
from bufdb.dumps.place import Bytes, suffix_of
from bufdb.errors import UsageError
from bufdb.proto import reader

RUN = DEMO / "cpu_b8"
INIT = "module_0000.jit_init.cpu_after_optimizations"
FORMATS = {"zip": "zip", "tar": "tar", "gztar": "tar.gz"}
zst = pytest.mark.skipif(
    importlib.util.find_spec("zstandard") is None, reason="this Python has no zstandard"
)


def archive(folder: Path, form: str) -> Path:
    return Path(shutil.make_archive(str(folder / "demo"), form, DEMO, "cpu_b8"))


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def kinds_of(path, problems=None):
    return {module.key: sorted(module.files) for module in discover(path, problems)}


def odd(path):
    """Return the messages about skipped things, by name."""
    problems = []
    discover(path, problems)
    return {problem.name: (problem.severity, problem.message) for problem in problems}


CONTENT = "SELECT * EXCLUDE (module_id) FROM {} ORDER BY ALL"
ALLOCATIONS = (RUN / f"{INIT}-buffer-assignment.txt").read_bytes()
DUMP = f"{INIT}-buffer-assignment.txt"


# -- the same rows ---------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMATS)
def test_an_archive_has_the_modules_of_its_directory(fresh, tmp_path, form):
    path = archive(tmp_path, form)
    con, plain = fresh(), fresh()
    ingest_into(con, path)
    ingest_into(plain, RUN)
    for table in ("allocations", "values", "live_ranges", "peak_values", "peak_savings"):
        assert rows(con, CONTENT.format(table)) == rows(plain, CONTENT.format(table))
    names = rows(con, "SELECT run_name, module_key, module_name, module_number FROM modules")
    assert ("demo", f"demo.{FORMATS[form]}:cpu_b8/{INIT}", "jit_init", 0) in names
    assert rows(con, "SELECT count(DISTINCT source_stamp) FROM files") == [(1,)]


@pytest.mark.slow
def test_compressed_files_have_the_names_of_what_they_hold(fresh, tmp_path):
    for path in RUN.iterdir():
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert kinds_of(tmp_path) == kinds_of(RUN)
    assert kinds_of(tmp_path / f"{INIT}-live-range.txt.gz") == kinds_of(
        RUN / f"{INIT}-live-range.txt"
    )
    con = fresh()
    ingest_into(con, tmp_path, "run")
    ingest_into(con, RUN, "run")
    assert rows(con, "SELECT count(*) FROM modules") == [(3,)]


def test_a_file_goes_before_its_compressed_copy(tmp_path):
    shutil.copy(RUN / DUMP, tmp_path)
    (tmp_path / f"{DUMP}.gz").write_bytes(gzip.compress(b"something else"))
    assert list(kinds_of(tmp_path)) == [INIT]
    assert odd(tmp_path)[f"{DUMP}.gz"][0] == "info"


def test_archives_may_be_next_to_dumps(tmp_path):
    shutil.copy(RUN / DUMP, tmp_path)
    zipped(tmp_path / "more.zip", {f"a/b/{DUMP}": ALLOCATIONS, DUMP: ALLOCATIONS})
    assert list(kinds_of(tmp_path)) == [INIT, f"more.zip:a/b/{INIT}", f"more.zip:{INIT}"]


@zst
def test_zstandard(tmp_path):
    import zstandard

    content = zstandard.compress(ALLOCATIONS[:1000]) + zstandard.compress(ALLOCATIONS[1000:])
    (tmp_path / f"{DUMP}.zst").write_bytes(content)
    (module,) = discover(tmp_path)
    assert module.files["buffer_assignment"].path.open().read() == ALLOCATIONS
    (tmp_path / f"{DUMP}.zst").write_bytes(content[:-20])
    assert odd(tmp_path)[f"{DUMP}.zst"] == (
        "error",
        "cannot be read: it is damaged: it ends too early",
    )


def test_standard_input_is_a_run_of_that_name(fresh):
    con = fresh()
    ingest_into(con, Bytes("stdin", ALLOCATIONS))
    assert rows(con, "SELECT run_name, source_path, dumped_at FROM runs") == [("stdin", "-", None)]
    assert rows(con, "SELECT module_key FROM modules") == [("stdin",)]


# -- not read again --------------------------------------------------------------------------------


def test_an_unchanged_archive_is_not_read_again(fresh, tmp_path, monkeypatch):
    path, con = archive(tmp_path, "zip"), fresh()
    assert ingest_into(con, path).module_count == 3
    with monkeypatch.context() as patch:
        patch.setattr("bufdb.ingest.group.load", None)
        assert ingest_into(con, path).unchanged_count == 3
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("note.md", "another file")
    assert ingest_into(con, path).unchanged_count == 3


@pytest.mark.slow
def test_of_a_changed_archive_the_changed_modules_are_stored(fresh, tmp_path):
    path, con = archive(tmp_path, "zip"), fresh()
    ingest_into(con, path)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("more/x-buffer-assignment.txt", ALLOCATIONS)
    summary = ingest_into(con, path)
    assert (summary.module_count, summary.unchanged_count) == (1, 3)


# -- each byte once --------------------------------------------------------------------------------


class Counted(io.FileIO):
    """A file that counts what is read of all of its kind."""

    count = 0

    def readinto(self, buffer):
        size = super().readinto(buffer)
        Counted.count += size
        return size


def compressed(path: Path, content: bytes) -> Path:
    """A compressed file, by the end of its name; Zstandard's as one frame without its size."""
    if path.suffix == ".zst":
        import zstandard

        content = zstandard.ZstdCompressor(write_content_size=False).compress(content)
    else:
        content = gzip.compress(content)
    path.write_bytes(content)
    return path


def many(path: Path, count: int) -> tuple[Path, dict[str, bytes]]:
    """An archive of many members that do not compress, in no order of their names."""
    members = {f"{n * 37 % count:04}-live-range.txt": os.urandom(3000) for n in range(count)}
    if path.suffix == ".zip":
        return zipped(path, members), members
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return compressed(path, tar.getvalue()), members


@pytest.mark.parametrize("form", ["zip", "tar.gz", pytest.param("tar.zst", marks=zst)])
def test_however_many_members_an_archive_is_read_once(tmp_path, monkeypatch, form):
    path, members = many(tmp_path / f"x.{form}", 300)
    monkeypatch.setattr(archives, "open_file", Counted)
    monkeypatch.setattr(Counted, "count", 0)
    for module in discover(path):
        (file,) = module.files.values()
        assert file.path.open().read() == members[file.name.partition(":")[2]]
    # Its hash takes one reading more; of a zip a buffer is read for each header.
    most = 2 * path.stat().st_size + (300 * io.DEFAULT_BUFFER_SIZE if form == "zip" else 0)
    assert Counted.count <= 1.1 * most


@zst
def test_members_are_read_in_turn(tmp_path):
    """The frames of one stream share a decompressor."""
    path, members = many(tmp_path / "x.tar.zst", 40)
    files = [file for module in discover(path) for file in module.files.values()]
    opened = [file.path.open() for file in files]
    parts = [[file.read(1000) for file in opened] for _ in range(4)]
    for file, *content in zip(files, *parts, strict=True):
        assert b"".join(content) == members[file.name.partition(":")[2]]


# -- where it is unpacked --------------------------------------------------------------------------

WAITS = """
import sys, time
from pathlib import Path
from bufdb.dumps.discover import discover
modules = discover(Path(sys.argv[1]))
print("unpacked", flush=True)
time.sleep(60)
"""


def unpacked_in(folder: Path) -> list[Path]:
    return list(folder.glob("bufdb-*"))


def test_what_is_unpacked_goes_with_its_modules(tmp_path, monkeypatch):
    path = archive(tmp_path, "zip")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    modules = discover(path)
    (folder,) = unpacked_in(tmp_path / "tmp")
    assert folder.stat().st_mode & 0o077 == 0
    del modules
    assert unpacked_in(tmp_path / "tmp") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_is_unpacked_goes_with_its_process(tmp_path, number):
    path = archive(tmp_path, "gztar")
    process = subprocess.Popen(
        [sys.executable, "-c", WAITS, str(path)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        process.stdout.readline()
        assert len(unpacked_in(tmp_path)) == 1
        process.send_signal(number)
        assert process.wait() == -number
    assert unpacked_in(tmp_path) == []


def test_what_is_refused_leaves_nothing_unpacked(tmp_path, monkeypatch):
    path = archive(tmp_path, "gztar")
    path.write_bytes(path.read_bytes()[:-50])
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    assert list(odd(tmp_path)) == [path.name]
    assert unpacked_in(tmp_path / "tmp") == []


def test_all_archives_together_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MOST_BYTES", 3 * len(ALLOCATIONS) // 2)
    for name in ("a", "b"):
        (tmp_path / f"{name}-live-range.txt.gz").write_bytes(gzip.compress(ALLOCATIONS))
    assert len(kinds_of(tmp_path)) == 1
    ((_, message),) = odd(tmp_path).values()
    assert "unpack it first" in message


def test_without_room_an_archive_is_an_error(tmp_path, monkeypatch):
    path = archive(tmp_path, "zip")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "no temporary folder can be written" in odd(path)["demo.zip"][1]


def test_a_damaged_member_of_a_zip_is_none_of_the_others(tmp_path):
    path = zipped(tmp_path / "x.zip", {f"a/{DUMP}": ALLOCATIONS, f"b/{DUMP}": ALLOCATIONS})
    content = bytearray(path.read_bytes())
    content[200:240] = b"\xff" * 40
    path.write_bytes(content)
    one, other = (module.files["buffer_assignment"].path for module in discover(path))
    with pytest.raises(OSError, match="it is damaged"):
        one.open()
    assert other.open().read() == ALLOCATIONS


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [f"../{DUMP}", f"/etc/{DUMP}", f"a/../../{DUMP}", f"..\\{DUMP}"])
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    zipped(tmp_path / "x.zip", {name: ALLOCATIONS, DUMP: ALLOCATIONS})
    assert list(kinds_of(tmp_path)) == [f"x.zip:{INIT}"]
    assert "leads out" in odd(tmp_path)[f"x.zip:{name}"][1]


def test_archives_among_other_files_may_be_of_anything(tmp_path, monkeypatch):
    zipped(tmp_path / "x.zip", {"a.tar.gz": b"", f"../{DUMP}": b"", "../note.md": b""})
    assert {name: severity for name, (severity, _) in odd(tmp_path).items()} == {
        "x.zip:a.tar.gz": "info",
        f"x.zip:../{DUMP}": "error",
        "x.zip:../note.md": "info",
    }
    assert {severity for severity, _ in odd(tmp_path / "x.zip").values()} >= {"error"}
    monkeypatch.setattr("bufdb.dumps.archives.LARGE_BYTES", 10)
    assert list(odd(tmp_path)) == ["x.zip"]
    assert "to read it, name it" in odd(tmp_path)["x.zip"][1]


def test_an_archive_within_an_archive_is_refused(tmp_path):
    inner = zipped(tmp_path / "inner.zip", {DUMP: ALLOCATIONS}).read_bytes()
    (tmp_path / "inner.zip").unlink()
    members = {"inner.zip": inner, f"{DUMP}.gz": gzip.compress(ALLOCATIONS), "a.tgz": b""}
    zipped(tmp_path / "x.zip", members)
    path = tmp_path / "x.zip"
    assert kinds_of(path) == {}
    assert {severity for severity, _ in odd(path).values()} == {"error"}
    assert len(odd(path)) == 3


def test_links_in_a_tar_are_left_out_and_said_so(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as file:
        link = tarfile.TarInfo(DUMP)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        file.addfile(link)
    assert kinds_of(tmp_path) == {}
    assert "link" in odd(tmp_path)[f"x.tar:{DUMP}"][1]


def test_links_in_a_zip_are_left_out_and_said_so(tmp_path):
    link = zipfile.ZipInfo(DUMP)
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        file.writestr(link, "/etc/passwd")
    assert kinds_of(tmp_path) == {}
    assert "link" in odd(tmp_path)[f"x.zip:{DUMP}"][1]


@pytest.mark.parametrize("form", ["zip", "tar.gz", "txt.gz"])
def test_a_bomb_is_refused_by_its_ratio(tmp_path, monkeypatch, form):
    monkeypatch.setattr(streams, "FREE_BYTES", 1 << 20)
    zeros = b"\0" * (4 << 20)
    path = tmp_path / f"x.{form}"
    if form == "zip":
        zipped(path, {DUMP: zeros})
    elif form == "tar.gz":
        with tarfile.open(path, "w:gz") as file:
            info = tarfile.TarInfo(DUMP)
            info.size = len(zeros)
            file.addfile(info, io.BytesIO(zeros))
    else:
        path.write_bytes(gzip.compress(zeros))
    assert "more than 250 times its size" in odd(path)[path.name][1]


def test_a_bomb_of_many_layers_is_refused_by_its_total(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(streams, "FREE_BYTES", 1 << 10)
    zipped(tmp_path / "x.zip", {f"{n}.txt": os.urandom(1 << 18) for n in range(8)})
    assert "unpack it first" in odd(tmp_path / "x.zip")["x.zip"][1]


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_archive_is_an_error_and_no_more(fresh, tmp_path, form):
    path = archive(tmp_path, form)
    content = path.read_bytes()
    dump = RUN / DUMP
    con = fresh()
    for number in range(6):
        at = number * len(content) // 6
        cut = content[:at] if number % 2 else content[:at] + b"\xff" * 40 + content[at + 40 :]
        path.write_bytes(cut)
        summary = ingest_into(con, [path, dump], f"run {number}")
        assert summary.module_count >= 1
    assert summary.problem_counts["error"]


def test_a_zip_that_a_later_program_made_is_refused(tmp_path):
    path = zipped(tmp_path / "x.zip", {DUMP: ALLOCATIONS})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 6] = 200
    path.write_bytes(content)
    assert odd(path)["x.zip"][0] == "error"


def test_a_zip_whose_members_lie_over_each_other_is_refused(tmp_path):
    path = zipped(tmp_path / "x.zip", {DUMP: ALLOCATIONS})
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 20
    content[at : at + 4] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(content)
    assert odd(path)["x.zip"] == (
        "error",
        "cannot be read: it is damaged: its members overlap",
    )


def test_a_day_that_is_none_is_not_taken(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(zipfile.ZipInfo(DUMP, (1980, 0, 0, 0, 0, 0)), ALLOCATIONS)
    ((file,),) = (module.files.values() for module in discover(path))
    assert file.path.stat().st_mtime_ns == path.stat().st_mtime_ns


def test_a_time_that_is_none_is_not_taken(fresh, tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as file:
        info = tarfile.TarInfo(DUMP)
        info.size, info.mtime = len(ALLOCATIONS), 10**15
        file.addfile(info, io.BytesIO(ALLOCATIONS))
    ingest_into(fresh(), path)


def test_encrypted_members_are_refused(tmp_path):
    path = zipped(tmp_path / "x.zip", {DUMP: ALLOCATIONS})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert "encrypted" in odd(path)[f"x.zip:{DUMP}"][1]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_unpack_to_any_size_at_once_are_refused(tmp_path, method):
    """zipfile returns everything that four kilobytes unpack to: gigabytes for bzip2."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as file:
        file.writestr(DUMP, ALLOCATIONS)
    assert "by another method than deflate" in odd(tmp_path / "x.zip")[f"x.zip:{DUMP}"][1]


def test_an_archive_without_dumps_says_so(fresh, tmp_path):
    zipped(tmp_path / "x.zip", {"readme.md": b"nothing here"})
    with pytest.raises(UsageError, match=r"no buffer assignment in .*x\.zip"):
        ingest_into(fresh(), tmp_path / "x.zip")


# -- names and readers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a/b.txt", "b.txt"), ("d/x.tar.gz:a/b", "b"), ("X.ZIP:b", "b"), ("a:b.c", "a:b.c")],
)
def test_base_names_follow_archives(name, expected):
    assert base_name(name) == expected


@pytest.mark.parametrize("name", ["a.b", "a", ".a", "x/y.tar.gz", "a."])
def test_suffixes_are_those_of_paths(name):
    assert suffix_of(name) == (Path(name).suffix if not name.endswith(".") else "")


@pytest.mark.parametrize("name", ["demo.zip", "demo.tar.gz", "demo.tgz", "demo.tar"])
def test_an_archive_gives_its_name_to_the_run(name):
    assert base_of(Path("/a/b") / name) == Path("/a/b/demo")


# -- small files without end -----------------------------------------------------------------------


def tarred(path: Path, *headers: tuple[bytes, bytes], member: str = DUMP) -> Path:
    """A compressed tar of some headers, each with its type and content, and one member."""
    parts = []
    for kind, content in headers:
        info = tarfile.TarInfo("h")
        info.type, info.size = kind, len(content)
        parts += [info.tobuf(), content, b"\0" * (-len(content) % 512)]
    info = tarfile.TarInfo(member)
    info.size = 1
    parts += [info.tobuf(), b"x", b"\0" * 511, b"\0" * 1024]
    path.write_bytes(gzip.compress(b"".join(parts), 1))
    return path


HOSTILE = {
    "name": [(tarfile.GNUTYPE_LONGNAME, b"a.zip:" * 8_000_000 + b"\0")],
    "short name": [(tarfile.GNUTYPE_LONGNAME, b"a.zip:" * 9_000 + b"\0")],
    "digits": [(tarfile.XHDTYPE, b"1" * 20_000_000)],
    "few digits": [(tarfile.XHDTYPE, b"60000 a=" + b"1" * 59_991 + b"\n")],
    "records": [(tarfile.XHDTYPE, b"5 aaa" * 13_000 + b"=\n")],
    "nested": [(tarfile.GNUTYPE_LONGNAME, b"a\0")] * 5000,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("is_given", [True, False])
def test_a_header_without_end_is_refused(tmp_path, kind, is_given):
    path = tarred(tmp_path / "a.tar.gz", *HOSTILE[kind])
    began = time.monotonic()
    ((name, (_, message)),) = odd(path if is_given else tmp_path).items()
    assert time.monotonic() - began < 5
    assert re.search("a header|its name|recursion", message), message
    assert len(name) < 200


def test_a_negative_size_does_not_read_the_same_header_again(tmp_path):
    info = tarfile.TarInfo("h")
    head = bytearray(info.tobuf())
    head[124:136] = b"\xff" * 10 + b"\xfa\x00"  # -1536
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (tmp_path / "a.tar").write_bytes(bytes(head) * 3 + b"\0" * 1024)
    ((_, message),) = odd(tmp_path / "a.tar").values()
    assert "a size is negative" in message


def test_an_archive_of_too_many_members_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    for form in ("zip", "gztar"):
        ((_, message),) = odd(archive(tmp_path, form)).values()
        assert "more than 3 members" in message
    monkeypatch.setattr(archives, "_MOST_DIRECTORY", 100)
    ((_, message),) = odd(archive(tmp_path, "zip")).values()
    assert "its directory has more than" in message


def test_names_are_bounded_also_of_what_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_NAMES", 2000)
    with tarfile.open(tmp_path / "a.tar", "w") as file:
        for number in range(9):
            info = tarfile.TarInfo(f"\U0001f600{number}" + "a" * 80)
            info.type = tarfile.SYMTYPE
            file.addfile(info)
    ((_, message),) = odd(tmp_path / "a.tar").values()
    assert "its names take more than" in message


def test_a_small_proto_that_unpacks_to_much_is_refused():
    data = gzip.compress(bytes(reader.FREE_BYTES + (1 << 20)), 1)
    with pytest.raises(reader.UnreadableProto, match="more than 100 times its size"):
        reader.unpacked(data)
    assert reader.unpacked(gzip.compress(b"ab") + gzip.compress(b"c")) == b"abc"


def test_a_sparse_file_is_left_out_however_many_parts_it_has(tmp_path):
    info = tarfile.TarInfo("hole")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 512
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[482], head[483:495] = 1, b"%011o\0" % 10**6
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    more = (b"%011o\0" % 7 * 42 + b"\1" + bytes(7)) * 2000
    last = bytes(512)
    info = tarfile.TarInfo(DUMP)
    info.size = 1
    text = bytes(head) + more + last + b"y" * 512 + info.tobuf() + b"x" + bytes(511 + 1024)
    (tmp_path / "a.tar").write_bytes(text)
    problems = []
    assert len(kinds_of(tmp_path / "a.tar", problems)) == 1
    assert [problem.code for problem in problems] == ["no_file"]
