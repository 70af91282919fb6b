"""Untrusted SQL, query files, parameters, databases and names; none of them is obeyed.

`ATTACKS` is the list of attempts; `succeeds` makes one of them and returns whether it succeeded:
a secret read, a file written or changed, an answer changed, a control character on a terminal.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import duckdb
import pytest
from small_db import Module

from bufdb import cli, resources
from bufdb.database import store
from bufdb.errors import BufdbError
from bufdb.query import catalogue, execute
from bufdb.render import FORMATS

SECRET = "the-secret-of-another-file"


@dataclass(frozen=True)
class Attack:
    """One attempt."""

    way: str
    """sql: text for `bufdb sql`, and as a query file. file: a query file. parameter: a value of a
    parameter. planted: SQL that the sender ran on the database. asked: the same, and after a line
    of dashes the SELECT that the user is talked into. name: a name in a dump."""
    text: str
    """{folder} is replaced with a directory of secret.txt, secret.csv and secret.duckdb."""

    def __str__(self) -> str:
        return f"{self.way}: {' '.join(ascii(self.text)[1:-1].split())[:60]}"


def _all(way: str, *texts: str) -> list[Attack]:
    return [Attack(way, text) for text in texts]


ATTACKS = [
    *_all(
        "sql",
        # Other files.
        "FROM read_text('{folder}/secret.txt')",
        "FROM read_blob('{folder}/secret.txt')",
        "FROM read_csv('{folder}/secret.csv')",
        "FROM read_csv_auto('{folder}/secret.csv')",
        "FROM read_json('{folder}/secret.txt')",
        "FROM read_parquet('{folder}/secret.txt')",
        "FROM parquet_metadata('{folder}/secret.txt')",
        "FROM read_duckdb('{folder}/secret.duckdb')",
        "FROM sniff_csv('{folder}/secret.csv')",
        "FROM glob('{folder}/*')",
        "FROM '{folder}/secret.csv'",
        'FROM "{folder}/secret.csv"',
        "SELECT (SELECT content FROM read_text('{folder}/secret.txt')) FROM runs",
        "FROM query('FROM read_text(''{folder}/secret.txt'')')",
        "FROM query_table('{folder}/secret.csv')",
        "FROM json_execute_serialized_sql("
        "json_serialize_sql('FROM read_text(''{folder}/secret.txt'')'))",
        "FROM read_text('file://{folder}/secret.txt')",
        "FROM read_csv('http://127.0.0.1:9/x.csv')",
        "SELECT getenv('BUFDB_SECRET')",
        "FROM duckdb_secrets()",
        "FROM secret_frame",
        # Writing.
        "WITH x AS (COPY (SELECT 1) TO '{folder}/made.csv') FROM x",
        "WITH x AS (INSERT INTO runs SELECT * FROM runs RETURNING *) FROM x",
        "COPY (SELECT 1) TO '{folder}/made.csv'",
        "COPY runs FROM '{folder}/secret.csv'",
        "EXPORT DATABASE '{folder}/made'",
        "IMPORT DATABASE '{folder}'",
        "ATTACH '{folder}/made.duckdb'",
        "ATTACH '{folder}/secret.duckdb' AS s",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/made.csv'",
        "CREATE TABLE made (a INTEGER)",
        "CREATE VIEW made AS SELECT 1",
        "DROP TABLE runs",
        "DELETE FROM runs",
        "UPDATE runs SET run_name = 'planted'",
        "CREATE SECRET s (TYPE http, BEARER_TOKEN 'x')",
        "CREATE PERSISTENT SECRET s (TYPE http, BEARER_TOKEN 'x')",
        "FROM enable_logging('QueryLog', storage='file', storage_path='{folder}/made')",
        "FROM enable_profiling(save_location='{folder}/made.json')",
        # The lock, and what goes around it.
        "SET enable_external_access = true",
        "SET search_path = 'bufdb.main'",
        "RESET lock_configuration",
        "SET VARIABLE top_n = 1",
        "USE bufdb",
        "PRAGMA enable_profiling='json'",
        "CALL enable_logging('QueryLog', storage='file', storage_path='{folder}/made')",
        "INSTALL httpfs",
        "LOAD '{folder}/secret.duckdb_extension'",
        "FORCE INSTALL httpfs FROM 'http://127.0.0.1:9'",
        "PREPARE p AS FROM read_text('{folder}/secret.txt')",
        "DETACH bufdb",
        "BEGIN",
        "CHECKPOINT",
        "VACUUM",
        "SELECT 1; COPY (SELECT 1) TO '{folder}/made.csv'",
        "SELECT 1; SET enable_external_access = true; FROM read_text('{folder}/secret.txt')",
        # Addresses of memory.
        "FROM arrow_scan(1, 2, 3)",
        "FROM pandas_scan(1234)",
        "FROM python_arrow_scan(1234)",
    ),
    *_all(
        "file",
        "/* a comment */ COPY (SELECT 1 AS a) TO '{folder}/made.csv';",
        "SELECT 1 AS a; -- one\nCOPY (SELECT 1) TO '{folder}/made.csv';",
        "SELECT ';' AS a; ATTACH '{folder}/made.duckdb';",
        "PIVOT runs ON run_name USING count(*)",
    ),
    *_all(
        "parameter",
        "'; COPY (SELECT 1) TO '{folder}/made.csv'; --",
        "' OR 1=1 --",
        "' || (SELECT content FROM read_text('{folder}/secret.txt')) || '",
        "$$; FROM read_text('{folder}/secret.txt')",
        "{folder}/secret.txt",
        "\0'); DROP TABLE runs; --",
    ),
    *_all(
        "planted",
        # In place of what is built in.
        "CREATE MACRO sum(x) AS 42",
        "CREATE MACRO max(x) AS 42",
        "CREATE MACRO count_star() AS 42",
        'CREATE MACRO "+"(a, b) AS 42',
        "CREATE MACRO \"||\"(a, b) AS 'planted'",
        "CREATE MACRO lower(x) AS 'planted'",
        "CREATE MACRO regexp_extract(a, b, c) AS 'planted'",
        "CREATE MACRO list_contains(a, b) AS TRUE",
        "CREATE MACRO getvariable(x) AS NULL",
        "CREATE MACRO duckdb_views() AS TABLE SELECT 'planted' AS view_name",
        "CREATE VIEW duckdb_columns AS SELECT 'planted' AS table_name",
        "CREATE TYPE \"Bigint\" AS ENUM ('planted')",
        # In place of bufdb's own.
        "CREATE OR REPLACE VIEW memory_figures AS SELECT * REPLACE (1 AS peak_bytes) "
        "FROM (SELECT * FROM module_signatures), (SELECT 1 AS peak_bytes)",
        "CREATE OR REPLACE VIEW value_details AS FROM read_text('{folder}/secret.txt')",
        "CREATE OR REPLACE VIEW run_selectors AS SELECT 'planted' AS run_name, 'x' AS selector",
        "DROP VIEW value_details; CREATE TABLE value_details AS SELECT 'planted' AS shape",
        "DROP VIEW named_uses; CREATE MACRO named_uses() AS TABLE SELECT 1 AS held_bytes",
        "CREATE OR REPLACE MACRO is_library_path(path, own_pattern) AS TRUE",
        "CREATE OR REPLACE MACRO jit_path(op_name) AS 'planted'",
        "CREATE MACRO wrapped_int64(a, b) AS 42",
        "DROP VIEW memory_figures",
        # In place of a table.
        "ALTER TABLE modules RENAME TO old; CREATE VIEW modules AS "
        "SELECT * REPLACE ('planted' AS module_name) FROM old",
        "ALTER TABLE runs RENAME TO old; CREATE VIEW runs AS "
        "SELECT * REPLACE ((SELECT content FROM read_text('{folder}/secret.txt')) AS run_name) "
        "FROM old",
        # In other schemas.
        "CREATE SCHEMA memory; CREATE VIEW memory.modules AS SELECT 'planted' AS module_name",
        "CREATE SCHEMA system; CREATE VIEW system.modules AS SELECT 'planted' AS module_name",
        "CREATE SCHEMA bufdb; CREATE VIEW bufdb.modules AS SELECT 'planted' AS module_name",
        "CREATE SCHEMA modules; CREATE VIEW modules.run_name AS SELECT 'planted' AS x",
        "CREATE TABLE params AS SELECT 1 AS top_n, 'planted' AS run",
        "CREATE VIEW extra AS FROM read_text('{folder}/secret.txt')",
        "CREATE TABLE noted (t VARCHAR); CREATE TRIGGER tr AFTER INSERT ON runs "
        "INSERT INTO noted SELECT content FROM read_text('{folder}/secret.txt')",
        "UPDATE schema_info SET views_hash = 'planted'",
    ),
    *_all(
        "asked",
        "CREATE VIEW extra AS FROM read_text('{folder}/secret.txt')\n---\nFROM extra",
        "CREATE MACRO extra() AS TABLE FROM read_csv('{folder}/secret.csv')\n---\nFROM extra()",
        "CREATE MACRO extra(x) AS (SELECT content FROM read_text(x))\n---\n"
        "SELECT extra('{folder}/secret.txt')",
        "CREATE VIEW extra AS FROM '{folder}/secret.csv'\n---\nFROM extra",
        "CREATE MACRO lower(x) AS 'planted'\n---\nSELECT lower(run_name) FROM runs",
        "CREATE MACRO sum(x) AS 424242\n---\nSELECT sum(size_bytes) FROM allocations",
        "CREATE MACRO extra(x) AS 'planted'\n---\nSELECT function_name FROM memory_figures",
        "CREATE TABLE extra (a INTEGER, b VARCHAR AS ((SELECT 'planted')))\n---\nFROM extra",
    ),
    *_all(
        "name",
        "\x1b[2Jcleared",
        "\x1b]0;title\x07",
        "\x1b]8;;http://example.org\x1b\\link\x1b]8;;\x1b\\",
        "\x9b31mred",
        "a\rb",
        "a\bb",
        "a\x7fb",
        "\x0e\x0f",
        "a\x00b",
        "file\u202egpj.exe",
        "\u2066a\u2069",
        "a\u2028b",
        "\x90+q\x9c",
        "a\u061cb",
    ),
]

_OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u2028\u2029\u200e\u200f\u202a-\u202e]")
_ASKED = ("peak-figures", "top-values", "peak-by-source-line", "runs", "jit-functions")
_HEADER = "-- title: T\n-- group: runs\n-- column a VARCHAR: A.\n"


@functools.cache
def _template() -> bytes:
    """Make a small database, in a format that keeps everything that DuckDB can put into a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "small.duckdb"))
        with store.open_writable(path, {"storage_compatibility_version": "latest"}) as con:
            module = Module(con, 1, "base", "step", platform="cpu")
            module.allocation(0, "temp", 2048)
            module.value(1, 0, offset=0, size=2048, op_name="jit(step)/a", source_file="/a/b.py")
            module.value(2, 0, offset=0, size=1024)
            module.close()
        return Path(path).read_bytes()


