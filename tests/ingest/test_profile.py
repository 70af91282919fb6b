"""Times of a profile go to the modules that they are of; what fits none is named."""

import zipfile

import pytest
from ingesting import ingest_into, rows
from places import DEMO
from small_db import insert
from xplane_writer import Event, Line, Plane, space

from bufdb.dumps import profiles
from bufdb.errors import BufdbError, UsageError
from bufdb.ingest.profile import Timing
from bufdb.proto import xplane

FILE = DEMO.parent / "profiles" / "cpu_b8.xplane.pb.gz"


def module(con, number, names=("dot.1", "add.1", "exp.1"), name="jit_step", **cells):
    insert(con, "modules", module_id=number, run_name="r", module_key=f"m{number}",
           module_name=name, platform="cpu", format_era="C", **cells)  # fmt: skip
    for order, one in enumerate(names):
        insert(con, "instructions", module_id=number, instruction_name=one, opcode="fusion",
               program_order=order)  # fmt: skip


def profile(*programs, device="CPU:0"):
    """A profile of programs, each a number and the names that it times."""
    events = [
        Event(name, 10 * at, 5_000, {
            "hlo_op": name, "hlo_module": "jit_step", "program_id": number, "run_id": number})
        for number, names in programs
        for at, name in enumerate(names)
    ]  # fmt: skip
    return xplane.read(space([Plane("/host:CPU", [Line("t", [e]) for e in events])]))


def timed(con, xplane_profile):
    """Store; return modules with the number of their times, and why others are not matched."""
    insert(con, "runs", run_name="r")
    timing = Timing(xplane_profile)
    timing.add(con, "r")
    report = timing.finish(con, "r")
    sql = "SELECT module_id, count(*) FROM instruction_times GROUP BY module_id ORDER BY module_id"
    return rows(con, sql), [text.partition(": ")[2] for text in report.unmatched]


ALL = ("dot.1", "add.1", "exp.1")


def test_a_number_decides_between_modules_of_one_name(con):
    module(con, 1, module_number=4)
    module(con, 2, module_number=9)
    assert timed(con, profile((9, ALL), (4, ALL[:2]))) == ([(1, 2), (2, 3)], [])


def test_names_select_a_module_without_its_number(con):
    module(con, 1, module_number=4)
    assert timed(con, profile((8, ALL))) == ([(1, 3)], [])
    ((code, message),) = rows(con, "SELECT code, message FROM diagnostics")
    assert code == "profile_of_other_process"
    assert "numbers the module 8, its dump 4" in message


