"""The Python interface over the dumps of data/demo: answers are those of the commands."""

import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import types
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from places import DEMO

import bufdb
from bufdb.api import database
from bufdb.dumps.place import Bytes
from bufdb.dumps.remote import Url
from bufdb.errors import BufdbError, DatabaseError, UsageError


@pytest.fixture(scope="module")
def db(demo_db):
    return bufdb.connect(demo_db)


def test_importing_bufdb_imports_nothing_of_it():
    script = (
        "import sys, bufdb; print(sorted(m for m in sys.modules if 'duckdb' in m or 'bufdb.' in m))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.slow
def test_a_question_loads_the_engine_alone(demo_db):
    """The package around it takes longer than the answer."""
    script = (
        "import sys; from bufdb import cli; cli.run(sys.argv[1:]); "
        "print([name for name in ('duckdb', '_duckdb', 'numpy', 'tomllib') if name in sys.modules])"
    )
    command = ["query", "peak-figures", "--db", str(demo_db), "-o", os.devnull]
    done = subprocess.run(
        [sys.executable, "-c", script, *command], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['_duckdb']\n", done.stderr


def test_public_names_are_few_and_hide_no_package():
    assert set(bufdb.__all__) == {"__version__", "connect", "explain", "fit", "watch"}
    importlib.import_module("bufdb.fitting.plans")
    assert callable(bufdb.fit), "the package does not hide the function"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = bufdb.nothing


@pytest.mark.slow
def test_in_memory_from_dumps_to_an_answer():
    with bufdb.connect() as db:
        done = db.ingest(DEMO / "cpu_b8", labels={"batch": 8, "remat": False})
        assert (done.module_count, done.run_names) == (3, ["cpu_b8"])
        assert db.sql("FROM run_labels ORDER BY label").fetchall() == [
            ("cpu_b8", "batch", "8", False),
            ("cpu_b8", "remat", "false", False),
        ]
        assert db.summary().data["peak"]["peak_bytes"] == 8905504
    with pytest.raises(DatabaseError, match="closed"):
        db.summary()


@pytest.mark.slow
def test_several_paths_and_a_run(tmp_path, caplog):
    one, other, *_ = (DEMO / "cpu_b8" / name for name in sorted(_files("cpu_b8")))
    folder = tmp_path / "dumps"
    folder.mkdir()
    shutil.copy(other, folder)
    (folder / "module_0009.jit_c.after_optimizations.txt").write_text("HloModule jit_c\n")
    with bufdb.connect(tmp_path / "runs.duckdb") as db:
        with caplog.at_level(logging.WARNING, "bufdb"):
            assert db.ingest([one, folder], run="a").module_count == 2
        assert "run a: modules that have optimized HLO but no buffer assignment: 1" in caplog.text
        db.ingest(DEMO / "cpu_b16", run="b", metadata={"note": "x"})
        assert db.sql("SELECT run_name FROM runs ORDER BY ALL").fetchall() == [("a",), ("b",)]
    assert (tmp_path / "runs.duckdb").is_file()


@pytest.mark.slow
def test_an_archive_and_the_bytes_of_a_log(tmp_path):
    archive = shutil.make_archive(tmp_path / "cpu_b8", "zip", DEMO / "cpu_b8")
    with bufdb.connect() as db:
        assert db.ingest(archive, run="x").module_count == 3
        assert db.ingest(archive, run="x", prune=True).unchanged_count == 3
        with pytest.raises(UsageError, match="no buffer assignment"):
            db.ingest(b"nothing to see", run="y")


def _files(run):
    return [path.name for path in (DEMO / run).iterdir() if "buffer-assignment.txt" in path.name]


QUERIES = [
    ("peak-by-op", {"run": "cpu_b8", "top_n": 3}),
    ("peak", {"function": "train_*", "color": "host", "platform": "cpu"}),
    ("modules", {}),
    ("scaling", {"label": "batch"}),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "params"), QUERIES)
def test_a_query_answers_as_the_command_does(db, demo_db, call, name, params):
    result = db.query(name, **params)
    pairs = [word for key, value in params.items() for word in ("-p", key, value)]
    _, out, _ = call("query", name, *pairs, "--format", "json", "--db", demo_db)
    rows = json.loads(out)
    assert rows
    assert [list(row) for row in rows] == [result.columns] * len(rows)
    assert json.loads(json.dumps(result.fetchall())) == [list(row.values()) for row in rows]


@pytest.mark.slow
def test_an_answer_stays_as_it_was_when_it_was_asked(tmp_path):
    db = bufdb.connect(tmp_path / "runs.duckdb")
    db.ingest(DEMO / "cpu_b8")
    few, one = db.query("peak", top_n=5), db.query("peak", top_n=1)
    before = db.sql("SELECT count(*) FROM modules")
    db.ingest(DEMO / "cpu_b16")
    db.close()
    assert (len(few.fetchall()), len(one.fetchall())) == (5, 1)
    assert len(few.filter("held_bytes > 0").limit(2).fetchall()) == 2
    assert before.fetchall() == [(3,)]


@pytest.mark.slow
def test_between_two_calls_the_file_is_free(tmp_path):
    path = tmp_path / "runs.duckdb"
    db = bufdb.connect(path)
    db.ingest(DEMO / "cpu_b8")
    answers = [db.query("peak"), db.sql("FROM runs"), db.summary()]
    with duckdb.connect(str(path)) as con:  # takes it to write
        con.execute("DELETE FROM runs")
    assert len(answers) == 3


@pytest.mark.slow
def test_memory_is_bounded_as_it_was_asked(demo_db):
    limit = "SELECT current_setting('memory_limit')"
    assert bufdb.connect(demo_db).sql(limit).fetchall() == [("732.4 MiB",)]
    assert bufdb.connect(demo_db, memory_limit="1GiB").sql(limit).fetchall() == [("1.0 GiB",)]
    with pytest.raises(BufdbError, match="not enough memory"):
        bufdb.connect(demo_db, memory_limit="1MB").summary()
    with pytest.raises(
        UsageError, match="connect: memory_limit wants a size such as 1GB, got '2 giga'"
    ):
        bufdb.connect(demo_db, memory_limit="2 giga")


@pytest.mark.slow
def test_sql_has_duckdbs_own_types_and_order(db):
    result = db.sql("SELECT 1::HUGEINT AS h, 1.50 AS d, DATE '2020-01-31' AS t, [1, NULL] AS l")
    assert [str(type_) for type_ in result.types] == [
        "HUGEINT",
        "DECIMAL(3,2)",
        "DATE",
        "INTEGER[]",
    ]
    assert result.fetchall()[0][1] == Decimal("1.50")
    assert db.sql("FROM range(5000) ORDER BY range DESC").fetchall()[:2] == [(4999,), (4998,)]
    assert "run_name" in [row[0] for row in db.sql("DESCRIBE runs;").fetchall()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DELETE FROM runs", "expected a SELECT, found DELETE"),
        ("SELECT 1; SELECT 2", "expected one statement"),
        ("COPY runs TO 'x.csv'", "expected a SELECT, found COPY"),
        ("SELECT * FROM read_csv('/etc/passwd')", "--allow-files"),
        ("SELECT nothing", "nothing"),
    ],
)
def test_sql_only_reads_the_database(db, text, message):
    with pytest.raises(BufdbError, match=message):
        db.sql(text)


