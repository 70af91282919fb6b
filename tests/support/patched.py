"""Plans of a file by the text of its expressions, for tests of patches."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

from bufdb.fitting.patch import patch
from bufdb.fitting.plans import Plan, Program, Region, Site, Switch, Traced

PATH = "/src/train.py"


def site(text: str, expression: str, path: str = PATH, function: str = "", turn: int = 0) -> Site:
    """Return the location of the turn-th occurrence of an expression, as in frames of JAX."""
    tree, raw = ast.parse(text.removeprefix("\ufeff")), text.removeprefix("\ufeff").encode()
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.AugAssign) and segment(raw, node) == expression
    ]
    assert nodes, f"{expression} is not in the text"
    node = nodes[turn]
    return Site(path, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, function)


def segment(raw: bytes, node) -> str:
    lines = [b"", *raw.splitlines(keepends=True)]
    piece = lines[node.lineno : node.end_lineno + 1]
    piece[-1] = piece[-1][: node.end_col_offset]
    piece[0] = piece[0][node.col_offset :]
    return b"".join(piece).decode()


def program(regions=(), switches=(), **fields) -> Program:
    facts = {
        "function": "train.py:step", "target": None, "platform": "cpu", "donatable": (),
        "argument_names": ("params", "batch"), "has_host_memory": True,
        "has_cheap_effort": False, "as_written": Traced(0, 0, 0, 0),
    }  # fmt: skip
    return Program(regions=tuple(regions), switches=tuple(switches), **facts | fields)


def scan(*sites: Site, **fields) -> Region:
    facts = {"function": "body", "defined": None, "count": 4}
    return Region("scan", sites, **facts | fields)


def calls(*sites: Site, **fields) -> Region:
    facts = {"function": "block", "defined": None, "count": 4}
    return Region("call", sites, **facts | fields)


def switch(name: str, place: Site, regions=(0,), **fields) -> Switch:
    return Switch(name, place, regions, 0, **fields)


def named(text: str, expression: str, turn: int = 0):
    """The patch that names an expression; the scan itself is in another file, which is absent."""
    one = switch("fit_0", site(text, expression, turn=turn))
    made = program([scan()], [one])
    return patch(made, Plan((0,), ("fit_0",)), {PATH: text}, "/src")


def git_apply(folder: Path, texts: dict[str, str], diff: str) -> dict[str, str]:
    """The texts after `git apply`, by the same names."""
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    subprocess.run(
        ["git", "-c", "core.autocrlf=false", "apply", "-"],
        input=diff.encode(), cwd=folder, check=True,
    )  # fmt: skip
    return {name: (folder / name).read_bytes().decode() for name in texts}


def loaded(text: str, folder: Path):
    """Import a text as a module of its own."""
    file = folder / f"patched_{len(list(folder.iterdir()))}.py"
    file.write_bytes(text.encode())
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
