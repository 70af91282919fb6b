"""`bufdb summary`: one screen, of figures that the saved queries have."""

import json
import os
import pty
import subprocess
import sys
from contextlib import closing

import oom_messages
import pytest
from ingesting import ingest_into
from kept import kept_for_advice
from places import DEMO
from small_db import Module, derive, insert

from bufdb import resources
from bufdb.answers import devices
from bufdb.answers import summary as overview
from bufdb.answers import summary_text as screen
from bufdb.database import store
from bufdb.query import catalogue, execute
from bufdb.render import table
from bufdb.render.text import display_width

__all__ = ["kept_for_advice"]  # the database of `con` here

CATALOGUE = catalogue.Catalogue([resources.query_folder()])
PARTS = overview.queries(CATALOGUE, tuple(overview.QUERIES))
SCRIPT = "from bufdb.cli import main; main()"


@pytest.fixture
def summary(call, demo_db, empty_folder):
    """Run the command on the demo dumps."""

    def run(*arguments):
        return call("summary", "--db", demo_db, *arguments)

    return run


def answer(con, name, **filters):
    query = CATALOGUE.find(name)
    result = execute.execute_query(con, query, execute.bind(query, filters))
    return [dict(zip([n for n, _ in result.columns], row, strict=True)) for row in result.rows]


@pytest.mark.slow
def test_it_is_one_screen_of_eighty_columns(summary):
    code, out, err = summary("--run", "gpu_b8", "--limit", "16GiB")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert len(lines) <= 24 and max(map(display_width, lines)) <= 80
    assert lines[:3] == [
        "2 modules of 2 functions for gpu in 1 run",
        "highest peak: 8.29 MiB of device memory, train_step of run gpu_b8",
        "limit: under 0.1% of 16.0 GiB",
    ]
    assert "  1.72 MiB   20.8%  ████▋                   saved /home/user/model/train.py:65" in lines
    assert lines[-1] == "everything in the dumps was understood"


@pytest.mark.slow
def test_its_figures_are_those_of_the_queries(summary, demo_db):
    data = json.loads(summary("--format", "json", "--limit", "h200")[1])
    filters = {"run": "cpu_b16", "function": "train_step", "color": "0"}
    with closing(store.open_readable(str(demo_db))) as con:
        assert data["categories"] == answer(con, "peak-by-category", **filters)
        assert data["lines"] == answer(con, "peak-by-source-line", **filters, top_n="5")
        assert data["advice"] == answer(con, "advice", **filters, top_n="2")
    assert data["peak"]["peak_bytes"] == 16447936
    assert (data["run_count"], data["module_count"], data["function_count"]) == (6, 15, 3)
    assert (data["limit_bytes"], data["limit_device"]) == (113548197888, "H200")
    assert data["limit_ratio"] == data["peak"]["need_bytes"] / 113548197888


@pytest.mark.slow
def test_it_is_of_device_memory_and_mentions_the_rest(summary):
    out = summary("--run", "tpu_b8")[1].splitlines()
    assert out[1] == "highest peak: 978 KiB of hbm memory, train_step of run tpu_b8"
    assert out[4].startswith("besides: 6.50 MiB vmem")


@pytest.mark.slow
def test_it_narrows_to_a_function(summary):
    out = summary("--run", "cpu*", "--function", "ini?")[1].splitlines()
    assert out[0] == "4 modules of 1 function for cpu in 4 runs"
    assert "903 KiB of host memory, init of run " in out[1]


@pytest.mark.slow
def test_it_narrows_to_a_module_if_the_queries_do(summary):
    code, out, err = summary("--run", "cpu_b8", "--module", "*eval_step*")
    if any(query.param("module") is None for query in PARTS.values()):
        assert (code, out) == (2, "")
        assert "summary: --module is not a parameter of the query" in err
    else:
        assert out.startswith("1 module of 1 function for cpu in 1 run\nhighest peak: 2.02 MiB")


