"""`bufdb verify`: what was promised of a change, and what came."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.commands import common, completion

if TYPE_CHECKING:
    from bufdb.what_if.verify import Verification


@click.command(name="verify", short_help="What was promised of a change, and what came of it.")
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
    help="Compare the function or module OLD of BASE with NEW of NEW; can be given several times.",
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
    r"""Put side by side what bufdb promised of BASE for a change, and what NEW, with it, needs.

    BASE and NEW are runs, paired as by 'bufdb diff'. What waits at the peak of BASE and is gone in
    NEW is found by op and size, so that lines may shift: what a loop stacked for its backward pass,
    what lived long, parameters that NEW donates. For these it shows the range that 'bufdb query
    advice' gives of BASE, or else 'bufdb what-if', each by itself; and for all of them together the
    peak and the need that 'bufdb what-if' computes, beside what came. What NEW holds instead is
    there too: it is what such promises cannot know.

    A saving counts as promised if it lies in the range, or outside by no more than 2 % of the peak
    of BASE. The low end is of jax.checkpoint around the expression, or of one name less in a policy
    that is there; a first policy changes what other lines save, too.

    \b
    Exit codes:
      0  of every function at least the low end came, or nothing was promised
      1  less came than was promised, or a peak is unknown
      2  wrong usage
      3  database missing, in use or of another version
    """
    from bufdb.what_if.verify import verify

    opened = partial(common.open_database, db)
    found = verify(opened, base, new, function=function, color=color, pairs=pairs)
    show(found, **output)
    if not found.is_kept:
        click.get_current_context().exit(1)


def show(found: Verification, *, format_name: str, output: Path | None, full: str | None) -> None:
    """Write what came, as text or as rows."""
    for text in found.notes:
        common.note(text)
    if format_name not in ("table", "markdown"):
        common.emit(found.result(), format_name=format_name, output=output, full=full)
        return
    text, cut = found.text(format_name, common.width_for(output, full))
    common.write(text, output)
    if cut:
        common.note(f"{cut} cells shortened to fit the terminal; --full shows all of them")
