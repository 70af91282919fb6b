"""`bufdb calls`: list the jitted calls that a command makes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from bufdb.capture.runner import Watch, signals_heeded
from bufdb.commands import common
from bufdb.errors import UsageError
from bufdb.render.progress import waiting
from bufdb.render.sources import spare


@click.command(
    name="calls",
    context_settings={"allow_interspersed_args": False},
    short_help="List the jitted calls of a command.",
)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--all",
    "is_to_end",
    is_flag=True,
    help="Execute calls that take a gradient, too, up to the command's end.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit; the calls until then are listed.",
)
@common.own_option
@common.devices_options
@common.verbose_option
@common.quiet_option
@common.output_options
def command(
    words: tuple[str, ...],
    is_to_end: bool,
    timeout_s: float | None,
    own: tuple[str, ...],
    device_count: int | None,
    mesh: str | None,
    is_verbose: bool,
    is_quiet: bool,
    format_name: str,
    output: Path | None,
    full: str | None,
) -> None:
    r"""List the jitted calls of COMMAND, which 'bufdb explain' and 'bufdb fit' can be asked about.

    \b
      bufdb calls -- python train.py --config base
      bufdb calls --all --timeout 600 -- python -m my.train

    COMMAND is not changed and runs as it would: its calls are executed, up to the first one that
    takes a gradient. The command is stopped there, so that nothing is trained, written or logged
    after it. With --all it is executed, too, and the command runs to its end.

    A row is an outermost call of a jitted function (jax.jit, nnx.jit, eqx.filter_jit, pmap,
    .lower()) with arguments of new shapes; operations that JAX itself jits are not listed. The
    number or the name is for --call.

    \b
    Exit codes:
      0    listed
      1    the command failed
      2    wrong usage, or the command calls nothing that is jitted
      124  --timeout
    """
    from bufdb.capture.call_list import listed, table
    from bufdb.capture.script import Script
    from bufdb.capture.simulated import Devices
    from bufdb.read.own import parse_own

    if not words:
        raise UsageError("expected -- and a command, such as: -- python train.py")
    spare("-o", output, words)
    globs = common.own_globs(own, words)
    script = Script(words, is_to_end=is_to_end, own=parse_own(globs or ()))
    devices = Devices.of(device_count, mesh, has_target=False)
    devices.require(None)
    with (
        signals_heeded(),
        common.failure_shown(),
        waiting(is_quiet=is_quiet) as observer,
        tempfile.TemporaryDirectory(prefix="bufdb-") as folder,
    ):
        watch = Watch.from_now(
            timeout_s,
            is_verbose=is_verbose,
            observer=observer,
            relay=common.relay,
            hint=devices.hint,
        )
        listing = listed(script, Path(folder), watch, devices)
    common.emit(table(listing.calls), format_name=format_name, output=output, full=full)
    for note in (listing.note, *listing.devices):
        common.note(note)
    if listing.error is not None:
        with common.failure_shown():
            raise listing.error
