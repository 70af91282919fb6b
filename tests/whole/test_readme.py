"""README.md: its generated parts are current, and its examples show what the commands print.

- Between `<!-- bufdb … -->` and `<!-- end -->` stands what the command in the marker prints.
- In a ```console block, lines after `$ ` are commands, those after `D ` SQL for a DuckDB shell;
  what they print stands below them. `…` stands for any text, alone on a line for any lines.
  A word `columns=N` after `console` is the width of the terminal, 100 if there is none.
- A block with `file=NAME` after its language is that file.

`pytest tests/whole/test_readme.py --update-golden` writes the generated parts, and what commands
print where it is not what is shown; that is then to be shortened by hand.
"""

import contextlib
import io
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from places import ROOT

README = ROOT / "README.md"
FOLDERS = ("bufdb", "schema", "queries", "tests", "data")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.*"))
FORMAT = ROOT / "data" / "FORMAT.md"
SCRIPT = "from bufdb.cli import main; main()"
GENERATED = re.compile(r"(<!-- (bufdb .+?) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPTS = ("$ ", "D ")
NUMBER = r"\d+(?:\.\d+)?"
CITED = re.compile(rf"\bsections? ({NUMBER}(?:(?:, | and |, and ){NUMBER})*)")
SECONDS = re.compile(r"in \d+\.\d+ s")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory as in a fresh checkout, with `bufdb` on the path."""
    for name in ("BUFDB_DB", "BUFDB_QUERIES", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    scripts = tmp_path / "bin"
    scripts.mkdir()
    script = scripts / "bufdb"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{SCRIPT}' \"$@\"\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{scripts}{os.pathsep}{os.environ['PATH']}")
    work = tmp_path / "work"
    shutil.copytree(ROOT / "data", work / "data")
    shutil.copytree(ROOT / "queries", work / "queries")
    monkeypatch.chdir(work)
    return work


def test_the_generated_parts_are_current(folder, request):
    readme = README.read_text(encoding="utf-8")
    parts = list(GENERATED.finditer(readme))
    assert [part[2].split()[1] for part in parts] == ["queries", "schema"]

    def current(part):
        text = subprocess.run(
            part[2], shell=True, capture_output=True, text=True, check=True
        ).stdout
        return f"{part[1]}\n{text}\n{part[4]}"

    written = GENERATED.sub(current, readme)
    if request.config.getoption("--update-golden"):
        README.write_text(written, encoding="utf-8")
        return
    assert readme == written, "'pytest tests/whole/test_readme.py --update-golden' writes them"


def test_the_examples_show_what_the_commands_print(folder, request):
    readme = README.read_text(encoding="utf-8")
    written, wrong, settings = readme, [], []
    subprocess.run(
        "bufdb ingest data/demo --run-from-dir", shell=True, check=True, capture_output=True
    )
    for language, words, body in BLOCK.findall(readme):
        options = dict(word.partition("=")[::2] for word in words.split())
        if "file" in options:
            path = Path(options["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        if language != "console":
            continue
        columns = int(options.get("columns", 100))
        found = body
        for command, shown in examples(body):
            prompt, text = command[:2], command[2:]
            if command.startswith("$ duckdb "):  # the lines after D are what it is given
                printed = ""
            elif prompt == "$ ":
                printed = in_terminal(text, columns)
            else:
                with duckdb.connect("bufdb.duckdb", read_only=True) as con:
                    con.execute("".join(settings))
                    printed = in_duckdb(con, text, columns)
                settings += [text] if text.startswith("SET ") else []
            if not fits(shown, printed):
                wrong.append(f"{command}\n{printed}")
                printed = SECONDS.sub("in … s", printed)
                found = found.replace(command + shown, command + printed)
        written = written.replace(body, found)
    if request.config.getoption("--update-golden"):
        README.write_text(written, encoding="utf-8")
        return
    assert not wrong, "\n".join(["README.md shows another answer:", *wrong])


@pytest.mark.parametrize(
    ("shown", "printed", "is_right"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("a\n…\n", "a\n", True),
        ("in … s, 3\n", "in 0.71 s, 3\n", True),
        ("in … s, 3\n", "in 0.71 s, 4\n", False),
        ("in … s\n", "in 0.71\n1 s\n", False),
        ("a+b\n", "aab\n", False),
    ],
)
def test_what_fits_an_example(shown, printed, is_right):
    assert fits(shown, printed) is is_right


def test_every_section_of_the_format_that_is_cited_is_there():
    """Comments say `format section 7.1`, which is a numbered heading of data/FORMAT.md."""
    assert FORMAT.is_file(), "data/FORMAT.md is what the comments cite"
    headings = re.findall(rf"^#+ ({NUMBER})\.? ", FORMAT.read_text("utf-8"), re.MULTILINE)
    assert len(headings) == len(set(headings))
    missing = []
    for path in filter(is_source, FILES):
        text = re.sub(r"\n\s*(?:--|#)?\s*", " ", path.read_text(encoding="utf-8"))
        for cited in CITED.findall(text):
            lost = [number for number in re.findall(NUMBER, cited) if number not in headings]
            missing += [f"{path.relative_to(ROOT)}: section {number}" for number in lost]
    assert not missing, "data/FORMAT.md has no such section"


def is_source(path):
    return path.suffix in (".py", ".sql") or path == FORMAT


def examples(body):
    """Each command of a block, its prompt and continuation lines with it, and what is below."""
    parts = []
    for line in body.splitlines(keepends=True):
        if line.startswith(PROMPTS):
            parts.append((line, ""))
        elif parts and not parts[-1][1] and goes_on(parts[-1][0]):
            parts[-1] = (parts[-1][0] + line, "")
        else:
            assert parts, f"a console block begins with a command, not with {line}"
            parts[-1] = (parts[-1][0], parts[-1][1] + line)
    return parts


def goes_on(command):
    text = command.rstrip("\n")
    if text.startswith("$ "):
        return text.endswith("\\")
    return not text.endswith(";") and not text.startswith("D .")


def fits(shown, printed):
    """Whether a text is what an example shows of it."""
    pattern = ""
    for line in shown.splitlines():
        if line == "…":
            pattern += "(?:.*\n)*"
        else:
            pattern += ".*".join(map(re.escape, line.split("…"))) + "\n"
    return re.fullmatch(pattern, printed) is not None


def in_terminal(command, columns):
    """What a command prints on a terminal, first to standard output, then to standard error."""
    main, terminal = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": str(columns)},
    ) as process:
        os.close(terminal)
        out = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # Linux' end of file
                break
            if not part:
                break
            out += part
        assert process.stderr is not None
        err = process.stderr.read()
    os.close(main)
    return (out.replace(b"\r\n", b"\n") + err).decode()


def in_duckdb(con, text, columns):
    """What the shell of DuckDB prints; its Python package draws the same tables."""
    if text.startswith(".read "):
        text = Path(text.removeprefix(".read ").strip()).read_text(encoding="utf-8")
    if text.startswith("SET "):
        con.execute(text)
        return ""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        con.sql(text).show(max_width=columns)
    return out.getvalue().rstrip("\n") + "\n"
