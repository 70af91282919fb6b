"""Shell completion, by click's own protocol."""

import pytest

from bufdb import cli
from bufdb.commands import completion
from bufdb.query.catalogue import Catalogue, query_folders

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture
def complete(capfd, monkeypatch, demo_db):
    """Completes a line whose last word is what was typed of it: the words offered."""
    monkeypatch.setenv("BUFDB_DB", str(demo_db))

    def completed(line):
        monkeypatch.setenv("_BUFDB_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        with pytest.raises(SystemExit):
            cli.run([])
        out, err = capfd.readouterr()
        assert err == ""
        return [text.removeprefix("plain,") for text in out.splitlines() if text]

    return completed


RUNS = ["cpu_b16", "cpu_b8", "cpu_b8_old", "cpu_b8_remat", "gpu_b8", "tpu_b8"]


def test_commands_and_queries(complete):
    assert complete("bufdb ") == list(cli.COMMANDS)
    assert complete("bufdb qu") == ["query", "queries"]
    assert complete("bufdb query ") == list(Catalogue(query_folders([], {})).paths)
    assert complete("bufdb query peak-by-s") == [
        "peak-by-stack",
        "peak-by-source-line",
        "peak-by-shape",
    ]
    assert complete("bufdb query --run cpu_b8 top_t") == ["top-temps"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "query peaks -p ",
            ["run", "function", "platform", "color", "module", "top_functions", "top_n"],
        ),
        ("query peaks -p top", ["top_functions", "top_n"]),
        ("query peaks -p top_n 3 -p top-", ["top_functions", "top_n"]),
        ("query peak-by-function -p by ", ["function", "jit", "python"]),
        ("query diff-peak -p unchanged ", ["true", "false"]),
        ("query peaks -p function tr", ["train_step"]),
        ("query peaks -p platform=", ["platform=cpu", "platform=gpu", "platform=tpu"]),
        ("query peaks -p top_n ", []),
        ("query peaks -p nothing ", []),
    ],
)
def test_parameters_and_what_they_can_be(complete, line, words):
    assert complete(f"bufdb {line}") == words


@pytest.mark.slow
def test_what_the_database_holds(complete):
    assert complete("bufdb query peaks --run ")[:6] == RUNS
    assert "batch=16" in complete("bufdb query peaks --run ")
    assert complete("bufdb query peaks --run batch=1") == ["batch=16"]
    assert complete("bufdb query peaks --function ev") == ["eval_step"]
    assert complete("bufdb query peaks --color vm") == ["vmem"]
    assert complete("bufdb query diff-peak -p base ")[:6] == RUNS
    assert complete("bufdb diff cpu_b8 cpu_b1") == ["cpu_b16"]
    assert complete("bufdb runs remove ") == RUNS
    assert complete("bufdb what-if tr") == ["train_step"]


@pytest.mark.parametrize(
    "line",
    [
        "query peaks --db nowhere.duckdb --run ",
        "query peaks --db text --run ",
        "query nothing -p ",
        "query peaks --queries nowhere -p ",
        "query --queries nowhere ",
        "query broken",
    ],
)
def test_nothing_known_completes_nothing(complete, line, empty_folder, monkeypatch):
    (empty_folder / "text").write_text("no database")
    (empty_folder / "mine").mkdir()
    (empty_folder / "mine" / "broken.sql").write_text("no query")
    monkeypatch.setenv("BUFDB_QUERIES", str(empty_folder / "mine"))
    assert complete(f"bufdb {line}") == []


def test_an_unknown_command_offers_the_commands(complete):
    assert complete("bufdb nothing ") == list(cli.COMMANDS)


def test_a_name_with_a_line_break_is_not_offered():
    assert [item.value for item in completion._items(["a\nb", "a", "a", "b"], "a")] == ["a"]


HOSTILE = "jit_evilf;touch made;#", "jit_$(touch made)", "jit_`touch made`", "jit_&touch made"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_name_that_a_shell_would_run_is_not_offered(monkeypatch, capfd, tmp_path, shell):
    names = [
        *HOSTILE,
        "jit_*",
        "jit_{a,b}",
        "jit_~",
        "-jit",
        "jit a",
        "jit|b",
        "jit_\x1b[2J",
        "jit_ok",
    ]
    monkeypatch.setattr(completion, "_names", lambda ctx, kind: names)
    monkeypatch.setenv("_BUFDB_COMPLETE", f"{shell}_complete")
    words = "bufdb summary --module jit" if shell != "fish" else "bufdb summary --module "
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", "jit" if shell == "fish" else "3")
    with pytest.raises(SystemExit):
        cli.run([])
    out, _ = capfd.readouterr()
    assert "jit_ok" in out
    assert "touch" not in out and not any(char in out for char in "*{~|;$`&\x1b")
