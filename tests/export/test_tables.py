"""Tables as Parquet and CSV, and a part of a database as a database."""

import contextlib
import os
import shutil

import duckdb
import pytest
from small_db import Module, insert

from bufdb.database import definitions, store
from bufdb.errors import BufdbError, UsageError
from bufdb.export import tables
from bufdb.export import tables as writer
from bufdb.query.catalogue import Catalogue
from bufdb.resources import query_folder

TABLES = sorted(definitions.tables())
ODD = ["", "NULL", "a,b", 'x"y', "line\nline\r\n", "\t ünï \u2028 \x07", "\\N", "=1+1", " "]


@pytest.fixture
def export(call, demo_db, tmp_path):
    """Write a file or folder; return its path."""

    def run(form, *words, db=demo_db):
        path = tmp_path / f"out.{form}"
        code, out, err = call("export", "--format", form, "--db", db, "-o", path, *words)
        assert (code, out, err) == (0, "", "")
        return path

    return run


@pytest.fixture
def odd_db(empty_db, tmp_path):
    """Runs with labels of any letters, and one module with sums that need more than 64 bits."""
    path = tmp_path / "odd.duckdb"
    shutil.copy(empty_db, path)
    with duckdb.connect(str(path)) as con:
        for number, text in enumerate(ODD):
            insert(con, "runs", run_name=f"r{number}", source_path=text)
            insert(con, "run_labels", run_name=f"r{number}", label="l", label_value=text)
        module = Module(con, 1, run_name="big")
        for index in range(3):
            module.allocation(index, "output", 2**63 - 1)
        module.close()
    return path


def load(folder):
    """The tables that load.sql of a folder makes, in a DuckDB of their own."""
    con = duckdb.connect()
    with contextlib.chdir(folder):
        con.execute((folder / "load.sql").read_text(encoding="utf-8"))
    return con


def rows(con, table, catalog=None):
    place = f'{catalog}.main."{table}"' if catalog else f'"{table}"'
    return sorted(con.execute(f"FROM {place}").fetchall(), key=repr)


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_all_tables_come_back_row_by_row(export, demo, form):
    folder = export(form)
    assert sorted(path.stem for path in folder.glob(f"*.{form}")) == TABLES
    with load(folder) as con:
        for table in TABLES:
            own = [] if table == "file_contents" else rows(demo, table)  # a bundle has it
            assert rows(con, table) == own, table
        comments = "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
        comments += "WHERE NOT internal AND table_name IN (SELECT unnest(?)) ORDER BY ALL"
        comment_rows = con.execute(comments, [TABLES]).fetchall()
        assert comment_rows == demo.execute(comments, [TABLES]).fetchall()


@pytest.mark.sample(2)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_odd_texts_and_large_sums_come_back_exactly(export, odd_db, tmp_path, form):
    (tmp_path / f"out.{form}").mkdir()  # an empty folder is as good as none
    folder = export(form, db=odd_db)
    with load(folder) as con, duckdb.connect(str(odd_db), read_only=True) as original:
        for table in TABLES:
            assert rows(con, table) == rows(original, table), table
        (total,) = con.execute("SELECT output_bytes FROM memory_sums").fetchone()
        assert total == 3 * (2**63 - 1)


@pytest.mark.slow
def test_no_column_of_parquet_is_floating_point_that_was_none(export, odd_db):
    folder = export("parquet", db=odd_db)
    floating = set()
    for table in TABLES:
        types = duckdb.execute(f"DESCRIBE FROM '{folder}/{table}.parquet'").fetchall()
        floating |= {name for name, kind, *_ in types if "FLOAT" in kind or "DOUBLE" in kind}
    assert floating == {"elapsed_seconds"}


def test_pyarrow_reads_sums_as_decimals(export, odd_db):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(export("parquet", db=odd_db) / "memory_sums.parquet")
    assert str(table.schema.field("output_bytes").type) == "decimal128(38, 0)"
    assert [int(size) for size in table["output_bytes"].to_pylist()] == [3 * (2**63 - 1)]
    assert str(table.schema.field("module_id").type) == "int64"


