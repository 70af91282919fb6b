"""Compile one function, or one call of a command, in several ways: a child process for each."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bufdb.blame import script
from bufdb.capture.call import short_name
from bufdb.capture.catching import Call
from bufdb.capture.dump import programs
from bufdb.capture.runner import Child, Died, NotCompiledError, Observer, Relay, Watch, to_stderr
from bufdb.capture.script import NoCallError, Script, at_same, calls_of, stopped_note
from bufdb.capture.simulated import Devices
from bufdb.capture.simulation import NOTES
from bufdb.capture.target import Described, described
from bufdb.capture.words import with_python
from bufdb.errors import BufdbError, TooSlowError

DUMPS = "dumps"
MODULE = "module.bin"
"""The exported function, see `bufdb.blame.script`."""
STABLEHLO = "stablehlo.mlir"
_MISSING = re.compile(r"No module named '(\w+)")


@dataclass(frozen=True)
class Variant:
    """One way to compile the function."""

    label: str
    """Key of the label of its run: jax, python, or the name of a flag."""
    value: str
    """Value of the label."""
    python: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Compiler options."""
    packages: tuple[str, ...] = ()
    """What its environment must have, such as jax==0.7.2; empty for a Python that is there."""
    wants_jax: str | None = None
    """The version of jax that must be found."""

    @property
    def is_python(self) -> bool:
        """Return whether its Python is what is compared, and no flag."""
        return self.label in ("jax", "python")

    @property
    def name(self) -> str:
        """Return "jax 0.7.2" or "xla_flag=true"."""
        return f"{self.label} {self.value}" if self.is_python else self.assigned

    @property
    def assigned(self) -> str:
        """Return "jax=0.7.2"."""
        return f"{self.label}={self.value}"


@dataclass(frozen=True)
class Compilation:
    """What a child process has left in its folder."""

    folder: Path
    versions: Mapping[str, str]
    device: str
    refusal: str | None
    need_bytes: int | None
    """Arguments, results and temps as JAX has them; None if it does not say."""
    call: Call | None = None
    """That of a command."""
    python: str = ""
    """The Python of a command."""
    notes: tuple[str, ...] = ()
    """At which of its calls a command was stopped, and what it did not have as its job has it."""


