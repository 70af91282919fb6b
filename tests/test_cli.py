"""The command line: what goes to stdout, to stderr and into the exit code."""

import io
import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import duckdb
import pytest
from places import ROOT
from small_db import Module, in_bulk

from bufdb import __version__, cli, resources
from bufdb.database import store

SCRIPT = "import sys; from bufdb.cli import main; main()"


pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture(scope="module")
def small_db(empty_db, tmp_path_factory):
    path = shutil.copy(empty_db, tmp_path_factory.mktemp("small") / "small.duckdb")
    with duckdb.connect(path) as con, in_bulk(con):
        module = Module(con, 1, "base", "step", platform="cpu")
        module.allocation(0, "temp", 2048)
        module.value(1, 0, offset=0, size=2048, op_name="jit(step)/" + "very_long_scope/" * 20)
        module.close()
    return path


@pytest.fixture
def db(small_db, tmp_path):
    return str(shutil.copy(small_db, tmp_path / "small.duckdb"))


def test_version(call):
    assert call("--version") == (0, f"bufdb {__version__}\n", "")


def test_help_lists_commands_and_exit_codes(call):
    code, out, err = call("--help")
    assert (code, err) == (0, "")
    for word in (*cli.COMMANDS, "Exit codes:", "130"):
        assert word in out
    lines = out.splitlines()
    for at, (situation, line) in enumerate(cli.SITUATIONS, 4):
        assert lines[at].split() == [*situation.split(), *line.split()]


def test_help_imports_no_command_and_says_what_each_says():
    code = "import sys; from bufdb import cli; cli.run(['--help'])\n"
    code += "assert not [name for name in sys.modules if name.startswith('bufdb.commands')]"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    context = click.Context(cli.bufdb)
    for texts in cli.GROUPS.values():
        for name, text in texts.items():
            command = cli.bufdb.get_command(context, name)
            assert command.get_short_help_str(100) == text


def test_lines_for_a_situation_are_understood(empty_folder):
    for _, line in cli.SITUATIONS:
        _, name, *words = shlex.split(line)
        cli.bufdb.get_command(click.Context(cli.bufdb), name).make_context(name, words)


def test_another_word_for_a_command_leads_to_it(call):
    for word, meant in cli.OTHER_WORDS.items():
        assert word not in cli.COMMANDS and meant.split()[0] in cli.COMMANDS
    error = "bufdb: error: no command 'OOM'; 'bufdb doctor' may be meant\n"
    assert call("OOM") == (2, "", error)