def make(folder: Path, name: str | None = None) -> str:
    """Make a small database in `folder`, next to files that must stay secret."""
    path = str(folder / "small.duckdb")
    Path(path).write_bytes(_template())
    if name is not None:
        with duckdb.connect(path) as con:
            con.execute("UPDATE modules SET function_name = ?", [name])
            con.execute("UPDATE instructions SET op_name = ?", [name])
    (folder / "secret.txt").write_text(SECRET)
    (folder / "secret.csv").write_text(f"a\n{SECRET}\n")
    (folder / "secret.duckdb").write_bytes(_secret_database())
    return path


@functools.cache
def _secret_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "secret.duckdb"))
        with duckdb.connect(path) as con:
            con.execute("CREATE TABLE t AS SELECT ? AS a", [SECRET])
        return Path(path).read_bytes()


@functools.cache
def _expected() -> dict[str, list[tuple[object, ...]]]:
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder))
        return {name: _rows(path, name) for name in _ASKED}


def succeeds(attack: Attack, folder: Path) -> bool:
    """Return whether the attack, made in the empty directory `folder`, achieves anything."""
    text = attack.text.replace("{folder}", str(folder))
    if attack.way == "name":
        path = make(folder, text)
        return any(_OBEYED.search(shown) for shown in _shown(path))
    path = make(folder)
    if attack.way == "planted":
        return _changes_answers(path, text)
    planted, _, sql = text.rpartition("\n---\n")
    if planted:
        with contextlib.suppress(duckdb.Error), duckdb.connect(path) as con:
            con.execute(planted)
    before = _files(folder)
    if attack.way == "parameter":
        output = _call(
            "query", "top-values", "-p", "function", text, "-p", "run", text, "--db", path
        )
        return SECRET in output or "2.00 KiB" in output or _files(folder) != before
    output = ""
    if attack.way in ("sql", "asked"):
        with mock.patch.dict(os.environ, {"BUFDB_SECRET": SECRET, "HOME": str(folder)}):
            output = _call("sql", sql, "--db", path)
    queries = folder / "queries"
    queries.mkdir()
    (queries / "sent.sql").write_text(_HEADER + sql)
    made = _call("query", "sent", "--queries", str(queries), "--db", path)
    if attack.way == "file":
        made += _call("lint", str(queries / "sent.sql"))
    for file in (queries / "sent.sql", queries):
        file.unlink() if file.is_file() else file.rmdir()
    # An error may quote the name of a file, not what is in it.
    got = output + made
    return (
        SECRET in got or "planted" in _answers(got) or "424242" in got or _files(folder) != before
    )


