"""Errors shown when an engine is missing, does not answer or does not accept the query."""

import importlib.util
import os
import socket

import pytest

from bufdb.errors import BufdbError, UsageError
from bufdb.spark import session


def missing(monkeypatch, *names):
    """Let packages be missing."""
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name in names else find_spec(name, *more),
    )


@pytest.mark.parametrize(
    ("engine", "remote", "master", "message"),
    [
        ("spark", None, None, "--engine spark wants --remote sc://HOST, or --master"),
        ("spark", "sc://a", "local", "give one of them"),
        ("duckdb", "sc://a", None, "are for --engine spark"),
        ("sail", None, "local", "--master is for --engine spark"),
    ],
)
def test_options_that_say_too_little_or_too_much(engine, remote, master, message):
    with pytest.raises(UsageError, match=message):
        session.opened(engine, remote, master)


@pytest.mark.parametrize(
    ("options", "package", "extra"),
    [
        (("spark", "sc://localhost", None), "pyspark", "bufdb\\[spark\\]"),
        (("spark", None, "local"), "pyspark", "bufdb\\[spark\\]"),
        (("sail", None, None), "pysail", "bufdb\\[sail\\]"),
    ],
)
def test_an_extra_that_is_missing_is_named(monkeypatch, options, package, extra):
    missing(monkeypatch, package)
    with pytest.raises(UsageError, match=f"{package} is not installed: pip install '{extra}'"):
        session.opened(*options)


def test_java_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(session, "_require", lambda module, extra: None)
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UsageError, match="--master needs Java 17"):
        session.start("local")


def test_a_server_that_does_not_answer_is_reported_at_once(monkeypatch):
    monkeypatch.setattr(session, "_require", lambda module, extra: None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(BufdbError, match=f"no Spark server answers at sc://127.0.0.1:{port}"):
        session.connect(f"sc://127.0.0.1:{port}")


@pytest.mark.parametrize("remote", ["http://a:1", "localhost:15002", "sc://", "sc://a:b"])
def test_a_url_of_another_kind_is_refused(monkeypatch, remote):
    monkeypatch.setattr(session, "_require", lambda module, extra: None)
    with pytest.raises(UsageError, match="--remote wants sc://HOST"):
        session.connect(remote)


def test_the_command_line_needs_a_portable_query(call, tmp_path):
    code, _, err = call("query", "peak", "--engine", "sail")
    assert (code, "name one with --on" in err) == (2, True)
    (tmp_path / "mine.sql").write_text(
        "-- title: T\n-- group: overview\n-- engines: duckdb (spark, sail: it is recursive)\n"
        "-- column x INTEGER: X.\nSELECT 1 AS x ORDER BY x;\n"
    )
    own = ["--queries", str(tmp_path)]
    code, _, err = call("query", "mine", *own, "--engine", "sail", "--on", "nowhere")
    assert code == 2 and "mine runs on duckdb" in err and "it is recursive" in err


def test_rows_of_parts_stay_on_the_server_of_sail(opened):
    """In a folder that ends with this process; the setting is of the server alone."""
    kept = opened("sail").sql("SELECT 1 AS a").localCheckpoint()
    assert [row.a for row in kept.collect()] == [1]
    assert session._CHECKPOINTS not in os.environ


@pytest.mark.parametrize("is_set", [True, False])
def test_a_place_of_the_user_or_none_is_left(monkeypatch, is_set):
    def fails():
        raise OSError

    monkeypatch.setattr(session.spill, "make_folder", fails)
    monkeypatch.delenv(session._CHECKPOINTS, raising=False)
    if is_set:
        monkeypatch.setenv(session._CHECKPOINTS, "s3://bucket/rows")
    with session._place_for_rows():
        assert os.environ.get(session._CHECKPOINTS) == ("s3://bucket/rows" if is_set else None)
    assert (session._CHECKPOINTS in os.environ) == is_set
