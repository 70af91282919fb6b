"""`bufdb export --sources`: the dump files as they were, and never anywhere but in the folder."""

import shutil

import duckdb
import pytest
from places import DEMO

from bufdb import cli

RUNS = ("cpu_b8", "gpu_b8")


@pytest.fixture
def db(tmp_path):
    path = str(tmp_path / "t.duckdb")
    for run in RUNS:
        assert cli.run(["ingest", str(DEMO / run), "--db", path, "-q"]) == 0
    return path


def files_of(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_dumps_are_given_back_byte_for_byte(db, tmp_path, capfd):
    out = tmp_path / "out"
    assert cli.run(["export", "--sources", str(out), "--db", db]) == 0
    assert capfd.readouterr() == ("", "")
    assert {run: files_of(out / run) for run in RUNS} == {run: files_of(DEMO / run) for run in RUNS}


@pytest.mark.slow
def test_what_is_given_back_is_ingested_unchanged(db, tmp_path, capfd):
    out = tmp_path / "out"
    cli.run(["export", "--sources", str(out), "--db", db])
    assert cli.run(["ingest", str(out), "--run-from-dir", "--db", db]) == 0
    assert "ingested 0 modules" in capfd.readouterr().err


@pytest.mark.slow
def test_one_run_alone(db, tmp_path):
    out = tmp_path / "out"
    assert cli.run(["export", "--sources", str(out), "--run", "gpu_b8", "--db", db]) == 0
    assert [path.name for path in out.iterdir()] == ["gpu_b8"]


@pytest.mark.slow
def test_what_is_not_kept_is_said(db, tmp_path, capfd):
    bare = str(tmp_path / "bare.duckdb")
    cli.run(["ingest", str(DEMO / "cpu_b8"), "--db", bare, "-q", "--no-sources"])
    assert cli.run(["export", "--sources", str(tmp_path / "out"), "--db", bare]) == 1
    assert "no dump file is kept" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
    with duckdb.connect(db) as con:
        con.execute(
            "DELETE FROM file_contents WHERE content_hash = (SELECT min(content_hash) FROM files)"
        )
    assert cli.run(["export", "--sources", str(tmp_path / "out"), "--db", db]) == 0
    assert "files are not kept" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["../evil.txt", "/tmp/evil.txt", "a/../../evil.txt"])
def test_a_name_that_leads_out_is_refused(db, tmp_path, capfd, name):
    with duckdb.connect(db) as con:
        con.execute("UPDATE files SET path = ? WHERE path = (SELECT min(path) FROM files)", [name])
    assert cli.run(["export", "--sources", str(tmp_path / "out"), "--db", db]) == 1
    assert "leads out of a folder" in capfd.readouterr().err
    assert not (tmp_path / "out").exists() and not (tmp_path / "evil.txt").exists()


@pytest.mark.slow
def test_damaged_bytes_are_not_written(db, tmp_path, capfd):
    with duckdb.connect(db) as con:
        con.execute(
            "UPDATE file_contents SET compressed = (SELECT min(compressed) FROM file_contents)"
        )
    assert cli.run(["export", "--sources", str(tmp_path / "out"), "--db", db]) == 1
    assert "damaged" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_bundle_has_the_files_and_an_anonymous_one_none(db, tmp_path):
    for options, is_there in ((["--run", "cpu_b8"], True), (["--anonymize"], False)):
        out = tmp_path / f"{is_there}.duckdb"
        command = ["export", "--format", "bundle", "-o", str(out), "--db", db, *options]
        assert cli.run(command) == 0
        with duckdb.connect(str(out), read_only=True) as con:
            ((some,),) = con.execute("SELECT count(*) > 0 FROM file_contents").fetchall()
            assert some is is_there
    folder = tmp_path / "out"
    assert cli.run(["export", "--sources", str(folder), "--db", str(tmp_path / "True.duckdb")]) == 0
    assert files_of(folder / "cpu_b8") == files_of(DEMO / "cpu_b8")


@pytest.mark.parametrize(
    "options",
    [["--format", "csv"], ["-o", "x"], ["--anonymize"], ["--color", "1"]],
    ids=lambda options: options[0],
)
def test_sources_go_with_no_other_form(db, tmp_path, capfd, options):
    out = tmp_path / "out"
    assert cli.run(["export", "--sources", str(out), "--db", db, *options]) == 2
    assert "--sources writes the dump files" in capfd.readouterr().err
    shutil.rmtree(out, ignore_errors=True)


def test_a_form_needs_a_place(db, capfd):
    assert cli.run(["export", "--format", "csv", "--db", db]) == 2
    assert "expected --format FORMAT -o FILE" in capfd.readouterr().err
