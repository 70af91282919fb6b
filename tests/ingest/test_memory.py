"""Memory profiles become rows of a run, whatever else the run has."""

import gzip
import io
import json
import shutil
import tarfile
import zipfile

import pytest
from ingesting import ingest_into, rows
from places import DEMO, ROOT
from pprof_writer import Sample, packed

from bufdb.database.runs import LIVE_TABLES
from bufdb.dumps.memory_profiles import MOST_WATCHED_BYTES
from bufdb.dumps.place import Bytes
from bufdb.errors import BufdbError, UsageError

JAX = ("/x/lib/python3.11/site-packages/jax/_src/array.py", "put", 7)
LEAK, LOOP = ("/home/user/eval.py", "cache_metrics", 41), ("/home/user/eval.py", "<module>", 50)
ALIVE = [Sample(60, [JAX, LEAK, LOOP], count=3), Sample(8, [JAX, LOOP]), Sample(4)]
WATCHED = {
    "moment": "failure", "failed_program": "jit_step", "message": "RESOURCE_EXHAUSTED",
    "requested_bytes": 9, "limit_bytes": 100, "arguments_unknown_reason": None,
    "arguments": [{"device": "cpu:0", "stack": [LOOP, JAX], "count": 1, "bytes": 8}],
    "lost": [],
    "programs": [{"name": "jit_step", "is_failed": True, "argument_bytes": 8, "output_bytes": 2,
                  "alias_bytes": 0, "temp_bytes": 5, "code_bytes": 0}],
    "statistics": {"cpu:0": {"bytes_in_use": 90}},
}  # fmt: skip
ARRAYS = (
    "SELECT profile_name, function_name, source_line, total_bytes, array_count, argument_bytes "
    "FROM live_arrays LEFT JOIN live_frames USING (run_name, profile_name, stack_frame_id) "
    "ORDER BY ALL"
)
TOTALS = (
    "SELECT profile_name, total_bytes, array_count, fullest_bytes, program_bytes, used_bytes "
    "FROM live_totals"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mem.prof"
    path.write_bytes(packed(ALIVE))
    return path


def counts(con):
    return [rows(con, f"SELECT count(*) FROM {table}")[0][0] for table in LIVE_TABLES]


def test_a_profile_is_stored_with_a_run_that_is_there(con, file):
    ingest_into(con, DEMO / "cpu_b8", "r")
    before = rows(con, "SELECT count(*) FROM modules")
    assert ingest_into(con, file, "r").profile_count == 1
    assert rows(con, "SELECT count(*) FROM modules") == before
    assert rows(con, ARRAYS) == [
        ("mem.prof", "put", 7, 8, 1, None),
        ("mem.prof", "put", 7, 60, 3, None),
        ("mem.prof", None, None, 4, 1, None),
    ]
    sql = (
        "SELECT own.function_name, own.source_line, total_bytes FROM live_arrays AS a "
        "JOIN live_frames AS f USING (run_name, profile_name, stack_frame_id) "
        "JOIN live_frames AS own ON own.stack_frame_id = f.own_frame_id ORDER BY ALL"
    )
    assert rows(con, sql) == [("<module>", 50, 8), ("cache_metrics", 41, 60)]
    sql = "SELECT total_bytes, source, python_function_name FROM live_arrays ORDER BY ALL"
    assert rows(con, sql) == [
        (4, None, None),
        (8, "/home/user/eval.py:50", "<module>"),
        (60, "/home/user/eval.py:41", "cache_metrics"),
    ]
    ((why,),) = rows(con, "SELECT arguments_unknown_reason FROM live_profiles")
    assert "bufdb.watch" in why


def test_what_the_run_was_read_with_says_which_frames_are_own(con, file):
    ingest_into(con, file, "r", own_globs=["jax"])
    sql = "SELECT count(*) FROM live_frames WHERE own_frame_id = stack_frame_id"
    assert rows(con, sql) == [(4,)]
    sql = "SELECT DISTINCT source FROM live_arrays WHERE stack_frame_id IS NOT NULL"
    assert rows(con, sql) == [(f"{JAX[0]}:7",)]
    file.write_bytes(packed([Sample(60, [JAX])]))
    ingest_into(con, file, "r")
    assert rows(con, "SELECT source FROM live_array_lines") == [("library jax/_src/array.py:7",)]


def test_programs_of_unknown_size_are_no_damage(con, file):
    samples = [*ALIVE, Sample(9, kind="executable"), Sample(-2, count=2, kind="executable")]
    file.write_bytes(packed(samples))
    for _ in range(2):
        assert ingest_into(con, file, "r").exit_code == 0
    assert rows(con, "SELECT code_bytes, program_count FROM live_profiles") == [(None, 3)]
    assert rows(con, "SELECT sum(total_bytes) FROM live_arrays") == [(72,)]
    assert rows(con, "SELECT severity, code, path, message FROM diagnostics") == [
        ("notice", "unknown_code_size", "mem.prof", "the runtime does not know the code size of 2 "
         "of 3 programs (-1): live_profiles.code_bytes is NULL")
    ]  # fmt: skip
    file.write_bytes(packed(samples[:-1]))
    ingest_into(con, file, "r")
    assert rows(con, "SELECT code_bytes FROM live_profiles") == [(9,)]
    assert rows(con, "FROM diagnostics") == []


CASE = ROOT.parent / "shared" / "cases" / "profile-size-unknown" / "heron.prof"


@pytest.mark.skipif(not CASE.is_file(), reason="the shared cases (../shared/cases) are not there")
def test_a_profile_of_a_tpu_has_its_arrays(con):
    assert ingest_into(con, CASE, "r").profile_count == 1
    assert rows(con, "SELECT code_bytes, program_count FROM live_profiles") == [(None, 1)]
    assert rows(con, "SELECT total_bytes, device FROM live_arrays") == [
        (1 << 20, "TPU_0(process=0,(0,0,0,0))")
    ]


def test_a_watched_program_may_have_code_of_unknown_size(con, file):
    programs = [WATCHED["programs"][0] | {"code_bytes": -1}]
    file.with_name("mem.watch.json").write_text(json.dumps(WATCHED | {"programs": programs}))
    ingest_into(con, file, "r")
    assert rows(con, "SELECT temp_bytes, code_bytes FROM live_programs") == [(5, None)]


@pytest.mark.slow
def test_the_same_file_replaces_its_rows_and_another_is_added(con, file):
    ingest_into(con, file, "r")
    first = counts(con)
    ingest_into(con, file, "r")
    assert counts(con) == first
    file.rename(file.with_name("later.prof"))
    ingest_into(con, file.with_name("later.prof"), "r")
    assert counts(con) == [2 * count for count in first]
    ingest_into(con, file.with_name("later.prof"), "r", prune=True)
    assert counts(con) == first
    ingest_into(con, DEMO / "cpu_b8", "r", replace=True)
    assert counts(con) == [0] * len(first)


def test_what_was_watched_is_read_from_the_file_next_to_it(con, file):
    file.with_name("mem.watch.json").write_text(json.dumps(WATCHED))
    ingest_into(con, file, "r")
    arguments = "SELECT total_bytes, argument_bytes, argument_count FROM live_arrays ORDER BY ALL"
    assert rows(con, arguments) == [(4, 0, 0), (8, 8, 1), (60, 0, 0)]
    assert rows(con, "SELECT moment, failed_program_name, limit_bytes FROM live_profiles") == [
        ("failure", "jit_step", 100)
    ]
    assert counts(con)[3:] == [1, 1, 1]
    assert rows(con, TOTALS) == [("mem.prof", 72, 5, 72, 15, 90)]


def test_arguments_of_one_line_add_up(con, file):
    call = ("/home/user/bufdb/bufdb/capture/watched.py", "Watch.start.<locals>.call", 97)
    file.write_bytes(packed([Sample(8, [JAX, LOOP]), Sample(24, [call, JAX, LOOP], count=3)]))
    (one,) = WATCHED["arguments"]
    seen = {"device": "cpu:0", "stack": [LOOP, JAX, call], "count": 3, "bytes": 24}
    file.with_name("mem.watch.json").write_text(json.dumps(WATCHED | {"arguments": [one, seen]}))
    ingest_into(con, file, "r")
    sql = "SELECT total_bytes, array_count, argument_bytes, argument_count FROM live_arrays"
    assert rows(con, sql) == [(32, 4, 32, 4)]


SHAPES = [
    {"device": "cpu:0", "stack": [LOOP, LEAK, JAX], "shape": "f32[5]", "count": 2, "bytes": 40},
    {"device": "cpu:0", "stack": [LOOP, LEAK, JAX], "shape": "s8[20]", "count": 1, "bytes": 20,
     "holder": ["cache", "eval.py:3"]},
    {"device": "cpu:0", "stack": [LOOP, JAX], "shape": "f32[2]", "count": 1, "bytes": 8},
    {"device": "cpu:0", "stack": [], "shape": "f32[]", "count": 1, "bytes": 4},
]  # fmt: skip
SHAPE_ROWS = "SELECT shape, total_bytes, array_count, argument_bytes FROM live_arrays ORDER BY ALL"
WHY_NO_SHAPES = "SELECT shapes_unknown_reason FROM live_profiles"


TAKEN = [WATCHED["arguments"][0] | {"shape": "f32[2]"}]


def watched(file, **changes):
    file.with_name("mem.watch.json").write_text(json.dumps(WATCHED | changes))


def test_arrays_of_one_line_are_divided_by_shape(con, file):
    watched(file, shapes=SHAPES, arguments=TAKEN)
    ingest_into(con, file, "r")
    assert rows(con, SHAPE_ROWS) == [
        ("f32[2]", 8, 1, 8), ("f32[5]", 40, 2, 0), ("f32[]", 4, 1, 0), ("s8[20]", 20, 1, 0)
    ]  # fmt: skip
    assert rows(con, WHY_NO_SHAPES) == [(None,)]
    sql = "SELECT shape, holder_name, holder_source FROM live_arrays WHERE holder_name <> ''"
    assert rows(con, sql) == [("s8[20]", "cache", "eval.py:3")]


def test_a_rest_of_the_profile_has_no_shape(con, file):
    watched(file, shapes=[SHAPES[0], *SHAPES[2:]], arguments=TAKEN)
    ingest_into(con, file, "r")
    assert ("f32[5]", 40, 2, 0) in rows(con, SHAPE_ROWS)
    assert (None, 20, 1, 0) in rows(con, SHAPE_ROWS)
    ((why,),) = rows(con, WHY_NO_SHAPES)
    assert why.startswith("1 arrays of the profile are not those")


def test_shapes_of_more_than_the_profile_are_not_believed(con, file):
    watched(file, shapes=[SHAPES[0] | {"bytes": 41}, *SHAPES[1:]])
    ingest_into(con, file, "r")
    assert (None, 60, 3, 0) in rows(con, SHAPE_ROWS)
    assert sum(size for _, size, _, _ in rows(con, SHAPE_ROWS)) == 72


def test_an_argument_without_a_shape_leaves_its_line_without(con, file):
    watched(file, shapes=SHAPES)
    ingest_into(con, file, "r")
    assert (None, 8, 1, 8) in rows(con, SHAPE_ROWS) and ("f32[5]", 40, 2, 0) in rows(
        con, SHAPE_ROWS
    )


@pytest.mark.parametrize(
    "changes",
    [{"moment": "snapshot"}, {"snapshot": 3}, {"elapsed_seconds": -1}, {"mark": 3},
     {"shapes": [{"shape": 3}]}],
)  # fmt: skip
def test_what_watch_does_not_write_is_refused(con, file, changes):
    watched(file, **changes)
    with pytest.raises(BufdbError, match=r"is not what bufdb\.watch writes"):
        ingest_into(con, file, "r")


def test_an_argument_of_another_stack_leaves_bystanders_unknown(con, file):
    (one,) = WATCHED["arguments"]
    other = one | {"stack": [LOOP]}
    file.with_name("mem.watch.json").write_text(json.dumps(WATCHED | {"arguments": [other]}))
    ingest_into(con, file, "r")
    assert rows(con, "SELECT DISTINCT argument_bytes FROM live_arrays") == [(None,)]
    assert rows(con, "SELECT arguments_unknown_reason FROM live_profiles") == [
        ("an argument's stack is not in the profile",)
    ]


def test_what_is_lost_takes_its_bytes_alone(con, file):
    lost = {"device": "cpu:0", "stack": [LOOP, LEAK, JAX], "count": 8, "bytes": 20}
    file.with_name("mem.watch.json").write_text(json.dumps(WATCHED | {"lost": [lost]}))
    ingest_into(con, file, "r")
    sql = "SELECT total_bytes, array_count FROM live_arrays ORDER BY ALL"
    assert rows(con, sql) == [(4, 1), (8, 1), (40, 1)]


def test_what_was_watched_alone_is_no_message(con, file):
    watched = file.with_name("mem.watch.json")
    watched.write_text(json.dumps(WATCHED))
    with pytest.raises(UsageError, match="it is read with the memory profile"):
        ingest_into(con, watched, "r")


def test_text_that_is_not_utf_8_is_stored_as_names_of_files_are(con, file):
    odd = {"failed_program": "jit_\udcff", "message": "\udcff", "statistics": {"\udcff": {"x": 1}}}
    odd["programs"] = [WATCHED["programs"][0] | {"name": "jit_\udcff"}]
    file.with_name("mem.watch.json").write_text(json.dumps(WATCHED | odd))
    ingest_into(con, file, "r")
    sql = "SELECT failed_program_name, failure_message, program_name, device "
    sql += "FROM live_profiles, live_programs, allocator_statistics"
    assert rows(con, sql) == [(r"jit_\xff", r"\xff", r"jit_\xff", r"\xff")]


def test_a_statistic_without_a_bound_is_left_out(con, file):
    statistics = {"bytes_in_use": 90, "bytes_limit": (1 << 63) - 1, "odd": -1}
    text = json.dumps(WATCHED | {"statistics": {"cpu:0": statistics}})
    file.with_name("mem.watch.json").write_text(text)
    ingest_into(con, file, "r")
    sql = "SELECT statistic_name, statistic_value FROM allocator_statistics"
    assert rows(con, sql) == [("bytes_in_use", 90)]


@pytest.mark.slow
def test_a_log_next_to_it_may_have_long_lines_and_be_large(con, file):
    report = "BFCAllocator dump for CPU_0_bfc\r\nLimit: 100\r\nInUse: 7\r\n"
    file.with_name("mem.log").write_text("x" * 3_000_000 + "\n" + "y\n" * 1_000_000 + report)
    ingest_into(con, file, "r")
    sql = "SELECT statistic_name, statistic_value FROM allocator_statistics ORDER BY ALL"
    assert rows(con, sql) == [("bytes_in_use", 7), ("bytes_limit", 100)]


STATISTICS = (
    "SELECT profile_name, device, statistic_name, statistic_value, slack_bytes "
    "FROM allocator_statistics ORDER BY ALL"
)


def test_a_log_with_a_report_needs_no_profile(con, tmp_path):
    report = "BFCAllocator dump for GPU_0_bfc\nLimit: 89.77GiB\nInUse: 7\n"
    out_of_memory = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4096 bytes.\n"
    log = tmp_path / "run.log"
    log.write_text(report + out_of_memory)
    expected = [
        ("run.log", "GPU_0_bfc", "bytes_in_use", 7, 0),
        ("run.log", "GPU_0_bfc", "bytes_limit", 96389803540, 5368710),
    ]
    for path in (log, tmp_path, log, tmp_path):
        ingest_into(con, path, "r")
        assert rows(con, STATISTICS) == expected
        assert rows(con, TOTALS) == [("run.log", None, None, None, None, 7)]
        assert rows(con, "SELECT count(*) FROM modules") == [(1,)]
    log.write_text(out_of_memory)
    ingest_into(con, tmp_path, "r", prune=True)
    assert rows(con, STATISTICS) == rows(con, TOTALS) == []


def test_memory_of_collectives_is_no_device_s(con, file):
    text = "XLA backend will use up to {} bytes on device 0 for {}BFCAllocator.\n"
    log = file.with_name("mem.log")
    log.write_text(text.format(90, "") + text.format(30, "Collective"))
    ingest_into(con, file, "r")
    assert rows(con, STATISTICS) == [
        ("mem.prof", "GPU_collectivememory_0_bfc", "bytes_limit", 30, 0),
        ("mem.prof", "cpu:0", "bytes_limit", 90, 0),
    ]


def test_two_allocators_of_a_device_give_one_limit(con, file):
    made = "XLA backend allocating 90 bytes on device 0 for BFCAllocator.\n"
    failed = "gpu_async_0 cuMemAllocAsync failed to allocate 40 bytes: CUDA_ERROR\nLimit: 90\n"
    file.with_name("mem.log").write_text(made + failed)
    ingest_into(con, file, "r")
    assert rows(con, STATISTICS) == [
        ("mem.prof", "cpu:0", "bytes_limit", 90, 0),
        ("mem.prof", "cpu:0", "preallocated_bytes", 90, 0),
        ("mem.prof", "cpu:0", "requested_bytes", 40, 0),
    ]


HALF = json.dumps(WATCHED | {"failed_program": "jit_\ud800"})
WRONG = json.dumps(WATCHED | {"limit_bytes": "1"})
LESS = json.dumps(WATCHED | {"arguments": [WATCHED["arguments"][0] | {"bytes": -8, "count": -1}]})
LONG = json.dumps(WATCHED) + " " * MOST_WATCHED_BYTES
MUCH = json.dumps(WATCHED | {"programs": [WATCHED["programs"][0] | {"temp_bytes": 1 << 62}]})
LARGE = json.dumps(WATCHED | {"limit_bytes": 1 << 63})
ENDLESS = json.dumps(WATCHED | {"arguments": [WATCHED["arguments"][0] | {"bytes": float("inf")}]})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"moment": "x"}',
        WRONG,
        LARGE,
        LESS,
        HALF,
        MUCH,
        ENDLESS,
        pytest.param(LONG, id="long"),
        "[" * 100_000,
    ],
)
def test_a_damaged_file_next_to_it_is_named(con, file, text):
    file.with_name("mem.watch.json").write_text(text)
    with pytest.raises(BufdbError, match=r"mem\.prof: the file next to it, mem\.watch\.json"):
        ingest_into(con, file, "r")
    assert rows(con, "FROM runs") == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (packed(ALIVE)[:60], "cut off"),
        (packed([], ["samples", "cpu"]), "not a memory profile of JAX"),
    ],
)
def test_a_damaged_or_foreign_profile_is_named(con, file, data, why):
    file.write_bytes(data)
    with pytest.raises(BufdbError, match=rf"mem\.prof: .*{why}"):
        ingest_into(con, file, "r")
    assert rows(con, "FROM runs") == []


