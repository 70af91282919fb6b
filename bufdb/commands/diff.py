"""`bufdb diff`: the changes between two compilations, and their causes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.commands import common, completion, paths

if TYPE_CHECKING:
    from bufdb.answers.diff import Comparison, Diff
    from bufdb.query.result import Result

KEYS = ("op", "source", "shape", "dtype", "opcode", "category", "stack", "all")
"""Keys of the macro diff_peak."""
DEFAULT_TOP = 10
_TEXT_FORMATS = ("table", "markdown")


@click.command(name="diff", short_help="Compare two runs: what changed, and why.")
@click.argument("base", shell_complete=completion.known("run"))
@click.argument("new", shell_complete=completion.known("run"))
@click.option(
    "--by",
    "key_name",
    metavar="KEY",
    default="op",
    show_default=True,
    type=click.Choice(
        KEYS,
        case_sensitive=True,
    ),
    help="Group the parts of a changed peak by op (scope path), source (line), shape, "
    "dtype, opcode, category (forward, backward, …), stack or all.",
)
@click.option(
    "--function",
    metavar="GLOB",
    shell_complete=completion.known("function"),
    help="Only jitted functions that match.",
)
@click.option(
    "--module",
    metavar="GLOB",
    shell_complete=completion.known("module"),
    help="Only pairs where a module's key matches.",
)
@click.option(
    "--color",
    metavar="N",
    shell_complete=completion.known("color"),
    help="Memory space: its number, its name or all.  [default: the device's own]",
)
@click.option(
    "--pair",
    "pairs",
    metavar="OLD=NEW",
    multiple=True,
    help="Compare the function or module OLD of BASE with NEW of NEW, whatever their names and "
    "shapes; can be given several times.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Functions and parts to show in a table or in Markdown.  [default: {DEFAULT_TOP}]",
)
@common.output_options
@common.read_db_option
def command(
    base: str,
    new: str,
    key_name: str,
    function: str | None,
    module: str | None,
    color: str | None,
    pairs: tuple[str, ...],
    top: int | None,
    db: str,
    **output: Any,
) -> None:
    r"""Compare the modules of BASE with those of NEW: figures, and parts of the peak.

    BASE and NEW are names of runs, or LABEL=VALUE for all runs with that label; or paths of dumps,
    both of them. Modules are paired by function and shapes of arguments and result, else by
    function; several by size. A function only in BASE and one only in NEW are paired as a rename if
    their shapes (and names) leave no doubt; --pair decides other cases.

    csv, json and jsonl have one row per figure and, where part is not empty, per part of it; parts
    of a figure add up to its change. '~' means no change, 'unknown' a figure that a dump does not
    have; unknown_reason says why, and no change is counted. If profiles timed both sides, the
    figure 'time' is that of a run in nanoseconds, with parts by op, source and opcode.

    If both runs have memory profiles, what their processes hold is compared, too, by line and
    shape: 'bufdb query diff-process'. Profiles are paths as well: bufdb diff first.prof last.prof.

    The comparison itself is SQL: FROM diff_modules('BASE', 'NEW'), diff_peak, diff_temps.
    """
    from bufdb.answers import diff

    base, new = paths.sides(base, new)
    opened = partial(common.open_database, db)
    options: dict[str, Any] = {"by": key_name, "function": function, "module": module}
    options |= {"color": color, "pairs": pairs}
    if output["format_name"] in _TEXT_FORMATS:
        shown = top or DEFAULT_TOP
        comparison = diff.diff(opened, base, new, top=shown, **options)
        held = _held(opened, base, new, options)
        if not comparison.comparison.figures and held:
            common.write("\n".join([*held, ""]), output["output"])
            return
        if comparison.note is not None:
            common.note(comparison.note)
        _write_text(comparison.comparison, shown, held, **output)
        return
    if top is not None:
        common.note("--top cuts tables and Markdown only; all rows are written")
    found_pieces = diff.in_pieces(opened, base, new, **options)
    common.emit_pieces(
        map(_noted, found_pieces), format_name=output["format_name"], output=output["output"]
    )


def _held(opened: Any, base: str, new: str, options: dict[str, Any]) -> list[str]:
    """Return what processes hold, unless only some programs are asked about."""
    from bufdb.answers import process_changes

    if (
        any(options[name] is not None for name in ("function", "module", "color"))
        or options["pairs"]
    ):
        return []
    return process_changes.lines(opened, base, new, {})


def _noted(piece: Diff) -> Result:
    """Return the rows, after noting why there are none or what they leave out."""
    from bufdb.answers.diff_rows import rows
    from bufdb.answers.diff_text import others

    for text in (piece.note, others(piece.comparison)):
        if text is not None:
            common.note(text)
    return rows(piece.comparison)


def _write_text(
    answer: Comparison,
    top: int,
    held: list[str],
    *,
    format_name: str,
    output: Path | None,
    full: str | None,
) -> None:
    from bufdb.answers import diff_text

    shown = diff_text.text(answer, top, format_name, common.width_for(output, full))
    common.write(shown.text + ("\n".join(["", *held, ""]) if held else ""), output)
    for text in shown.notes:
        common.note(text)
    if shown.cut:
        common.note(f"{shown.cut} cells shortened to fit the terminal; --full shows all of them")
