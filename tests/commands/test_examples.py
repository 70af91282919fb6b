import os
import shlex
import signal
from pathlib import Path

import click
import pytest

from bufdb import cli
from bufdb.cli import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
PARSED = ("blame", "calls", "capture", "explain", "fit", "mcp")
"""Commands that need a program of JAX, or serve until their input ends."""


def commands(group, before=""):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield before + name, command
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")


@pytest.fixture
def prepared(empty_folder):
    """A folder with the files that examples name."""
    Path("data").symlink_to(ROOT / "data")
    Path("train.py").touch()
    Path("query.sql").write_text((ROOT / "queries" / "peaks.sql").read_text("utf-8"), "utf-8")
    Path("budget.toml").write_text(
        '[[budget]]\nfunction = "*"\nmetric = "peak"\nlimit = "1 GiB"\n', "utf-8"
    )


def test_each_command_has_two_or_three_in_its_help(call):
    assert set(EXAMPLES) == {name for name, _ in commands(cli.bufdb)}
    for name, lines in EXAMPLES.items():
        assert 2 <= len(lines) <= 3
        assert all(line.startswith(f"bufdb {name}") for line in lines)
        help_text = call(*name.split(), "--help")[1]
        assert help_text.endswith("".join(f"    {line}\n" for line in lines)), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_is_understood(name, prepared):
    command = dict(commands(cli.bufdb))[name]
    for line in EXAMPLES[name]:
        if "--help" not in line:
            command.make_context(name, shlex.split(line)[1 + len(name.split()) :])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_no_command_waits_for_what_is_no_file(call, prepared, kind):
    """Each command with --db, by its first example; DuckDB would wait for a writer of the FIFO."""
    os.mkfifo("FIFO")
    Path("device").symlink_to("/dev/zero")
    for name, command in commands(cli.bufdb):
        if any("--db" in param.opts for param in command.params):
            line = next(line for line in EXAMPLES[name] if "data/demo/" not in line)
            words = shlex.split(line)[1:]
            at = len(name.split())
            signal.alarm(60)
            code, out, err = call(*words[:at], "--db", kind, *words[at:])
            signal.alarm(0)
            assert (code, out, err.count("\n")) == (3, "", 1), name
            assert f"error: {kind} is a FIFO, a socket or a device; --db names" in err, name


@pytest.mark.parametrize(
    "count",
    [pytest.param(1, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.by_hand)],
)
def test_they_run(call, prepared, count):
    """The first ones of each command, in the order of the commands, over the dumps of data/demo."""
    wrong = []
    for name, lines in EXAMPLES.items():
        for line in lines if name == "ingest" else lines[:count]:
            # CI lints all queries, which takes as long as the other examples together.
            if name in (*PARSED, "runs remove") or line == "bufdb lint":
                continue
            code, _, err = call(*shlex.split(line)[1:])
            if code or ("no rows" in err):
                wrong.append(f"{line}: {code} {err}")
    for line in EXAMPLES["runs remove"]:
        if call(*shlex.split(line)[1:])[0]:
            wrong.append(line)
    assert not wrong, "\n".join(wrong)
