"""`bufdb mcp`, called by the client of the official SDK; and its tools without it."""

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path

import pytest

import bufdb
from bufdb.api import assistant
from bufdb.api.assistant import NAMES, Tools
from bufdb.api.running import NOT_ALLOWED, Runs
from bufdb.database import store
from bufdb.errors import UsageError


@pytest.fixture(scope="module")
def tools(demo_db):
    return Tools(bufdb.connect(demo_db))


@pytest.fixture
def own_db(demo_db, tmp_path):
    """Copy a database that no other test has open, because the test checks if it is writable."""
    return shutil.copy(demo_db, tmp_path)


@pytest.mark.slow
def test_answers_are_exact_and_short(tools):
    assert json.loads(tools.summary(run="cpu_b8"))["peak"]["peak_bytes"] == 8905504
    lines = tools.query("peak", {"run": "cpu_b8"}, max_rows=2).splitlines()
    assert lines[0].startswith("run_name,function_name")
    assert len(lines) == 4
    assert lines[-1].endswith("more rows; max_rows gives more)")
    assert "peak-by: " in tools.queries()
    assert tools.sql("SELECT 9007199254740993 AS n") == "n\n9007199254740993"
    assert tools.advice(run="cpu_b8").startswith("run_name,")


@pytest.mark.slow
def test_a_diff_and_a_what_if_begin_with_their_sentence(tools):
    lines = tools.diff("cpu_b8", "cpu_b16").splitlines()
    assert lines[0].startswith("train_step: peak 8.49 MiB → ")
    assert lines[2].startswith("place,")
    lines = tools.what_if("train_step", donate=["*"], run="cpu_b8").splitlines()
    assert "peak 8.49 MiB → " in lines[0]
    assert lines[-1].startswith("note: ")
    lines = tools.verify("cpu_b8", "cpu_b8_remat").splitlines()
    assert lines[0].startswith(
        "train_step (cpu_b8 → cpu_b8_remat, host): saved 2.40 MiB, as promised"
    )
    assert lines[2].startswith("base_run_name,")


@pytest.mark.slow
def test_each_tool_is_about_the_memory_space_of_its_color(tools):
    def spaces(**color):
        peak = json.loads(tools.summary(run="tpu_b8", **color))["peak"]
        return peak["memory_space_name"]

    assert [spaces(), spaces(color="vmem"), spaces(color=1)] == ["hbm", "vmem", "vmem"]
    assert spaces(color="all") == "vmem", "the largest"
    assert ",1," in tools.advice(run="tpu_b8", color="vmem").splitlines()[1]
    assert "tpu_b8, vmem" in tools.what_if("train_step", ["op:*"], run="tpu_b8", color="vmem")
    assert "tpu_b8, hbm" in tools.what_if("train_step", ["op:*"], run="tpu_b8")
    both = [tools.diff("cpu_b8", "tpu_b8", color=color) for color in ("1", "vmem")]
    assert both[0] == both[1] and "hbm" not in both[0]
    assert tools.diff("cpu_b8", "tpu_b8", color="all").startswith("train_step (vmem): peak 0 B →")
    assert tools.diff("cpu_b8", "tpu_b8").startswith("init: peak 903 KiB →")
    assert ",vmem," in tools.query("memory-by-space", {"run": "tpu_b8", "color": "all"})


def test_the_sdks_client_gets_answers_and_errors(demo_db):
    pytest.importorskip("mcp.client.client", reason="this Python has no mcp of version 2")
    from mcp import Client, StdioServerParameters, stdio_client

    command = StdioServerParameters(
        command=sys.executable, args=["-m", "bufdb", "mcp", "--db", str(demo_db)]
    )

    async def ask():
        async with Client(stdio_client(command)) as client:
            listed = (await client.list_tools()).tools
            calls = [
                ("query", {"name": "peak", "params": {"run": "cpu_b8", "top_n": 1}}),
                ("query", {"name": "peak", "params": {"run": "cpu_b9"}}),
                ("query", {"name": "peek"}),
                ("sql", {"select": "DELETE FROM runs"}),
                ("sql", {"select": "SELECT * FROM read_text('/etc/passwd')"}),
                ("sql", {"select": "SELECT count(*) AS n FROM runs"}),
                ("fit", {"program": "a.py:f", "limit": "1GiB"}),
            ]
            return listed, [await client.call_tool(name, arguments) for name, arguments in calls]

    listed, results = asyncio.run(ask())
    running = ["explain", "fit", "blame", "capture"]
    assert [tool.name for tool in listed] == [name.replace("_", "-") for name in NAMES] + running
    assert all(tool.description for tool in listed)
    assert [tool.name for tool in listed if not tool.annotations.read_only_hint] == running
    peaks, nothing, unknown, writing, reading, count, fit = (
        (result.is_error, result.content[0].text) for result in results
    )
    assert not peaks[0]
    assert "8905504" not in peaks[1]
    assert "train_step" in peaks[1]
    assert nothing[1].endswith("did you mean 'cpu_b8'? 'bufdb runs' lists them")
    assert unknown[0]
    assert "did you mean 'peak'" in unknown[1]
    assert writing[0]
    assert "only reading is possible here" in writing[1]
    assert reading[0]
    assert "root:" not in reading[1]
    assert count == (False, "n\n6")
    assert fit[0] and fit[1].endswith(NOT_ALLOWED)


