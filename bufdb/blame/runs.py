"""Compile one function in several ways, each in a child process of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bufdb.blame import script
from bufdb.capture.dump import programs
from bufdb.capture.runner import Child, Died, NotCompiledError, Observer, Relay, Watch, to_stderr
from bufdb.capture.target import QUIET, described
from bufdb.errors import BufdbError, TooSlowError

DUMPS = "dumps"
MODULE = "module.bin"
"""The exported function, see `bufdb.blame.script`."""
STABLEHLO = "stablehlo.mlir"


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
    def name(self) -> str:
        """Return "jax 0.7.2" or "xla_flag=true"."""
        return f"{self.label} {self.value}" if self.label in ("jax", "python") else self.assigned

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


@dataclass(frozen=True)
class Job:
    """The function, and how its compilations are watched."""

    spec: str
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

    def compile(self, variant: Variant, **how: Any) -> Compilation:
        """Compile in a child process, which does not outlive this one.

        Args:
            variant: how.
            how: passes (dump after each pass), export (write the StableHLO), module (the folder of
                another compilation, whose exported function is compiled).

        Raises:
            TooSlowError: it took longer than allowed.
            NotCompiledError: it failed.
            UsageError: there is no such file or function, or it takes other arguments.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        (folder / DUMPS).mkdir()
        request = {"passes": False, "export": False, "module": None, **how}
        request["divisors"] = dict(self.divisors)
        hardware = None if self.target is None else described(self.target)
        request["target"] = None if hardware is None else asdict(hardware)
        request |= {"spec": self.spec, "args": self.args, "options": dict(variant.options)}
        outcome = self._answer(variant, {**request, "folder": str(folder)}, folder)
        wanted = variant.wants_jax
        if wanted is not None and outcome["versions"].get("jax") != wanted:
            raise NotCompiledError(
                f"{variant.name}: its Python found jax {outcome['versions'].get('jax')}; "
                "is PYTHONPATH set?"
            )
        return Compilation(
            folder,
            outcome["versions"],
            outcome["device"],
            outcome["refusal"],
            outcome.get("need_bytes"),
        )

    def _answer(self, variant: Variant, request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the script's answer."""
        variables = dict(os.environ)
        if self.target is not None:
            hardware = described(self.target)
            variables |= QUIET | (dict(hardware.environment) if hardware else {})
        # A Python that was made for it must not find the packages of this one.
        variables.pop("PYTHONHOME", None)
        command = [variant.python, str(Path(script.__file__)), str(self.folder)]
        watch = Watch.from_now(
            self.timeout_s, is_verbose=self.is_verbose, observer=self.observer, relay=self.relay
        )
        what = f"{self.spec} with {variant.name}"
        try:
            with Child(command, self.folder, what, watch, variables) as child:
                return child.ask(request)
        except Died as died:
            if child.known and programs(folder / DUMPS):
                return {**child.known, "refusal": died.refusal}
            last = died.lines[-1] if died.lines else "no message"
            raise NotCompiledError(f"{variant.name}: {died.ended}: {last}", died.lines) from None
        except NotCompiledError as error:
            raise NotCompiledError(f"{variant.name}: {error}") from error
        except TooSlowError as error:
            raise TooSlowError(f"{variant.name}: {error}") from error


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