def test_lists_in_help_keep_their_lines(call):
    for command in ([], ["budget"]):
        out = call(*command, "--help")[1]
        assert "\n    2  " in out
        assert "\\b" not in out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(call, name):
    code, out, err = call(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: bufdb {name} ")


def test_no_command_shows_the_help_on_stderr(call):
    code, out, err = call()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: bufdb ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["quer"], 2, "no command 'quer'; did you mean 'query'?"),
        (["query"], 2, "which query? 'bufdb queries' lists them"),
        (["query", "modles"], 2, "no saved query 'modles'; did you mean 'modules'? 'bufdb queries"),
        (["query", "modules", "--bad"], 2, "No such option"),
        (["query", "modules", "-p", "top_n", "x"], 2, "modules: parameter top_n wants BIGINT, got"),
        (["query", "modules", "-p", "top_n", "1", "-p", "top_n", "2"], 2, "top_n is set twice"),
        (["query", "modules", "--run", "a", "-p", "run", "b"], 2, "parameter run is set twice"),
        (["query", "modules", "--queries", "none"], 2, "no folder none to take queries from"),
        (["query", "modules", "--dialect", "x"], 2, "no SQL dialect 'x'"),
        (["query", "modules"], 3, "no database bufdb.duckdb; make one with 'bufdb ingest"),
        (["sql", "SELECT 1", "--db", "none.duckdb"], 3, "no database none.duckdb"),
        (["schema", "modles"], 2, "no table 'modles'; did you mean 'modules'?"),
        (["ingest"], 2, "Missing argument 'PATH...'"),
        (["export"], 2, "expected --format FORMAT -o FILE, or --sources DIR"),
        (["ingest", "nowhere"], 2, "Path 'nowhere' does not exist"),
        (["ingest", ".", "--label", "batch"], 2, "--label wants K=V, got 'batch'"),
        (["ingest", ".", "--label", "a=1", "--label", "a=2"], 2, "--label a is given twice"),
        (["ingest", ".", "--engine", "spark", "--jobs", "2"], 2, "--jobs is for this machine"),
        (["ingest", ".", "--engine", "sail"], 2, "--engine sail writes a dataset: name one with"),
        (["ingest", ".", "--remote", "sc://x"], 2, "--remote and --master are for --engine spark"),
        (["ingest", ".", "--out", "o", "--db", "a"], 2, "--db names a database file and --out a"),
        (["ingest", ".", "--format", "delta"], 2, "--format is that of a dataset; name one with"),
        (
            ["ingest", ".", "--out", "o", "--engine", "spark", "--format", "delta"],
            2,
            "--format delta is written by one machine: omit --engine",
        ),
        (
            ["ingest", "gs://bucket/x", "--run-from-dir"],
            2,
            "--run-from-dir wants directories on disk, no URL and no -",
        ),
        (["schema", "runs", "--on", "none"], 2, "schema --on prints all SQL"),
        (["schema", "--on", "none"], 3, "; make one with 'bufdb ingest DUMPS --out"),
    ],
)
def test_errors_are_one_line_on_stderr(call, arguments, code, message):
    exit_code, out, err = call(*arguments)
    assert (exit_code, out) == (code, "")
    assert err.startswith("bufdb: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_without_a_terminal_an_answer_is_a_full_table(call, db):
    code, out, err = call("query", "top-temps", "--db", db)
    assert (code, err) == (0, "")
    assert "2.00 KiB" in out
    assert "very_long_scope/" * 20 in out


def test_the_database_comes_from_the_environment(call, db, monkeypatch):
    monkeypatch.setenv("BUFDB_DB", db)
    code, out, _ = call("query", "top_temps", "--format", "jsonl", "-p", "top_n", "1")
    assert code == 0
    assert json.loads(out)["size_bytes"] == 2048


@pytest.mark.slow
def test_run_is_short_for_the_parameter(call, db):
    assert (
        call("query", "modules", "--db", db, "--run", "b*", "--format", "csv")[1].count("\n") == 2
    )
    code, out, err = call("query", "modules", "--db", db, "--run", "x*", "--format", "csv")
    assert (code, out) == (2, "")
    assert "no run 'x*'" in err


def test_no_rows_is_a_header_and_success(call, db):
    assert call("query", "diagnostics", "--db", db, "--format", "csv") == (
        0,
        "severity,code,run_name,module_key,path,line_number,message\n",
        "bufdb: no rows: nothing of this kind in the selected module\n",
    )


@pytest.mark.slow
def test_output_goes_to_a_file(call, db):
    code, out, err = call("query", "modules", "--db", db, "--format", "csv", "-o", "a.csv")
    assert (code, out, err) == (0, "", "")
    assert Path("a.csv").read_text().startswith("run_name,function_name,")
    code, _, err = call("query", "modules", "--db", db, "-o", "no/where.csv")
    assert (code, err) == (
        2,
        "bufdb: error: cannot write no/where.csv: No such file or directory\n",
    )


def test_help_of_a_query_comes_from_its_header(call):
    code, out, _ = call("query", "peak-by-source-line", "--help")
    assert code == 0
    assert out.startswith("peak-by-source-line: Bytes held at the peak by source line, op, ")
    assert "\n  Short for: bufdb query peak-by -p by line\n" in out
    assert "\n  peak-by-op is peak-by -p by op\n" in call("query", "peak-by", "--help")[1]
    assert "  -p frame VARCHAR\n" in out
    assert "  --run, -p run VARCHAR\n" in out
    assert "  --top, -p top_n BIGINT\n" in out
    assert "[default: own]" in out
    assert "  held_ratio DOUBLE\n" in out


@pytest.mark.slow
def test_sql_prints_the_file_and_needs_no_database(call):
    path = Path(store.__file__).parents[2] / "queries" / "peak.sql"
    assert call("query", "peak", "--sql") == (0, path.read_text(), "")
    code, out, _ = call("query", "peak", "--dialect", "spark")
    assert code == 0
    assert "CAST(:color AS STRING)" in out


@pytest.mark.slow
def test_a_table_leaves_out_what_only_other_choices_have(call, demo_db):
    words = ("query", "peak-by", "-p", "by", "dtype", "--db", demo_db)
    assert "source_file" not in call(*words)[1]
    assert "source_file" in call(*words, "--full")[1]
    assert "source_file" in call(*words, "--format", "csv")[1]


@pytest.mark.slow
def test_sql_of_an_alias_sets_what_it_is_short_for(call, db):
    code, out, err = call("query", "peak-by-dtype", "--sql")
    assert (code, err) == (0, "")
    assert out.startswith("SET VARIABLE \"by\" = 'dtype';\n-- peak-by-dtype: peak-by -p by dtype\n")
    with store.open_readable(db) as con:
        rows = con.execute(out).fetchall()
    assert (
        len(rows)
        == len(call("query", "peak-by-dtype", "--db", db, "--format", "csv")[1].split("\n")) - 2
    )
    code, _, err = call("query", "peak-by-dtype", "-p", "by", "op", "--db", db)
    assert (code, err) == (
        2,
        "bufdb: error: peak-by-dtype: parameter by is one of 'dtype', got 'op'\n",
    )


@pytest.mark.slow
def test_explain_shows_a_plan(call, db):
    for arguments in (["query", "modules"], ["sql", "SELECT run_name FROM runs"]):
        code, out, _ = call(*arguments, "--explain", "--db", db)
        assert code == 0
        assert "Scan" in out


@pytest.mark.slow
def test_sql_answers_a_select_and_refuses_the_rest(call, db, monkeypatch):
    assert call("sql", "SELECT 1 AS a", "--db", db, "--format", "csv") == (0, "a\n1\n", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 2 AS a"))
    assert call("sql", "-", "--db", db, "--format", "csv") == (0, "a\n2\n", "")
    code, out, err = call("sql", "DROP TABLE runs", "--db", db)
    assert (code, out) == (2, "")
    assert (
        err == "bufdb: error: sql: expected a SELECT, found DROP; only reading is possible here\n"
    )
    code, _, err = call("sql", "SELECT nothing FROM runs", "--db", db)
    assert code == 1
    assert err.startswith("bufdb: error: sql: Binder Error: ")


def test_queries_lists_titles_by_group(call):
    code, out, err = call("queries")
    assert (code, err) == (0, "")
    assert out.startswith("What holds the peak\n  at-offset ")
    assert "\nWhat is in the store\n  diagnostics " in out
    assert "peak-by-op" not in out


def test_queries_as_markdown_and_json(call):
    code, out, err = call("queries", "--format", "markdown")
    assert (code, err) == (0, "")
    assert out.startswith(
        "**What holds the peak**\n\n| query | what it shows |\n| --- | --- |\n| `"
    )
    assert "|\n\n**What can I save**\n\n| query " in out
    items = {item["name"]: item for item in json.loads(call("queries", "--format", "json")[1])}
    assert items["peak"]["group"] == "peak"
    assert items["peak"]["params"][0]["name"] == "run"
    assert out.count("| `") == len(items)


@pytest.mark.slow
def test_a_folder_of_the_user(call, db, tmp_path, monkeypatch):
    own = tmp_path / "own"
    own.mkdir()
    (own / "my_runs.sql").write_text(
        "-- title: Names of runs\n-- group: store\n-- column run_name VARCHAR: The run.\n"
        "SELECT runs.run_name FROM runs ORDER BY runs.run_name;\n"
    )
    code, out, _ = call("query", "my-runs", "--queries", str(own), "--db", db, "--format", "csv")
    assert (code, out) == (0, "run_name\nbase\n")
    code, _, err = call("query", "my-runs", "--run", "x", "--queries", str(own), "--db", db)
    assert (code, err) == (2, "bufdb: error: my-runs: no parameter 'run'; it has none\n")
    monkeypatch.setenv("BUFDB_QUERIES", str(own))
    assert "Names of runs" in call("queries")[1]
    (own / "peak.sql").write_text("SELECT 1")
    assert call("query", "my-runs", "--db", db)[::2] == (0, "")
    code, out, err = call("query", "peak", "--db", db)
    assert (code, out.split()[0]) == (0, "run_name")
    assert f"{own / 'peak.sql'}: left out, for " in err
    assert err.endswith("queries/peak.sql is named 'peak' too; rename it\n")
    (own / "odd.sql").write_text("SELECT 1")
    code, out, err = call("queries")
    assert (code, "my-runs" in out, len(err.splitlines())) == (0, True, 2)


def test_a_folder_of_the_user_is_checked_too(call, tmp_path, monkeypatch):
    shipped, own = tmp_path / "shipped", tmp_path / "own"  # `bufdb lint` of CI checks all
    for folder, names in ((shipped, ["peak.sql"]), (own, ["peak.sql", "odd.sql"])):
        folder.mkdir()
        for name in names:
            (folder / name).write_text("SELECT 1")
    shutil.copy(resources.query_folder() / "peak.sql", shipped)
    shutil.copytree(resources.query_folder() / "common", shipped / "common")
    monkeypatch.setattr(resources, "query_folder", lambda: shipped)
    monkeypatch.setenv("BUFDB_QUERIES", str(own))
    code, out, _ = call("lint")
    assert (code, len(out.splitlines())) == (1, 2)


@pytest.mark.slow
def test_lint_finds_nothing_in_a_query_of_bufdb(call):
    # tests/lint/ tries each of them.
    code, out, err = call("lint", resources.query_folder() / "peak.sql")
    assert (code, out) == (0, "")
    assert err.endswith("queries checked, nothing found\n")


def test_lint_prints_findings_and_fails(call, tmp_path):
    path = tmp_path / "odd.sql"
    path.write_text("-- title: T\n-- group: runs\n-- column a INTEGER: A\nSELECT 1 AS b\n")
    code, out, err = call("lint", str(path))
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        f"{path}: no final ORDER BY; rows must come in a total order",
        f"{path}: column b INTEGER has no column line",
        f"{path}: column line a INTEGER: the query gives no such column",
    ]


@pytest.mark.slow
def test_schema_needs_no_database_and_describes_one(call, db):
    assert call("schema", "runs")[1].startswith("table runs\n  One row per run")
    code, out, _ = call("schema", "run_labels", "--format", "json", "--db", db)
    assert code == 0
    assert [item["name"] for item in json.loads(out)] == ["run_labels"]
    assert call("schema", "named_uses", "--format", "markdown")[1].startswith("## Views\n")
    brief = call("schema", "runs", "--brief", "--format", "markdown")[1]
    assert brief.startswith("| table | what it holds |\n| --- | --- |\n| `runs` | One row per run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "at_the_end",
    [
        "import atexit; atexit.register(print, 'the end')",
        "from threading import Thread, main_thread\n"
        "Thread(target=lambda: (main_thread().join(), print('the end'))).start()",
    ],
)
def test_the_end_is_what_it_would_be_without_haste(db, at_the_end):
    """Exit handlers run, threads are joined, and nothing else is printed."""
    script = f"{at_the_end}\n{SCRIPT}"
    command = [sys.executable, "-c", script, "runs", "--db", db, "--format", "csv", "--nonsense"]
    done = subprocess.run(command[:-1], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("run_name,") and done.stdout.endswith("\nthe end\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "the end\n")


def test_an_interrupt_has_its_own_code(call, monkeypatch):
    def interrupted(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.bufdb, "main", interrupted)
    assert call("queries") == (130, "", "bufdb: interrupted\n")


@pytest.mark.slow
def test_a_reader_that_stops_early_is_no_error(db):
    # More than a pipe holds.
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "sql", "FROM range(100000, 130000)", "--db", db],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b" range\n"
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


@pytest.mark.slow
def test_a_terminal_gets_lines_that_fit_and_a_note(db):
    sql = "SELECT repeat('x', 300) || i AS name, i, 7 AS j FROM range(2) AS numbers(i) ORDER BY i"

    def lines(*arguments):
        master, slave = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, "sql", sql, "--db", db, *arguments],
            stdout=slave,
            stderr=subprocess.PIPE,
            env={**os.environ, "COLUMNS": "150", "NO_COLOR": "1"},
        ) as process:
            os.close(slave)
            out = b""
            while True:
                try:
                    part = os.read(master, 4096)
                except OSError:
                    break
                if not part:
                    break
                out += part
            assert process.stderr is not None
            note = process.stderr.read().decode()
        os.close(master)
        assert process.returncode == 0
        return out.decode().splitlines(), note

    shown, note = lines()
    assert max(map(len, shown)) <= 150
    assert shown[0] == "j 7 · in each of 2 rows"
    assert all("…" in line for line in shown[3:])
    assert note == "bufdb: 2 cells shortened to fit the terminal; --wide shows all of them\n"
    wide, note = lines("--wide")
    assert (wide[0], max(map(len, wide)), note) == (shown[0], 304, "")
    full, note = lines("--full")
    assert (full[0].split(), max(map(len, full)), note) == (["name", "i", "j"], 307, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (
            ["query", "top-temps"],
            ["sqlglot", "numpy", "pyarrow", "nanoarrow", "bufdb.ingest"],
        ),
        (["sql", "SELECT 1"], ["sqlglot", "numpy", "pyarrow", "nanoarrow", "bufdb.ingest"]),
        (["queries"], ["duckdb", "sqlglot", "numpy", "bufdb.ingest"]),
        (["query", "top-temps", "--help"], ["duckdb", "sqlglot", "numpy", "bufdb.ingest"]),
        (["--help"], ["duckdb", "sqlglot", "numpy"]),
    ],
)
def test_no_command_pays_for_the_imports_of_another(db, arguments, absent):
    script = (
        "import sys; from bufdb.cli import run; code = run(sys.argv[1:]);"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "BUFDB_DB": db},
        check=True,
    )
    code, *modules = done.stderr.split()
    assert code == "0"
    assert "bufdb.cli" in modules
    assert not set(absent) & set(modules)


