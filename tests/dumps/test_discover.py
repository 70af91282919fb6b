"""Files that make a module: names, siblings, renamed files, captured output (format section 2)."""

import errno
import os
from pathlib import Path

import pytest

from bufdb.dumps import captured as logs
from bufdb.dumps.discover import base_of, discover
from bufdb.dumps.files import ModuleName, Problem, parse_stem, stem_of
from bufdb.errors import UsageError
from bufdb.proto.reader import hlo_proto

ALLOCATIONS = "BufferAssignment:\nallocation 0: size 4, preallocated-temp:\n"
VALUES = "\nTotal bytes used: 4 (4B)\n\nUsed values:\n"
LIVE = "HloLiveRange (max 1):\n  InstructionSequence:\n    0:a\n"
CONTENT = {
    "-buffer-assignment.txt": ALLOCATIONS,
    "-buffer-assignment-values.txt": VALUES,
    "-live-range.txt": LIVE,
    ".txt": "HloModule jit_f\n",
}
STEM = "module_0001.jit_f.cpu_after_optimizations"


def put(folder: Path, stem: str, *suffixes: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in suffixes or CONTENT:
        (folder / f"{stem}{suffix}").write_text(CONTENT[suffix])


def files_by_kind(path: Path) -> dict[str, dict[str, str]]:
    """Name of every file by kind, by module key."""
    return {m.key: {kind: f.name for kind, f in m.files.items()} for m in discover(path)}


def kinds(path: Path) -> dict[str, list[str]]:
    return {key: sorted(files) for key, files in files_by_kind(path).items()}


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        (STEM, ("jit_f", 1, None, None, "cpu")),
        ("module_12345.jit_f.after_optimizations", ("jit_f", 12345, None, None, None)),
        ("module_0031.cpu_after_optimizations", (None, 31, None, None, "cpu")),
        ("module_0031.after_optimizations", (None, 31, None, None, None)),
        ("1625000000000000.module_0002.f.sm_8.0_gpu_after_optimizations",
         ("f", 2, 1625000000000000, None, "sm_8.0_gpu")),
        ("module_0002.f.sm_9.0a_gpu_after_optimizations", ("f", 2, None, None, "sm_9.0a_gpu")),
        ("module_0002.f.sm_10.0f_gpu_after_optimizations", ("f", 2, None, None, "sm_10.0f_gpu")),
        ("module_0002.f.gfx90a_gpu_after_optimizations", ("f", 2, None, None, "gfx90a_gpu")),
        ("module_0002._gpu_after_optimizations", (None, 2, None, None, "_gpu")),
        ("module_0105.SyncTensorsGraph.105381.cpu_after_optimizations",
         ("SyncTensorsGraph.105381", 105, None, None, "cpu")),
        ("module_0105.a.b.c.sm_8.0_gpu_after_optimizations",
         ("a.b.c", 105, None, None, "sm_8.0_gpu")),
        ("module_0051.jit_mini.cl_772339112.after_optimizations",
         ("jit_mini", 51, None, 772339112, None)),
        ("module_0051.cl_772339112.after_optimizations", (None, 51, None, 772339112, None)),
        ("module_0051.jit_f.15.cl_7.after_optimizations", ("jit_f.15", 51, None, 7, None)),
        ("renamed", (None, None, None, None, None)),
        ("module_1.jit_f.after_optimizations", (None, None, None, None, None)),
    ],
)  # fmt: skip
def test_stems(stem, expected):
    name = parse_stem(stem)
    parts = (name.module_name, name.module_number, name.dump_time_us, name.cl_number, name.backend)
    assert parts == expected


@pytest.mark.parametrize(
    ("name", "platform"),
    [
        (ModuleName(backend="cpu"), "cpu"),
        (ModuleName(backend="sm_9.0a_gpu"), "gpu"),
        (ModuleName(backend="gfx90a_gpu"), "gpu"),
        (ModuleName(backend="_gpu"), "gpu"),
        (ModuleName(cl_number=7), "tpu"),
        (ModuleName(), None),
    ],
)
def test_the_platform_is_read_from_the_name(name, platform):
    assert name.platform == platform


