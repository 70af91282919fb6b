"""`bufdb profile`: times of instructions, from a profile of jax.profiler."""

from __future__ import annotations

from pathlib import Path

import click

from bufdb.commands import common, completion
from bufdb.errors import DatabaseError


@click.command(name="profile", short_help="Read the time of each instruction.")
@click.argument("path", metavar="PATH", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--run",
    metavar="RUN",
    required=True,
    shell_complete=completion.run_name,
    help="The run whose modules were profiled.",
)
@common.db_option
@common.quiet_option
def command(path: Path, run: str, db: str, is_quiet: bool) -> None:
    """Read a profile of jax.profiler into a run: the time of each instruction on each device.

    PATH is the folder of jax.profiler.trace, or an archive of it (its newest profile is read), or a
    file NAME.xplane.pb, compressed or not. It is read without JAX or another package.

    Modules are found by name, on CPU and GPU also by number, and must have the instructions that
    the profile names. So dump and profile in one process if several modules have one name.
    Unmatched modules and instructions are counted here and listed by 'bufdb query diagnostics'.
    Times from an earlier profile are replaced.

    On GPU command buffers hide the names of instructions: profile with
    XLA_FLAGS=--xla_gpu_enable_command_buffer= to get them.

    'bufdb query time-by' shows times by line, next to the bytes at the peak; queries advice and
    savings and 'bufdb what-if --order cost' then rank by bytes per millisecond.
    """
    from bufdb.ingest.profile import add_profile

    if not Path(db).exists():
        raise DatabaseError(f"no database {db}; 'bufdb ingest' makes one")

    report = add_profile(db, path, run, common.note)
    for text in report.unmatched:
        common.note(f"not matched: {text}")
    if not is_quiet:
        for text in report.lines:
            common.note(text)
    if not report.lines:
        click.get_current_context().exit(4)