def test_a_folder_that_holds_something_is_left_alone(call, demo_db, tmp_path):
    (tmp_path / "kept").write_text("x")
    options = ("--format", "csv", "--db", demo_db, "-o", tmp_path)
    code, _, err = call("export", *options)
    assert (code, "exists already" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.slow
def test_modules_go_with_their_rows_and_nothing_else(export):
    folder = export("parquet", "--run", "cpu_b8", "--function", "train_step")
    with load(folder) as con:
        ((module_id,),) = con.execute("SELECT module_id FROM modules").fetchall()
        assert con.execute("SELECT run_name FROM runs").fetchall() == [("cpu_b8",)]
        columns = con.execute(
            "SELECT table_name FROM duckdb_columns() WHERE column_name = 'module_id' "
            "AND NOT internal"
        ).fetchall()
        for (table,) in columns:
            ids = con.execute(f'SELECT DISTINCT module_id FROM "{table}"').fetchall()
            assert {number for (number,) in ids} <= {module_id, None}, table
        unused = 'SELECT shape FROM shapes EXCEPT SELECT shape FROM "values"'
        assert con.execute(unused).fetchall() == []


# -- bundles ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_bundle_holds_what_bufdb_wrote(export, call):
    path = export("bundle", "--run", "gpu_b8", "--module", "*train_step*")
    code, out, err = call("check", "--db", path)
    assert code == 0, out
    assert "hold for 1 module" in err


QUERIES = [
    query.name for query in Catalogue([query_folder()]).load_all() if query.param("run") is not None
]


@pytest.fixture(scope="module")
def bundle(demo_db, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "bundle.duckdb"
    con = store.open_readable(str(demo_db), allow_files=True)
    chosen = tables.Selection(con, {"run": "tpu_b8"}, anonymous=False, has_sources=True)
    writer.write_bundle(chosen, path, str(demo_db))
    con.close()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES[::6])  # all tables come back row by row, see above
def test_a_bundle_gives_the_same_answers(bundle, demo_db, call, query):
    options = ("query", query, "--run", "tpu_b8", "--format", "json", "--db")
    assert call(*options, bundle)[:2] == call(*options, demo_db)[:2]


def test_what_cannot_be_written_is_said(demo_db, tmp_path):
    (tmp_path / "file").write_text("x")
    with store.open_readable(str(demo_db)) as con:  # which may not write files
        selection = tables.Selection(con, {"run": "cpu_b8"}, anonymous=False)
        with pytest.raises(UsageError, match=r"cannot write .*file/x: Not a directory"):
            tables.write(selection, tmp_path / "file" / "x", "csv")
        with pytest.raises(BufdbError, match=r"cannot write .*/x: Permission Error"):
            tables.write(selection, tmp_path / "x", "csv")
        for path in (tmp_path, tmp_path / "none" / "b"):
            with pytest.raises(UsageError, match="no such folder, or not a file"):
                writer.write_bundle(selection, path, str(demo_db))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_database_is_not_replaced_by_its_bundle(call, demo_db):
    code, _, err = call("export", "--format", "bundle", "--db", demo_db, "-o", demo_db)
    assert (code, "is the database itself" in err) == (2, True)


@pytest.mark.slow
def test_a_bundle_takes_the_place_of_another_when_it_is_whole(call, demo_db, tmp_path):
    path = tmp_path / "b.duckdb"
    path.write_text("before")
    options = ("export", "--format", "bundle", "--db", demo_db, "-o", path)
    assert call(*options, "--run", "nothing")[0] == 2
    assert path.read_text() == "before"
    assert call(*options, "--run", "cpu_b8")[0] == 0
    assert [each.name for each in tmp_path.iterdir()] == ["b.duckdb"]


@pytest.mark.slow
def test_a_bundle_follows_a_link_and_replaces_files_alone(call, demo_db, tmp_path):
    (tmp_path / "old.duckdb").touch()
    (tmp_path / "link").symlink_to("old.duckdb")
    options = ("export", "--format", "bundle", "--run", "cpu_b8", "--db", demo_db, "-o")
    assert call(*options, tmp_path / "link")[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old.duckdb").stat().st_size > 0
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path, "/dev/stdout"):
        code, _, err = call(*options, other)
        assert (code, err) == (
            2,
            f"bufdb: error: cannot write {other}: no such folder, or not a file\n",
        )
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.slow
def test_tables_to_edit_go_as_they_are(export, empty_db, tmp_path):
    db = tmp_path / "edited.duckdb"
    shutil.copy(empty_db, db)
    with duckdb.connect(str(db)) as con:
        con.execute("DELETE FROM role_rules WHERE rule_order <> 100")
        Module(con, 1).close()
    with duckdb.connect(str(export("bundle", db=db)), read_only=True) as con:
        assert con.execute("SELECT rule_order FROM role_rules").fetchall() == [(100,)]


@pytest.mark.parametrize("options", [("--color", "0"), ("--frames", "all")])
def test_what_is_for_pictures_is_refused(call, demo_db, tmp_path, options):
    code, _, err = call(
        "export", "--format", "csv", "--db", demo_db, "-o", tmp_path / "x", *options
    )
    assert (code, "are for pictures, not for csv" in err) == (2, True)


def test_what_a_file_computes_is_not_obeyed(call, empty_db, tmp_path):
    db = tmp_path / "hostile.duckdb"
    shutil.copy(empty_db, db)
    with duckdb.connect(str(db)) as con:
        con.execute("DROP TABLE run_labels")
        con.execute(
            "CREATE TABLE run_labels (run_name VARCHAR, label VARCHAR, "
            "label_value VARCHAR GENERATED ALWAYS AS (upper(label)), is_metadata BOOLEAN)"
        )
    code, _, err = call("export", "--format", "csv", "--db", db, "-o", tmp_path / "x")
    assert (code, "run_labels.label_value is computed" in err) == (3, True), err
    assert not (tmp_path / "x").exists()