@pytest.mark.slow
def test_an_empty_answer_says_why(summary):
    code, out, err = summary("--function", "trainstep")
    assert (code, out) == (0, "")
    assert err == "bufdb: no rows: no function 'trainstep'; did you mean 'train_step'?\n"
    data = json.loads(summary("--function", "trainstep", "--format", "json")[1])
    assert (data["module_count"], data["peak"]) == (0, None)


@pytest.mark.sample(0, 3)
@pytest.mark.parametrize(
    ("limit_text", "line"),
    [
        ("5MiB", "limit: 313.7% of 5.00 MiB: it does not fit"),
        ("20MiB", "limit: 78.4% of 20.0 MiB █████████████████▎"),
        ("tpu v5 LITE", "limit: under 0.1% of 15.75 GiB (TPU v5e, of 16 GiB)"),
    ],
)
def test_how_much_of_the_limit_it_takes(summary, limit_text, line):
    assert summary("--limit", limit_text)[1].splitlines()[2] == line


@pytest.mark.slow
def test_without_a_limit_nothing_is_guessed(summary):
    line = summary("--run", "gpu_b8")[1].splitlines()[2]
    assert line == "limit: no dump names the device; --limit 16GiB or --limit 'TPU v5e' does"


@pytest.mark.parametrize("limit_text", ["GPU", "0", "-1", "5%"])
def test_a_limit_that_is_none(summary, limit_text):
    code, out, err = summary("--limit", limit_text)
    assert (code, out) == (2, "")
    assert "--limit wants a size such as 16GiB or a device such as TPU v5e, " in err
    assert err.count("\n") == 1


def test_a_number_without_a_unit_is_asked_about(summary):
    code, out, err = summary("--limit", "16")
    assert (code, out) == (2, "") and "--limit 16: 16GiB or 16B?" in err


@pytest.mark.slow
def test_the_default_share_of_a_gpu_is_shown_with_its_memory(summary):
    lines = summary("--limit", "NVIDIA A100-SXM4-40GB")[1].splitlines()
    assert lines[2:5] == [
        "limit: under 0.1% of 29.57 GiB (A100 40GB, of 39.42 GiB)",
        "  JAX takes it by default (XLA_PYTHON_CLIENT_MEM_FRACTION sets another share)",
        "  the smaller of two: A100 80GB has more",
    ]


# -- rows by hand ----------------------------------------------------------------------------------


def of(con, **filters):
    return overview.overview(con, PARTS, filters)


def module(con, module_id, size, **cells):
    """A module that holds `size` bytes at its peak."""
    made = Module(con, module_id, **cells)
    made.allocation(0, "temp", size)
    made.value(1, 0, 0, size)
    made.close()


@pytest.mark.slow
def test_the_device_that_a_run_is_labelled_with_counts(con):
    module(con, 1, 100)
    insert(con, "run_labels", run_name="r", label="device", label_value="TPU v5 lite",
           is_metadata=True)  # fmt: skip
    assert (of(con).limit_bytes, of(con).limit_name) == (15.75 * 2**30, "TPU v5e")
    assert overview.overview(con, PARTS, {}, 50).limit_bytes == 50
    con.execute("UPDATE run_labels SET label_value = 'my board'")
    assert of(con).limit_bytes is None


@pytest.mark.slow
def test_a_limit_by_name_has_the_share_of_the_run(con):
    module(con, 1, 100)
    insert(con, "run_labels", run_name="r", label="memory_fraction", label_value=".9")
    size, name = devices.limit_of("H100")
    answer = overview.overview(con, {}, {}, size, name)
    assert answer.limit_bytes == int(devices.device("H100").whole_bytes * 0.9)
    assert answer.device.explained == "a program may use it (memory_fraction=.9 of the run)"
    assert overview.overview(con, {}, {}, size).limit_bytes == size


