"""`bufdb advice`: changes that lower the highest peak, and the code to type."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from bufdb.commands import common, completion, paths
from bufdb.errors import UsageError
from bufdb.resources import advice_page


@click.command(name="advice", short_help="Show changes that lower the peak, and code to type.")
@click.argument("name", metavar="[FUNCTION]", required=False,
                shell_complete=completion.known("function"))  # fmt: skip
@paths.argument
@completion.filter_options
@completion.color_option
@click.option("--code", "has_code", is_flag=True, help="Show the code to type for each kind.")
@click.option(
    "--top", metavar="N", type=click.IntRange(1, 2**63 - 1), default=10, show_default=True,
    help="Pieces of advice to show.",
)  # fmt: skip
@common.output_option
@common.read_db_option
def command(
    name: str | None,
    run: str | None,
    function: str | None,
    module: str | None,
    color: str | None,
    has_code: bool,
    top: int,
    output: Path | None,
    db: str,
) -> None:
    r"""Show changes that lower the highest peak, the largest sure saving first.

    \b
        bufdb advice train_step --run base
        bufdb advice train_step --code

    The rows are those of 'bufdb query advice' for the function with the highest peak. Each saving
    is a range, and savings do not add up. --code adds the lines to type, once for each kind of
    advice, with the names and lines of the program filled in: an example to adapt, not a patch.

    A PATH is read in place of a database: a dump folder, an archive, a log, a URL, or -.
    """
    from bufdb.answers import summary_text
    from bufdb.answers.summary import summary

    name = paths.or_name(name)
    if name is not None and function is not None:
        raise UsageError("FUNCTION and --function are the same: give one of them")
    opened = partial(common.open_last, db)
    answer = summary(
        opened, run=run, function=name or function, module=module, color=color,
        names=("advice", "savings"), top_n=top,
    )  # fmt: skip
    if answer.note is not None:
        common.note(answer.note)
        return
    common.write(
        summary_text.advice_text(answer.overview, advice_page if has_code else None), output
    )
