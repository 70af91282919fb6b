"""`bufdb mcp --allow-run`: from an error to a proved patch, by a client that follows `next`."""

import asyncio
import json
import subprocess
import sys

import pytest
from places import ROOT

pytest.importorskip("jax", reason="this Python has no jax")
pytest.importorskip("mcp.client.client", reason="this Python has no mcp of version 2")
import jax
from mcp import Client, StdioServerParameters, stdio_client

from bufdb.capture import confined

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(confined.why_not() is not None, reason=str(confined.why_not())),
]
HEAD = "import jax\nimport jax.numpy as jnp\n\n"
BODIES = {
    "tanh": "jnp.tanh(jnp.sin(h @ w))",
    "residual": "h + jnp.tanh(jnp.sin(h @ w))",
    "gelu": "h + jax.nn.gelu(jnp.sin(h @ w) @ w.T)",
    "norm": "h / jnp.sqrt((h * h).mean(-1, keepdims=True) + 1e-6) @ w",
    "attention": "h + jax.nn.softmax((h @ w) @ h.T) @ h",
}
"""Layers of a scan: what the backward pass needs of them can be computed again, on a CPU too."""
SCAN = (
    "def loss(w, x):\n    def body(h, w):\n        return {body}, None\n"
    "    x, _ = jax.lax.scan(body, x, w)\n    return (x * x).sum()\n\nstep = jax.grad(loss)\n"
)
ARGS = "f32[8,128,128], f32[2048,128]"
SHAPES = ((8, 128, 128), (2048, 128))
UPDATE = """@jax.jit
def step(state, x):
    return jax.tree.map(lambda part: part * 0.9 + x.sum(), state)
"""
"""A program without a gradient, whose state can be donated."""
LOGS = [ROOT / "data" / "oom" / name for name in ("gpu.log", "tpu.log")]
"""Recorded logs of jobs that ran out of memory."""
CASES = [(name, log) for log in LOGS for name in [*BODIES, "update"]]
SHARE = 0.7


async def follow(folder, text, program, args, limit):
    """Ask doctor, then what each answer names, until it names no tool; return the last answer."""
    served = ["-m", "bufdb", "mcp", "--allow-run", str(folder), "--db", str(folder / "a.duckdb")]
    env = {"BUFDB_CACHE": str(folder / "cache")}  # the server has not this process' variables
    server = StdioServerParameters(command=sys.executable, args=served, cwd=str(folder), env=env)
    tools = []
    async with Client(stdio_client(server)) as client:
        known = {"text": text, "program": program, "args": args, "limit": limit}
        step = {"tool": "doctor", "arguments": known}
        while isinstance(step, dict) and len(tools) < 6:
            # What the person knows of the program, where an answer leaves it open.
            person = {"limit": limit, "program": program, "args": args}
            wanted = {k: v for k, v in person.items() if k in step["arguments"]}
            arguments = step["arguments"] | {k: v for k, v in wanted.items() if v}
            got = await client.call_tool(step["tool"], arguments)
            tools.append(step["tool"])
            answer = got.content[0].text
            assert not got.is_error, answer
            answer = json.loads(answer)
            step = answer["next"]
    return tools, answer


def need(folder, shapes):
    """What the compiled step needs, by JAX's own analysis of it [bytes]."""
    names = {}
    exec((folder / "train.py").read_text(), names)
    step = names["step"]
    sizes = jax.tree.map(
        lambda one: jax.ShapeDtypeStruct(one, "float32"), shapes,
        is_leaf=lambda one: isinstance(one, tuple) and isinstance(one[0], int),
    )  # fmt: skip
    staged = step if hasattr(step, "lower") else jax.jit(step)
    figures = staged.lower(*sizes).compile().memory_analysis()
    return (
        figures.argument_size_in_bytes + figures.output_size_in_bytes
        - figures.alias_size_in_bytes + figures.temp_size_in_bytes
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "log"),
    [case if case == ("tanh", LOGS[0]) else pytest.param(*case, marks=pytest.mark.by_hand)
     for case in CASES],
    ids=lambda part: getattr(part, "name", part),
)  # fmt: skip
def test_following_next_leads_from_an_error_to_a_patch(tmp_path, name, log):
    source = UPDATE if name == "update" else SCAN.format(body=BODIES[name])
    args, shapes = ARGS, SHAPES
    if name == "update":
        args, shapes = "{'a': f32[1024,1024]}, f32[8]", ({"a": (1024, 1024)}, (8,))
    (tmp_path / "train.py").write_text(HEAD + source)
    limit = int(SHARE * need(tmp_path, shapes))
    text = log.read_text("utf-8")
    tools, answer = asyncio.run(follow(tmp_path, text, "train.py:step", args, f"{limit}B"))
    assert tools[:2] == ["doctor", "explain"] and tools[-1] == "fit"
    patch = tmp_path / "a.patch"
    patch.write_text(answer["data"]["patch"])
    subprocess.run(["git", "apply", "--unsafe-paths", patch], cwd=tmp_path, check=True)
    assert need(tmp_path, shapes) <= limit


def test_code_writes_in_its_folder_alone(tmp_path):
    folder, outside = tmp_path / "work", tmp_path / "outside.txt"
    folder.mkdir()
    (folder / "train.py").write_text(
        HEAD
        + "import sys\nassert sys.argv[1:] == ['--config', 'base']\n"
        + f"open('inside.txt', 'w').close()\ntry:\n    open({str(outside)!r}, 'w').close()\n"
        "except OSError as error:\n    print('refused', error.errno)\n"
        + SCAN.format(body=BODIES["tanh"])
    )

    async def ask():
        served = ["-m", "bufdb", "mcp", "--allow-run", str(folder), "--db", str(folder / "a.db")]
        server = StdioServerParameters(command=sys.executable, args=served, cwd=str(folder))
        async with Client(stdio_client(server)) as client:
            arguments = {"program": "train.py:step", "args": ARGS, "argv": "--config base"}
            return await client.call_tool("explain", arguments)

    got = asyncio.run(ask())
    assert not got.is_error, got.content[0].text
    answer = json.loads(got.content[0].text)
    assert "refused 13" in "\n".join(answer["notes"])
    assert (folder / "inside.txt").exists() and not outside.exists()
    assert answer["next"]["tool"] == "advice"