@pytest.mark.slow
def test_an_interrupted_query_ends_at_once(db):
    script = (
        # Without a __file__ DuckDB takes it for an interactive process, and draws its progress.
        "import __main__, os, signal, threading; __main__.__file__ = 'bufdb';"
        "threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start();" + SCRIPT
    )
    # One task of this query takes hours, and DuckDB looks for an interrupt between tasks only.
    numbers = "range(10000000)"
    endless = f"SELECT count(*) FROM {numbers} a, {numbers} b WHERE a.range * b.range % 7 = 3"
    done = subprocess.run(
        [sys.executable, "-c", script, "sql", endless, "--db", db],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "bufdb: interrupted"


@pytest.mark.slow
def test_signals_reach_commands_in_the_background():
    test = f"{__file__}::{test_an_interrupted_query_ends_at_once.__name__}"
    options = ["-q", "-n", "0", "-m", "", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, test]
    ignoring = ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh", *command]
    done = subprocess.run(ignoring, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_duckdbs_own_interrupt_counts_as_one(call, monkeypatch):
    def fails(message):
        def fail(*_args, **_more):
            raise RuntimeError(message)

        monkeypatch.setattr(cli.bufdb, "main", fail)

    fails("Query interrupted")
    assert call("queries") == (130, "", "bufdb: interrupted\n")
    fails("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        call("queries")
