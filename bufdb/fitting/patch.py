"""A plan as a change of the user's files, by public names of JAX and flax alone.

Invariant: what cannot be edited safely is a step in words, with file and line, and no edit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import unified_diff
from bufdb.fitting.levers import EVERY
from bufdb.fitting.plans import Patch, Plan, Program, Site


def patch(program: Program, plan: Plan, texts: Mapping[str, str], root: str = "") -> Patch:
    """Return a plan as a change of files.

    Args:
        program: what the plan is of.
        plan: what to change.
        texts: text of each of the user's files by its path, line ends as they are.
        root: folder to which the paths in the diff are relative; the files' common one if empty.
    """
    editing = Editing(program, plan, texts)
    for lever in EVERY:
        lever.edit(editing)
    new = editing.results()
    changed = {path: text for path, text in new.items() if text != texts[path]}
    base = root or _common(changed)
    diff = "".join(
        unified_diff(texts[path], text, Path(os.path.relpath(path, base)).as_posix())
        for path, text in sorted(changed.items())
    )
    return Patch(diff, changed, tuple(editing.steps))


def of_files(program: Program, plan: Plan) -> Patch:
    """Return a plan as a change of the user's files as they are."""
    return patch(program, plan, texts_of(program))


def texts_of(program: Program) -> dict[str, str]:
    """Return the text of the user's files that a patch may touch."""
    sites: list[Site | None] = [program.function_site]
    for region in program.regions:
        sites += [*region.sites, *region.remats, region.defined]
    sites += [switch.site for switch in program.switches]
    sites += [site for change in program.changes for site in change.sites]
    sites += [one.site for change in program.changes for one in change.expressions]
    texts: dict[str, str] = {}
    for name in {site.file for site in sites if site is not None}:
        with suppress(OSError, UnicodeDecodeError):
            texts[name] = Path(name).read_bytes().decode()
    return texts


def _common(paths: Iterable[str]) -> str:
    """Return the working folder if it holds all paths, else the folder that does."""
    folders = [os.path.dirname(path) for path in paths]  # noqa: PTH120
    here = str(Path.cwd())
    if not folders or os.path.commonpath([here, *folders]) == here:
        return here
    return os.path.commonpath(folders)
