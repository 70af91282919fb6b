"""`bufdb profile` and `bufdb ingest --profile`, into a database and a dataset."""

import shutil
import tarfile

import pytest
from ingesting import rows
from places import DEMO

FILE = DEMO.parent / "profiles" / "cpu_b8.xplane.pb.gz"
COUNTS = """
SELECT modules.run_name, count(*)
FROM instruction_times
JOIN modules ON modules.module_id = instruction_times.module_id
GROUP BY modules.run_name
"""


@pytest.mark.slow
def test_an_ingest_with_a_profile_says_what_it_timed(call, tmp_path):
    db = tmp_path / "a.duckdb"
    _, out, err = call("ingest", DEMO / "cpu_b8", "--db", db, "--profile", FILE)
    assert out == ""
    assert "jit_train_step(2): 100 of 102 instructions timed on CPU:0 (3 runs)" in err
    assert rows(db, COUNTS) == [("cpu_b8", 126)]


@pytest.mark.slow
def test_a_profile_may_be_read_later_and_replaced(call, tmp_path):
    db = tmp_path / "a.duckdb"
    call("ingest", DEMO / "cpu_b8", "--db", db, "--quiet")
    for _ in range(2):
        code, _, err = call("profile", FILE, "--run", "cpu_b8", "--db", db)
        assert code == 0 and "24 of 24 instructions timed" in err
        assert rows(db, COUNTS) == [("cpu_b8", 126)]
    assert call("check", "--db", db)[0] == 0


@pytest.mark.slow
def test_a_profile_of_other_programs_stores_nothing(call, tmp_path):
    db = tmp_path / "a.duckdb"
    call("ingest", DEMO / "gpu_b8", "--db", db, "--quiet")
    code, _, err = call("profile", FILE, "--run", "gpu_b8", "--db", db)
    assert code == 4
    assert "not matched: jit_train_step(2)" in err and "no module of that name" in err
    assert rows(db, COUNTS) == []
    out = call("query", "diagnostics", "--db", db, "--format", "csv")[1]
    assert out.count("unmatched_profile") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--run", "other"], 2, "no run 'other'"),
        (["--run", "cpu_b8", "--db", "none.duckdb"], 3, "no database"),
    ],
)
def test_wrong_usage_says_so(call, tmp_path, demo_db, arguments, code, text):
    own = shutil.copy(demo_db, tmp_path / "own.duckdb")
    values = arguments if "--db" in arguments else [*arguments, "--db", own]
    exit_code, _, err = call("profile", FILE, *values)
    assert exit_code == code and text in err


def test_a_damaged_profile_stops_an_ingest(call, tmp_path):
    cut = tmp_path / "x.xplane.pb.gz"
    cut.write_bytes(FILE.read_bytes()[:5000])
    code, _, err = call("ingest", DEMO / "cpu_b8", "--db", tmp_path / "a.duckdb", "--profile", cut)
    assert code == 1 and "cut off" in err
    assert not (tmp_path / "a.duckdb").exists()


def test_a_profile_is_of_one_run(call, tmp_path):
    folders = DEMO / "cpu_b8", DEMO / "cpu_b16"
    for params in (folders, (DEMO, "--run-from-dir")):
        code, _, err = call("ingest", *params, "--db", tmp_path / "a.duckdb", "--profile", FILE)
        assert code == 2 and "of one run" in err


@pytest.mark.slow
def test_a_dataset_has_times_too(call, tmp_path):
    url = str(tmp_path / "set")
    call("ingest", DEMO / "cpu_b8", "--out", url, "--profile", FILE, "--quiet")
    out = call("query", "time-by", "--on", url, "--function", "train_step", "--format", "csv")[1]
    db = tmp_path / "a.duckdb"
    call("ingest", DEMO / "cpu_b8", "--db", db, "--profile", FILE, "--quiet")
    same = call("query", "time-by", "--db", db, "--function", "train_step", "--format", "csv")[1]
    assert out == same and "train.py:53" in out


@pytest.mark.slow
def test_a_profile_may_be_in_an_archive(call, tmp_path):
    db, archive = tmp_path / "a.duckdb", tmp_path / "trace.tar.gz"
    with tarfile.open(archive, "w:gz") as made:
        made.add(FILE, "plugins/profile/2026_01_02/host.xplane.pb.gz")
        made.add(FILE, "plugins/profile/2026_01_01/host.xplane.pb.gz")
    call("ingest", DEMO / "cpu_b8", "--db", db, "--quiet")
    code, _, err = call("profile", archive, "--run", "cpu_b8", "--db", db)
    assert code == 0 and "2026_01_02; 1 older profile is left out" in err
    assert rows(db, COUNTS) == [("cpu_b8", 126)]


def test_a_memory_profile_is_not_one_of_times(call, tmp_path, demo_db):
    own = shutil.copy(demo_db, tmp_path / "own.duckdb")
    file = FILE.with_name("cpu_b8.prof")
    code, _, err = call("profile", file, "--run", "cpu_b8", "--db", own)
    assert code == 1 and "it is of memory and no times: bufdb ingest reads it" in err
