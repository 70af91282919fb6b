"""`bufdb budget`: check a run against the limits in a file, for pull requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.answers.budget import exit_code, judge, parse, summary
from bufdb.commands import common
from bufdb.errors import DatabaseError, UsageError
from bufdb.query.result import Result
from bufdb.render import formats
from bufdb.render.text import markdown_escape

if TYPE_CHECKING:
    import duckdb

    from bufdb.answers.budget import Budget, Verdict
    from bufdb.query.figures import MemoryFigures, Place
    from bufdb.query.result import Result


@click.command(name="budget", short_help="Check a run against a file of memory limits.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--run", metavar="RUN", help="The run to check; required if there are several.")
@click.option(
    "--base", metavar="RUN", help="Run that limits such as +2% start from; overrides the file's."
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
    file: Path, run: str | None, base: str | None, format_name: str, output: Path | None, db: str
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
    that the base run does not have, a dump that was not read in full.

    \b
    Exit codes:
      0  all within their limits
      1  at least one over its limit
      2  wrong usage, or FILE is wrong
      3  database missing, in use or of another version
      4  none over, but something could not be judged
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {file}: {reason}") from error
    content = parse(text, str(file))
    run, base, verdicts = _judge(
        common.open_database(db), content.budgets, run, base or content.base
    )
    common.write(_text(verdicts, format_name, run, base), output)
    common.note(f"run {run}: {summary(verdicts)}")
    click.get_current_context().exit(exit_code(verdicts))


def _judge(
    con: duckdb.DuckDBPyConnection, budgets: tuple[Budget, ...], run: str | None, base: str | None
) -> tuple[str, str | None, list[Verdict]]:
    """Return the run, the base run if a limit needs one, and the verdicts."""
    import duckdb

    from bufdb.database import runs
    from bufdb.query import figures

    relative = [budget for budget in budgets if budget.limit.is_relative]
    if relative and base is None:
        raise UsageError(
            f"{relative[0].where}: limit {relative[0].limit.text!r} starts from a base run; "
            "name it with --base or, at the top of the file, base"
        )
    try:
        if run is None:
            others = [name for name in runs.names(con) if name != base]
            if len(others) != 1:
                known = ", ".join(others) or "none"
                raise UsageError(f"which run? --run names it; there is {known}")
            run = others[0]
        runs.require(con, [run])
        base_figures: dict[Place, MemoryFigures] = {}
        if relative and base is not None:
            runs.require(con, [base])
            if run == base:
                common.note(f"run {run} is its own base: no limit relative to it can be exceeded")
            base_figures = figures.of_base(con, base, run)
        verdicts = judge(budgets, figures.of_run(con, run), base_figures, figures.unread(con, run))
    except duckdb.Error as error:
        # Exit code 1 would mean that a limit is exceeded.
        raise DatabaseError(f"cannot read the figures: {str(error).splitlines()[0]}") from error
    return run, base if relative else None, verdicts


def _text(verdicts: list[Verdict], format_name: str, run: str, base: str | None) -> str:

    text = formats.render(_result(verdicts), format_name)[0]
    if format_name != "markdown":
        return text
    against = f", base {markdown_escape(base)}" if base else ""
    heading = f"**Memory budget: {summary(verdicts)}** (run {markdown_escape(run)}{against})"
    return f"{heading}\n\n{text}"


def _result(verdicts: list[Verdict]) -> Result:

    columns = [
        ("status", "VARCHAR"),
        ("function_name", "VARCHAR"),
        ("metric", "VARCHAR"),
        ("memory_space", "VARCHAR"),
        ("value_bytes", "HUGEINT"),
        ("base_bytes", "HUGEINT"),
        ("limit_bytes", "HUGEINT"),
        ("headroom_bytes", "HUGEINT"),
        ("headroom_ratio", "DOUBLE"),
        ("module_key", "VARCHAR"),
        ("budget", "VARCHAR"),
        ("reason", "VARCHAR"),
    ]
    return Result(columns, [_row(verdict) for verdict in verdicts])


def _row(verdict: Verdict) -> tuple[object, ...]:
    budget, figure = verdict.budget, verdict.figure
    space = None
    if figure is not None and figure.color is not None:
        space = figure.memory_space or f"color {figure.color}"
    elif budget is not None:
        space = budget.space
    ratio = None
    if verdict.headroom is not None and verdict.limit:
        ratio = verdict.headroom / verdict.limit
    return (
        verdict.status,
        figure.function if figure else budget.function if budget else None,
        verdict.metric,
        space,
        verdict.value,
        verdict.base,
        verdict.limit,
        verdict.headroom,
        ratio,
        figure.module_key if figure else None,
        f"{budget.limit.text} ({budget.where})" if budget else None,
        verdict.reason,
    )