@pytest.mark.slow
def test_other_peaks_and_how_many_are_unknown(con):
    first = Module(con, 1, platform="tpu")
    for color, size in enumerate((100, 2048)):
        first.allocation(color, "output", size, color=color)
        first.value(color, color, 0, size)
    first.close()
    for number in (2, 3):
        module(con, number + 2, number, function_name="g")
        Module(con, number, function_name="g", has_live_ranges=False).allocation(0, "temp", 9)
    insert(con, "run_labels", run_name="r", label="device", label_value="tpu V5 lite")
    derive(con)
    lines = screen.text(overview.overview(con, {}, {})).splitlines()
    assert lines[1:-1] == [
        "highest peak: 100 B of hbm memory, f of run r",
        "limit: under 0.1% of 15.75 GiB (TPU v5e, of 16 GiB)",
        "  a program may use it (measured: the compiler refuses 15.80 GiB)",
        "besides: 2.00 KiB vmem",
        "unknown peak, g of run r (2 of 4 compilations): the dump has no live ranges",
    ]


@pytest.fixture
def small_device(monkeypatch):
    """Replace the v5e with a device whose vmem XLA fills with 1000 B; other devices stay."""
    small = devices.device("TPU v5e")._replace(filled=(1, "vmem", 1000))
    monkeypatch.setattr(overview, "device", lambda name: small if "5" in name else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "device", "besides"),
    [
        (1000, "TPU v5e", "besides: vmem is full: 1000 of 1000 B; 9 B sync_flag"),
        (900, "TPU v5 lite", "besides: vmem is nearly full: 900 of 1000 B; 9 B sync_flag"),
        (899, "TPU v5e", "besides: 899 B vmem, 9 B sync_flag"),
        (900, "TPU v4", "besides: 900 B vmem, 9 B sync_flag"),
        (900, None, "besides: 900 B vmem, 9 B sync_flag"),
    ],
)
def test_a_memory_space_of_known_size_is_named_if_nearly_full(
    con, small_device, size, device, besides
):
    made = Module(con, 1, "a", "f", platform="tpu")
    for color, bytes_ in ((0, 500), (1, size), (2, 9)):
        made.allocation(color, "temp", bytes_, color=color)
        made.value(color + 1, color, 0, bytes_)
    made.close()
    if device:
        insert(con, "run_labels", run_name="a", label="device", label_value=device)
    for limit in (None, 2**34):
        db_overview = overview.overview(con, {}, {}, limit)
        assert besides in screen.text(db_overview).splitlines()
    full = [row["capacity_bytes"] for row in screen.as_dict(db_overview)["other_memory_spaces"]]
    assert full == [1000 if device and "5" in device else None, None]


@pytest.mark.slow
def test_of_another_space_it_is_said_how_much_is_taken(con, small_device):
    made = Module(con, 1, "a", "f", platform="tpu")
    for color, bytes_ in ((0, 500), (1, 750)):
        made.allocation(color, "temp", bytes_, color=color)
        made.value(color + 1, color, 0, bytes_)
    made.close()
    text = screen.text(overview.overview(con, {}, {"color": "1"}, 2**34, "TPU v5e"))
    assert text.splitlines()[2:4] == [
        "taken: 75.0% of the 1000 B that XLA fills ████████████████▌",
        "besides: 500 B hbm",
    ]
    assert "limit" not in screen.text(overview.overview(con, {}, {"color": "1"}))
    small = screen.text(overview.overview(con, {}, {"color": "1"}, 501))
    assert "besides: hbm is nearly full: 500 of 501 B" in small


def _with_holes(con, size=1000, peak=600):
    made = Module(con, 1, "a", "f", platform="tpu")
    made.allocation(0, "temp", size)
    made.value(1, 0, 0, peak)
    made.allocation(1, "temp", 9000, color=1)
    made.value(2, 1, 0, 9000)
    made.close()


def test_a_limit_is_of_what_a_device_must_hold_with_the_holes(con):
    _with_holes(con)
    db_overview = overview.overview(con, {}, {}, 800)
    assert db_overview.limit_ratio == 1000 / 800
    lines = screen.text(db_overview).splitlines()
    assert lines[1:5] == [
        "highest peak: 600 B of hbm memory, f of run a",
        "needs 1000 B: 600 B at the peak, 400 B of holes in the arena",
        "limit: 125.0% of 800 B: it does not fit",
        "besides: 8.79 KiB vmem",
    ]
    assert screen.as_dict(db_overview)["peak"]["need_bytes"] == 1000