def test_the_stem_is_the_name_without_part_and_extension():
    assert {stem_of(STEM + suffix) for suffix in CONTENT} == {STEM}
    assert stem_of("other.log") == "other.log"


# -- grouping ---------------------------------------------------------------------------------


def test_files_of_one_stem_are_one_module(tmp_path):
    put(tmp_path, STEM)
    (tmp_path / "module_0001.jit_f.debug_options").write_text("a: b\n")
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text("HloModule jit_f\n")
    (tmp_path / f"{STEM}-memory-usage-report.txt").write_text("Total bytes used: 4\n")
    assert files_by_kind(tmp_path) == {
        STEM: {
            "buffer_assignment": f"{STEM}-buffer-assignment.txt",
            "values": f"{STEM}-buffer-assignment-values.txt",
            "live_range": f"{STEM}-live-range.txt",
            "hlo": f"{STEM}.txt",
            "before_optimizations": "module_0001.jit_f.before_optimizations.txt",
            "debug_options": "module_0001.jit_f.debug_options",
            "memory_report": f"{STEM}-memory-usage-report.txt",
        }
    }


def test_compiler_options_have_no_time_stamp(tmp_path):
    put(tmp_path, f"1625000000000000.{STEM}", "-buffer-assignment.txt")
    (tmp_path / "module_0001.jit_f.debug_options").write_text("a: b\n")
    assert kinds(tmp_path) == {f"1625000000000000.{STEM}": ["buffer_assignment", "debug_options"]}


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("a/1625000000000000." + STEM, "a/1625000000000000.module_0001.jit_f.before_optimizations"),
        ("module_0007.jit_f.2.cl_7.after_optimizations",
         "module_0007.jit_f.2.cl_7.before_optimizations"),
        ("module_0007.after_optimizations", "module_0007.before_optimizations"),
    ],
)  # fmt: skip
def test_the_text_before_optimization_has_no_backend(tmp_path, stem, name):
    put((tmp_path / stem).parent, stem.rpartition("/")[2], "-live-range.txt")
    (tmp_path / f"{name}.txt").write_text("HloModule jit_f\n")
    (tmp_path / f"{name}.hlo.pb").write_text("")
    expected = {"live_range": f"{stem}-live-range.txt", "before_optimizations": f"{name}.txt"}
    assert files_by_kind(tmp_path) == {stem: expected}
    ((_, parts),) = files_by_kind(tmp_path / f"{stem}-live-range.txt").items()
    assert [kind for kind in expected if kind in parts] == list(expected)


def test_two_backends_share_the_text_before_optimization(tmp_path):
    """Nothing in its name says whose it is; what does not fit is left out when it is read."""
    other = "module_0001.jit_f.sm_9.0_gpu_after_optimizations"
    for stem in (STEM, other):
        put(tmp_path, stem, "-live-range.txt")
    (tmp_path / "module_0001.jit_f.before_optimizations.txt").write_text("HloModule jit_f\n")
    both = ["before_optimizations", "live_range"]
    assert kinds(tmp_path) == {STEM: both, other: both}


def test_modules_come_from_all_directories_in_order(tmp_path):
    for folder in ("b", "a/x", "."):
        put(tmp_path / folder, STEM, "-live-range.txt")
    put(tmp_path, "module_0000.g.cpu_after_optimizations", "-live-range.txt")
    assert list(files_by_kind(tmp_path)) == [
        f"a/x/{STEM}", f"b/{STEM}", "module_0000.g.cpu_after_optimizations", STEM,
    ]  # fmt: skip


