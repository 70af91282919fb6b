"""Run a changed program, and compare what it needs with what `what-if` promised.

Or compile the call that a command makes, to ask about it or to compare it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bufdb.answers.opening import Open
from bufdb.answers.summary import DEVICE_LABEL
from bufdb.capture.simulated import Devices
from bufdb.database.store import require_storable
from bufdb.errors import BufdbError
from bufdb.query.parameters import glob
from bufdb.recording.command import Captured, Dumps, capture, dump_folder
from bufdb.recording.function import Function, explained
from bufdb.what_if.verify import Verification, verify_promise
from bufdb.what_if.what_if import WhatIf

LABELS = "SELECT label, label_value, is_metadata FROM run_labels WHERE run_name = ?"
_LAMBDA = "_lambda_"
"""XLA's name of a function that Python calls <lambda>."""


def verify_command(
    opened: Open,
    promised: WhatIf,
    command_line: Sequence[str],
    db: str,
    note: Callable[[str], None],
) -> tuple[Captured, Verification | None]:
    """Capture the changed program as the run RUN:verify, and compare; None if nothing was stored.

    Args:
        opened: opens the database.
        promised: the promise, of the run RUN.
        command_line: compiles the changed program.
        db: the database file.
        note: receives what the user should know, a line or more at a time.

    Raises:
        CommandError: the command cannot be started.
        DatabaseError: the run cannot be stored.
    """
    base = promised.answer.choice.run_name
    name = f"{base}:verify"
    require_storable(db)
    labels, _ = _labels(opened, base)
    with Dumps(dump_folder(None), False, db, name, labels, is_quiet=True, note=note) as dumps:
        done = capture(dumps, command_line)
    return done, verify_promise(opened, promised, name) if done.is_stored else None


def compiled_call(function: Function) -> tuple[str, str]:
    """Store the compilation of the call of a command; return globs of its module and the run.

    Raises:
        BufdbError: nothing was compiled, or it cannot be stored.
    """
    done = explained(function, None)
    assert done.overview is not None and done.run_name is not None
    if done.overview.peak is None:
        raise BufdbError(f"run {done.run_name}: its peak is unknown")
    return glob(done.overview.peak["module_key"]), glob(done.run_name)


def verify_call(promised: WhatIf, function: Function) -> Verification:
    """Store the call of a command, which runs the changed program, as RUN:verify, and compare.

    It is compiled for the target of RUN, and has the devices of RUN unless others are named; the
    call is that of the promised function, unless another one is named.

    Raises:
        BufdbError: nothing was compiled, it cannot be stored, or RUN is of another device.
    """
    base, script = promised.answer.choice, function.script
    assert script is not None
    labels, metadata = _labels(function.opened, base.run_name)
    if not script.is_chosen:
        name = base.function_name.replace(_LAMBDA, "?lambda?")
        script = replace(script, name=name)
    name, target = f"{base.run_name}:verify", metadata.get("target")
    devices = function.devices
    if not devices.words:
        devices = replace(Devices.of_run(metadata), has_target=False)
    devices.require(target)
    done = explained(
        replace(function, run=name, labels=labels, script=script, devices=devices), target
    )
    device = metadata.get(DEVICE_LABEL, done.device)
    if device != done.device:
        raise BufdbError(
            f"run {base.run_name} was compiled for {device}, and the call for {done.device}: they "
            "are not compared"
        )
    return verify_promise(function.opened, promised, name)


def _labels(opened: Open, run: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels of a run, without which it is not compared, and its metadata."""
    con = opened(LABELS)
    rows = con.execute(LABELS, [run]).fetchall()
    con.close()
    labels, metadata = (
        {label: value for label, value, is_so in rows if is_so is kind} for kind in (False, True)
    )
    return labels, metadata
