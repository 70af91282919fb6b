"""Compile one function in several ways, each in a child process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bufdb.blame import script
from bufdb.capture.apart import (
    QUIET,
    NotCompiledError,
    Observer,
    Relay,
    end_of,
    ending,
    failure_lines,
    to_stderr,
    watch,
)
from bufdb.capture.dump import programs
from bufdb.capture.target import described
from bufdb.errors import BufdbError, TooSlowError, UsageError

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
        found = self._asked(variant, request, folder)
        wanted = variant.wants_jax
        if wanted is not None and found["versions"].get("jax") != wanted:
            raise NotCompiledError(
                f"{variant.name}: its Python found jax {found['versions'].get('jax')}; "
                "is PYTHONPATH set?",
                [],
            )
        return Compilation(
            folder,
            found["versions"],
            found["device"],
            found["refusal"],
            found.get("need_bytes"),
        )

    def _asked(self, variant: Variant, request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Run the script, and return what it found."""
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        log = folder / "stderr"
        what = f"{self.spec} with {variant.name}"
        environment = dict(os.environ)
        if self.target is not None:
            hardware = described(self.target)
            environment |= QUIET | (dict(hardware.environment) if hardware else {})
        # A Python that was made for it must not find the packages of this one.
        environment.pop("PYTHONHOME", None)
        with log.open("wb") as errors:
            try:
                child = subprocess.Popen(
                    [variant.python, str(Path(script.__file__)), str(folder)],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=None if self.is_verbose else errors,
                )
            except OSError as error:
                raise NotCompiledError(
                    f"{variant.name}: cannot start {variant.python}: {error.strerror}", []
                ) from error
            assert child.stdin is not None
            # It must have ended before its input is closed: it then removes all folders.
            with child.stdin, ending(child):
                try:
                    watch(child, folder, self.timeout_s, self.observer, self.relay, what)
                except TooSlowError as error:
                    raise TooSlowError(f"{variant.name}: {error}") from error
        try:
            found = json.loads((folder / "found.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            said = failure_lines(log.read_text(encoding="utf-8", errors="replace").splitlines())
            started = folder / "started.json"
            if started.exists() and programs(folder / DUMPS):
                text = f"{end_of(child.returncode)}: {said[0] if said else 'no message'}"
                known: dict[str, Any] = json.loads(started.read_text(encoding="utf-8"))
                return {**known, "refusal": text}
            last = said[-1] if said else "no message"
            raise NotCompiledError(
                f"{variant.name}: {end_of(child.returncode)}: {last}", said
            ) from None
        if found.get("is_usage"):
            raise UsageError(found["message"])
        if "message" in found:
            raise NotCompiledError(f"{variant.name}: {found['message']}", [])
        return dict(found)


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