@pytest.mark.slow
def test_an_unknown_peak_may_not_fit(con):
    _with_holes(con)
    Module(con, 2, "a", "f", platform="tpu", has_live_ranges=False).allocation(0, "temp", 5000)
    Module(con, 3, "a", "g", platform="tpu", has_live_ranges=False).allocation(0, "temp", 6000)
    derive(con)
    db_overview = overview.overview(con, {}, {}, 4000)
    assert (db_overview.peak["need_bytes"], db_overview.limit_ratio) == (1000, 1.5)
    assert "limit: 150.0% of 3.91 KiB (g of run a): it does not fit" in screen.text(db_overview)


@pytest.mark.slow
def test_another_memory_space_or_all_of_them_can_be_asked_for(con):
    _with_holes(con)
    for color, need in ((None, 1000), ("0", 1000), ("1", 9000), ("all", 9000)):
        filters = {} if color is None else {"color": color}
        assert overview.overview(con, {}, filters).peak["need_bytes"] == need


@pytest.mark.slow
def test_names_are_no_globs(con):
    module(con, 1, 100, run_name="r[1]*", function_name="f[?]")
    module(con, 2, 90, run_name="r1x", function_name="fa")
    db_overview = of(con)
    assert (db_overview.peak["run_name"], db_overview.peak["function_name"]) == ("r[1]*", "f[?]")
    assert [row["held_bytes"] for row in db_overview.parts["categories"]] == [100]


@pytest.mark.slow
def test_a_function_without_a_name_has_its_module_s(con):
    module(con, 1, 100, function_name=None)
    db_overview = of(con)
    assert db_overview.peak["function_name"] == "m1"
    assert [row["held_bytes"] for row in db_overview.parts["lines"]] == [100]


@pytest.mark.slow
def test_an_unknown_peak_is_said_and_not_taken_for_small(con):
    module(con, 1, 100)
    Module(con, 2, function_name="g", has_live_ranges=False).allocation(0, "temp", 900)
    db_overview = of(con)
    lines = screen.text(db_overview).splitlines()
    assert db_overview.peak["peak_bytes"] == 100
    assert "unknown peak, g of run r: the dump has no live ranges" in lines
    con.execute("DELETE FROM modules WHERE module_id = 1")
    assert screen.text(of(con)).splitlines() == [
        "1 module of 1 function in 1 run",
        "no peak is known",
        "unknown peak, g of run r: the dump has no live ranges",
        "everything in the dumps was understood",
    ]


@pytest.mark.slow
def test_of_several_compilations_it_says_how_many_are_unknown(con):
    for number, known in ((1, True), (2, False), (3, False)):
        made = Module(con, number, function_name="g", has_live_ranges=known)
        made.allocation(0, "temp", 100)
        if known:
            made.value(1, 0, offset=0, size=100)
            made.close()
    line = "unknown peak, g of run r (2 of 3 compilations): the dump has no live ranges"
    assert line in screen.text(of(con)).splitlines()


@pytest.mark.slow
def test_what_was_not_understood_is_counted(con):
    module(con, 1, 100)
    for severity, code, count in (("notice", "no_hlo", 1), ("data_loss", "unreadable_line", 2)):
        for _ in range(count):
            insert(con, "diagnostics", run_name="r", module_id=1, severity=severity, code=code,
                   message="m")  # fmt: skip
    lines = screen.text(of(con)).splitlines()
    assert lines[-3:] == [
        "not understood in full ('bufdb query diagnostics' has the lines):",
        "data_loss: 2 unreadable_line",
        "notice: 1 no_hlo",
    ]
    con.execute("DELETE FROM diagnostics WHERE severity = 'data_loss'")
    lines = screen.text(of(con), is_coloured=True).splitlines()
    assert lines[-2:] == [
        "all lines understood; noted ('bufdb query diagnostics'):",
        "\x1b[33mnotice: 1 no_hlo\x1b[0m",
    ]


