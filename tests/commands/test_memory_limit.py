"""DuckDB's memory limit in commands, and the message if it is too small."""

import re
import shutil

import pytest
from places import ROOT

LIMIT = "SELECT current_setting('memory_limit') AS size"
SELECT = "SELECT count(*) FROM value_details ORDER BY ALL"
COMMANDS = (("query", "peak"), ("check",), ("diff", "cpu_b8", "cpu_b8_remat"), ("sql", SELECT))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_limit_that_is_too_small_is_named_with_what_to_do(call, demo_db, command):
    code, out, err = call(*command, "--db", demo_db, "--memory-limit", "1MB")
    assert (code, out, err.count("\n")) == (1, "", 1)
    # DuckDB's own words, of several versions.
    assert re.search(r"not enough memory \((could not|failed to) allocate", err)
    assert "--memory-limit SIZE gives DuckDB more" in err


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_the_answer_is_the_same_with_little_memory(call, demo_db, command):
    plain = call(*command, "--db", demo_db)
    assert call(*command, "--db", demo_db, "--memory-limit", "256 MB") == plain


@pytest.mark.slow
def test_advice_keeps_few_joins_at_once(call, demo_db, tmp_path):
    """Each takes half a megabyte, however few rows there are: these needed 250 MB."""
    for command in (("query", "advice"), ("report", "-o", tmp_path / "report.html")):
        assert call(*command, "--db", demo_db, "--memory-limit", "192MB")[0] == 0


@pytest.mark.slow
def test_the_limit_is_that_of_the_option_or_of_the_environment(call, demo_db, monkeypatch):
    words = ("sql", LIMIT, "--db", demo_db, "--format", "csv")
    assert call(*words)[1] == "size\n732.4 MiB\n"
    monkeypatch.setenv("BUFDB_MEMORY_LIMIT", "96MiB")
    assert call(*words)[1] == "size\n96.0 MiB\n"
    assert call(*words, "--memory-limit", "1GiB")[1] == "size\n1.0 GiB\n"
    monkeypatch.delenv("BUFDB_MEMORY_LIMIT")
    assert call(*words)[1] == "size\n732.4 MiB\n"


@pytest.mark.parametrize("text", ["much", "-1GB", "0", ""])
def test_what_is_no_size_is_refused(call, demo_db, text):
    code, _, err = call("sql", LIMIT, "--db", demo_db, "--memory-limit", text)
    assert code == 2
    assert err == f"bufdb: error: --memory-limit wants a size such as 1GB, got '{text}'\n"


@pytest.mark.slow
def test_ingest_heeds_the_limit(call, empty_folder, monkeypatch):
    shutil.copytree(ROOT / "data" / "demo" / "cpu_b8", "dumps")
    code, _, err = call("ingest", "dumps", "--memory-limit", "1MB")
    assert code == 1 and "--memory-limit SIZE gives DuckDB more" in err
    monkeypatch.setenv("BUFDB_MEMORY_LIMIT", "1MB")
    assert call("ingest", "dumps")[0] == 1
    monkeypatch.setenv("BUFDB_MEMORY_LIMIT", "64MB")
    assert call("ingest", "dumps")[0] == 0
