"""The instruction file for assistants: its commands are those that the pages run."""

import re
import shlex

import click
import pytest

from bufdb import cli
from bufdb.export import skill
from bufdb.resources import questions_page

COMMANDS = re.findall(r"`(bufdb [^`]+)`", skill.text())


def test_each_question_has_its_command():
    titles = re.findall(r"^## \d+\. (.+)$", questions_page(), re.MULTILINE)
    lines = re.findall(r"^- (.+?) `bufdb ", skill.text(), re.MULTILINE)
    assert lines == titles and len(titles) == 28


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_one(line, empty_folder):
    words = shlex.split(line)
    if "COMMAND" in words or "NAME" in words:
        return
    for name in ("FILE", "dumps", "budget.toml", "train.py"):
        (empty_folder / name).touch()
    command = cli.bufdb.get_command(click.Context(cli.bufdb), words[1])
    command.make_context(words[1], words[2:])


def test_it_is_one_page(call, tmp_path):
    code, out, err = call("skill", "--to", tmp_path)
    file = tmp_path / "bufdb" / "SKILL.md"
    assert (code, out, err) == (0, "", f"bufdb: written: {file}\n")
    assert call("skill")[1] == file.read_text() == skill.text()
    assert skill.text().startswith("---\nname: bufdb\ndescription: ")
    assert len(skill.text().splitlines()) < 80
