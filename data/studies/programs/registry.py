"""All programs, and the functions that are compiled of them.

    XLA_FLAGS=--xla_dump_to=DIR python -m programs.registry cpu|gpu|tpu FUNCTION ...

compiles functions; nothing is executed, and no GPU or TPU needs to be there.
"""

import re
import sys
import time
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import jax
from programs import decode, lm, nets, sharded, simulation, small, steps, unet
from programs.program import Change, Program, halved

MODULES = (steps, small, lm, unet, nets, decode, simulation, sharded)


@dataclass(frozen=True)
class Case:
    """A program as it is written, or with a change."""

    program: str
    change: str
    """The change in words; "base" for the program as written."""
    of: Program
    made: Change | None
    file: Path

    @property
    def function(self) -> str:
        return re.sub(r"\W+", "_", f"{self.program}__{self.change}")

    @property
    def lines(self) -> list[str]:
        """Lines that the advice names, one or all of them, as FILE:LINE; functions as NAME()."""
        return [self.line(at) for at in re.split(r"[+|]", self.made.at) if at] if self.made else []

    def line(self, at: str) -> str:
        if ":" in at or at.endswith("()"):
            return at
        lines = self.file.read_text(encoding="utf-8").splitlines()
        (number,) = (n for n, line in enumerate(lines, 1) if line.endswith(f"# line: {at}"))
        return f"{self.file.name}:{number}"


def cases(target: str) -> list[Case]:
    """All of a target, each program followed by its changes."""
    every_case = []
    for module in MODULES:
        file = Path(module.__file__)
        for name, program in module.PROGRAMS.items():
            if target in program.targets:
                every_case.append(Case(name, "base", program, None, file))
                every_case += [
                    Case(name, what, program, change, file)
                    for what, change in program.changes.items()
                    if target in change.targets
                ]
    return every_case


def devices_of(target):
    if target == "cpu":
        return jax.devices()
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "data" / "model"))
    from target import devices

    return devices(target)


def compile_case(case, devices):
    options = {**case.of.options, **(case.made.options if case.made else {})}
    function, arguments, donated = case.of.make(devices, **options)
    if case.made and case.made.is_half:
        arguments = halved(arguments)

    @wraps(function)  # parameters keep their names
    def program(*leaves):
        return function(*leaves)

    program.__name__ = case.function
    jax.jit(program, donate_argnums=donated).lower(*arguments).compile()


def main(target, *wanted):
    devices, failed = devices_of(target), False
    by_function = {case.function: case for case in cases(target)}
    for function in wanted:
        begin = time.monotonic()
        try:
            compile_case(by_function[function], devices)
            end = f"{time.monotonic() - begin:.1f} s"
        except Exception as error:
            end, failed = f"failed: {error!r}"[:2000], True
        print(f"{target} {function}: {end}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