@pytest.mark.slow
def test_long_and_hostile_names_stay_in_the_screen(con):
    module(con, 1, 100, run_name="\x1b[31m" + "r" * 90, function_name="漢" * 90)
    Module(con, 2, function_name="\x9bg" * 50, has_live_ranges=False).allocation(0, "temp", 9)
    text = screen.text(of(con))
    assert max(map(display_width, text.splitlines())) <= 80
    assert "\x1b" not in text and "\x9b" not in text


def test_a_bar_is_as_long_as_its_share():
    assert [table.bar(ratio, 2) for ratio in (-1.0, 0.0, 1 / 16, 0.5, 0.75, 1.0, 7.0)] == [
        "", "", "▏", "█", "█▌", "██", "██",
    ]  # fmt: skip


# -- after an ingest -------------------------------------------------------------------------------


def ingested(empty_folder, *paths):
    """Standard error of an ingest at a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "ingest", *paths],
        stderr=slave,
        env={**os.environ, "NO_COLOR": "1"},
    ) as process:
        os.close(slave)
        with closing(os.fdopen(master, "rb", buffering=0)) as stream:
            text = b""
            while part := read(stream):
                text += part
    assert process.returncode == 0
    return text.decode().replace("\r\n", "\n").rpartition("\x1b[K")[2].splitlines()


def read(stream):
    try:
        return stream.read(4096)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.slow
def test_an_ingest_at_a_terminal_ends_with_a_short_one(empty_folder):
    lines = ingested(empty_folder, str(DEMO / "gpu_b8"))
    assert lines[0].startswith("bufdb: ingested 2 modules")
    assert lines[1:] == [
        "2 modules of 2 functions for gpu in 1 run",
        "highest peak: 8.29 MiB of device memory, train_step of run gpu_b8",
        "everything in the dumps was understood",
        "bufdb summary --run gpu_b8 shows what holds it",
    ]
    lines = ingested(empty_folder, str(DEMO / "gpu_b8"))
    assert len(lines) == 1 and "unchanged 2" in lines[0]
    lines = ingested(empty_folder, str(DEMO / "cpu_b8"), str(DEMO / "cpu_b16"))
    assert lines[1] == "8 modules of 3 functions for cpu, gpu in 3 runs"
    assert lines[-1] == "bufdb summary shows what holds it"


@pytest.mark.slow
def test_an_ingest_in_a_pipe_has_none(call, empty_folder):
    code, out, err = call("ingest", DEMO / "gpu_b8")
    assert (code, out, err.count("\n")) == (0, "", 1)


# -- out-of-memory messages ------------------------------------------------------------------------


@pytest.fixture
def of_log(fresh, tmp_path):
    """The screen of a log's messages."""

    def lines_of(text):
        (tmp_path / "error.log").write_text(text, encoding="utf-8")
        con = fresh()
        ingest_into(con, tmp_path, "run")
        return screen.text(of(con)).splitlines()

    return lines_of


@pytest.mark.slow
def test_figures_of_a_message_head_its_summary(of_log):
    lines = of_log(oom_messages.SHORT["temporaries"])
    assert lines[1].startswith("highest peak: at least 64.0 GiB of hbm memory, egret_step")
    assert lines[2] == "64.01 GiB needed, 15.75 GiB of hbm available: 48.26 GiB too much"
    assert "--xla_dump_to" in " ".join(lines[3:6])
    assert not any("no dump names the device" in line for line in lines)


@pytest.mark.slow
def test_a_message_about_another_memory_has_a_peak(of_log):
    lines = of_log(oom_messages.KERNELS["2025"])
    assert lines[1].startswith("highest peak: at least 36.2 MiB of vmem memory, step")
    assert "36.25 MiB needed by %heron_kernel.3" in lines[2]
    assert any(line.endswith("/srv/heron.py:12") for line in lines)


