"""The action for pull requests: its script, in a repository, with another client of GitHub."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytest.importorskip("jax", reason="this Python has no jax")
pytestmark = pytest.mark.slow
COMPILATIONS = int(os.environ.get("BUFDB_COMPILATIONS", "4"))
"""20 gave the same bytes, too."""

ACTION = ROOT / ".github" / "actions" / "memory"
STEPS = re.findall(r"^    - run: (.*)$", (ACTION / "action.yml").read_text(), re.MULTILINE)
"""The commands of the action's steps."""
PROGRAM = """\
import jax
import jax.numpy as jnp

def loss(w, x):
    h = jnp.tanh(x @ w)
    return (h * h).sum()

if __name__ == "__main__":
    step = jax.jit(jax.grad(loss))
    step(jnp.ones((64, 64)), jnp.ones(({rows}, 64)))
"""
CLIENT = """\
#!{python}
import json, pathlib, sys
place = pathlib.Path({place!r})
words = sys.argv[1:]
kept = place / "comments.json"
comments = json.loads(kept.read_text()) if kept.exists() else []
with (place / "calls.txt").open("a") as log:
    print(" ".join(words[:4]), file=log)
if "--jq" in words:
    print("\\n".join(str(one["id"]) for one in comments if one["body"].startswith("<!-- bufdb")))
else:
    body = pathlib.Path(words[-1].removeprefix("body=@")).read_text()
    if "POST" in words:
        comments.append({{"id": 7, "body": body}})
    else:
        assert words[words.index("PATCH") + 1].endswith("/comments/7")
        comments[-1]["body"] = body
    kept.write_text(json.dumps(comments))
"""


@pytest.fixture
def project(tmp_path):
    """A repository with a base commit and a change that needs four times as much."""
    folder, place = tmp_path / "project", tmp_path / "github"
    folder.mkdir()
    place.mkdir()
    client = place / "gh"
    client.write_text(CLIENT.format(python=sys.executable, place=str(place)))
    client.chmod(client.stat().st_mode | stat.S_IXUSR)

    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for rows in (256, 1024):
        (folder / "train.py").write_text(PROGRAM.format(rows=rows))
        git("add", "train.py")
        git("commit", "-q", "-m", f"rows {rows}")

    def run(**variables):
        bin_folder = Path(sys.executable).parent
        env = {
            **os.environ,
            "PATH": os.pathsep.join([str(place), str(bin_folder), os.environ["PATH"]]),
            "MEMORY_PROGRAM": "-- python train.py",
            "MEMORY_BASE": "HEAD~1",
            "MEMORY_DATABASE": "runs.duckdb",
            **variables,
        }
        # What bufdb is installed from is here already.
        env |= {"GITHUB_ACTION_PATH": str(ACTION)}
        (step,) = [step for step in STEPS if not step.startswith("python -m pip")]
        command = ["bash", "-e", "-o", "pipefail", "-c", step]
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)

    return folder, place, run


def test_each_step_has_the_variables_that_it_reads():
    text = (ACTION / "action.yml").read_text()
    variables = set(re.findall(r"\b([A-Z][A-Z_]+): ?\"?\$\{\{", text))
    read = set(re.findall(r"\$\{?(MEMORY_[A-Z_]+|GH_TOKEN)", (ACTION / "compare.sh").read_text()))
    assert read and read <= variables and len(STEPS) == 2
    declared = set(re.findall(r"^  (\w+):$", text.partition("\nruns:")[0], re.MULTILINE))
    assert set(re.findall(r"inputs\.(\w+)", text)) <= declared
    page = (ROOT / "bufdb" / "commands" / "compare.md").read_text()
    workflow = page[page.index("actions/memory@") :]
    used = re.findall(r"^ {14}(\w+):", workflow[: workflow.index("\n\n")], re.MULTILINE)
    assert used and set(used) <= declared


def test_one_comment_is_kept_with_line_and_change(project):
    folder, place, run = project
    (folder / "budget.toml").write_text('[[budget]]\nfunction = "*"\nlimit = "+2%"\n')
    request = {
        "MEMORY_REPOSITORY": "a/b",
        "MEMORY_PULL_REQUEST": "3",
        "MEMORY_BUDGET": "budget.toml",
    }
    done = run(**request)
    assert done.returncode == 1, done.stderr
    (comment,) = json.loads((place / "comments.json").read_text())
    assert "train.py:5" in comment["body"] and "+" in comment["body"]
    assert "**Memory budget: 1 over**" in comment["body"]
    # Another push: the comment is replaced.
    done = run(**request | {"MEMORY_BASE": "", "MEMORY_BUDGET": ""})
    assert done.returncode == 0, done.stderr
    (comment,) = json.loads((place / "comments.json").read_text())
    assert "Nothing to compare with" in comment["body"] and "train.py:5" in comment["body"]
    log = (place / "calls.txt").read_text()
    assert [word for word in log.split() if word in ("POST", "PATCH")] == ["POST", "PATCH"]
    assert not [*folder.glob(".git/worktrees/*")]


def test_without_a_base_the_program_alone_is_shown(project):
    _, _, run = project
    done = run(MEMORY_BASE="", MEMORY_LIMIT="1GiB")
    assert done.returncode == 0, done.stderr
    assert "Nothing to compare with" in done.stdout and "highest peak" in done.stdout


def test_a_program_that_fails_is_an_error(project):
    _, _, run = project
    assert run(MEMORY_PROGRAM="-- python missing.py").returncode not in (0, 1)


def test_compilations_need_the_same_bytes(tmp_path):
    """Bytes have no variance: a limit may be exact. COMPILATIONS of them, in two processes."""
    program = tmp_path / "twice.py"
    program.write_text(
        "import sys\n"
        "import bufdb, jax, jax.numpy as jnp\n"
        "shape = jax.ShapeDtypeStruct((128, 128), jnp.float32)\n"
        "def loss(w, x):\n"
        "    return jnp.tanh(x @ w).sum()\n"
        "print({bufdb.explain(jax.grad(loss), shape, shape).data['peak']['need_bytes']\n"
        "       for _ in range(int(sys.argv[1]))})\n"
    )
    answers = {
        subprocess.run(
            [sys.executable, program, str(COMPILATIONS // 2)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    }
    (answer,) = answers
    assert answer.count(",") == 0 and answer != "set()\n"
