"""Logs of Delta tables from elsewhere: right, or an error on one line."""

import json
import shutil

import duckdb
import pytest
from datasets import INIT, RUN, objects, rows_on, stored

from bufdb.dataset import layout
from bufdb.dataset.compact import compact
from bufdb.dataset.delta import FOLDER
from bufdb.dataset.storage import storage_of
from bufdb.errors import BufdbError, DatabaseError, UsageError

pytest.importorskip("deltalake", reason="needs deltalake: pip install 'bufdb[delta]'")
ADD = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
REMOVE = {"dataChange": True, "deletionTimestamp": 1}
KEY = {"name": "owner_id", "type": "long", "nullable": True, "metadata": {}}
TABLE = {
    "id": "1",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps({"type": "struct", "fields": [KEY]}),
    "partitionColumns": [],
    "configuration": {},
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A plain dataset of one module."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "cpu_b8").mkdir()
    for path in RUN.glob(f"{INIT}*"):
        shutil.copy(path, folder / "cpu_b8")
    stored(folder / "set", folder / "cpu_b8")
    return folder


@pytest.fixture
def delta(plain, tmp_path):
    """The same with a Delta log of one commit for each table."""
    root = shutil.copytree(plain / "set", tmp_path / "set")
    for table in {layout.parse(name).table for name in objects(root)}:
        commit(root, table, 0, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}])
        commit(root, table, 0, [{"metaData": TABLE}])
        paths = (name.removeprefix(f"{table}/") for name in objects(root, table))
        commit(root, table, 0, [{"add": {"path": path, **ADD}} for path in paths])
    return root


def commit(root, table, number, actions):
    folder = root / table / FOLDER
    folder.mkdir(exist_ok=True)
    with (folder / f"{number:020}.json").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(action) + "\n" for action in actions)


@pytest.mark.slow
def test_what_the_logs_list_is_there(delta, plain):
    expected = rows_on(plain / "set")
    assert len(expected["values"]) > 10
    assert rows_on(delta) == expected
    commit(delta, "uses", 1, [{"remove": {"path": name.removeprefix("uses/"), **REMOVE}}
                              for name in objects(delta, "uses")])  # fmt: skip
    with pytest.raises(DatabaseError, match=r"uses: 0 rows of module .*, where \d+ were stored"):
        rows_on(delta)


def test_what_a_log_lists_must_be_there(delta):
    (name,) = objects(delta, "values")
    (delta / name).unlink()
    with pytest.raises(DatabaseError, match=f"{name}: in its Delta log, but gone"):
        rows_on(delta)


def test_it_is_for_others_to_compact_and_stays_of_its_format(delta, plain):
    with pytest.raises(UsageError, match=r"has Delta tables: delta-rs .* compact these"):
        compact(str(delta))
    with pytest.raises(UsageError, match="has format delta, not parquet; take another"):
        stored(delta, plain / "cpu_b8", file_format="parquet")


def test_what_else_lies_in_a_folder_is_no_object(plain, tmp_path):
    root = shutil.copytree(plain / "set", tmp_path / "set")
    place = storage_of(str(root))
    before = place.names("values")
    (root / "values" / "readme.txt").write_text("mine")
    (name,) = objects(root, "values")
    (root / name).with_name("link.parquet").symlink_to(root / name)
    assert place.names("values") == before and list(before) == [name]


def test_a_damaged_marker_and_a_closed_folder_are_reported(plain, tmp_path, monkeypatch):
    root = shutil.copytree(plain / "set", tmp_path / "set")
    (name,) = objects(root, "modules")
    (root / name).write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DatabaseError, match=r"^[^\n]*set[^\n]*$"):
        rows_on(root)

    def closed(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("os.scandir", closed)
    with pytest.raises(DatabaseError, match="cannot be listed: Permission denied"):
        storage_of(str(root)).names("values")


# -- logs from elsewhere: right, or an error on one line -----------

PATHS = ["../x", "/etc/passwd", "s3://b/x", "%2e%2e/x", "..%2fx", "%252e%252e/x", "", "x" * 9_000]


@pytest.mark.parametrize("path", PATHS)
def test_a_forged_path_reads_nothing(delta, path):
    commit(delta, "modules", 1, [{"add": {"path": path, **ADD}}])
    (delta / "x").write_text("outside")
    with pytest.raises(BufdbError, match=r"^[^\n]*Delta log[^\n]*$"):
        rows_on(delta)


@pytest.mark.slow
def test_odd_actions_are_damage(delta):
    file = delta / "modules" / FOLDER / f"{1:020}.json"
    for text in (
        "",
        "null",
        '{"add":{"path":5}}',
        '{"add":{"path":"a","path":"b"}}',
        json.dumps({"add": {"path": f"{FOLDER}/{0:020}.json", **ADD}}),
        '{"add":' + "[" * 500_000 + "]" * 500_000 + "}",
        '{"add":{"path":"' + "x" * (17 << 20) + '"}}',
    ):
        file.write_text(text)
        with pytest.raises(BufdbError, match=r"^[^\n]*$"):
            rows_on(delta)


def test_a_missing_commit_is_missed(delta):
    commit(delta, "modules", 2, [{"commitInfo": {}}])
    with pytest.raises(BufdbError, match="a commit of its Delta log is missing"):
        rows_on(delta)


@pytest.mark.slow
def test_a_file_added_twice_counts_once(delta):
    rows = rows_on(delta)
    path = sorted(objects(delta, "modules"))[0].removeprefix("modules/")
    commit(delta, "modules", 1, [{"add": {"path": path.replace("=", "%3D"), **ADD}}])
    assert rows_on(delta) == rows


def checkpoint(root, path, stats="NULL"):
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT {{'path': '{path}', 'stats': {stats}}} AS add FROM range(100)) "
            f"TO '{root}/modules/{FOLDER}/{0:020}.checkpoint.parquet' (FORMAT parquet)"
        )


def test_commits_count_before_their_checkpoint(delta):
    rows = rows_on(delta)
    checkpoint(delta, "other")
    assert rows_on(delta) == rows


@pytest.mark.slow
def test_a_checkpoint_of_endless_text_is_refused(delta):
    checkpoint(delta, "other", stats="repeat('x', 10_000_000)")
    (file,) = (delta / "modules" / FOLDER).glob("*.parquet")
    assert file.stat().st_size < 1 << 20
    (delta / "modules" / FOLDER / f"{0:020}.json").unlink()
    with pytest.raises(BufdbError, match=r"^[^\n]*--memory-limit[^\n]*$"):
        rows_on(delta)