def _call(*arguments: str) -> str:
    """Return a command's stdout and stderr."""
    secret_frame = SECRET  # noqa: F841  a variable that DuckDB would take for a table
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        cli.run(list(arguments))
    return out.buffer.getvalue().decode() + err.getvalue()


def _answers(output: str) -> str:
    """Without the lines that say what is wrong."""
    return "\n".join(line for line in output.splitlines() if "bufdb: " not in line)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _changes_answers(path: str, planted: str) -> bool:
    """Return whether what was planted in a database changes an answer instead of stopping it."""
    expected = _expected()
    with contextlib.suppress(duckdb.Error), duckdb.connect(path) as con:
        con.execute(planted)
    for name in _ASKED:
        with contextlib.suppress(BufdbError):
            if _rows(path, name) != expected[name]:
                return True
    return False


def _rows(path: str, name: str) -> list[tuple[object, ...]]:
    query = catalogue.Catalogue([resources.query_folder()]).find(name)
    with store.open_readable(path, query.sql) as con:
        return execute.execute_query(con, query, {}).rows


class _Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def _shown(path: str) -> list[str]:
    """Return what a terminal gets of a name, on stdout and stderr, in every format."""
    shown = []
    commands = [
        *(("query", "top-values", "--format", form) for form in FORMATS),
        ("query", "top-values", "--full"),
        ("sql", "SELECT error(function_name) FROM modules"),
    ]
    for command in commands:
        out, err = _Terminal(io.BytesIO()), _Terminal(io.BytesIO())
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(os.environ, NO_COLOR="1"),
        ):
            cli.run([*command, "--db", path])
        for stream in (out, err):
            stream.flush()
            shown.append(stream.buffer.getvalue().decode())
        if "json" in command:
            assert json.loads(shown[-2])
    return shown


