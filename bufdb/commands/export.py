"""`bufdb export`: tables, a small database, flame graphs and traces for other tools."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from bufdb.commands import common, completion, paths
from bufdb.errors import UsageError

TABLES = ("parquet", "csv", "bundle")
PICTURES = ("speedscope", "collapsed", "pprof", "perfetto", "torch-snapshot")


@click.command(name="export", short_help="Write tables, flame graphs and traces for other tools.")
@paths.argument
@click.option(
    "--format",
    "form",
    type=click.Choice([*TABLES, *PICTURES]),
    help="Format to write, see above.",
)
@click.option(
    "--sources",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the dump files themselves into a new folder, those of each run below its name.",
)
@completion.filter_options
@click.option(
    "--color",
    metavar="N",
    shell_complete=completion.known("color"),
    help="In a picture: memory space, its number, its name or all.  [default: the device's own]",
)
@click.option(
    "--frames",
    type=click.Choice(["own", "all"]),
    default="own",
    show_default=True,
    help="In a picture: call stacks without library code, or with it.",
)
@click.option(
    "--anonymize",
    is_flag=True,
    help="Replace names and paths consistently; sizes, shapes and lines stay.",
)
@click.option(
    "--keep",
    metavar="LABEL",
    multiple=True,
    help="With --anonymize: a label of runs to keep; may be repeated.",
)
@common.output_file("Where to write; a new folder for parquet and csv.")
@common.read_db_option
def command(
    form: str | None,
    sources: Path | None,
    run: str | None,
    function: str | None,
    module: str | None,
    color: str | None,
    frames: str,
    anonymize: bool,
    keep: tuple[str, ...],
    output: Path | None,
    db: str,
) -> None:
    r"""Write what the database holds, or a part of it, in the format of another tool.

    \b
      parquet         all tables, a file for each, with exact types and load.sql
      csv             the same as text
      bundle          a database with only the chosen modules, for a bug report
      speedscope      bytes at the peak by Python call stack, for www.speedscope.app
      collapsed       the same as lines for flamegraph.pl
      pprof           the same for pprof, which compares two with -diff_base
      perfetto        occupied bytes and values over the program, for ui.perfetto.dev
      torch-snapshot  each value from allocation to free, for pytorch.org/memory_viz

    A picture shows the largest compilation of each function, each memory space separately;
    collapsed and pprof, which hold one sum, the function with the largest need.

    --anonymize keeps the words of XLA, JAX and bufdb, all numbers, and single letters; every other
    word of names, paths, labels and options is replaced, consistently in the file. Your functions
    and files are replaced whole. How a run was made (its command, versions, host) is dropped, or
    kept by --keep. Hashes of dump files stay.

    --sources DIR gives the dump files back byte for byte, as they were read, unless they were
    ingested with --no-sources. A bundle has them too; an anonymous export never has.

    \b
    Exit codes:
      0  written
      1  nothing to export, or every peak asked for is unknown
      2  wrong usage, or the file cannot be written
      3  database missing, in use or of another version
    """
    context = click.get_current_context()
    opened = partial(common.open_database, db)
    if sources is not None:
        if form is not None or output is not None or anonymize or color is not None:
            raise UsageError(
                "--sources writes the dump files as they were; it takes --run, --function and "
                "--module alone"
            )
        from bufdb.export.sources import export_sources

        for text in export_sources(opened, sources, run=run, function=function, module=module):
            common.note(text)
        return
    has_no_output = context.get_parameter_source("output") is ParameterSource.DEFAULT
    if form is None or has_no_output:
        raise UsageError("expected --format FORMAT -o FILE, or --sources DIR")
    from bufdb.export.export import export

    output = output or Path("/dev/stdout")
    filters = {"run": run, "function": function, "module": module, "color": color}
    notes = export(
        opened, db, form, output, **filters, frames=frames, anonymize=anonymize, keep=keep
    )
    for text in notes:
        common.note(text)
