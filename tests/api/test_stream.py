"""Answers as Arrow and Parquet, for pipes."""

import io
import os
import pty
import subprocess
import sys

import duckdb
import nanoarrow
import pytest
from nanoarrow import ipc

from bufdb.api import answer
from bufdb.errors import BufdbError
from bufdb.query import execute

SQL = "SELECT run_name, peak_bytes, temp_bytes::HUGEINT AS h FROM memory_figures ORDER BY ALL"


def pipe(demo_db, *arguments):
    command = [sys.executable, "-m", "bufdb", *arguments, "--db", str(demo_db)]
    return subprocess.run(command, capture_output=True, check=True).stdout


def read(data, form, folder):
    with duckdb.connect() as con:
        if form == "arrow":
            with ipc.InputStream.from_readable(io.BytesIO(data)) as stream:
                relation = con.from_arrow(nanoarrow.ArrayStream(stream))
                return relation.columns, relation.fetchall()
        (folder / "x.parquet").write_bytes(data)
        relation = con.read_parquet(str(folder / "x.parquet"))
        return relation.columns, relation.fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_pipe_has_every_row_and_exact_numbers(demo_db, tmp_path, form):
    with duckdb.connect(str(demo_db), read_only=True) as con:
        expected = con.execute(SQL).fetchall()
    columns, rows = read(pipe(demo_db, "sql", SQL, "--format", form), form, tmp_path)
    assert columns == ["run_name", "peak_bytes", "h"]
    assert rows == expected
    data = pipe(demo_db, "query", "peak-by-op", "--run", "cpu_b8", "--format", form)
    columns, rows = read(data, form, tmp_path)
    assert columns[:2] == ["run_name", "function_name"]
    assert rows


@pytest.mark.slow
def test_no_row_is_a_stream_with_columns(demo_db, tmp_path):
    data = pipe(demo_db, "sql", "SELECT 1 AS one WHERE FALSE", "--format", "arrow")
    assert read(data, "arrow", tmp_path) == (["one"], [])


def test_what_cannot_be_written_says_why(con):
    execute.sql_as_table(con, "SELECT ['a'::ENUM('a')] AS e")
    try:
        with pytest.raises(BufdbError, match="the answer cannot be written as arrow: "):
            answer.as_bytes(con, "arrow")
    finally:
        con.execute(f"DROP TABLE temp.main.{execute.ANSWER}")


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_types_that_arrow_lacks(con, tmp_path, form):
    execute.sql_as_table(con, "SELECT 'a'::ENUM('a', 'b') AS e, 170141183460469231731687::HUGEINT")
    try:
        columns, rows = read(answer.as_bytes(con, form), form, tmp_path)
        assert columns[0] == "e"
        assert [tuple(map(str, row)) for row in rows] == [("a", "170141183460469231731687")]
    finally:
        con.execute(f"DROP TABLE temp.main.{execute.ANSWER}")


def test_a_terminal_is_given_no_bytes(demo_db):
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "bufdb", "query", "peak", "--format", "arrow"]
    done = subprocess.run(
        [*command, "--db", str(demo_db)], stdout=terminal, stderr=subprocess.PIPE, text=True
    )
    os.close(terminal)
    os.close(controller)
    assert done.returncode == 2
    assert "--format arrow is binary" in done.stderr