def test_a_relation_reaches_no_file(db, tmp_path):
    with pytest.raises(duckdb.Error, match="disabled by configuration"):
        db.query("peak").write_parquet(str(tmp_path / "x.parquet"))


@pytest.mark.slow
def test_errors_have_the_messages_of_the_commands(db, tmp_path):
    with pytest.raises(UsageError, match="no saved query 'peek'; did you mean 'peak'"):
        db.query("peek")
    with pytest.raises(UsageError, match="peak: parameter top_n wants BIGINT, got 'ten'"):
        db.query("peak", top_n="ten")
    with pytest.raises(UsageError, match="no parameter 'tops'; did you mean 'top_n'"):
        db.query("peak", tops=1)
    with pytest.raises(UsageError, match="no run 'nix'"):
        db.diff("nix", "cpu_b8")
    with pytest.raises(UsageError, match="--by is one of op, source"):
        db.diff("cpu_b8", "cpu_b16", by="ops")
    with pytest.raises(UsageError, match="what should be removed"):
        db.what_if("train_step", run="cpu_b8")
    with pytest.raises(UsageError, match="--order needs --until with a size"):
        db.what_if("train_step", donate=["*"], order="cost")
    with pytest.raises(UsageError, match="--by is one of line, op, value, got 'lines'"):
        db.what_if("init", run="cpu_b8", until="1MiB", by="lines")
    with pytest.raises(UsageError, match="--limit wants a size"):
        db.summary(limit="much")
    with pytest.raises(DatabaseError, match=r"no database .*; make one with 'bufdb ingest"):
        bufdb.connect(tmp_path / "none.duckdb").summary()
    with pytest.raises(UsageError, match="name of a file"):
        bufdb.connect(":memory:")


def test_a_database_says_where_it_is(db, demo_db):
    assert repr(db) == f"<bufdb.Database {demo_db}>"
    with bufdb.connect() as opened:
        assert repr(opened) == "<bufdb.Database in memory>"


