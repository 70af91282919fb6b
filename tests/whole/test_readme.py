"""The repository's pages show what commands print, and everything they refer to exists.

- Between `<!-- bufdb … -->` and `<!-- end -->` is the output of the command in the marker.
- In a ```console block, lines after `$ ` are commands, those after `D ` SQL for a DuckDB shell,
  each followed by its output. `…` matches any text, alone on a line any lines.
  A word `columns=N` after `console` is the width of the terminal, 100 if there is none. A command
  ends with code 0, or with the N of a comment `# exit code N` after it. All commands of a page
  use one database, which holds data/demo as README.md ingests it.
- A block with `file=NAME` after its language is that file.
- The commands of a block with `jax` after `console` run where this Python has JAX; `python` is
  that Python.

`pytest -k readme --update-golden` writes the generated parts, and what commands print where it is
not what is shown; that is then to be shortened by hand.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import duckdb
import pytest
from places import ROOT

from bufdb import cli

FOLDERS = ("bufdb", "schema", "queries", "tests", "data")
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.*")
    if "node_modules" not in path.parts  # other people's, where npm has run
)
PAGES = {
    path.relative_to(ROOT).as_posix(): path
    for path in [ROOT / "README.md", *FILES]
    if path.suffix == ".md" and path.parent.name != "golden"
}
FORMAT = ROOT / "data" / "FORMAT.md"
GENERATED = re.compile(r"(<!-- (bufdb .+?) -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
NAMED = re.compile(r"`(bufdb(?:\.(?!duckdb)\w+)+)`")
PATHS = re.compile(r"`((?:bufdb|schema|queries|tests|data)/[\w/.]+\.\w+)`")
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPTS = ("$ ", "D ")
SECONDS = re.compile(r"in \d+\.\d+ s")
CODE = re.compile(r"# exit code (\d+)")
WITH_JAX = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="this Python has no jax"
)
NUMBER = r"\d+(?:\.\d+)?"
CITED = re.compile(rf"\bsections? ({NUMBER}(?:(?:, | and |, and ){NUMBER})*)")


def pages_with(pattern):
    texts = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
    return [name for name, text in texts.items() if pattern.search(text)]


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """A database with the runs of data/demo, as README.md's command makes it."""
    folder = tmp_path_factory.mktemp("ingested")
    with contextlib.chdir(ROOT), contextlib.redirect_stderr(io.StringIO()):
        command = ["ingest", "data/demo", "--run-from-dir", "--db", str(folder / "bufdb.duckdb")]
        assert cli.run(command) == 0
    return folder / "bufdb.duckdb"


@pytest.fixture
def folder(ingested, tmp_path, monkeypatch, empty_folder):
    """A directory that looks like a checkout, with that database."""
    work = tmp_path / "work"
    work.mkdir()
    for name in FOLDERS:
        (work / name).symlink_to(ROOT / name)
    shutil.copy(ingested, work)
    monkeypatch.chdir(work)
    monkeypatch.setenv("NO_COLOR", "1")
    return work


@pytest.mark.parametrize("name", pages_with(GENERATED))
def test_the_generated_parts_are_current(name, folder, request):
    page = PAGES[name].read_text(encoding="utf-8")

    def current(part):
        return f"{part[1]}\n{printed(part[2], is_terminal=False)[0]}\n{part[4]}"

    written = GENERATED.sub(current, page)
    if request.config.getoption("--update-golden"):
        PAGES[name].write_text(written, encoding="utf-8")
        return
    assert page == written, "'pytest -k readme --update-golden' writes them"


def test_the_lists_of_queries_and_of_tables_are_generated():
    generated = {
        name: [part[2].split()[1] for part in GENERATED.finditer(PAGES[name].read_text("utf-8"))]
        for name in pages_with(GENERATED)
    }
    assert generated == {"queries/README.md": ["queries"], "schema/README.md": ["schema"]}