def test_text_of_that_name_is_no_profile(con, file):
    file.write_text("hello")
    with pytest.raises(UsageError, match="no buffer assignment in"):
        ingest_into(con, file, "r")


def test_a_directory_may_have_some_next_to_dumps(con, file):
    below = file.parent / "host0"
    below.mkdir()
    (below / "mem.prof").write_bytes(packed([Sample(1)]))
    (below / "cpu.prof").write_text("a profile of Python itself")
    (below / "cut.prof").write_bytes(packed(ALIVE)[:60])
    summary = ingest_into(con, file.parent, "r")
    assert (summary.profile_count, summary.skipped_count, summary.exit_code) == (2, 1, 4)
    names = rows(con, "SELECT profile_name FROM live_profiles ORDER BY ALL")
    assert names == [("host0/mem.prof",), ("mem.prof",)]
    assert rows(con, "SELECT path, code FROM diagnostics") == [
        ("host0/cut.prof", "unreadable_file")
    ]


def test_two_of_one_name_are_not_mixed(con, file):
    other = file.parent / "x"
    other.mkdir()
    (other / "mem.prof").write_bytes(packed([]))
    with pytest.raises(UsageError, match="have the same name"):
        ingest_into(con, [file, other / "mem.prof"], "r")


def test_findings_about_the_dumps_of_the_run_stay(con, file):
    ingest_into(con, DEMO / "cpu_b8", "r")
    con.execute("INSERT INTO diagnostics VALUES ('r', NULL, 'error', 'x', NULL, NULL, 'm')")
    ingest_into(con, file, "r")
    assert rows(con, "SELECT count(*) FROM diagnostics WHERE code = 'x'") == [(1,)]