def test_rows_and_cells_are_cut_before_they_are_fetched(tools):
    few = tools.sql("SELECT repeat('ab', 3000000) AS a, [1, 2] AS b FROM range(1000000000000)", 2)
    assert len(few) < 20_000
    lines = few.splitlines()
    assert lines[1].endswith('… (6000000 characters),"[1, 2]"')
    assert lines[3] == "(more rows; max_rows gives more)"
    assert len(tools.sql("SELECT range AS n FROM range(100000)", 10**9)) < 10_000


ENDLESS = {"select": "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"}


def test_an_endless_question_is_cancelled(own_db, monkeypatch):
    pytest.importorskip("mcp.client.client", reason="this Python has no mcp of version 2")
    from mcp.server.mcpserver.exceptions import ToolError

    tools = Tools(bufdb.connect(own_db, memory_limit="256MB"))
    call = assistant._guarded(tools, "sql", ToolError)

    async def ask():
        endless = asyncio.create_task(call(**ENDLESS))
        assert await call(select="SELECT 1 AS n") == "n\n1"
        assert not endless.done()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        with monkeypatch.context() as patched, pytest.raises(ToolError, match=r"more than 0.2 s"):
            patched.setattr(assistant, "MOST_S", 0.2)
            await call(**ENDLESS)
        with pytest.raises(ToolError, match=r"memory"):
            await call(select="SELECT list(repeat('x', 100000) || range) AS n FROM range(100000)")

    asyncio.run(ask())
    store.open_writable(own_db).close()  # nothing has it open


def test_the_server_ends_when_its_client_does(own_db):
    pytest.importorskip("mcp.client.client", reason="this Python has no mcp of version 2")
    from mcp import Client, StdioServerParameters, stdio_client

    command = StdioServerParameters(
        command=sys.executable, args=["-m", "bufdb", "mcp", "--db", own_db]
    )

    async def ask():
        async with Client(stdio_client(command)) as client:
            endless = asyncio.create_task(client.call_tool("sql", ENDLESS))
            await asyncio.sleep(1)
            endless.cancel()

    began = time.monotonic()
    asyncio.run(ask())
    assert time.monotonic() - began < 20
    store.open_writable(own_db).close()


def test_a_missing_database_is_said_at_once(call, tmp_path):
    code, out, err = call("mcp", "--db", tmp_path / "none.duckdb")
    assert (code, out) == (3, "")
    assert "no database" in err


def test_without_the_sdk_its_package_is_named(call, demo_db, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    code, _, err = call("mcp", "--db", demo_db)
    assert code == 1
    assert "pip install 'bufdb[mcp]'" in err


def test_a_program_that_may_not_run_is_named_as_a_call(tools):
    next_step = json.loads(tools.doctor("RESOURCE_EXHAUSTED\n", "a.py:f", "f32[8]", "1GiB"))["next"]
    assert next_step == {
        "tool": "explain",
        "arguments": {"program": "a.py:f", "args": "f32[8]", "limit": "1GiB"},
    }
    assert json.loads(tools.doctor("MemoryError\n", "python a.py"))["next"] == {
        "tool": "capture",
        "arguments": {"command": "python a.py"},
    }


@pytest.mark.parametrize(
    ("folder", "db", "message"),
    [("none", "a.duckdb", "wants a folder"), (".", "../a.duckdb", "the database is in the folder")],
)
def test_what_cannot_be_allowed(tmp_path, monkeypatch, folder, db, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        Runs(Path(folder), db)