@pytest.mark.parametrize(
    ("modules", "programs", "why"),
    [
        ([], [(1, ALL)], "the run has no module of that name"),
        ([4, 5], [(8, ALL)], "2 modules of that name have its instructions"),
        ([4], [(8, ALL), (9, ALL)], "2 programs of the profile fit one module"),
        ([4], [(8, ("dot.1", "x", "y"))], "no module of that name has its instructions"),
        ([4], [(8, ("dot.1",))], "no module of that name has its instructions"),
        ([4], [(4, ("dot.1", "x", "y"))], "the module of that number has other instructions: "
                                          "the profile is of another compilation"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_not_matched_and_named(con, modules, programs, why):
    for number in modules:
        module(con, number, module_number=number)
    matched, reasons = timed(con, profile(*programs))
    assert matched == [] and set(reasons) == {why}
    assert {code for (code,) in rows(con, "SELECT code FROM diagnostics")} == {"unmatched_profile"}


def test_another_platform_is_not_matched(con):
    module(con, 1, module_number=4)
    con.execute("UPDATE modules SET platform = 'gpu'")
    assert timed(con, profile((4, ALL))) == ([], ["the run has no module of that name"])


def test_names_outside_the_module_keep_their_time(con):
    module(con, 1, module_number=4)
    assert timed(con, profile((4, (*ALL, "odd.1")))) == ([(1, 4)], [])
    ((code, message),) = rows(con, "SELECT code, message FROM diagnostics")
    assert (code, message) == (
        "unknown_instruction", "1 timed instructions are none of the module's: odd.1",
    )  # fmt: skip


def test_a_further_profile_takes_the_place_of_the_first(con):
    module(con, 1, module_number=4)
    timed(con, profile((4, (*ALL, "odd.1"))))
    timing = Timing(profile((4, ALL), (5, ("x",))))
    timing.add(con, "r")
    timing.finish(con, "r")
    assert rows(con, "SELECT count(*) FROM instruction_times") == [(3,)]
    assert rows(con, "SELECT code FROM diagnostics") == [("unmatched_profile",)]
    assert rows(con, "SELECT table_name, row_count FROM row_counts") == [("instruction_times", 3)]


def test_hidden_names_say_how_to_have_them(con):
    events = [
        Event("k", 0, 5_000, {"hlo_op": "dot.1", "hlo_module": "jit_step", "program_id": 4}),
        Event("graph", 10, 2_000_000),
    ]
    module(con, 1, module_number=4)
    con.execute("UPDATE modules SET platform = 'gpu'")
    plane = Plane("/device:GPU:0", [Line("Stream #1", events)])
    _, reasons = timed(con, xplane.read(space([plane])))
    codes = dict(rows(con, "SELECT code, message FROM diagnostics"))
    assert "--xla_gpu_enable_command_buffer=" in codes["hidden_times"]
    assert "1 events of GPU:0 (0.002 ms)" in codes["unmatched_profile"]
    assert "--xla_gpu_enable_command_buffer=" in codes["unmatched_profile"] and reasons


def test_an_ingest_takes_a_profile_and_keeps_its_times(con):
    ingest_into(con, DEMO / "cpu_b8", "r", profile=profiles.load(FILE, print))
    sql = ("SELECT function_name, count(*), min(run_count), max(run_count) FROM instruction_times "
           "JOIN modules USING (module_id) GROUP BY ALL ORDER BY ALL")  # fmt: skip
    assert rows(con, sql) == [("eval_step", 24, 1, 1), ("train_step", 102, 3, 3)]
    assert rows(con, "SELECT code FROM diagnostics") == []
    ingest_into(con, DEMO / "cpu_b8", "r")
    assert rows(con, "SELECT count(*) FROM instruction_times") == [(126,)]


def test_the_newest_profile_of_a_folder_is_read(tmp_path):
    data = space([Plane("/host:CPU")])
    for name in ("2026_01_31_12_00_00", "2026_02_01_00_00_00"):
        (tmp_path / "plugins" / "profile" / name).mkdir(parents=True)
        (tmp_path / "plugins" / "profile" / name / "host.xplane.pb").write_bytes(data)
    notes = []
    (file,) = profiles.find(tmp_path, notes.append)
    assert file.parent.name == "2026_02_01_00_00_00"
    assert "1 older profile is left out" in notes[0]
    with pytest.raises(BufdbError, match="times no instruction"):
        profiles.load(tmp_path, notes.append)


def test_files_of_several_hosts_are_one_profile(tmp_path):
    event = Event("dot.1", 0, 5, {"hlo_op": "dot.1", "hlo_module": "jit_step", "program_id": 1})
    data = space([Plane("/host:CPU", [Line("t", [event])])])
    for host in ("a", "b"):
        (tmp_path / f"{host}.xplane.pb").write_bytes(data)
    merged_profile = profiles.load(tmp_path, print)
    assert sorted(key.device for key in merged_profile.times) == ["0/CPU:0", "1/CPU:0"]


def test_no_profile_says_so(tmp_path):
    with pytest.raises(UsageError, match="no profile in"):
        profiles.load(tmp_path, print)
    (tmp_path / "x.xplane.pb").write_bytes(FILE.read_bytes()[:900])
    with pytest.raises(BufdbError, match=r"x\.xplane\.pb: it was cut off"):
        profiles.load(tmp_path, print)


def test_a_profile_in_an_archive_is_bounded(tmp_path, monkeypatch):
    path = tmp_path / "trace.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(FILE, "trace/host.xplane.pb.gz")
    assert profiles.load(path, print).times
    monkeypatch.setattr(profiles, "MOST_BYTES", 1000)
    with pytest.raises(BufdbError, match=r"trace\.zip:trace/host\.xplane\.pb\.gz unpacks to more"):
        profiles.load(path, print)
    assert profiles.load(FILE, print).times
