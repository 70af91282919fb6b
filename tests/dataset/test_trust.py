"""Nothing outside a dataset is reached, and anything odd in one is reported on one line."""

import duckdb
import pytest
from datasets import RUN, objects, prepared, rows_on

from bufdb.dataset import layout, snapshot
from bufdb.dataset.snapshot import open_readable
from bufdb.errors import DatabaseError


@pytest.mark.sample(3)
@pytest.mark.parametrize("place", ["/etc/passwd", "{root}/../outside.csv", "{root}x.csv"])
def test_files_outside_cannot_be_read(tmp_path, place):
    root = tmp_path / "set"
    prepared(root)
    for name in ("outside.csv", "setx.csv"):
        (tmp_path / name).write_text("secret\n1\n")
    with open_readable(str(root)) as con:
        for read in ("read_csv", "read_text"):
            with pytest.raises(Exception, match="disabled by configuration"):
                con.execute(f"FROM {read}('{place.format(root=root)}')")
        for sql in ("SET enable_external_access = true", "ATTACH ':memory:' AS more (TYPE sqlite)"):
            with pytest.raises(Exception, match=r"locked|disabled|xtension"):
                con.execute(sql)


@pytest.mark.sample(0, 2)
@pytest.mark.parametrize("where", ["l", "modules/l", "deeper/still/l"])
@pytest.mark.parametrize("copied_bytes", [0, snapshot.COPIED_BYTES])
def test_no_link_in_a_dataset_is_followed_by_a_question(tmp_path, monkeypatch, where, copied_bytes):
    """DuckDB takes `l/..` for the folder of `l`, the system for that above what it leads to."""
    root = tmp_path / "set"
    prepared(root)
    rows = rows_on(root)
    (tmp_path / "out" / "side").mkdir(parents=True)
    (tmp_path / "out" / "secret.csv").write_text("secret\n1\n")
    (root / where).parent.mkdir(parents=True, exist_ok=True)
    (root / where).symlink_to(tmp_path / "out" / "side")
    monkeypatch.setattr(snapshot, "COPIED_BYTES", copied_bytes)
    with open_readable(str(root)) as con:
        for read in ("read_csv", "read_text"):
            with pytest.raises(Exception, match="disabled by configuration"):
                con.execute(f"FROM {read}('{root / where}/../secret.csv')")
    assert rows_on(root) == rows


@pytest.mark.slow
def test_a_link_is_no_object(tmp_path):
    prepared(tmp_path / "set")
    for name in objects(tmp_path / "set", "values"):
        path = tmp_path / "set" / name
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    with pytest.raises(DatabaseError, match="/values: 0 rows of module"):
        rows_on(tmp_path / "set")


@pytest.mark.slow
def test_a_lost_object_is_missed(tmp_path):
    """Each that has rows of modules, but their marker: without it a module was never stored."""
    prepared(tmp_path)
    tables = [table for table in layout.tables() if objects(tmp_path, table)]
    assert len(tables) > 25
    for table in sorted(set(tables) - {"modules", "run_labels"})[::3]:  # each is read in one way
        paths = [tmp_path / name for name in objects(tmp_path, table)]
        path = max(paths, key=lambda path: path.stat().st_size)  # others may have its shapes
        path.rename(tmp_path / "lost")
        with pytest.raises(DatabaseError, match="is lost"):
            open_readable(str(tmp_path)).close()
        (tmp_path / "lost").rename(path)
    rows_on(tmp_path)


@pytest.mark.slow
def test_a_table_with_fewer_or_more_rows_is_refused(tmp_path):
    prepared(tmp_path)
    path = tmp_path / min(objects(tmp_path, "uses"))
    for sql in ("FROM '{}' LIMIT 2", "FROM '{0}' UNION ALL FROM '{0}'"):
        whole = path.read_bytes()
        with duckdb.connect() as con:
            con.execute(f"COPY ({sql.format(path)}) TO '{tmp_path}/x' (FORMAT parquet)")
        (tmp_path / "x").replace(path)
        for runs in (None, ["*"]):
            with pytest.raises(DatabaseError, match=r"/uses: [0-9]+ rows of module [0-9a-f]{16}, "):
                open_readable(str(tmp_path), "FROM uses", runs=runs)
        path.write_bytes(whole)


@pytest.mark.slow
def test_what_else_lies_there_is_not_read(tmp_path):
    prepared(tmp_path)
    rows = rows_on(tmp_path)
    (day,) = (tmp_path / "values").iterdir()
    (day / ".0000000000000001-0000000000000001.parquet.tmp").write_text("half")
    (day / "notes.parquet").write_text("no Parquet")
    (tmp_path / "modules" / "more").mkdir()
    assert rows_on(tmp_path) == rows


@pytest.mark.sample(2)
@pytest.mark.parametrize("copied_bytes", [0, snapshot.COPIED_BYTES])
def test_a_damaged_file_is_reported_on_one_line(tmp_path, monkeypatch, copied_bytes):
    prepared(tmp_path)
    monkeypatch.setattr(snapshot, "COPIED_BYTES", copied_bytes)
    name = min(objects(tmp_path, "values"))
    (tmp_path / name).write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    with pytest.raises(DatabaseError) as error:
        rows_on(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(("table", "runs"), [("values", None), ("modules", ["*"])])
def test_more_rows_than_a_file_can_have_are_refused(tmp_path, monkeypatch, table, runs):
    """Joined with others of the same key they have no end."""
    prepared(tmp_path)
    monkeypatch.setattr(snapshot, "FREE_ROWS", 1000)
    path = tmp_path / min(objects(tmp_path, table))
    with duckdb.connect() as con:
        con.execute(
            f"COPY (SELECT t.* FROM (FROM '{path}' LIMIT 1) AS t, range(1000000)) "
            f"TO '{tmp_path}/x' (FORMAT parquet, ROW_GROUP_SIZE 1000000)"
        )
    (tmp_path / "x").replace(path)
    with pytest.raises(DatabaseError, match=r"1000000 rows in [0-9]+ bytes"):
        open_readable(str(tmp_path), 'SELECT * FROM "values"', runs=runs)


def test_a_dump_folder_is_no_dataset(call):
    code, _, err = call("query", "modules", "--on", RUN)
    assert code == 3 and "no dataset" in err and err.count("\n") == 1


@pytest.mark.slow
def test_a_folder_of_any_name_holds_a_dataset(call, tmp_path):
    root = tmp_path / "d[1] *?'ü"
    assert call("ingest", RUN, "--out", root, "-q") == (0, "", "")
    code, out, _ = call("query", "modules", "--on", root, "--format", "csv")
    assert code == 0 and out.count("\n") == 4
    code, text, _ = call("schema", "--on", root)
    with duckdb.connect() as con:
        con.execute(text)
        assert con.execute("SELECT count(*) FROM modules").fetchall() == [(3,)]
