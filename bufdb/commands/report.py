"""`bufdb report`: one page of HTML about what was compiled, to look at and to mail."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.commands import common, completion
from bufdb.errors import BufdbError

if TYPE_CHECKING:
    import duckdb

    from bufdb.query.header import Value

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
@click.option(
    "--limit",
    metavar="SIZE|DEVICE",
    help="Memory of the device: a size such as 16GiB, or a device's name such as 'TPU v5e'.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=DEFAULT_FILE,
    show_default=True,
    help="Where to write.",
)
@common.db_option
def command(
    run: str | None,
    function: str | None,
    module: str | None,
    platform: str | None,
    base: str | None,
    limit: str | None,
    output: Path,
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
    from bufdb.commands.summary import limit_of
    from bufdb.export.page import comparison, contents
    from bufdb.query.catalogue import Catalogue
    from bufdb.report.html import page
    from bufdb.resources import query_folder

    limits = limit_of(limit)
    given = {"run": run, "function": function, "module": module, "platform": platform}
    asked: dict[str, Value] = {name: text for name, text in given.items() if text is not None}
    catalogue = Catalogue([query_folder()])
    sql = contents.sql(catalogue)
    runs = None if run is None else [run] if base is None else [run, base]
    con = common.open_database(db, sql if base is None else sql + comparison.SQL, runs=runs)
    compared = None if base is None else comparison.compared(con, base, asked)
    sides = [asked] if compared is None else compared.asked(asked)
    found = contents.contents(con, catalogue, sides, compared)
    if not found.modules:
        raise BufdbError(f"nothing to report: {_why_nothing(con, asked)}")
    options = {**given, "diff": base, "limit": limit}
    words = [word for name, text in options.items() if text for word in (f"--{name}", text)]
    text = page.page(
        found,
        partial(contents.pictures, con),
        command=shlex.join(["bufdb", "report", *words]),
        limit=limits,
    )
    common.write(text, output)


def _why_nothing(con: duckdb.DuckDBPyConnection, asked: dict[str, Value]) -> str:
    from bufdb.database.store import CATALOG
    from bufdb.query.asked import nothing
    from bufdb.query.asked.known import Known
    from bufdb.query.catalogue import Catalogue
    from bufdb.resources import query_folder

    query = Catalogue([query_folder()]).find("modules")
    return nothing.why(Known(con, CATALOG), query, asked)
