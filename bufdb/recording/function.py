"""Compile a function of a user's file for several targets, and store each as a run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb.answers.opening import Open
from bufdb.answers.summary import DEVICE_LABEL, summary
from bufdb.answers.targets import Outcome
from bufdb.capture.apart import Compiled, compiled_apart, compiled_call
from bufdb.capture.call import short_name
from bufdb.capture.runner import Observer, Relay, Watch, to_stderr
from bufdb.capture.script import NoCallError, Script, at_call, largest
from bufdb.capture.simulated import Devices
from bufdb.dumps.place import Files
from bufdb.errors import BufdbError, DatabaseError, UsageError
from bufdb.ingest.ingest import ingest
from bufdb.query.parameters import glob

if TYPE_CHECKING:
    from bufdb.recording.sweep import Combination


@dataclass(frozen=True)
class Function:
    """What to compile, and where to store it."""

    spec: str
    """FILE.py:FUNCTION or package.module:FUNCTION; the text of a command."""
    args: str
    """Arguments as in a call, see `bufdb.capture.call`."""
    db: str
    opened: Open
    """Opens the database for the answer."""
    run: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    own_globs: list[str] | None = None
    limit: str | int | None = None
    timeout_s: float | None = None
    """Time limit for each target."""
    is_verbose: bool = False
    note: Callable[[str], None] = lambda text: None
    """Receives what the user should know, a line at a time."""
    relay: Relay = to_stderr
    """Receives what the file prints."""
    observed: Callable[[], AbstractContextManager[Observer | None]] = nullcontext
    """Yields what receives the steps of a compilation."""
    script: Script | None = None
    """The command of whose calls one is compiled, in place of `spec` and `args`."""
    devices: Devices = field(default_factory=Devices)
    """What the program has of devices."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Further metadata of the run."""

    def run_name(self, target: str | None, function_name: str = "", *, is_one: bool) -> str:
        """Return the name of the run, by default the function's; one of several adds its target."""
        name = self.run or function_name or short_name(self.spec)
        is_plain = target is None or (is_one and self.run is not None)
        return name if is_plain else f"{name}@{target}"


def explained(function: Function, target: str | None, *, is_one: bool = True) -> Outcome:
    """Compile for one target and store the result; return the outcome.

    Raises:
        BufdbError: nothing was compiled, or it cannot be stored.
    """
    with tempfile.TemporaryDirectory(prefix="bufdb-") as folder:
        compiled = _compiled(function, target, Path(folder))
        name = function.run_name(target, compiled.name, is_one=is_one)
        metadata = {**function.metadata, **function.devices.metadata, DEVICE_LABEL: compiled.device}
        done = ingest(
            function.db,
            [Files(name, compiled.files, function.spec)],
            run=name,
            labels=function.labels,
            metadata=metadata | ({} if target is None else {"target": target}),
            own_globs=function.own_globs,
            replace=True,
        )
    for text in (*compiled.notes, *done.notes):
        function.note(text)
    answer = summary(function.opened, run=glob(name), limit=function.limit).overview
    return Outcome(target or "", compiled.device, name, answer, compiled.refusal)


def _compiled(function: Function, target: str | None, folder: Path) -> Compiled:
    with function.observed() as observer:
        watch = Watch.from_now(
            function.timeout_s,
            is_verbose=function.is_verbose,
            observer=observer,
            relay=function.relay,
            hint=function.devices.hint,
        )
        if function.script is None:
            return compiled_apart(
                function.spec, function.args, target, folder, watch, function.devices
            )
        script = function.script
        try:
            compiled = compiled_call(script, target, folder, watch, function.devices)
        except NoCallError as error:
            if script.is_chosen or not error.calls:
                raise
            call = largest(error.calls)
            why = f"no call takes a gradient, and {function.spec} ran to its end"
        else:
            call = largest(compiled.calls)
            if script.is_chosen or call is compiled.calls[-1]:
                return compiled
            step = compiled.calls[-1]
            why = (
                f"call {step.number}, {step.name}, takes a gradient (--call {step.number}), and a "
                "call before it is larger"
            )
        function.note(
            f"{why}; it runs again up to the largest call (--call {call.number} does so at once)"
        )
        again = folder / "again"
        again.mkdir()
        return compiled_call(at_call(script, call), target, again, watch, function.devices)


def compared(
    function: Function, targets: Sequence[str]
) -> Iterator[tuple[Outcome, BufdbError | None]]:
    """Yield the outcome of each target, and the error if nothing was compiled for it.

    Raises:
        UsageError: the request cannot be compiled for any target.
        DatabaseError: nothing can be stored.
    """
    for target in targets:
        try:
            yield explained(function, target, is_one=False), None
        except (UsageError, DatabaseError):
            raise
        except BufdbError as error:  # another target may succeed
            yield Outcome(target, None, failure=str(error)), error


def swept(
    function: Function, target: str | None, combinations: Iterable[Combination]
) -> Iterator[tuple[Outcome, BufdbError | None]]:
    """Yield the outcome of each combination of values, which is named in place of the target.

    The command of a combination is the function and its arguments. As for `compared`.
    """
    for one in combinations:
        spec, args = one.command
        name = f"{function.run or short_name(spec)}-{one.suffix}"
        name += f"@{target}" if target is not None and function.run is None else ""
        labels = {**function.labels, **one.values}
        changed = replace(function, spec=spec, args=args, run=name, labels=labels)
        values = " ".join(f"{label}={value}" for label, value in one.values.items())
        try:
            yield replace(explained(changed, target), target=values), None
        except (UsageError, DatabaseError):
            raise
        except BufdbError as error:  # other values may do
            yield Outcome(values, None, failure=str(error)), error
