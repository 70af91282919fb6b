"""`bufdb budget`: check a run against the limits in a file, for pull requests."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from bufdb.commands import common, paths


@click.command(name="budget", short_help="Check a run against a file of memory limits.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@paths.argument
@click.option("--run", metavar="RUN", help="The run to check; required if there are several.")
@click.option(
    "--base", metavar="RUN", help="Run that limits such as +2% start from; overrides the file's."
)
@click.option(
    "--write",
    "is_written",
    is_flag=True,
    help="Write FILE: limits in bytes become the run's own figures, new functions get an entry.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["table", "markdown", "json"]),
    default="table",
    show_default=True,
    help="Format of the answer; markdown suits a pull request, json holds exact numbers.",
)
@common.output_option
@common.read_db_option
def command(
    file: Path,
    run: str | None,
    base: str | None,
    is_written: bool,
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    r"""Check a run against the memory limits in FILE, in TOML.

    \b
      base = "main"             # run that relative limits start from
      [[budget]]
      function = "train_*"      # glob of jitted functions
      metric = "need"           # what a device must hold, the default; or peak, temp,
                                # arguments, outputs, constants, total, fragmentation
      color = "vmem"            # memory space: its number, its name or "all", separately;
                                # by default the device's own memory
      limit = "16 GiB"          # or bytes; "+2%" or "+10 MiB" over the same function in base
      platform = "tpu"          # only modules for it (optional)
      allow_new = true          # functions that base lacks pass a relative limit

    Each module that matches an entry is judged separately. Nothing passes without being judged: an
    entry that matches no module, a figure that the dump does not have (with the reason), a module
    that the base run does not have, a dump that was not read in full. With --format markdown each
    peak that grew since the base run has a sentence with the lines that grew most, and each
    function a picture of its peaks, where the database has several runs of it.

    With --write nothing is judged. Limits that start from a base run stay, and so does everything
    else in FILE. Bytes of a compilation have no variance: the same versions and flags give the same
    bytes each time, so a limit may be exact.

    \b
    Exit codes:
      0  all within their limits
      1  at least one over its limit
      2  wrong usage, or FILE is wrong
      3  database missing, in use or of another version
      4  none over, but something could not be judged
    """
    from bufdb.answers import budget

    opened = partial(common.open_database, db)
    if is_written:
        text, notes = budget.learn(opened, file, run)
        for note in notes:
            common.note(note)
        common.write(text, file)
        return
    judged = budget.budget(opened, file, run, base)
    for text in judged.notes:
        common.note(text)
    more = []
    if format_name == "markdown":
        more = [*budget.grown(opened, judged), *budget.trends(opened, judged)]
    common.write(judged.text(format_name, more), output)
    common.note(f"run {judged.run}: {budget.summary(judged.verdicts)}")
    click.get_current_context().exit(budget.exit_code(judged.verdicts))
