"""`bufdb show`: a module in text graphics: memory over the program, and what holds it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.commands import common, completion, paths
from bufdb.errors import UsageError
from bufdb.query.catalogue import own as own_queries
from bufdb.render.text import escape_control

if TYPE_CHECKING:
    from bufdb.query.header import Value

BY = ("line", "op", "category", "dtype", "value")
TREES = ("op", "line", "stack")
MOST = 2**63 - 1
"""The largest number of a step."""
_NAMES = 8
"""Processes that an error names."""


@click.command(name="show", short_help="Draw a module: memory over the program.")
@click.argument("name", metavar="[MODULE]", required=False,
                shell_complete=completion.known("function", "module"))  # fmt: skip
@paths.argument
@completion.filter_options
@completion.color_option
@click.option("--step", metavar="N", type=click.IntRange(0, MOST), help="Show this instant.")
@click.option(
    "--peak",
    metavar="N",
    type=click.IntRange(1, MOST),
    help="Show the N-th highest peak.  [default: 1]",
)
@click.option(
    "--by",
    type=click.Choice(BY),
    help="Group buffers by this.  [default: line; op if no line is known]",
)
@click.option(
    "--tree",
    type=click.Choice(TREES),
    help="Show the bytes at the instant as a tree instead of the largest values.",
)
@click.option(
    "--process",
    "is_process",
    is_flag=True,
    help="Show what the process holds over its snapshots instead.",
)
@click.option("--ascii", "is_plain", is_flag=True, help="ASCII characters only.")
@common.output_option
@common.read_db_option
def command(
    name: str | None,
    run: str | None,
    function: str | None,
    module: str | None,
    color: str | None,
    step: int | None,
    peak: int | None,
    by: str | None,
    tree: str | None,
    is_process: bool,
    is_plain: bool,
    output: Path | None,
    db: str,
) -> None:
    """Show one module: occupied bytes over the program, the arena, and what holds the peak.

    MODULE is the key or name of a module, the name of a function, or a glob of one; of those that
    match, the one with the largest need is shown, in the device's own memory.

    The curve has the occupied bytes over the steps of the program, the map below it the arena of
    temp allocations: which of its bytes are occupied, and by which buffers. In a long program a
    column covers several steps and shows the one with the most bytes, so nothing is averaged, and
    the contents of a column existed at the same time. The instant shown is marked, and peaks are
    numbered: --peak 2 or --step N choose another. Parts of the instant add up to it. Figures are
    those of 'bufdb query timeline', 'peaks', 'peak' and 'peak-by'.

    The width is that of the terminal (COLUMNS), from 60 to 160. Without colors (a pipe, NO_COLOR)
    letters mark buffers; --ascii is for terminals that show no block characters.

    With --process it is what a process holds over time, by snapshots of 'bufdb capture
    --watch-every' or bufdb.watch (those of 'bufdb query process-curve'): the arrays that are alive
    on its fullest device, and what is added while the largest loaded program runs. MODULE is then a
    glob of the process, such as 'process-2/*'.

    A PATH is read in place of a database: a dump folder, an archive, a log, a URL, or -.
    """
    if is_process:
        if step is not None or peak is not None or by is not None or tree is not None:
            raise UsageError(
                "--process shows no instant: leave out --step, --peak, --by and --tree"
            )
        globs = {"run": run, "function": function, "module": module, "color": color}
        _process(paths.or_name(name), globs, is_plain, output, db)
        return
    from bufdb.query import subject
    from bufdb.show import drawing, module_screen, picture
    from bufdb.show.screen import Screen

    name = paths.or_name(name)
    if step is not None and peak is not None:
        raise UsageError("--step and --peak both say which instant to show; give one of them")
    globs = {"run": run, "function": function, "module": module, "color": color}
    filters: dict[str, Value] = {key: text for key, text in globs.items() if text is not None}
    queries = picture.queries(own_queries(), tree)
    sql = "\n".join([subject.SQL, subject.NAMES, picture.sql_of(queries)])
    con = common.open_database(db, sql, runs=None if run is None else [run])
    chosen = subject.choose(con, "show", name, filters)
    if chosen.others:
        common.note(chosen.others)
    stream = sys.stdout if output is None else None
    screen = Screen(
        shutil.get_terminal_size().columns,
        drawing.look_of(stream, os.environ, is_plain=is_plain),
    )
    instants = {"step": step, "peak": peak}
    instant: dict[str, Value] = {k: v for k, v in instants.items() if v is not None}
    module_screen.draw(con, queries, chosen, screen, instant, by, tree)
    common.write(screen.text(), output, is_safe=screen.look.is_coloured)


def _process(
    name: str | None,
    globs: dict[str, str | None],
    is_plain: bool,
    output: Path | None,
    db: str,
) -> None:
    """Show processes over time.

    Raises:
        UsageError: there is no snapshot, or none of a process of that name.
    """
    from bufdb.answers import growth, process_curve, process_screen
    from bufdb.show import drawing
    from bufdb.show.screen import width_of

    filters: dict[str, Value] = {key: text for key, text in globs.items() if text is not None}
    if name is not None:
        filters["profile"] = name
    run = globs["run"]
    sql = "\n".join([growth.HAS_SNAPSHOTS, process_curve.query().sql])
    con = common.open_database(db, sql, runs=None if run is None else [run])
    curves = process_curve.curves(con, filters, process_screen.MOST)
    if not curves and name is not None:
        every = process_curve.processes(con, {**filters, "profile": None})
        if every:
            names = ", ".join(every[:_NAMES]) + (", …" if len(every) > _NAMES else "")
            raise UsageError(f"no process matches '{escape_control(name)}'; there is {names}")
    if not curves:
        raise UsageError(
            "no snapshot of a process: bufdb capture --watch-every 60s takes some, and mark of "
            "bufdb.watch"
        )
    if len(curves) == process_screen.MOST:
        other_count = len(process_curve.processes(con, filters)) - len(curves)
        if other_count:
            common.note(
                f"the {len(curves)} processes that hold the most; {other_count} more: "
                "bufdb show --process NAME"
            )
    stream = sys.stdout if output is None else None
    look = drawing.look_of(stream, os.environ, is_plain=is_plain)
    width = width_of(shutil.get_terminal_size().columns)
    shown = ["\n".join(process_screen.lines(rows, width, look)) for rows in curves]
    common.write("\n\n".join(shown) + "\n", output)
