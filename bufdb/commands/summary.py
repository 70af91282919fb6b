"""`bufdb summary`: one screen about the compiled modules; also shown after ingest and capture."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.commands import common, completion, paths
from bufdb.errors import one_line
from bufdb.query.parameters import glob
from bufdb.render.text import use_colour

if TYPE_CHECKING:
    from bufdb.answers.summary import Overview


@click.command(name="summary", short_help="Show the highest peak and what holds it.")
@paths.argument
@completion.filter_options
@completion.color_option
@common.limit_option
@common.live_option("limit", "limit")
@common.text_or_json_option
@common.output_option
@common.read_db_option
def command(
    run: str | None,
    function: str | None,
    module: str | None,
    color: str | None,
    limit: str | None,
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    """Show what was compiled, the highest peak, what holds it, and what would lower it most.

    It is about the function with the largest need in the memory of the device, or in that of
    --color. The need, holes in XLA's reservation included, is compared with the device's memory if
    the device is known, from --limit or from a label of the run (bufdb ingest --metadata
    device='TPU v5e'); no dump names it. All figures are those of 'bufdb query peak-by', by category
    and by line, 'advice' and 'diagnostics'.

    A PATH is read in place of a database: a dump folder, an archive, a log, a URL, or -.
    """
    from bufdb.answers.summary import summary as ask

    opened = partial(common.open_last, db)
    answer = ask(opened, run=run, function=function, module=module, color=color, limit=limit)
    if answer.note is not None:
        common.note(answer.note)
        if format_name == "text":
            return
    write(answer.overview, format_name, output)


def write(overview: Overview, format_name: str, output: Path | None) -> None:
    """Write a summary as text or json."""
    from bufdb.answers import summary_text

    is_coloured = output is None and format_name == "text" and use_colour(sys.stdout, os.environ)
    text = (
        summary_text.as_json(overview)
        if format_name == "json"
        else summary_text.text(overview, is_coloured=is_coloured)
    )
    common.write(text, output, is_safe=is_coloured)


def show_after(
    db: str, runs: Sequence[str], parts: tuple[str, ...] = (), limit: str | None = None
) -> None:
    """Print a short summary to standard error after an ingest: of its run, or for several, of all.

    Without `parts` it needs few views, which costs an ingest 0.15 s.
    """
    from bufdb.answers import summary_text
    from bufdb.answers.summary import summary as ask
    from bufdb.database import store

    run = glob(runs[0]) if len(runs) == 1 else None
    answer = ask(partial(store.open_readable, db), run=run, limit=limit, names=parts)
    if answer.note is not None:
        return
    command = shlex.join(["bufdb", "summary", *([] if run is None else ["--run", run])])
    text = summary_text.text(
        answer.overview,
        is_coloured=use_colour(sys.stderr, os.environ),
        more=f"{one_line(command)} shows what holds it",
    )
    with contextlib.suppress(OSError):
        click.echo(text, nl=False, err=True)