def test_two_backends_may_share_a_number_and_a_name(tmp_path):
    other = "module_0001.jit_f.sm_9.0_gpu_after_optimizations"
    put(tmp_path, STEM)
    put(tmp_path, other)
    assert [(m.key, m.name.platform) for m in discover(tmp_path)] == [(STEM, "cpu"), (other, "gpu")]


def test_texts_without_buffer_files_are_no_module(tmp_path):
    put(tmp_path, STEM, ".txt")
    (tmp_path / "notes.txt").write_text("something about BufferAssignment: and so on\n")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "code.o").write_bytes(b"\0" * 100)
    assert discover(tmp_path) == []


def test_a_single_file_brings_its_siblings(tmp_path):
    put(tmp_path, STEM)
    put(tmp_path, "module_0002.jit_g.cpu_after_optimizations")
    for suffix in CONTENT:
        assert kinds(tmp_path / f"{STEM}{suffix}") == {
            STEM: ["buffer_assignment", "hlo", "live_range", "values"]
        }, suffix
    assert base_of(tmp_path / f"{STEM}.txt") == tmp_path == base_of(tmp_path)


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"^no such file or directory: .*nowhere$"):
        discover(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"^cannot access .*: File name too long$"):
        discover(tmp_path / ("n" * 300))


def test_a_file_in_an_unlisted_directory_is_read(tmp_path, monkeypatch):
    put(tmp_path, STEM)

    def closed(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", closed)
    path = tmp_path / f"{STEM}-live-range.txt"
    assert files_by_kind(path) == {STEM: {"live_range": path.name}}


# -- odd entries ------------------------------------------------------------------------------


def reported(path: Path) -> dict[str, tuple[str, str]]:
    """Severity and message of what is odd, by name."""
    odd: list[Problem] = []
    discover(path, odd)
    return {problem.name: (problem.severity, problem.message) for problem in odd}


def test_links_are_followed_once(tmp_path):
    folder = tmp_path / "dumps"
    put(folder, STEM, "-live-range.txt")
    put(tmp_path / "elsewhere", "b", "-live-range.txt")
    (folder / "again.txt").symlink_to(f"{STEM}-live-range.txt")
    (folder / "b-live-range.txt").symlink_to("../elsewhere/b-live-range.txt")
    (folder / "up").symlink_to("..")
    assert kinds(folder) == {STEM: ["live_range"], "b": ["live_range"]}
    assert reported(folder) == {
        "again.txt": ("info", f"is a link to {STEM}-live-range.txt, which is read under that name"),
        "up": ("info", "leads to a directory above the ingested one; it was not followed"),
    }


def test_of_two_names_that_are_one_as_text_one_is_read(tmp_path):
    for name in (os.fsdecode(b"m\xff.dump"), "m\\xff.dump"):
        (tmp_path / name).write_text(ALLOCATIONS)
    odd: list[Problem] = []
    assert [module.key for module in discover(tmp_path, odd)] == ["m\\xff.dump"]
    (message,) = (problem.message for problem in odd if problem.code == "name_taken")
    assert message.endswith("rename one")


def test_a_path_too_long_is_reported_with_a_remedy(tmp_path, monkeypatch):
    put(tmp_path / "deep", STEM)
    put(tmp_path, "b", "-live-range.txt")
    scandir = os.scandir

    def short(folder):
        if Path(folder).name == "deep":
            raise OSError(errno.ENAMETOOLONG, "File name too long")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", short)
    assert reported(tmp_path)["deep"] == (
        "error",
        "cannot be read: File name too long; ingest a directory further down, by a short path",
    )
    assert list(files_by_kind(tmp_path)) == ["b"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"module_0001.jit_{'f' * 210}.cpu_after_optimizations.txt", "names too long for XLA"),
        (f"{STEM}.txt", "without their *-buffer-assignment.txt files"),
        (f"{STEM}.hlo.pb", "only as protobuf"),
    ],
)
def test_why_there_is_no_buffer_assignment_is_reported(tmp_path, name, reason):
    (tmp_path / name).write_bytes(hlo_proto(b"\x0a\x05jit_f", b"") if "pb" in name else b"HloM")
    odd: list[Problem] = []
    assert discover(tmp_path, odd) == []
    (message,) = (problem.message for problem in odd if problem.code == "no_buffer_assignment")
    assert reason in message and name in message