# What other pages show has tests of its own: they run in CI.
@pytest.mark.parametrize(
    "name",
    [
        name if name == "README.md" else pytest.param(name, marks=pytest.mark.slow)
        for name in pages_with(re.compile(r"^```console", re.MULTILINE))
    ]
    + [
        pytest.param(name, id=f"{name} with jax", marks=[pytest.mark.slow, WITH_JAX])
        for name in pages_with(re.compile(r"^```console jax", re.MULTILINE))
    ],
)
def test_the_examples_show_what_the_commands_print(name, folder, request, monkeypatch):
    page = PAGES[name].read_text(encoding="utf-8")
    written, wrong, settings = page, [], []
    for language, words, body in BLOCK.findall(page):
        options = dict(word.partition("=")[::2] for word in words.split())
        if "file" in options:
            path = Path(options["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        if language != "console" or ("jax" in options and "with jax" not in request.node.name):
            continue
        columns = int(options.get("columns", 100))
        monkeypatch.setenv("COLUMNS", str(columns))
        if "jax" in options:
            monkeypatch.setenv("JAX_PLATFORMS", "cpu")
            place = Path(sys.executable).parent
            monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
        updated = body
        for command, shown in examples(body):
            prompt, text, code = command[:2], command[2:], 0
            if command.startswith("$ duckdb "):  # the lines after D are what it is given
                answer = ""
            elif prompt == "$ ":
                answer, code = printed(text)
            else:
                with duckdb.connect("bufdb.duckdb", read_only=True) as con:
                    con.execute("".join(settings))
                    answer = in_duckdb(con, text, columns)
                settings += [text] if text.startswith("SET ") else []
            expected = CODE.search(command)
            if code != (int(expected[1]) if expected else 0):
                wrong.append(f"{command}ends with exit code {code}\n{answer}")
            if not fits(shown, answer):
                wrong.append(f"{command}{answer}")
                answer = SECONDS.sub("in … s", answer)
                updated = updated.replace(command + shown, command + answer)
        written = written.replace(body, updated)
    if request.config.getoption("--update-golden"):
        PAGES[name].write_text(written, encoding="utf-8")
        return
    assert not wrong, "\n".join([f"{name} shows another answer:", *wrong])


@pytest.mark.parametrize(
    ("shown", "answer", "is_right"),
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
def test_what_fits_an_example(shown, answer, is_right):
    assert fits(shown, answer) is is_right


def test_every_command_has_a_section_with_an_example():
    pages = [PAGES[name] for name in PAGES if name.startswith("bufdb/commands/")]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    begun = re.findall(r"^##+ bufdb (\S+)\n\n(?:```|    )", text, re.MULTILINE)
    assert sorted(begun) == sorted(cli.COMMANDS)


def test_help_groups_the_commands_as_the_pages_do():
    pages = [PAGES[name].read_text("utf-8") for name in PAGES if name.startswith("bufdb/commands/")]
    groups = {
        text.split("\n")[0].removeprefix("# "): sorted(re.findall(r"^##+ bufdb (\S+)$", text, re.M))
        for text in pages
    }
    assert {title: names for title, names in groups.items() if names} == {
        title: sorted(names) for title, names in cli.GROUPS.items()
    }


def test_every_question_has_one_command_that_answers_it():
    page = PAGES["queries/QUESTIONS.md"].read_text(encoding="utf-8")
    _, *questions = re.split(r"^## ", page, flags=re.MULTILINE)
    titles = [text.partition("\n")[0] for text in questions]
    assert [int(title.partition(".")[0]) for title in titles] == list(range(1, 29))
    assert all(title.endswith("?") for title in titles)
    for text in questions:
        (block,) = (body for language, _, body in BLOCK.findall(text) if language == "console")
        answers = [
            shown for command, shown in examples(block) if not command.startswith("$ bufdb ingest")
        ]
        assert len(answers) == 1
        assert re.sub(r"[…\s]", "", answers[0]), "an answer is shown"
        assert "no rows" not in answers[0]


def test_readme_is_read_in_one_sitting():
    readme = PAGES["README.md"].read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 200
    assert len(re.findall(r"^ +python3 -m venv \.venv .*pytest", readme, re.MULTILINE)) == 1


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_refers_to_is_there(name):
    """Files and headings that it links; files, tests and parts of bufdb that it names."""
    text = PAGES[name].read_text(encoding="utf-8")
    prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M))
    missing = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        file, _, anchor = target.partition("#")
        path = PAGES[name].parent / file if file else PAGES[name]
        if re.match(r"[a-z]+:", target):
            continue
        if not path.exists() or (anchor and anchor not in anchors(path)):
            missing.append(target)
    missing += [path for path in PATHS.findall(text) if not (ROOT / path).exists()]
    missing += [test for test in re.findall(r"\btest_\w+\.py", text) if not is_a_test(test)]
    missing += [part for part in NAMED.findall(text) if not is_code(part)]
    assert not missing


def test_the_floors_are_those_of_the_import_contract():
    """In bufdb/README.md the packages of a floor are in brackets on one line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (c["layers"] for c in project["tool"]["importlinter"]["contracts"] if "layers" in c)
    (drawing,) = re.findall(r"^```text floors\n(.*?)^```$", page_text("bufdb"), re.DOTALL | re.M)
    drawn = [set(re.findall(r"\[(\w+)\]", line)) for line in drawing.splitlines()]
    assert [line for line in drawn if line] == [set(layer.split(" | ")) for layer in layers]


def test_every_schema_version_is_in_the_change_log():
    from bufdb.database.store import SCHEMA_VERSION

    assert f"schema version {SCHEMA_VERSION}" in PAGES["bufdb/CHANGELOG.md"].read_text("utf-8")


@pytest.mark.slow
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


def page_text(folder):
    return PAGES[f"{folder}/README.md"].read_text(encoding="utf-8")


def anchors(path):
    """The headings of a page as GitHub links them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+?) *$", text, re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def is_a_test(name):
    return any((ROOT / "tests").rglob(name))


