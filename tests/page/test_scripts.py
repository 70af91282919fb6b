"""The scripts of the report's page: their unit tests, lint and types, by Node."""

import json
import shutil
import subprocess

import pytest
from places import ROOT

PAGE = ROOT / "tests" / "page" / "scripts"
STATIC = ROOT / "bufdb" / "page" / "static"
OLDEST_NODE = 20


def missing():
    """Why the scripts cannot be tried here; None if they can."""
    node = shutil.which("node")
    if node is None:
        return "this machine has no node"
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        return f"node {version} is older than {OLDEST_NODE}"
    return None


NODE = missing()
needs_node = pytest.mark.skipif(NODE is not None, reason=NODE or "")
needs_tools = pytest.mark.skipif(
    NODE is not None or not (PAGE / "node_modules").is_dir() or shutil.which("npm") is None,
    reason=NODE or "'npm ci' has not been run in tests/page/scripts",
)


def passes(*command):
    done = subprocess.run(command, cwd=PAGE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@needs_node
def test_unit_tests_pass():
    passes("node", "--test")


@needs_tools
@pytest.mark.parametrize("check", ["lint", "types", "format"])
def test_scripts_are_checked(check):
    passes("npm", "run", "--silent", check)


FORBIDDEN = (
    "element.innerHTML = name;",
    "element.insertAdjacentHTML('beforeend', name);",
    "document.write(name);",
    "element.setAttribute('onclick', name);",
    "fetch('https://example.com');",
    "new Image().src = 'https://example.com';",
    "eval(name);",
)


@needs_tools
def test_lint_forbids_markup_and_requests():
    body = "\n".join((*FORBIDDEN, "return [element, name];"))
    script = f"export function act(element, name) {{\n{body}\n}}\n"
    eslint = PAGE / "node_modules" / ".bin" / "eslint"
    done = subprocess.run(
        [eslint, "-c", PAGE / "eslint.config.mjs", "--stdin", "--stdin-filename",
         "bufdb/page/static/some.mjs", "--format", "json"],
        cwd=ROOT, input=script, capture_output=True, text=True,
    )  # fmt: skip
    lines = {
        message["line"]
        for message in json.loads(done.stdout)[0]["messages"]
        if message["ruleId"].startswith(("no-restricted", "no-eval"))
    }
    assert lines == {*range(2, 2 + len(FORBIDDEN))}, done.stdout


def test_the_lock_names_no_registry():
    lock = json.loads((PAGE / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]


def test_names_reach_the_page_through_one_function():
    """All else would have to escape by itself what reorders text."""
    setters = ("textContent =", "innerText =", ".append(document.createTextNode")
    users = {
        path.name: [
            line.strip()
            for line in path.read_text(encoding="utf-8").splitlines()
            if any(setter in line for setter in setters)
        ]
        for path in STATIC.glob("*.mjs")
    }
    assert {name for name, lines in users.items() if lines} <= {"copy.mjs"}, users
