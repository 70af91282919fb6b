"""`bufdb what-if`: the peak without some lines, ops or values."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.capture.runner import signals_heeded
from bufdb.capture.simulated import Devices
from bufdb.commands import common, completion, paths
from bufdb.errors import UsageError, quote
from bufdb.render.progress import waiting
from bufdb.render.sources import spare

if TYPE_CHECKING:
    from bufdb.capture.script import Script
    from bufdb.recording.function import Function
    from bufdb.what_if.what_if import WhatIf

_AFTER = "--"
"""Value of --verify where the command is after --."""
BY = ("line", "op", "value")
"""The kinds of names that --until may take."""


@click.command(
    name="what-if",
    cls=common.WithCommand,
    short_help="Predict the peak without some lines or ops.",
)
@click.argument(
    "module",
    required=False,
    metavar="[MODULE]",
    shell_complete=completion.known("function", "module"),
)
@paths.argument_as("[PATH]... | -- COMMAND...")
@click.option(
    "--without",
    metavar="WHAT:GLOB",
    multiple=True,
    help="Remove line:FILE:LINE, op:PATH or value:INSTRUCTION; may be repeated.",
)
@click.option(
    "--donate",
    metavar="PARAM",
    multiple=True,
    help="Donate a parameter, by number or by a glob of its name; may be repeated.",
)
@click.option(
    "--keep",
    metavar="SHARE",
    help="Share of the bytes to keep: 0.5 for f32 to bf16, 1/8 for eight chunks.  [default: 0]",
)
@click.option(
    "--until",
    metavar="SIZE",
    help="Remove what lowers the peak most, repeatedly, until the need of the device is down to "
    "SIZE, such as 16GiB.",
)
@common.live_option("until")
@click.option(
    "--by",
    type=click.Choice(BY),
    help="Kind that --until removes.  [default: line]",
)
@click.option(
    "--order",
    type=click.Choice(["saving", "cost"]),
    help="What --until removes first: what saves most, or what costs least to recompute for each "
    "byte saved, in time if a profile was read, else in operations.  [default: saving]",
)
@click.option("--run", metavar="RUN", help="Only modules of this run: a name or a glob.")
@click.option(
    "--verify",
    metavar="[COMMAND]",
    is_flag=False,
    flag_value=_AFTER,
    help="Compile the changed program into the run RUN:verify, and compare what came with what was "
    "promised: the call of the command after --, or all that COMMAND, in quotes, runs.",
)
@common.call_option
@common.devices_options
@completion.color_option
@common.output_options
@common.read_db_option
def command(
    module: str | None,
    without: tuple[str, ...],
    donate: tuple[str, ...],
    keep: str | None,
    until: str | None,
    by: str | None,
    order: str | None,
    run: str | None,
    verify: str | None,
    call: str | None,
    device_count: int | None,
    mesh: str | None,
    color: str | None,
    db: str,
    **output: Any,
) -> None:
    r"""Compute what the peak of MODULE would be if some of its values held no memory.

    MODULE is the key or name of a module, the name of a function, or a glob of one; of several
    matches the one with the largest need is taken, in the memory of the device.

    A PATH is read in place of a database: a dump folder, an archive, a log, a URL, or -.

    Names are those of 'bufdb query savings', among all values, not only those at the peak. A full
    name matches just that; a glob, or the end of a path such as model.py:53, also matches what a
    loop saves of it ("saved FILE:LINE") and copies made for it ("for FILE:LINE"). Several are
    removed together: savings do not add up. A donated parameter gives its bytes to an output of its
    size; what that output holds before the parameter's last use then needs bytes elsewhere.

    The figure is exact for the same instructions in the same order at the same places: no change to
    just these values saves more. XLA schedules, fuses and packs a changed program again, and
    recomputation or copies to the host need memory: for a recompilation it is a prediction. There
    is no saving where a scan saves the inputs of its layer (with any checkpoint policy), from bf16
    for a bf16 buffer, or from a checkpoint of unrolled layers on CPU, where the compiler merges the
    recomputation. operation_count is the cost of recomputing the large values, by the shapes in the
    HLO text (recompute_costs); recompute_ns is the time of the instructions that compute them, by
    the profile that 'bufdb profile' read. Work that several of them share counts once.

    The need of the device is the peak and the holes in XLA's reservation for temporaries. It is
    computed by placing the remaining values again, where that reproduces today's size; else it is a
    range, and --until goes by its high end.

    With --verify -- python train.py the changed program runs up to the call of the function, which
    is compiled instead ('bufdb calls' lists the calls, --call chooses one): the answer is the
    promised and the measured peak and need, as 'bufdb verify' has them for two runs. --verify
    'python train.py' runs all of the program, as 'bufdb capture' does. Without MODULE and --verify
    the question is about the call of the command as it is.

    \b
    Exit codes:
      0  computed; with --verify, at least the low end was saved
      1  the peak is unknown, or the need stays above --until; with --verify, less was saved, or
         COMMAND failed or compiled no such function
      2  wrong usage, or a name that matches nothing
      3  database missing, in use or of another version
    """
    from bufdb.what_if.what_if import require_question, what_if

    words = common.words_after()
    module = paths.or_name(module)
    if paths.are_named():
        if words is not None or verify is not None:
            raise UsageError("the call of a command is stored as a run: name a database by --db")
        module = module or "*"
    if words is not None and module is None and verify not in (None, _AFTER):
        module, verify = verify, _AFTER  # --verify takes the word after it
    script = _script(module, words, verify, call)
    devices = Devices.of(device_count, mesh, has_target=False)
    if script is None and devices.words:
        raise UsageError(
            f"{shlex.join(devices.words)} is about the call of a command: --verify -- python "
            "train.py"
        )
    spare("-o", output["output"], (verify or "").split() if script is None else script.words)
    opened = partial(common.open_database, db)
    if module is None:
        assert script is not None
        require_question(without, donate, until)
        module, run = _compiled(_function(script, devices, db, run))
        script = None
    options: dict[str, Any] = {"without": without, "donate": donate, "keep": keep, "until": until}
    options |= {"by": by, "order": order, "run": run, "color": color}
    answer = what_if(opened, module, **options)
    for text in answer.notes:
        common.note(text)
    if script is not None:
        function = _function(script, devices, db, None)
        click.get_current_context().exit(_verified_call(answer, function, **output))
    if verify is not None:
        click.get_current_context().exit(_verified(answer, verify, db, **output))
    if output["format_name"] in ("table", "markdown"):
        _write_text(answer, **output)
    else:
        common.emit(answer.result(), **output)
    if answer.answer.fits is False:
        click.get_current_context().exit(1)


def _script(
    module: str | None, words: tuple[str, ...] | None, verify: str | None, call: str | None
) -> Script | None:
    """Return the command whose call is asked about; None if there is none.

    Raises:
        UsageError: MODULE, --verify and the command do not go together.
    """
    from bufdb.capture.script import Script

    if words is None and module is None:
        raise UsageError("expected MODULE, or -- and a command")
    if words is None and verify == _AFTER:
        raise UsageError("--verify wants a command: --verify -- python train.py")
    if words is None and call is not None and verify is None:
        raise UsageError("--call is about a command: --verify -- python train.py")
    if words is None:
        return None if call is None else Script.chosen(_split(verify or ""), call)
    if not words:
        raise UsageError("expected a command after --, such as: -- python train.py")
    if verify not in (None, _AFTER):
        raise UsageError("--verify has a command, and there is one after --; give one of them")
    if module is None and verify is not None:
        raise UsageError("--verify compares with what is promised of a module: name MODULE")
    if module is not None and verify is None:
        raise UsageError(f"{quote(module)} and a command: --verify compares them")
    return Script.chosen(words, call)


def _split(command_line: str) -> list[str]:
    """Return the words of the value of --verify.

    Raises:
        UsageError: it has none.
    """
    try:
        words = shlex.split(command_line)
    except ValueError as error:
        raise UsageError(f"--verify: {error}") from error
    if not words:
        raise UsageError("--verify wants a command")
    return words


def _compiled(function: Function) -> tuple[str, str]:
    """Store the compilation of a command's call; return its function and the run."""
    from bufdb.what_if.verify_command import compiled_call

    with signals_heeded(), common.failure_shown():
        return compiled_call(function)