# -- renamed files ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "a", "a.log", "a.dump"])
@pytest.mark.parametrize(
    ("content", "kind"),
    [(ALLOCATIONS, "buffer_assignment"), (VALUES, "values"), (LIVE, "live_range"),
     ("HloLiveRange not available (finalized)", "live_range"),
     ("a title\n" + ALLOCATIONS, "buffer_assignment")],
)  # fmt: skip
def test_a_renamed_file_is_known_by_its_content(tmp_path, name, content, kind):
    (tmp_path / name).write_text(content)
    assert files_by_kind(tmp_path) == {stem_of(name): {kind: name}}


def test_a_single_renamed_file_leaves_others_alone(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(ALLOCATIONS)
    assert list(files_by_kind(tmp_path / "b.txt")) == ["b"]


def test_two_files_of_one_kind_and_stem_are_two_modules(tmp_path):
    (tmp_path / "a-buffer-assignment.txt").write_text(ALLOCATIONS)
    (tmp_path / "a.txt").write_text(ALLOCATIONS)
    assert files_by_kind(tmp_path) == {
        "a": {"buffer_assignment": "a-buffer-assignment.txt"},
        "a.txt": {"buffer_assignment": "a.txt"},
    }


# -- captured output of --xla_dump_to=- -------------------------------------------------------


def framed(name: str, content: str) -> str:
    return f"*** Begin {name} ***\n{content}\n*** End {name} ***\n"


def captured() -> str:
    text = "WARNING: something\n"
    for suffix, content in CONTENT.items():
        text += framed(STEM + suffix, content) + "a line of the program\n"
    return text + framed("module_0001.jit_f.before_optimizations.txt", "HloModule jit_f\n")


@pytest.mark.parametrize("at", [0, 9_990, 10_000, 25_000, None])
def test_a_large_log_is_looked_through_in_pieces(tmp_path, monkeypatch, at):
    """A title may lie across two of them; of a log without one little is held."""
    monkeypatch.setattr(logs, "WINDOW_BYTES", 10_000)
    monkeypatch.setattr(logs, "_PIECE_BYTES", 10_000)
    title = b"\nRan out of memory in memory space hbm. Used 3.00G of 2.00G hbm.\n"
    log = b"step 1\n" * 5_000
    (tmp_path / "run.log").write_bytes(log if at is None else log[:at] + title + log[at:])
    assert len(list(logs.parts_of(tmp_path / "run.log", "run.log"))) == (at is not None)


@pytest.mark.parametrize("name", ["log.txt", "run.log", "run.out", "log"])
def test_frames_of_a_captured_output_are_files(tmp_path, name):
    path = tmp_path / name
    path.write_text(captured())
    (module,) = discover(tmp_path)
    assert module.key == f"{name}/{STEM}"
    content = path.read_bytes()
    texts = {kind: content[f.start : f.stop].decode() for kind, f in module.files.items()}
    names = ("buffer_assignment", "values", "live_range", "hlo", "before_optimizations")
    assert texts == dict(zip(names, [*CONTENT.values(), "HloModule jit_f\n"], strict=True))
    assert [m.key for m in discover(path)] == [module.key]


def test_a_frame_that_is_cut_off_goes_to_the_end(tmp_path):
    whole = framed(f"{STEM}-live-range.txt", LIVE)
    (tmp_path / "log").write_text(whole[: whole.index("0:a")])
    ((file,),) = [m.files.values() for m in discover(tmp_path)]
    assert file.size() == len(LIVE) - len("0:a\n")