def archived(folder, suffix, files):
    """An archive of files by name."""
    path = folder / f"job{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return path
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz" if suffix == ".tar.gz" else "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data = made.getvalue()
    if suffix == ".tar.zst":
        data = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz", ".tar.zst", ".tar"])
def test_an_archive_may_have_some_and_what_is_next_to_them(con, tmp_path, suffix):
    watched = json.dumps(WATCHED).encode()
    files = {"a/mem.prof": packed(ALIVE), "a/mem.watch.json": watched, "b.prof": packed(ALIVE)[:60]}
    summary = ingest_into(con, archived(tmp_path, suffix, files), "r")
    name = f"job{suffix}:a/mem.prof"
    assert (summary.profile_count, summary.module_count, summary.exit_code) == (1, 0, 4)
    assert rows(con, "SELECT profile_name, moment FROM live_profiles") == [(name, "failure")]
    ((path, message),) = rows(con, "SELECT path, message FROM diagnostics")
    assert path == f"job{suffix}:b.prof" and "cut off" in message


def test_an_archive_in_a_directory_may_have_some(con, tmp_path):
    archived(tmp_path, ".zip", {"mem.prof": packed(ALIVE)})
    assert ingest_into(con, tmp_path, "r").profile_count == 1
    assert rows(con, "SELECT profile_name FROM live_profiles") == [("job.zip:mem.prof",)]