def _verified_call(answer: WhatIf, function: Function, **output: Any) -> int:
    """Compile the call of the changed program, show what was promised and what came."""
    from bufdb.commands.verify import show
    from bufdb.what_if.verify_command import verify_call

    with signals_heeded(), common.failure_shown():
        got = verify_call(answer, function)
    show(got, **output)
    return 0 if got.functions and got.is_kept else 1


def _function(script: Script, devices: Devices, db: str, run: str | None) -> Function:
    from bufdb.database.store import require_storable
    from bufdb.recording.function import Function

    if common.dataset() is not None:
        raise UsageError("the call of a command is stored as a run: name a database file by --db")
    require_storable(db)
    return Function(
        script.line,
        "",
        db,
        partial(common.open_database, db),
        run,
        note=common.note,
        relay=common.relay,
        observed=partial(waiting, is_quiet=False),
        script=script,
        devices=devices,
    )


def _verified(answer: WhatIf, command_line: str, db: str, **output: Any) -> int:
    """Capture the changed program, show what was promised and what came, return the exit code."""
    from bufdb.commands.verify import show
    from bufdb.what_if.verify_command import verify_command

    if common.dataset() is not None:
        raise UsageError("--verify stores a run, which wants a database file: --db")
    opened = partial(common.open_database, db)
    done, got = verify_command(opened, answer, _split(command_line), db, common.note)
    if got is None:
        return done.code or 1
    show(got, **output)
    return 0 if got.functions and got.is_kept else 1


def _write_text(answer: WhatIf, *, format_name: str, output: Path | None, full: str | None) -> None:
    width = common.width_for(output, full)
    text, cut = answer.text(format_name, width)
    common.write(text, output)
    if cut:
        common.note(f"{cut} cells shortened to fit the terminal; --full shows all of them")
