"""`bufdb compact`: merge the many small files of a dataset into few."""

from __future__ import annotations

import click

from bufdb.commands import common
from bufdb.errors import UsageError, quote

DEFAULT_GRACE_S = 3600


@click.command(name="compact", short_help="Merge a dataset's many small files into few.")
@click.argument("url")
@click.option(
    "--dt",
    "days",
    metavar="DAY",
    multiple=True,
    help="Only this day, such as 2026-01-31; may be repeated.  [default: all before today, UTC]",
)
@click.option(
    "--grace",
    "grace_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=DEFAULT_GRACE_S,
    show_default=True,
    help="How long superseded files stay for their readers.",
)
@common.memory_option
@common.quiet_option
def command(url: str, days: tuple[str, ...], grace_s: float, is_quiet: bool) -> None:
    """Rewrite days of the dataset at URL, a folder or a URL, as few sorted files.

    Others may read and write at the same time: each sees every module once. Superseded files stay
    for their readers and are removed by a later call.
    """
    from bufdb.dataset import layout
    from bufdb.dataset.compact import compact

    for day in days:
        if not layout.is_day(day):
            raise UsageError(f"--dt wants a day such as 2026-01-31, got {quote(day)}")
    done = compact(url, days, grace_s)
    if not is_quiet:
        common.note(done.line())
