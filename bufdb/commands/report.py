"""`bufdb report`: one page of HTML about the compiled modules, to view and to mail."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from bufdb.commands import common, completion, paths

DEFAULT_FILE = "report.html"


@click.command(name="report", short_help="Write an offline page: curve, block map, flame graph.")
@paths.argument
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
    help="Compare with this run, or LABEL=VALUE; --run names the new one.",
)
@common.limit_option
@common.live_option("limit", "limit")
@common.output_file("Where to write.", default=DEFAULT_FILE, show_default=True)
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
    r"""Write one HTML page: modules, memory over time, what holds it, and what to change.

    The page opens without bufdb or a network and can be mailed. Its figures are those of
    'bufdb query'; each table names its command. Modules have pictures, the largest compilation of
    each function first, while the page stays below 4.5 MB; the others have figures and the command
    that draws them. Tables cover the largest compilations.

    A PATH is read in place of a database: a dump folder, an archive, a log, a URL, or -.

    \b
    Exit codes:
      0  written
      1  no module matches
      2  wrong usage, or the file cannot be written
      3  database missing, in use or of another version
    """
    from bufdb.page.page import report

    if base is not None and paths.are_named():
        base, run = paths.compared(base, run)
    opened = partial(common.open_database, db)
    filters = {"run": run, "function": function, "module": module, "platform": platform}
    common.write(report(opened, **filters, base=base, limit=limit), output)