@pytest.mark.slow
def test_why_there_is_nothing_is_said(db, caplog):
    with caplog.at_level(logging.WARNING, "bufdb"):
        assert db.query("peak", function="trainstep").fetchall() == []
        db.query("scaling", label="batch", fixed="remaat", function="init")
    assert "no function 'trainstep'; did you mean 'train_step'?" in caplog.text
    assert "no run has a label 'remaat'; did you mean 'remat'?" in caplog.text
    assert "no function 'trainstep'" in str(db.summary(function="trainstep"))


@pytest.mark.slow
def test_text_is_that_of_the_commands_and_data_is_exact(db, demo_db, call):
    _, out, _ = call("summary", "--run", "gpu_b8", "--db", demo_db)
    summary = db.summary(run="gpu_b8")
    assert str(summary) + "\n" == out
    assert summary._repr_html_().startswith("<pre")
    _, out, _ = call("diff", "cpu_b8", "cpu_b16", "--db", demo_db)
    diff = db.diff("cpu_b8", "cpu_b16")
    assert diff.text == out
    assert {row["figure"] for row in diff.data} >= {"peak", "temps"}
    words = ("what-if", "train_step", "--run", "cpu_b8", "--donate", "*", "--db", demo_db)
    _, out, err = call(*words)
    what_if = db.what_if("train_step", run="cpu_b8", donate=["*"])
    assert what_if.text == out
    assert [f"bufdb: {note}" for note in what_if.notes] == err.splitlines()
    assert db.what_if("train_step", run="cpu_b8", donate="*").text == out
    options = ("blame", "cpu_b8_remat", "cpu_b8", "--db", demo_db)
    blame = db.blame("cpu_b8_remat", "cpu_b8")
    assert blame.text == call(*options)[1]
    assert json.loads(json.dumps({"series": blame.data})) == json.loads(
        call(*options, "--format", "json")[1]
    )
    assert not any(one["jumps"] for one in db.blame("cpu_b8_remat", "cpu_b8", over=1000).data)
    _, out, _ = call("verify", "cpu_b8", "cpu_b8_remat", "--db", demo_db)
    verified = db.verify("cpu_b8", "cpu_b8_remat")
    assert verified.text == out
    assert [row["is_in_range"] for row in verified.data if row["what"] == "peak"] == [True]


def test_html_takes_no_name_for_markup(tmp_path):
    from bufdb.api.answer import Answer

    assert "&lt;b&gt;" in Answer("<b>", {})._repr_html_()


@pytest.mark.slow
def test_export_writes_what_the_command_writes(db, demo_db, call, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "bufdb"):
        path = db.export(tmp_path / "a", "torch-snapshot", run="cpu_b8")
    _, _, err = call("export", "--format", "torch-snapshot", "--run", "cpu_b8",
                     "-o", tmp_path / "b", "--db", demo_db)  # fmt: skip
    assert path.read_bytes() == (tmp_path / "b").read_bytes()
    assert err.splitlines() == [f"bufdb: {note}" for note in caplog.messages] != []
    db.export(tmp_path / "tables", "parquet", run="cpu_b8")
    assert (tmp_path / "tables" / "runs.parquet").is_file()
    with pytest.raises(UsageError, match="--format is one of parquet"):
        db.export(tmp_path / "c", "word")
    with pytest.raises(UsageError, match="--frames is one of own, all, got 'mine'"):
        db.export(tmp_path / "c", "collapsed", frames="mine")


@pytest.mark.slow
def test_what_a_block_compiles_is_a_run(empty_db, tmp_path, monkeypatch):
    """Replace the part of JAX that receives the dump folder with a fake."""
    compiler = types.ModuleType("jax._src.compiler")
    compiler.get_compile_options = lambda: types.SimpleNamespace(env_option_overrides=[])
    for name in ("jax", "jax._src", "jax._src.compiler"):
        monkeypatch.setitem(sys.modules, name, compiler)
    path = shutil.copy(empty_db, tmp_path / "runs.duckdb")
    with bufdb.connect(path) as db:
        with db.capture(run="b8", labels={"batch": 8}):
            options = dict(compiler.get_compile_options().env_option_overrides)
            for path in (DEMO / "cpu_b8").glob("*.jit_init.*"):
                shutil.copy(path, options["xla_dump_to"])
        rows = db.sql(
            "FROM runs JOIN run_labels USING (run_name) SELECT run_name, source_path, label"
        )
        assert rows.fetchall() == [("b8", "a captured block", "batch")]


