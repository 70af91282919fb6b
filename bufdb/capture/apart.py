"""Compile a function of a user's file, or a call of a user's command, in a separate process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bufdb.capture.runner import Child, Died, NotCompiledError, Watch, own_command
from bufdb.capture.simulated import Devices
from bufdb.capture.simulation import NOTES

if TYPE_CHECKING:
    from bufdb.capture.catching import Call
    from bufdb.capture.dump import Dumped
    from bufdb.capture.script import Script


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation."""

    files: Dumped
    device: str
    """JAX's name for the kind of device."""
    refusal: str | None
    """XLA's message if it planned the memory and then gave up."""
    notes: tuple[str, ...] = ()
    """On what the dump does not have, and which call of a command it is of."""
    name: str = ""
    """Of the function of a command's call."""
    calls: tuple[Call, ...] = ()
    """Those of the command until it was stopped, which it was at the last one."""


def compiled_apart(
    spec: str,
    args: str,
    target: str | None,
    folder: Path,
    watch: Watch,
    devices: Devices | None = None,
) -> Compiled:
    """Compile FILE:FUNCTION in a child process of this Python, which does not outlive this one.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        TooSlowError: the deadline has passed.
        NotCompiledError: the file or XLA failed, or nothing was dumped.
    """
    what = spec if target is None else f"{spec} for {target}"
    command = own_command("bufdb.capture.child", str(folder))
    variables = (devices or Devices()).variables(target)
    with Child(command, folder, what, watch, variables) as child:
        return _compiled(child, child.ask, {"spec": spec, "args": args, "target": target}, folder)


def compiled_call(
    script: Script,
    target: str | None,
    folder: Path,
    watch: Watch,
    devices: Devices | None = None,
) -> Compiled:
    """Compile a call of a user's command where it is made, instead of it.

    Raises:
        NoCallError: the command ended without the call.
        UsageError: there is no such target.
        TooSlowError: the deadline has passed.
        NotCompiledError: the command or XLA failed, or nothing was dumped.
    """
    from bufdb.capture.script import calls_of, stopped_note

    variables = (devices or Devices()).variables(target)
    script = script.settled(folder, watch, variables)
    what = script.line if target is None else f"{script.line} for {target}"
    with script.child(folder, "bufdb.capture.child", what, watch, variables) as child:
        request = {"spec": "the call", "args": "", "target": target}
        compiled = _compiled(child, partial(script.first, child), request, folder)
        calls = calls_of(child)
        note = stopped_note(script, child)
    notes = (note, *compiled.notes)
    return replace(compiled, notes=notes, name=calls[-1].short_name, calls=tuple(calls))


def _compiled(
    child: Child,
    ask: Callable[[Mapping[str, Any]], dict[str, Any]],
    request: Mapping[str, Any],
    folder: Path,
) -> Compiled:
    from bufdb.capture.dump import programs

    dumps = folder / "dumps"
    dumps.mkdir(exist_ok=True)
    try:
        reply = ask({**request, "dumps": str(dumps)})
    except Died as died:
        if "device" in child.known and (files := programs(dumps)):
            own = child.known.get(NOTES, ())
            return Compiled(files, child.known["device"], died.refusal, tuple(own))
        message = f"{child.what} could not be compiled: {died.ended}"
        raise NotCompiledError(message, died.lines) from None
    notes = [*child.known.get(NOTES, ()), *filter(None, [reply["note"]])]
    return Compiled(programs(dumps), reply["device"], reply["refusal"], tuple(notes))
