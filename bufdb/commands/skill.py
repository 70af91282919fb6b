"""`bufdb skill`: an instruction file for coding assistants."""

from __future__ import annotations

from pathlib import Path

import click

from bufdb.commands import common
from bufdb.errors import UsageError


@click.command(name="skill", short_help="Write an instruction file for coding assistants.")
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of skills, such as .claude/skills; writes DIR/bufdb/SKILL.md.",
)
def command(folder: Path | None) -> None:
    r"""Write what a coding assistant should ask bufdb when, on one page.

    \b
      bufdb skill --to .claude/skills

    The page has the questions of queries/QUESTIONS.md, each with its command. Without --to it is
    printed. 'bufdb mcp' serves the answers themselves.
    """
    from bufdb.export import skill

    if folder is None:
        common.write(skill.text())
        return
    place = folder / skill.NAME
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {place}: {error.strerror}") from error
    common.write(skill.text(), place / "SKILL.md")
    common.note(f"written: {place / 'SKILL.md'}")