def is_code(name):
    """Return whether a dotted name is a module or something in one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            member = importlib.import_module(".".join(parts[:length]))
            for part in parts[length:]:
                member = getattr(member, part, None)
            return member is not None
    return False


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


def fits(shown, answer):
    """Return whether an example's text matches the answer."""
    pattern = ""
    for line in shown.splitlines():
        if line == "…":
            pattern += "(?:.*\n)*"
        else:
            pattern += ".*".join(map(re.escape, line.split("…"))) + "\n"
    return re.fullmatch(pattern, answer) is not None


class Stream(io.TextIOWrapper):
    """A standard stream that keeps what is written, and may pass for a terminal."""

    def __init__(self, is_terminal):
        super().__init__(io.BytesIO(), encoding="utf-8")
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode()


def printed(command, *, is_terminal=True):
    """Return a command's standard output followed by its standard error; its exit code.

    It runs in this process: to start one for each of the examples took most of the time. What it
    sees of a terminal is that there is one, and its width in COLUMNS.
    """
    words = shlex.split(command.replace("\\\n", " "), comments=True)
    assert words[0] == "bufdb", "examples are commands of bufdb"
    out, err = Stream(is_terminal), Stream(False)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(words[1:])
    return out.text() + err.text(), code


def in_duckdb(con, text, columns):
    """Return the output of DuckDB's shell; its Python package draws the same tables."""
    if text.startswith(".read "):
        text = Path(text.removeprefix(".read ").strip()).read_text(encoding="utf-8")
    if text.startswith("SET "):
        con.execute(text)
        return ""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        con.sql(text).show(max_width=columns)
    return out.getvalue().rstrip("\n") + "\n"
