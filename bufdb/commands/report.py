"""`bufdb report`: one page of HTML about the compiled modules, to view and to mail."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from bufdb.commands import common, completion

DEFAULT_FILE = "report.html"


@click.command(name="report", short_help="One offline page: curve, block map, flame graph, tables.")
@completion.filter_options
@click.option(
    "--platform",
    metavar="PLATFORM",
    shell_complete=completion.known("platform"),
    help="Only this platform: cpu, gpu or tpu.",
)
@click.option(
    "--diff",
    "base",
    metavar="BASE",
    shell_complete=completion.known("run"),
    help="Also show this run, or LABEL=VALUE, and what changed since; --run names the new one.",
)
@common.limit_option
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    callback=common.not_dash,
    default=DEFAULT_FILE,
    show_default=True,
    help="Where to write.",
)
@common.read_db_option
def command(
    run: str | None,
    function: str | None,
    module: str | None,
    platform: str | None,
    base: str | None,
    limit: str | None,
    output: Path | None,
    db: str,
) -> None:
    r"""Write one page of HTML: what was compiled, when memory is held, by what, and what to do.

    The page needs nothing else, neither bufdb nor a network, and can be mailed. Its figures are
    those of 'bufdb query'; each table names the command that gives it. Modules have pictures, by
    function the largest compilation first, as long as the page stays below 4.5 MB; of the others it
    has the figures, and the command that draws them. Tables are of the largest compilations.

    \b
    Exit codes:
      0  written
      1  no module fits
      2  wrong usage, or the file cannot be written
      3  database missing, in use or of another version
    """
    from bufdb.page.page import report

    opened = partial(common.open_database, db)
    filters = {"run": run, "function": function, "module": module, "platform": platform}
    common.write(report(opened, **filters, base=base, limit=limit), output)