@pytest.mark.parametrize("data", [packed(ALIVE), gzip.decompress(packed(ALIVE))])
def test_standard_input_may_be_one(con, data):
    assert ingest_into(con, Bytes("stdin", data), "r").profile_count == 1
    assert rows(con, "SELECT profile_name, sum(total_bytes) FROM live_arrays GROUP BY ALL") == [
        ("stdin", 72)
    ]


def test_a_damaged_one_on_standard_input_is_named(con):
    with pytest.raises(BufdbError, match=r"^-: it was cut off"):
        ingest_into(con, Bytes("stdin", packed(ALIVE)[:-20]), "r")


def test_an_empty_one_is_named(con, file):
    file.write_bytes(b"")
    with pytest.raises(BufdbError, match=r"mem\.prof: it is empty"):
        ingest_into(con, file, "r")


@pytest.mark.parametrize("is_given", [True, False])
def test_a_profile_of_times_names_its_command(con, tmp_path, is_given):
    shutil.copy(DEMO.parent / "profiles" / "cpu_b8.xplane.pb.gz", tmp_path / "x.xplane.pb.gz")
    path = tmp_path / "x.xplane.pb.gz" if is_given else tmp_path
    with pytest.raises(UsageError, match=r"a profile of jax\.profiler, .* bufdb profile"):
        ingest_into(con, path, "r")
    shutil.copytree(DEMO / "cpu_b8", tmp_path / "dumps")
    ingest_into(con, tmp_path, "r")
    sql = "SELECT severity, code, path FROM diagnostics WHERE path LIKE '%xplane%'"
    assert rows(con, sql) == [("info", "not_a_dump", "x.xplane.pb.gz")]