@pytest.mark.slow
def test_a_log_of_an_allocator_says_what_is_free_in_one_piece(of_log):
    report = (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 27.00GiB (rounded to "
        "28991029248)requested by op\nBFCAllocator dump for GPU_0_bfc\n"
        "Limit: 89.77GiB\nInUse: 81.00GiB\n"
    )
    lines = of_log(report + "RESOURCE_EXHAUSTED: Out of memory allocating 28991029248 bytes.\n")
    at = lines.index("the pool (error.log, GPU_0_bfc)")
    assert " ".join(" ".join(lines[at + 1 : at + 3]).split()) == (
        "the request that failed wants 27.00 GiB in one piece, at most 8.775 GiB are free after "
        "81.0 GiB that stay: it does not fit"
    )


@pytest.mark.slow
def test_all_is_not_understood_where_a_line_was_not(of_log):
    text = oom_messages.LIST.replace("  2. Size", "stray words\n  2. Size")
    assert "not understood in full" in "\n".join(of_log(text))
    assert any(line.startswith("all lines understood") for line in of_log(oom_messages.LIST))


@pytest.mark.slow
def test_a_limit_of_the_device_is_none_of_scratch_memory(fresh, tmp_path):
    (tmp_path / "error.log").write_text(oom_messages.KERNELS["2025"], encoding="utf-8")
    con = fresh()
    ingest_into(con, tmp_path, "run")
    assert overview.overview(con, PARTS, {}, 1 << 34).limit_ratio is None


# -- programs that take a gradient -----------------------------------------------------------------


def program(con, module_id, name, size, op_name, **cells):
    module = Module(con, module_id, function_name=name, module_key=name, platform="cpu", **cells)
    module.allocation(0, "temp", size)
    module.value(1, 0, 0, size, op_name=op_name, source_file=f"/me/{name}.py", source_line=7)
    module.close()


def of_programs(con):
    one = overview.overview(con, PARTS, {})
    return one, screen.text(one)


@pytest.mark.slow
def test_a_step_is_named_where_another_program_is_higher(con):
    program(con, 1, "init", 100, "jit(init)/dot_general")
    program(con, 2, "train_step", 40, "jit(train_step)/transpose(jvp(loss))/dot_general")
    program(con, 3, "small_step", 30, "jit(small_step)/transpose(jvp())/mul")
    program(con, 4, "eval_step", 50, "jit(eval_step)/transpose")
    insert(con, "instruction_times", module_id=2, instruction_name="x", device="CPU:0",
           run_count=12)  # fmt: skip
    one, text = of_programs(con)
    lines = text.splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.startswith("highest peak: 100 B of ")]
    shown = "highest with a gradient: 40 B, train_step of run r, run 12 times"
    assert lines[at + 1].replace(" run ''", " run r") == shown
    at = lines.index("lines that hold most of train_step")
    assert lines[at + 1].endswith("/me/train_step.py:7") and "100.0%" in lines[at + 1]
    assert lines[at + 2] == "  --function train_step for more"
    data = screen.as_dict(one)
    assert [row["function_name"] for row in data["steps"]] == ["train_step", "small_step"]
    assert [row["run_count"] for row in data["steps"]] == [12, None]
    assert data["peak"]["function_name"] == "init"


@pytest.mark.slow
def test_a_step_that_is_the_highest_is_no_second_one(con):
    program(con, 1, "init", 10, "jit(init)/dot_general")
    program(con, 2, "train_step", 40, "jit(train_step)/transpose(jvp(loss))/dot_general")
    one, text = of_programs(con)
    assert one.steps == [] and "gradient" not in text and "step_lines" not in one.parts


def test_functions_of_one_unknown_reason_are_one_sentence(con):
    for number, reason in enumerate(
        ["no live ranges", "no live ranges", "another", "no live ranges"]
    ):
        name = f"f{number}"
        Module(con, number, function_name=name, module_key=name, peak_unknown_reason=reason).close()
    one, _ = of_programs(con)
    shown = [line.text for line in screen.sentences(one) if "unknown peak" in line.text]
    assert shown == [
        "unknown peak of 3 functions: no live ranges (f0, f1, f3)",
        "unknown peak, f2 of run r: another",
    ]
