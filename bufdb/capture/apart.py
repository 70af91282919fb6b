"""Compile a function of a user's file in a separate process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb.capture.runner import Child, Died, NotCompiledError, Watch, own_command
from bufdb.capture.target import QUIET

if TYPE_CHECKING:
    from bufdb.capture.dump import Dumped


@dataclass(frozen=True)
class Compiled:
    """The result of a compilation."""

    files: Dumped
    device: str
    """JAX's name for the kind of device."""
    refusal: str | None
    """XLA's message if it planned the memory and then gave up."""
    note: str | None = None
    """On what the dump does not have."""


def compiled_apart(
    spec: str, args: str, target: str | None, folder: Path, watch: Watch
) -> Compiled:
    """Compile FILE:FUNCTION in a child process of this Python, which does not outlive this one.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        TooSlowError: the deadline has passed.
        NotCompiledError: the file or XLA failed, or nothing was dumped.
    """
    from bufdb.capture.dump import programs

    what = spec if target is None else f"{spec} for {target}"
    variables = dict(os.environ) if target is None else {**os.environ, **QUIET}
    command = own_command("bufdb.capture.child", str(folder))
    dumps = folder / "dumps"
    dumps.mkdir()
    request = {"spec": spec, "args": args, "target": target, "dumps": str(dumps)}
    with Child(command, folder, what, watch, variables) as child:
        try:
            reply = child.ask(request)
        except Died as died:
            if "device" in child.known and (files := programs(dumps)):
                return Compiled(files, child.known["device"], died.refusal)
            message = f"{what} could not be compiled: {died.ended}"
            raise NotCompiledError(message, died.lines) from None
    return Compiled(programs(dumps), reply["device"], reply["refusal"], reply["note"])