def test_there_are_enough_attempts_and_none_twice():
    assert len(ATTACKS) == len(set(ATTACKS)) >= 52


@pytest.mark.sample(122)
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_no_attack_succeeds(attack, tmp_path):
    assert not succeeds(attack, tmp_path)


@pytest.mark.slow
def test_the_list_would_succeed_without_the_lock(tmp_path):
    """The attempts are real: most of them work where nothing is locked."""
    made = 0
    for number, attack in enumerate(a for a in ATTACKS if a.way == "sql" and "FROM " in a.text):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = make(folder)
        before = _files(folder)
        text = attack.text.replace("{folder}", str(folder))
        output = ""
        with contextlib.suppress(duckdb.Error), duckdb.connect(path) as con:
            output = str(con.execute(text).fetchall())
        made += SECRET in output or str(folder) in output or _files(folder) != before
        if made == 10:
            break
    assert made == 10


def test_what_is_exact_off_a_terminal(tmp_path):
    path = make(tmp_path, "\x1b[31m=1+1")
    output = _call("sql", "SELECT function_name FROM modules", "--db", path, "--format", "csv")
    assert output == "function_name\n\x1b[31m=1+1\n"


@pytest.mark.slow
def test_a_view_of_the_files_own_is_reported_and_bufdbs_is_used(tmp_path):
    path = make(tmp_path)
    with duckdb.connect(path) as con:
        con.execute("CREATE OR REPLACE VIEW memory_figures AS SELECT 1 AS peak_bytes")
        con.execute("CREATE OR REPLACE MACRO base_name(path) AS 'planted'")
    output = _call("sql", "SELECT peak_bytes, base_name('a/b') FROM memory_figures", "--db", path)
    assert "planted" not in output and "2.00 KiB" in output
    line = f"bufdb: {path} has another base_name, memory_figures than bufdb; bufdb's own is used\n"
    assert output.endswith(line)
    assert _call("query", "peak-figures", "--db", path).count("has another memory_figures") == 1


@pytest.mark.slow
def test_a_view_of_another_version_is_reported(tmp_path):
    path = make(tmp_path)
    with duckdb.connect(path) as con:
        con.execute("CREATE OR REPLACE VIEW memory_figures AS SELECT 1 AS peak_bytes")
        con.execute("UPDATE schema_info SET views_hash = 'before'")
    output = (
        f"bufdb: {path} has memory_figures of another version of bufdb until the next ingest; "
        "not used\n"
    )
    assert output in _call("query", "peak-figures", "--db", path)
    store.open_writable(path).close()
    assert "bufdb: " not in _call("query", "peak-figures", "--db", path)


