"""`bufdb diff`: what changed between two compilations, and why."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from bufdb.commands import common, completion
from bufdb.errors import quote
from bufdb.report import formats
from bufdb.report.text import escape_control, markdown_escape

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.diff import Comparison
    from bufdb.query.header import Value
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
    help="What the parts of a changed peak are grouped by: op (scope path), source (line), shape, "
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
    help="Only pairs in which the key of a module matches.",
)
@click.option("--color", metavar="N", help="Only this memory space: its number, or a name as hbm.")
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
@common.db_option
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
    r"""Compare the modules of BASE with those of NEW: figures, and what the peak is made of.

    BASE and NEW are names of runs, or LABEL=VALUE for all runs with that label. Modules are paired
    by function and shapes of arguments and result, else by function; several of a kind by size.
    A function that only BASE has is paired with one that only NEW has if their shapes (and names)
    say that it was renamed, and no other comes near; --pair says so where that is not clear.

    csv, json and jsonl give one row per figure and, where part is not empty, per part of it; parts
    of a figure add up to its change. '~' stands where nothing changed, 'unknown' where a dump does
    not give the figure; unknown_reason says why, and no change is counted.

    The comparison itself is SQL: FROM diff_modules('BASE', 'NEW'), diff_peak, diff_temps.
    """
    from bufdb.query.diff import SQL, asked_pairs, compare, selected_runs
    from bufdb.query.execute import runs_asked

    values: dict[str, Value] = {"base": base, "new": new, "key_name": key_name}
    values |= {"function": function, "module": module, "color": color}
    con = common.open_database(db, SQL, runs=runs_asked(values))
    for selection in (base, new):
        selected_runs(con, selection)
    values["pair"] = asked_pairs(con, base, new, pairs)
    answer = compare(con, values, temps=output["format_name"] not in _TEXT_FORMATS)
    if not answer.figures:
        common.note(_why_nothing(con, values))
    if output["format_name"] in _TEXT_FORMATS:
        _write_text(answer, top or DEFAULT_TOP, **output)
    else:
        if top is not None:
            common.note("--top cuts tables and Markdown only; all rows are written")
        common.emit(answer.as_result(), **output)


def _why_nothing(con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]) -> str:
    """Why neither side has a figure."""
    from bufdb.query.diff import compare

    filters = ("function", "module", "color")
    given = [name for name in filters if values[name] is not None]
    whole = compare(con, {**values, **dict.fromkeys(filters)}, temps=False).figures
    if not whole:
        return "no rows: neither side has a module"
    functions = ", ".join(dict.fromkeys(row.function_name for row in whole))
    spaces = ", ".join(
        dict.fromkeys(f"{row.color} ({row.memory_space_name or 'no name'})" for row in whole)
    )
    asked = " and ".join(f"{name} {quote(str(values[name]))}" for name in given)
    return f"no rows: neither side has {asked}; there is {functions} in memory space {spaces}"


def _write_text(answer: Comparison, top: int, *, format_name: str, output: Any, full: bool) -> None:
    from bufdb.report import diff

    is_markdown = format_name == "markdown"
    to_terminal = output is None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if to_terminal and not full else None
    cut = 0

    def table(result: Result) -> str:
        nonlocal cut
        text, cells = formats.render(result, format_name, width)
        cut += cells
        return text

    def line(text: str) -> str:
        return (markdown_escape(text) if is_markdown else escape_control(text)) + "\n"

    def bold(text: str) -> str:
        return f"**{line(text).rstrip()}**\n" if is_markdown else line(text)

    figures, left_out = diff.figures_table(answer, top)
    blocks = [bold(diff.summary(answer)), table(figures)]
    unknown = diff.unknown_lines(answer, top)
    if unknown:
        # In Markdown only an empty line ends a line.
        blocks.append(("\n" if is_markdown else "").join(line(text) for text in unknown))
    parts = diff.part_tables(answer, top)
    for heading, result, temps in parts[: diff.MOST_TABLES]:
        text = table(result)
        # Markdown needs an empty line between a paragraph and a table, and after it.
        blocks.append(f"{bold(heading)}\n{text}" if is_markdown else f"{bold(heading)}{text}")
        if temps is not None:
            blocks.append(line(temps))
    common.write("\n".join(blocks), output)
    if left_out:
        common.note(f"{left_out} more functions; --top shows more")
    if len(parts) > diff.MOST_TABLES:
        more = len(parts) - diff.MOST_TABLES
        common.note(f"parts of {more} more functions changed; --function shows them")
    if cut:
        common.note(f"{cut} cells shortened to fit the terminal; --full shows all of them")
