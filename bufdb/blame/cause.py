"""Whose doing a jump is: the compiler's or jax's tracing, and after which pass it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from bufdb.blame.passes import sentences, states
from bufdb.blame.runs import DUMPS, MODULE, STABLEHLO, Compilation, Job, Variant
from bufdb.blame.series import Jump, signed
from bufdb.errors import BufdbError
from bufdb.render.text import human_bytes

_MOST = 0.9
"""Share of a jump that makes it the doing of one side."""


class Verdict(NamedTuple):
    """Which component caused a jump."""

    culprit: str
    """compiler, tracing or unknown."""
    sentence: str


def caused(job: Job, jump: Jump, base: Variant, new: Variant) -> tuple[Jump, list[Compilation]]:
    """Return a jump with what is known of its cause, and the two compilations that were asked.

    Both are compiled once more, with a dump after each pass. What fails is said in the answer.
    """
    # A setting of JAX changes what is traced, a flag of XLA does not.
    is_flag = any(not name.startswith("jax_") for name in {**base.options, **new.options})
    try:
        sides = [job.compile(side, passes=True, export=True) for side in (base, new)]
    except BufdbError as error:
        sentence = f"cannot tell whose doing: {error}"
        return replace(jump, culprit=sentence, verdict="unknown"), []
    before, after = (states(side.folder / DUMPS) for side in sides)
    names = jump.base, jump.new
    causes = sentences(before, after, jump.parts, jump.delta_bytes, names)
    jump = replace(jump, passes=tuple(causes))
    if is_flag:
        return jump, sides
    verdict = _verdict(job, sides, base, new, names)
    return replace(jump, culprit=verdict.sentence, verdict=verdict.culprit), sides


def _verdict(
    job: Job, sides: Sequence[Compilation], base: Variant, new: Variant, names: tuple[str, str]
) -> Verdict:
    old, later = sides
    if _program(old) == _program(later):
        return Verdict("compiler", "the compiler: both get the same StableHLO")
    if not (old.folder / MODULE).exists():
        reason = (old.folder / "export.error").read_text(encoding="utf-8")
        return _unknown(f"{names[0]} cannot export the function: {reason}")
    try:
        control = job.compile(base, module=str(old.folder)).need_bytes
        moved = job.compile(new, module=str(old.folder)).need_bytes
    except BufdbError as error:
        return _unknown(f"the StableHLO of {names[0]}: {error}")
    return judged(old.need_bytes, later.need_bytes, control, moved, names)


def judged(
    before: int | None,
    after: int | None,
    control: int | None,
    moved: int | None,
    names: tuple[str, str],
) -> Verdict:
    """Return whose doing a jump is.

    Args:
        before: need of the function in the old version.
        after: that in the new version.
        control: need of the exported function in the old version, which must be that of the source.
        moved: need of the exported function of the old version in the new one.
        names: of the versions.
    """
    if before is None or after is None or control is None or moved is None or before == after:
        return _unknown("a version of jax does not say what a compiled function needs")
    jump = after - before
    if abs(control - before) > (1 - _MOST) * abs(jump):
        return _unknown(
            f"exported and compiled by {names[0]} itself, the function needs "
            f"{human_bytes(control)}, not {human_bytes(before)}"
        )
    share = (moved - control) / jump
    what = f"{names[1]} needs {human_bytes(moved)} for the StableHLO of {names[0]}"
    if abs(share - 1) <= 1 - _MOST:
        return Verdict("compiler", f"the compiler: {what}")
    if abs(share) <= 1 - _MOST:
        return Verdict("tracing", f"jax's tracing: {what}")
    return _unknown(f"{what}, a change of {signed(moved - control)}, not of {signed(jump)} or none")


def _unknown(reason: str) -> Verdict:
    return Verdict("unknown", f"cannot tell whose doing: {reason}")


def _program(side: Compilation) -> str:
    return (side.folder / STABLEHLO).read_text(encoding="utf-8")