def test_what_cannot_be_written_is_said(db, tmp_path):
    one = {"run": "tpu_b8", "function": "init"}
    with pytest.raises(UsageError, match=r"cannot write .*: Is a directory"):
        db.export(tmp_path, "collapsed", **one)


@pytest.mark.slow
def test_report_writes_what_the_command_writes(db, demo_db, call, tmp_path):
    path = db.report(tmp_path / "a.html", run="tpu_b8", function="init", limit="TPU v5e")
    call("report", "--run", "tpu_b8", "--function", "init", "--limit", "TPU v5e",
         "-o", tmp_path / "b.html", "--db", demo_db)  # fmt: skip
    assert path.read_bytes() == (tmp_path / "b.html").read_bytes()
    with pytest.raises(BufdbError, match="nothing to report: no rows: no function 'none'"):
        db.report(tmp_path / "c.html", function="none")


def test_what_is_no_source_is_refused(tmp_path):
    with bufdb.connect() as db:
        with pytest.raises(UsageError, match="no file or directory"):
            db.ingest(tmp_path / "none")
        with pytest.raises(UsageError, match="an empty list"):
            db.ingest([])
        with pytest.raises(UsageError, match="cannot be ingested together"):
            db.ingest([DEMO / "cpu_b8", object()])
        with pytest.raises(UsageError, match="found object"):
            db.ingest(object())
        with pytest.raises(UsageError, match=r"bufdb\.explain"):
            db.ingest(len)
        with pytest.raises(UsageError, match="for lowered functions"):
            db.ingest(DEMO / "cpu_b8", compiler_options={})


def test_a_source_may_be_a_url():
    sources = database._dumps(["s3://bucket/dumps", b"log"])
    assert sources == [Url("s3://bucket/dumps"), Bytes("bytes", b"log")]


@pytest.mark.slow
def test_queries_and_categories_of_ones_own(demo_db, tmp_path):
    (tmp_path / "mine.sql").write_text(
        "-- title: Runs of mine\n-- group: runs\n--\n-- Lists them.\n--\n"
        "-- column run_name VARCHAR: The run.\nSELECT run_name FROM runs ORDER BY run_name\n"
    )
    (tmp_path / "writes.sql").write_text(
        "-- title: Writes\n-- group: runs\n--\n-- Writes.\n--\n"
        "-- column a VARCHAR: Any.\nCOPY runs TO 'x'\n"
    )
    rules = tmp_path / "rules.toml"
    rules.write_text('[operations]\n"*jit(_one_hot)*" = "one-hot"\n')
    db = bufdb.connect(demo_db, queries=[tmp_path], categories=rules)
    assert len(db.query("mine").fetchall()) == 6
    with pytest.raises(BufdbError, match="expected a SELECT, found COPY"):
        db.query("writes")
    roles = db.query("peak-by-role", run="gpu_b8", function="train_step")
    assert "one-hot" in [row[roles.columns.index("role")] for row in roles.fetchall()]


@pytest.mark.slow
def test_an_interrupt_stops_the_question_alone(tmp_path, monkeypatch):
    from bufdb.query import execute

    db = bufdb.connect(tmp_path / "runs.duckdb")
    db.ingest(DEMO / "cpu_b8")

    def stop(work, name):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(execute, "_waited_for", stop)
        db.query("peak")
    assert db.query("peak", top_n=1).fetchall()


@pytest.mark.parametrize("ends", [lambda db: db.close(), lambda db: None])
def test_a_database_in_memory_leaves_no_files(ends):
    db = bufdb.connect()
    folder = Path(db.path).parent
    assert folder.is_dir()
    ends(db)
    del db
    assert not folder.exists()


@pytest.mark.slow
def test_what_a_process_leaves_is_a_limit(db):
    """As with --live: of 12 MiB, without arrays of the account that are no arguments."""
    left = (12 << 20) - 5390464
    by_size = db.query("serving", run="cpu_b8", budget=left).fetchall()
    assert db.query("serving", run="cpu_b8", live="cpu_b8").fetchall() == by_size
    assert db.query("serving", run="cpu_b8").fetchall() != by_size
    profile = DEMO.parent / "profiles" / "cpu_b8.prof"
    for live in ("cpu_b8", profile):
        assert (
            db.summary(run="cpu_b16", live=live).text == db.summary(run="cpu_b16", limit=left).text
        )
    with pytest.raises(UsageError, match="live is in place of budget"):
        db.query("serving", live="cpu_b8", budget=5)
    with pytest.raises(UsageError, match="--live would count twice"):
        db.query("pool", live="cpu_b8")
    with pytest.raises(UsageError, match="no such file"):
        db.summary(live="gone.prof")
