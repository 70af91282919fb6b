"""`bufdb verify`: what was promised of a change, and what came."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.commands import common, completion, paths

if TYPE_CHECKING:
    from bufdb.what_if.verify import Verification


@click.command(name="verify", short_help="Compare what a change brought with what was promised.")
@click.argument("base", shell_complete=completion.known("run"))
@click.argument("new", shell_complete=completion.known("run"))
@click.option(
    "--function",
    metavar="GLOB",
    shell_complete=completion.known("function"),
    help="Only jitted functions that match.",
)
@completion.color_option
@click.option(
    "--pair",
    "pairs",
    metavar="OLD=NEW",
    multiple=True,
    help="Compare the function or module OLD of BASE with NEW of NEW; may be repeated.",
)
@common.output_options
@common.read_db_option
def command(
    base: str,
    new: str,
    function: str | None,
    color: str | None,
    pairs: tuple[str, ...],
    db: str,
    **output: Any,
) -> None:
    r"""Compare what bufdb promised for a change of BASE with what NEW, which has it, saves.

    BASE and NEW are runs, or both paths of dumps, paired as by 'bufdb diff'. Values that wait at
    the peak of BASE and are gone in NEW are found by op and size, so lines may shift: stacks that a
    loop saves for its backward pass, long-lived values, parameters that NEW donates. Each has the
    range of 'bufdb query advice' for BASE, or else of 'bufdb what-if'; all together have the peak
    and the need that 'bufdb what-if' computes, next to the measured ones. Values that NEW holds
    instead are listed too: no promise can know them.

    A saving counts as promised if it is in the range, or outside by at most 2 % of the peak of
    BASE. The low end is for jax.checkpoint around the expression, or for one name less in an
    existing policy; a first policy also changes what other lines save.

    \b
    Exit codes:
      0  every function saved at least the low end, or nothing was promised
      1  less was saved than promised, or a peak is unknown
      2  wrong usage
      3  database missing, in use or of another version
    """
    from bufdb.what_if.verify import verify

    base, new = paths.sides(base, new)
    opened = partial(common.open_database, db)
    verification = verify(opened, base, new, function=function, color=color, pairs=pairs)
    show(verification, **output)
    if not verification.is_kept:
        click.get_current_context().exit(1)


def show(
    verification: Verification, *, format_name: str, output: Path | None, full: str | None
) -> None:
    """Write what came, as text or as rows."""
    for text in verification.notes:
        common.note(text)
    if format_name not in ("table", "markdown"):
        common.emit(verification.result(), format_name=format_name, output=output, full=full)
        return
    text, cut = verification.text(format_name, common.width_for(output, full))
    common.write(text, output)
    if cut:
        common.note(f"{cut} cells shortened to fit the terminal; --full shows all of them")
