"""`bufdb show`, from its options to its pictures."""

import os
import pty
import re
import subprocess
import sys
from contextlib import closing

import pytest
from places import ROOT
from small_db import Module, derive, insert

from bufdb.database import store
from bufdb.render.text import display_width

BUFDB = [sys.executable, "-m", "bufdb"]
_SGR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def show(call, demo_db, empty_folder, monkeypatch):
    """Run the command on the demo dumps with a number of columns."""

    def run(*arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        return call("show", "--db", demo_db, *arguments)

    return run


@pytest.fixture
def made(empty_folder, monkeypatch):
    """Make a database of rows by hand; return its path."""
    monkeypatch.setenv("COLUMNS", "80")

    def make(fill):
        path = empty_folder / "made.duckdb"
        with closing(store.open_writable(str(path))) as con:
            fill(con)
            derive(con)
        return path

    return make


# -- pictures --------------------------------------------------------------------------------------

PICTURES = {
    "gpu_train_80": ("train_step", "--run", "gpu_b8"),
    "cpu_train_100": ("train_step", "--run", "cpu_b8", "--by", "op", "--tree", "stack"),
    "tpu_vmem_132": ("train_step", "--run", "tpu_b8", "--color", "vmem", "--tree", "op"),
    "remat_peak_2_97": ("--run", "cpu_b8_remat", "--peak", "2", "--tree", "line"),
    "init_60": ("init", "--run", "cpu_b8"),
    "ascii_80": ("eval_step", "--run", "cpu_b16", "--ascii"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PICTURES)
def test_pictures(show, golden, name):
    columns = int(name.rpartition("_")[2])
    code, out, err = show(*PICTURES[name], columns=columns)
    assert (code, err) == (0, "") or "has the largest need" in err
    *lines, command = out.splitlines()
    assert "\x1b" not in out and max(map(display_width, lines)) <= columns
    assert command.startswith("bufdb query") or display_width(command) <= columns
    assert "--ascii" not in PICTURES[name] or out.isascii()
    golden(f"show_{name}.txt", out)


@pytest.mark.sample(3)
@pytest.mark.parametrize("columns", [1, 61, 79, 133, 400])
def test_odd_widths(show, columns):
    out = show("train_step", "--run", "gpu_b8", columns=columns)[1]
    lines = out.splitlines()[:-1]
    assert max(map(display_width, lines)) <= min(160, max(60, columns))


@pytest.mark.slow
def test_what_holds_the_instant_adds_up_to_it(show):
    for instant in ((), ("--step", "100"), ("--peak", "3")):
        out = show("train_step", "--run", "gpu_b8", *instant)[1]
        lines = out[out.index("what holds step") :].splitlines()[1:]
        shares = [float(line.split()[2].rstrip("%")) for line in lines[: lines.index("")]]
        assert sum(shares) == pytest.approx(100, abs=0.6)


@pytest.mark.slow
def test_two_ways_to_name_an_instant_are_one_too_many(show):
    code, out, err = show("train_step", "--run", "gpu_b8", "--step", "3", "--peak", "1")
    assert (code, out) == (2, "")
    assert err == (
        "bufdb: error: --step and --peak both say which instant to show; give one of them\n"
    )
    code, out, err = show("train_step", "--run", "gpu_b8", "--step", "158")
    assert (code, out) == (2, "")
    assert err == "bufdb: error: show: no step 158 in train_step: its instants are 0 to 157\n"
    assert "the last is 8" in show("train_step", "--run", "gpu_b8", "--peak", "9")[2]


@pytest.mark.slow
def test_what_else_matches_is_reported(show):
    err = show("train_step", "--run", "cpu*")[2]
    assert err == (
        "bufdb: 4 modules in 4 runs match; module_0002.jit_train_step.cpu_after_optimizations of "
        "run cpu_b16 has the largest need\n"
    )
    assert show("module_0002*", "--run", "cpu_b8")[2] == ""


@pytest.mark.slow
def test_a_file_has_no_colours(show, empty_folder):
    assert show("train_step", "--run", "gpu_b8", "-o", "out.txt")[1:] == ("", "")
    text = (empty_folder / "out.txt").read_text(encoding="utf-8")
    assert text == show("train_step", "--run", "gpu_b8")[1]


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_live_ranges_there_are_sizes_and_the_reason(made, call):
    def fill(con):
        module = Module(con, 1, has_live_ranges=False)
        module.allocation(0, "temp", 3 * 2**20)
        module.allocation(1, "parameter", 2**20)
        module.value(1, 0, 0, 2 * 2**20, live=None, shape="f32[524288]")

    code, out, err = call("show", "--db", made(fill))
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert "unknown peak: the dump has no live ranges" in lines
    assert "  3.00 MiB  ██████████████████████  temp" in lines
    assert "  1.00 MiB  ███████▍                arguments" in lines
    assert any(line.split()[:4] == ["2.00", "MiB", "1", "temp"] for line in lines)
    assert "┤" not in out and lines[-1].startswith("bufdb query top-values --run r --module m1")


@pytest.mark.slow
def test_a_module_without_allocations(made, call):
    path = made(lambda con: Module(con, 1, peak_unknown_reason="the dump has no allocation"))
    code, out, _ = call("show", "--db", path)
    assert code == 0
    assert out.splitlines()[2] == "unknown peak: the dump has no allocation"


@pytest.mark.slow
def test_without_temps_the_curve_is_flat_and_there_is_no_map(made, call):
    def fill(con):
        module = Module(con, 1, schedule_length=9)
        module.allocation(0, "parameter", 2**20)
        module.value(1, 0, 0, 2**20)
        module.close()

    out = call("show", "--db", made(fill), "--color", "0", "--step", "3")[1]
    assert out.endswith("bufdb query peak --run r --module m1 --color 0 -p step 3\n")
    assert "no temp buffers: all of it is held from the first step to the last" in out
    assert "temp arena" not in out
    assert "100.0%  ██████████████████████  -  arguments, outputs, constants" in out


@pytest.mark.slow
def test_a_name_from_a_dump_is_text(made, call):
    bad = "a\x1b[31mred\u202e\n漢" + "x" * 200

    def fill(con):
        module = Module(con, 1, function_name=bad, run_name="r\x07", schedule_length=5)
        module.allocation(0, "temp", 100)
        module.value(1, 0, 0, 100, live=(0, 5), name=bad, op_name=f"jit(f)/{bad}/x", opcode=bad,
                     program_order=0, source_file=bad, source_line=3)  # fmt: skip
        module.close()
        insert(con, "occupancy_steps", module_id=1, start_time=0, occupied_temp_bytes=100)

    path = made(fill)
    for options in ((), ("--tree", "op"), ("--tree", "line"), ("--ascii",)):
        code, out, err = call("show", "--db", path, *options)
        assert (code, err) == (0, "")
        assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", out)
        assert r"\x1b[31mred" in out
        assert max(map(display_width, out.splitlines()[:-1])) <= 80 or "--ascii" in options


@pytest.mark.slow
def test_a_hundred_thousand_steps(made, call):
    def fill(con):
        module = Module(con, 1, schedule_length=99_999)
        module.allocation(0, "temp", 2000)
        module.value(1, 0, 0, 2000, live=(54_321, 54_321))
        module.value(2, 0, 0, 1000, live=(0, 99_999))
        module.close()
        con.execute(
            "INSERT INTO occupancy_steps SELECT 1, 0, t, if(t = 54321, 2000, 1000 - t % 2) "
            "FROM range(100000) AS steps(t)"
        )

    out = call("show", "--db", made(fill))[1].splitlines()
    (marks,) = [line for line in out if line.strip() == "▼"]
    place = marks.index("▼")
    assert place == 12 + 54_321 * 68 // 100_000
    high = [line for line in out if "█" in line and line[10:12] in (" ┤", " │")][:4]
    assert {line.rstrip().index("█") for line in high} == {place}


# -- terminals -------------------------------------------------------------------------------------


def at_terminal(demo_db, *arguments, **variables):
    near, far = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color", **variables}
    command = [*BUFDB, "show", "train_step", "--run", "gpu_b8", "--db", demo_db, *arguments]
    with subprocess.Popen(command, stdout=far, env=environment):
        os.close(far)
        with closing(os.fdopen(near, "rb", buffering=0)) as stream:
            text = b""
            while part := read(stream):
                text += part
    return text.decode().replace("\r\n", "\n")


def read(stream):
    try:
        return stream.read(65536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.slow
def test_colours_at_a_terminal_alone(show, demo_db):
    coloured = at_terminal(demo_db, NO_COLOR="")
    assert "\x1b[38;5;" in coloured and "\x1b[48;5;" in coloured
    assert "\x1b" not in _SGR.sub("", coloured)
    assert max(display_width(_SGR.sub("", line)) for line in coloured.splitlines()[:-1]) <= 80
    plain = show("train_step", "--run", "gpu_b8")[1]
    assert at_terminal(demo_db, NO_COLOR="1") == plain
    assert at_terminal(demo_db, TERM="dumb", NO_COLOR="") == plain


@pytest.mark.slow
def test_a_terminal_without_utf_8_has_ascii(demo_db):
    assert at_terminal(demo_db, NO_COLOR="1", PYTHONIOENCODING="latin-1").isascii()


@pytest.mark.slow
def test_the_picture_of_the_readme_is_what_is_shown(tmp_path):
    """The picture as drawn by `data/pictures/terminal.py`."""
    script = ROOT / "data" / "pictures" / "terminal.py"
    subprocess.run([sys.executable, script, tmp_path / "new.svg"], check=True)
    drawn = (tmp_path / "new.svg").read_text(encoding="utf-8")
    assert drawn == (script.parent / "terminal.svg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_message_reports_a_peak_without_its_instant(call, tmp_path):
    db = tmp_path / "oom.duckdb"
    assert call("ingest", ROOT / "data" / "oom" / "tpu.log", "--db", db)[0] == 0
    code, out, err = call("show", "--db", db)
    assert (code, err) == (0, "")
    assert "the peak: 18.1 GiB; an out-of-memory message has no instant" in out
    assert "convolution.77" in out


# -- a process over time ---------------------------------------------------------------------------


def test_a_process_over_time_with_the_program_upon_it(show):
    code, out, _ = show("--process", "--ascii")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "cpu_b8, cpu_b8.prof, cpu:0"
    picture = [line.partition("|")[2] or line.partition("+")[2] for line in lines[1:13]]
    # The limit is crossed from the third of five snapshots on, over the last half of the picture.
    assert picture[1] == "-" * 68 and lines[2].startswith("  12.0 MiB +")
    assert picture[0].strip(":") == " " * picture[0].count(" ") and picture[0].endswith(":")
    assert picture[-1] == "#" * 68
    assert [line.count("#") for line in picture] == sorted(line.count("#") for line in picture)
    assert lines[-1] == (
        "from 120.0 s (step 7) on train_step has no room: at least 12.5 MiB of 12.0 MiB"
    )


def test_of_many_processes_those_that_hold_the_most(made, call):
    def fill(con):
        for number in range(6):
            run = f"r{number % 2}"
            if number < 2:
                insert(con, "runs", run_name=run)
            of = {"run_name": run, "profile_name": f"process-{number}/memory-000000.prof"}
            insert(con, "live_profiles", **of, moment="snapshot", elapsed_seconds=0.0,
                   snapshot_ordinal=0, program_count=0)  # fmt: skip
            insert(con, "live_arrays", **of, device="gpu:0", total_bytes=10 + number, array_count=1)

    db = made(fill)
    code, out, err = call("show", "--process", "--db", db)
    heads = [line for line in out.splitlines() if line.startswith("r")]
    assert (code, [head.split("/")[0] for head in heads]) == (
        0, ["r1, process-5", "r0, process-4", "r1, process-3", "r0, process-2"]
    )  # fmt: skip
    assert "the 4 processes that hold the most; 2 more: bufdb show --process NAME" in err
    code, _, err = call("show", "--process", "process-9*", "--run", "r1", "--db", db)
    names = ", ".join(f"r1, process-{number}/memory.prof" for number in (1, 3, 5))
    assert code == 2 and f"no process matches 'process-9*'; there is {names}" in err


def test_a_process_that_is_not_there_or_an_instant_of_it(show):
    code, _, err = show("--process", "process-9*")
    assert (code, err) == (
        2, "bufdb: error: no process matches 'process-9*'; there is cpu_b8, cpu_b8.prof\n"
    )  # fmt: skip
    assert "no snapshot of a process" in show("--process", "--run", "cpu_b16")[2]
    assert "shows no instant" in show("--process", "--step", "3")[2]