@dataclass(frozen=True)
class Job:
    """The function or the call of a command, and how its compilations are watched."""

    spec: str
    """FILE.py:FUNCTION or package.module:FUNCTION; the text of a command."""
    args: str
    folder: Path
    """For temporary files."""
    timeout_s: float | None = None
    is_verbose: bool = False
    observer: Observer | None = None
    relay: Relay = to_stderr
    target: str | None = None
    """Hardware to compile for; None for that of this machine."""
    divisors: Mapping[int, int] = field(default_factory=dict)
    """By which the sizes of the arguments are divided."""
    script: Script | None = None
    """The command, in place of `spec` and `args`."""
    call: Call | None = None
    """Its call, once it is known: that of the first way."""
    devices: Devices = field(default_factory=Devices)
    """What the program has of devices."""
    _made: dict[str, Compilation] = field(default_factory=dict, repr=False)
    """Compilations so far, of this job and those with other divisors, by what was requested."""

    @property
    def function_name(self) -> str:
        """Return the name of the function, '' if it is not known yet."""
        if self.script is not None:
            return "" if self.call is None else self.call.short_name
        return short_name(self.spec)

    def compile(self, variant: Variant, **how: Any) -> Compilation:
        """Compile in a child process, which does not outlive this one; the same only once.

        Args:
            variant: how.
            how: passes (dump after each pass), export (write the StableHLO), module (the folder of
                another compilation, whose exported function is compiled).

        Raises:
            TooSlowError: it took longer than allowed.
            NotCompiledError: it failed.
            UsageError: there is no such file or function, or it takes other arguments.
        """
        request = {"passes": False, "export": False, "module": None, **how}
        request["divisors"] = dict(self.divisors)
        hardware = self._hardware()
        request["target"] = None if hardware is None else asdict(hardware)
        request |= {"spec": self.spec, "args": self.args, "options": dict(variant.options)}
        key = json.dumps([variant.python, request], sort_keys=True)
        if key in self._made:
            return self._made[key]
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / DUMPS).mkdir()
        outcome = self._answer(variant, {**request, "folder": str(folder)}, folder)
        wanted = variant.wants_jax
        if wanted is not None and outcome["versions"].get("jax") != wanted:
            raise NotCompiledError(
                f"{variant.name}: its Python found jax {outcome['versions'].get('jax')}; "
                "is PYTHONPATH set?"
            )
        self._made[key] = Compilation(
            folder,
            outcome["versions"],
            outcome["device"],
            outcome["refusal"],
            outcome.get("need_bytes"),
            outcome.get("call"),
            outcome.get("python", ""),
            tuple(outcome.get("notes", ())),
        )
        return self._made[key]

    def _hardware(self) -> Described | None:
        """Return what is compiled for; None for this machine, or its CPU."""
        if self.target is None:
            return None
        return described(self.target, self.devices.gpus(self.target))

    def _answer(self, variant: Variant, request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the script's answer.

        Raises:
            TooSlowError: it took longer than allowed.
            NotCompiledError: it failed.
            UsageError: there is no such file or function, or it takes other arguments.
        """
        variables, hardware = self.devices.variables(self.target), self._hardware()
        variables |= {} if hardware is None else hardware.environment
        # A Python that was made for it must not find the packages of this one.
        variables.pop("PYTHONHOME", None)
        watch = Watch.from_now(
            self.timeout_s,
            is_verbose=self.is_verbose,
            observer=self.observer,
            relay=self.relay,
            hint=self.devices.hint,
        )
        what = f"{self.spec} with {variant.name}"
        try:
            if self.script is not None and request["module"] is None:
                return self._of_command(self.script, variant, request, what, watch, variables)
            command = [variant.python, str(Path(script.__file__)), str(self.folder)]
            with Child(command, self.folder, what, watch, variables) as child:
                answer = _answer(child, child.ask, request)
                return {**answer, "notes": child.known.get(NOTES, ())}
        except Died as died:
            last = died.lines[-1] if died.lines else "no message"
            raise _failed(variant, f"{died.ended}: {last}", died.lines) from None
        except NoCallError as error:
            if self.call is None:  # a name that is wrong: no other way has to run to its end
                raise NoCallError(f"{variant.name}: {error}", error.calls) from error
            raise _failed(variant, str(error)) from error
        except NotCompiledError as error:
            last = f": {error.lines[-1]}" if error.lines and self.script is not None else ""
            raise _failed(variant, f"{error}{last}") from error
        except TooSlowError as error:
            raise TooSlowError(f"{variant.name}: {error}") from error

    def _of_command(
        self,
        command: Script,
        variant: Variant,
        request: Mapping[str, Any],
        what: str,
        watch: Watch,
        variables: dict[str, str],
    ) -> dict[str, Any]:
        """Return the answer about the call of a command, which is that of the first way.

        Raises:
            BufdbError: it was not reached, or failed.
        """
        if self.call is not None:
            command = at_same(command, self.call)
            watch = replace(watch, relay=lambda data: None)
        if variant.is_python:
            words = with_python(command.words, variant.python)
            assert words is not None  # see `bufdb.blame.ways`
            command = replace(command, words=words)
        options = variant.options
        is_tpu = request["target"] is not None and request["target"]["platform"] == "tpu"
        variables |= script.flags(options, variables, is_tpu=is_tpu)
        settings = {name: value for name, value in options.items() if script.is_setting(name)}
        variables |= {script.setting(name).upper(): value for name, value in settings.items()}
        command = command.settled(self.folder, watch, variables)
        with command.child(self.folder, script.__name__, what, watch, variables) as child:
            answer = _answer(child, partial(command.first, child), request)
            notes = [stopped_note(command, child), *child.known.get(NOTES, ())]
            known = {"call": calls_of(child)[-1], "python": child.known["python"]}
            return {**answer, **known, "notes": notes}


def _answer(
    child: Child,
    ask: Callable[[Mapping[str, Any]], dict[str, Any]],
    request: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the answer; also of a compiler that ended the process once it had planned."""
    try:
        return ask(request)
    except Died as died:
        if "versions" in child.known and programs(Path(request["folder"]) / DUMPS):
            return {**child.known, "refusal": died.refusal}
        raise


def _failed(variant: Variant, message: str, lines: Sequence[str] = ()) -> NotCompiledError:
    """Return the error of a way to compile; where a package is missing, with what adds it."""
    hint = ""
    if (missing := _MISSING.search(message)) is not None:
        hint = f"; install what has {missing[1]} for {variant.python}"
        if variant.packages:
            hint = f"; --with PACKAGE adds what has {missing[1]} to the environments of --jax"
    return NotCompiledError(f"{variant.name}: {message}{hint}", lines)


def version_of(python: str) -> str:
    """Return a short name of a Python: its version of jax, or else its path.

    Raises:
        BufdbError: it cannot be started, or has no jax.
    """
    # Without the working directory; -P is unknown to Python 3.10.
    code = "import sys; sys.path = [folder for folder in sys.path if folder]\n"
    code += "import importlib.metadata as m; print(m.version('jax'))"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError as error:
        raise BufdbError(f"cannot start {python}: {error.strerror}") from error
    if done.returncode:
        raise BufdbError(f"{python} has no jax")
    return done.stdout.strip()