@pytest.mark.slow
def test_what_is_bufdbs_own_says_nothing(tmp_path):
    path = make(tmp_path)
    for command in (("sql", "FROM memory_figures"), ("query", "peak"), ("runs",), ("schema",)):
        assert "bufdb: " not in _call(*command, "--db", path)


@pytest.mark.slow
def test_views_and_tables_of_the_users_own_can_be_asked(tmp_path):
    path = make(tmp_path)
    with duckdb.connect(path) as con:
        con.execute("CREATE VIEW mine AS SELECT function_name AS f FROM memory_figures")
        con.execute("CREATE MACRO twice(x) AS 2 * x")
    assert _call("sql", "SELECT f, twice(2) AS n FROM mine", "--db", path, "--format", "csv") == (
        "f,n\nstep,4\n"
    )
    output = _call("schema", "mine", "twice", "--db", path)
    assert "view mine" in output and "macro twice(x)" in output


@pytest.mark.slow
@pytest.mark.parametrize("command", [("sql",), ("query", "sent", "--queries", "{folder}")])
def test_files_are_read_if_the_user_allows_it(command, tmp_path):
    path = make(tmp_path)
    text = f"SELECT a FROM '{tmp_path}/secret.csv'"
    (tmp_path / "sent.sql").write_text(_HEADER + text)
    call = [word.replace("{folder}", str(tmp_path)) for word in command]
    call += [text] if command == ("sql",) else []
    assert "--allow-files lets SQL read other files" in _call(*call, "--db", path)
    assert SECRET in _call(*call, "--db", path, "--allow-files")


@pytest.mark.slow
def test_files_that_may_be_read_are_not_written(tmp_path):
    path = make(tmp_path)
    before = _files(tmp_path)
    copy = f"COPY (SELECT 1) TO '{tmp_path}/made.csv'"
    for text in (copy, f"WITH x AS ({copy}) FROM x", f"ATTACH '{tmp_path}/made.duckdb'"):
        assert "only reading is possible here" in _call("sql", text, "--db", path, "--allow-files")
    assert _files(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("COPY (SELECT 1) TO 'x'", "COPY"),
        ("ATTACH 'x'", "ATTACH"),
        ("INSTALL httpfs", "INSTALL"),
        ("SET threads = 1", "SET"),
        ("PRAGMA version", "PRAGMA"),
        ("CALL pragma_version()", "CALL"),
        ("WITH x AS (COPY (SELECT 1) TO 'x') FROM x", "COPY in its WITH"),
        (
            "WITH x AS (DELETE FROM runs RETURNING run_name) FROM x",
            "data-modifying statement in its WITH",
        ),
    ],
)
def test_what_a_query_file_may_not_hold_is_named(text, statement, tmp_path):
    path = make(tmp_path)
    (tmp_path / "sent.sql").write_text(_HEADER + text)
    output = _call("query", "sent", "--queries", str(tmp_path), "--db", path)
    assert output == (
        f"bufdb: error: sent: expected a SELECT, found {statement}; only reading is possible here\n"
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "planted",
    [
        "CREATE MACRO max(x) AS 42",
        "CREATE TABLE noted (a INTEGER); "
        "CREATE TRIGGER tr AFTER INSERT ON runs INSERT INTO noted SELECT 1",
        "CREATE TABLE arrow_batches (a INTEGER)",
        "ALTER TABLE runs ALTER run_name SET DEFAULT 'planted'",
    ],
)
def test_nothing_is_stored_in_a_file_that_would_act(planted, tmp_path):
    path = make(tmp_path)
    with duckdb.connect(path) as con:
        con.execute(planted)
    before = Path(path).read_bytes()
    output = _call("runs", "label", "base", "a=b", "--db", path)
    assert "that is not bufdb's and would run when bufdb writes" in output
    assert Path(path).read_bytes() == before
    assert "base" in _call("runs", "--db", path)


def test_python_variables_are_no_tables(con, tmp_path):
    path = make(tmp_path)
    secret_frame = duckdb.sql("SELECT 1")
    with store.open_readable(path) as opened, pytest.raises(BufdbError, match="does not exist"):
        execute.execute_sql(opened, "FROM secret_frame")
    assert secret_frame is not None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as base:
        tried = [Path(base, str(number)) for number in range(len(ATTACKS))]
        for place in tried:
            place.mkdir()
        won = [str(a) for a, place in zip(ATTACKS, tried, strict=True) if succeeds(a, place)]
    sys.stdout.write(
        f"{len(ATTACKS)} tried, {len(won)} succeeded\n" + "".join(f"{w}\n" for w in won)
    )
