"""The ways to compile that `--jax`, `--python` and `--flag` name."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bufdb.blame import environments, runs
from bufdb.blame.runs import Variant
from bufdb.capture.target import hardware_of
from bufdb.capture.words import python_at
from bufdb.errors import UsageError


@dataclass(frozen=True)
class Ways:
    """The options that say how to compile."""

    versions: str | None = None
    """Versions of jax, with commas."""
    packages: Sequence[str] = ()
    """Further packages of their environments."""
    pythons: Sequence[str] = ()
    """Paths of Pythons that have jax."""
    flags: Sequence[str] = ()
    """NAME=V,V or, repeated, NAME=V."""
    target: str | None = None
    command: Sequence[str] = ()
    """Words of a command, whose Python is replaced; empty for a function of a file."""

    def axis(self) -> str | None:
        """Return the option that is set; None if none is.

        Raises:
            UsageError: several are.
        """
        named = {"--jax": self.versions, "--python": self.pythons, "--flag": self.flags}
        names = [name for name, value in named.items() if value]
        if len(names) > 1:
            raise UsageError(f"{' and '.join(names)}: one at a time")
        return names[0] if names else None

    def variants(self) -> list[Variant]:
        """Return the ways to compile, in order.

        A single one is compared with the Python that runs bufdb, or that of the command, or with
        the flag's default.

        Raises:
            UsageError: an option is malformed, or the command names no Python that is replaced.
        """
        axis, own = self.axis(), self._own_python()
        if self.command and axis != "--flag" and python_at(self.command) is None:
            raise UsageError(
                f"{axis} puts another Python into the command, and {shlex.join(self.command)} "
                "names none: -- python …"
            )
        if self.packages and self.versions is None:
            raise UsageError("--with is for the environments of --jax")
        environments.require_requirements(self.packages)
        if self.flags:
            variants = [_of_flag(name, value, own) for name, value in _flags(self.flags)]
            default = _of_flag(variants[0].label, None, own)
            return variants if len(variants) > 1 else [default, *variants]
        if self.versions is not None:
            return self._of_versions(self.versions, own)
        paths = list(dict.fromkeys(self.pythons))
        paths += [own] if len(paths) == 1 else []
        return [Variant("python", path, path) for path in paths]

    def _own_python(self) -> str:
        """Return the Python of the command, or that of bufdb."""
        at = python_at(self.command)
        word = sys.executable if at is None else self.command[at]
        return shutil.which(word) or word

    def _of_versions(self, versions: str, own: str) -> list[Variant]:
        names = list(dict.fromkeys(part.strip() for part in versions.split(",")))
        environments.require_versions(names)
        variants = [
            Variant("jax", name, "", packages=self._packages(name), wants_jax=name)
            for name in names
        ]
        if len(variants) > 1:
            return variants
        version = runs.version_of(own)
        if version == names[0]:
            what = "the command" if self.command else "bufdb"
            raise UsageError(f"the Python that runs {what} has jax {version} too; name another one")
        return [*variants, Variant("jax", version, own)]

    def _packages(self, version: str) -> tuple[str, ...]:
        """Return the packages of an environment with a version of jax."""
        hardware = None if self.target is None else hardware_of(self.target)
        # A libtpu of the user's need not be the one that jax[tpu] wants.
        is_own = any(package.startswith("libtpu") for package in self.packages)
        extra = "tpu" if isinstance(hardware, tuple) and not is_own else "cpu"
        plugin = [f"jax-cuda12-plugin=={version}"] if isinstance(hardware, str) else []
        # jax.export needs these, and jax does not require them.
        exports = ("flatbuffers", "absl-py")
        return (f"jax[{extra}]=={version}", *plugin, *exports, *self.packages)


def _flags(texts: Sequence[str]) -> list[tuple[str, str | None]]:
    """Return the flag with each of its values; None is the default.

    A value may hold commas where the option is repeated.

    Raises:
        UsageError: a text is malformed, or there are several flags.
    """
    named: dict[tuple[str, str | None], None] = {}
    for text in texts:
        name, equals, values = text.removeprefix("--").partition("=")
        is_one = len(texts) > 1
        parts = [values] if is_one else values.split(",")
        if not name or not (all(parts) if equals else is_one):
            raise UsageError(f"--flag wants NAME=V,V, got {text!r}")
        named |= {(name, part if equals else None): None for part in parts}
    names = dict.fromkeys(name for name, _ in named)
    if len(names) > 1:
        raise UsageError(f"--flag: {' and '.join(names)}: one at a time")
    return list(named)


def _of_flag(name: str, value: str | None, python: str) -> Variant:
    options = {} if value is None else {name: value}
    return Variant(name, value or "default", python, options)
