"""Figures of one function in several compilations, and the jumps between neighbors.

Invariant: what is stored decides; a jump has its parts from `bufdb.answers.diff`.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bufdb.answers.diff import Row, diff
from bufdb.answers.diff_text import labels, moved
from bufdb.answers.opening import Open
from bufdb.errors import TooSlowError
from bufdb.query.execute import execute_with
from bufdb.render.text import escape_control, human_bytes

THRESHOLD_PERCENT = 1.0
"""Changes of at most so many percent are no jump, unless the user says otherwise."""
_EVERY = 10_000
_MOST_PARTS, _PART_SHARE = 3, 0.1
"""Parts of a jump that are named, and their least share of it."""
_MISSING = "this run does not have it"
_MOST_NAMES = 5
"""Functions of some runs alone that are named."""
_FIGURES = """
SELECT run_name, module_key, color, need_bytes, peak_bytes, peak_unknown_reason
FROM memory_figures
WHERE run_name IN (getvariable('base')::VARCHAR, getvariable('new')::VARCHAR)"""
_PLACES = """
SELECT run_name = getvariable('base')::VARCHAR AS is_base, allocation_kind
FROM value_details
WHERE (run_name, module_key) IN (
    (getvariable('base')::VARCHAR, getvariable('base_module')::VARCHAR),
    (getvariable('new')::VARCHAR, getvariable('new_module')::VARCHAR))
  AND bare_shape = getvariable('shape')::VARCHAR
  AND regexp_extract(op_path, '[^/]*$') = getvariable('part')::VARCHAR
  AND opcode <> 'parameter'"""
_KINDS = {
    "temp": "a temp of its own",
    "output": "a result of its own",
    "donated_parameter": "a donated argument",
    "parameter": "an argument",
    "constant": "a constant",
}
_BEFORE = {
    "donated_parameter": "written over the donated argument",
    "output": "written into the result",
    "temp": "a temp without bytes of its own at the peak",
}


@dataclass(frozen=True)
class Step:
    """One compilation."""

    name: str
    """Such as "jax 0.7.2", or the run."""
    run: str | None
    need_bytes: int | None = None
    peak_bytes: int | None = None
    reason: str | None = None
    """Why a figure is unknown, or why nothing was compiled."""
    versions: dict[str, str] = field(default_factory=dict)
    is_too_slow: bool = False
    """Whether it was stopped by --timeout."""


@dataclass(frozen=True)
class Part:
    """What grew (or shrank) most at the peak."""

    name: str
    source: str | None
    shape: str | None
    kind: str | None
    change: str
    delta_bytes: int
    before: str | None
    """Where the value was before; None where that is not known."""


@dataclass(frozen=True)
class Jump:
    """Two neighbors whose needs differ."""

    base: str
    new: str
    base_run: str
    new_run: str
    base_need_bytes: int
    new_need_bytes: int
    base_peak_bytes: int | None
    new_peak_bytes: int | None
    parts: tuple[Part, ...] = ()
    """What changed most at the peak, the largest first; empty if no part moved as the need did."""
    culprit: str | None = None
    """Which component caused it, in a sentence."""
    verdict: str | None = None
    """compiler, tracing or unknown; None if it was not asked."""
    passes: tuple[str, ...] = ()
    """What is known of passes, a sentence each."""

    @property
    def delta_bytes(self) -> int:
        """Return the change of the need."""
        return self.new_need_bytes - self.base_need_bytes


@dataclass(frozen=True)
class Series:
    """One function."""

    function: str
    steps: tuple[Step, ...]
    jumps: tuple[Jump, ...]

    @property
    def is_known(self) -> bool:
        """Return whether every step has a figure."""
        return all(step.need_bytes is not None for step in self.steps)

    @property
    def missing(self) -> frozenset[str]:
        """Return the names of the steps that do not have the function."""
        return frozenset(step.name for step in self.steps if step.reason == _MISSING)


def series(opened: Open, steps: Sequence[Step], percent: float = THRESHOLD_PERCENT) -> list[Series]:
    """Return the series of each function of these runs; of each program, if it has several.

    Args:
        opened: opens the database.
        steps: in order; those without a run could not be compiled and are passed over.
        percent: the smallest jump.
    """
    known = [step for step in steps if step.run is not None]
    by_function: dict[tuple[str, int], tuple[list[Step], list[Jump]]] = {}
    for base, new in itertools.pairwise(known):
        alike: Counter[str] = Counter()
        for function, sides, jump in _compared(opened, base, new, percent):
            taken, jumps = by_function.setdefault((function, alike[function]), ([], []))
            alike[function] += 1
            for side in sides:
                if side.name not in {step.name for step in taken}:
                    taken.append(side)
            jumps += [] if jump is None else [jump]
    failed = [step for step in steps if step.run is None]
    return [
        Series(function, _in_order(steps, [*taken, *failed]), tuple(jumps))
        for (function, _), (taken, jumps) in by_function.items()
    ]


def of_runs(opened: Open, runs: Sequence[str], percent: float = THRESHOLD_PERCENT) -> list[Series]:
    """Return the series of runs that are there; a name is a run, or LABEL=VALUE.

    Raises:
        UsageError: there is no such run.
    """
    return series(opened, [Step(name, name) for name in runs], percent)


def exit_code(compared: Sequence[Series]) -> int:
    """Return 0 if there is no jump in what all have, 124 if only the time ran out, else 1."""
    shared = [one for one in compared if not one.missing]
    if shared and all(one.is_known for one in shared) and not any(one.jumps for one in compared):
        return 0
    # A jump that was found is an answer, whatever else was stopped.
    is_stopped = any(step.is_too_slow for one in compared for step in one.steps)
    is_jump = any(one.jumps for one in compared)
    return TooSlowError.exit_code if is_stopped and not is_jump else 1


def _in_order(order: Sequence[Step], steps: Sequence[Step]) -> tuple[Step, ...]:
    names = [step.name for step in order]
    return tuple(sorted(steps, key=lambda step: names.index(step.name)))


def _compared(
    opened: Open, base: Step, new: Step, percent: float
) -> list[tuple[str, list[Step], Jump | None]]:
    """Return each program by function, its two figures, and the jump, if any.

    A program that one side alone has gives the other a step with the reason.
    """
    assert base.run is not None and new.run is not None
    comparison = diff(opened, base.run, new.run, top=_EVERY, most_places=_EVERY).comparison
    answers = []
    peaks = [row for row in comparison.figures if row.figure == "peak"]
    label = labels(peaks)
    for row in peaks:
        con = opened(f"{_FIGURES};{_PLACES}")
        values: dict[str, Any] = {"base": row.base_run_name, "new": row.new_run_name}
        figures = {
            (run, key): figure
            for run, key, color, *figure in execute_with(con, _FIGURES, values, "blame").rows
            if color == row.color
        }
        sides = [
            replace(side, reason=_MISSING) if key is None else _step(side, figures.get((run, key)))
            for side, run, key in (
                (base, row.base_run_name, row.base_module_key),
                (new, row.new_run_name, row.new_module_key),
            )
        ]
        jump = _jump(sides[0], sides[1], percent)
        if jump is not None:
            parts = [part for part in comparison.peak_parts if part.place == row.place]
            jump = replace(jump, parts=_largest(con, row, parts, jump.delta_bytes))
        answers.append((label[row.place], sides, jump))
    return answers


def _step(step: Step, figure: list[Any] | None) -> Step:
    if figure is None:
        return replace(step, reason="this run has no figures in that memory space")
    need, peak, reason = figure
    if need is None:
        reason = reason or "the dump has no size of the temporaries"
    return replace(step, need_bytes=need, peak_bytes=peak, reason=reason)


def _jump(base: Step, new: Step, percent: float) -> Jump | None:
    if base.need_bytes is None or new.need_bytes is None:
        return None
    change = abs(new.need_bytes - base.need_bytes)
    if change == 0 or change * 100 <= percent * base.need_bytes:
        return None
    assert base.run is not None and new.run is not None
    return Jump(
        base.name,
        new.name,
        base.run,
        new.run,
        base.need_bytes,
        new.need_bytes,
        base.peak_bytes,
        new.peak_bytes,
    )


def _largest(con: Any, row: Row, parts: Sequence[Row], delta: int) -> tuple[Part, ...]:
    """Return the parts that changed most in the direction of the jump."""
    largest = moved(parts, delta)
    least = _PART_SHARE * abs(delta)
    chosen = [part for part in largest if abs(part.delta_bytes or 0) >= least] or largest[:1]
    return tuple(
        Part(
            name=str(part.part),
            source=part.new_source or part.base_source,
            shape=part.new_shape or part.base_shape,
            kind=part.allocation_kind,
            change=str(part.change),
            delta_bytes=part.delta_bytes or 0,
            before=_before(con, row, part) if part.change == "appeared" else None,
        )
        for part in chosen[:_MOST_PARTS]
    )


def _before(con: Any, row: Row, part: Row) -> str | None:
    """Return where a value was that now holds bytes of its own; None unless that is certain."""
    assert part.part is not None
    values = {
        "base": row.base_run_name,
        "new": row.new_run_name,
        "base_module": row.base_module_key,
        "new_module": row.new_module_key,
        "shape": part.new_shape,
        "part": part.part.removeprefix("saved ").removeprefix("for "),
    }
    rows = execute_with(con, _PLACES, values, "blame").rows
    kinds = [kind for is_base, kind in rows if is_base]
    if not kinds and rows:
        return "no value of that op and shape"
    # Of several values it is not known which is which.
    is_one = len(kinds) == 1 and len(rows) == 2
    return _BEFORE.get(str(kinds[0])) if is_one else None


# -- The answer as text and as JSON ----------------------------------------------------------------


def as_data(compared: Sequence[Series]) -> list[dict[str, Any]]:
    """Return everything, in exact numbers: a dict for each function."""
    return [
        {
            "function": one.function,
            "steps": [asdict(step) for step in one.steps],
            "jumps": [{**asdict(jump), "delta_bytes": jump.delta_bytes} for jump in one.jumps],
        }
        for one in compared
    ]


def as_json(compared: Sequence[Series]) -> str:
    """Return the same as JSON."""
    return json.dumps({"series": as_data(compared)}, indent=2) + "\n"


def text(compared: Sequence[Series]) -> str:
    """Format the answer, the largest jump first."""
    if not compared:
        return "nothing to compare: the runs have no function\n"
    ordered = sorted(
        compared, key=lambda one: -max((abs(j.delta_bytes) for j in one.jumps), default=0)
    )
    partial = [one for one in ordered if not one.jumps and one.missing]
    jumping = [one for one in ordered if one.jumps or not (one.is_known or one.missing)]
    lines: list[str] = []
    for one in jumping:
        lines += [*_lines(one), ""]
    calm = [one for one in ordered if not one.jumps and one.is_known]
    if len(calm) > 3:
        lines.append(f"no jump in {len(calm)}{' other' if jumping else ''} functions")
    else:
        lines += [line for one in calm for line in _lines(one)]
    lines += _only(partial)
    while lines and not lines[-1]:
        lines.pop()
    return "".join(f"{escape_control(line)}\n" for line in lines)


def _only(compared: Sequence[Series]) -> list[str]:
    """Return a line for each set of runs that alone have some of these functions."""
    functions: dict[str, list[str]] = {}
    for one in compared:
        having = [step.name for step in one.steps if step.name not in one.missing]
        functions.setdefault(", ".join(having), []).append(one.function)
    return [
        f"only in {runs}: {', '.join(names[:_MOST_NAMES])}"
        + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")
        for runs, names in functions.items()
    ]


def _lines(one: Series) -> list[str]:
    lines = [f"{one.function}: {_spans(one)}"]
    lines += [
        f"{step.name}: unknown: {step.reason}" for step in one.steps if step.need_bytes is None
    ]
    for jump in one.jumps:
        lines += _jump_lines(jump)
    return lines


def _spans(one: Series) -> str:
    """Return "need 64.0 MiB at jax 0.7.1, 128 MiB from jax 0.7.2 to jax 0.10.2"."""
    steps = [step for step in one.steps if step.need_bytes is not None]
    if not steps:
        return "unknown"
    after = {jump.new for jump in one.jumps}
    spans: list[list[Step]] = []
    for step in steps:
        if not spans or step.name in after:
            spans.append([])
        spans[-1].append(step)
    if len(spans) == 1:
        return f"no jump: {_need(steps)} {_from_to(steps)}"
    return "need " + ", ".join(f"{_need(span)} {_from_to(span)}" for span in spans)


def _need(steps: Sequence[Step]) -> str:
    needs = [step.need_bytes for step in steps if step.need_bytes is not None]
    low, high = human_bytes(min(needs)), human_bytes(max(needs))
    return low if low == high else f"{low} to {high}"


def _from_to(steps: Sequence[Step]) -> str:
    if len(steps) == 1:
        return f"at {steps[0].name}"
    return f"from {steps[0].name} to {steps[-1].name}"


def _jump_lines(jump: Jump) -> list[str]:
    lines = [f"{jump.new}: {signed(jump.delta_bytes)} over {jump.base}"]
    lines += [f"  {_part(part)}" for part in jump.parts]
    if not jump.parts:
        lines.append(f"  {_without_part(jump)}")
    lines += [f"  {sentence}" for sentence in (jump.culprit, *jump.passes) if sentence]
    command = shlex.join(["bufdb", "diff", jump.base_run, jump.new_run])
    lines.append(f"  all parts: {command}")
    return lines


def _part(part: Part) -> str:
    text = " ".join(
        item for item in (signed(part.delta_bytes), part.name, part.source, part.shape) if item
    )
    if part.change == "appeared":
        text += f", {_KINDS.get(part.kind or '', part.kind or 'of unknown kind')}"
    else:
        text += f", {part.change}"
    return f"{text}; before, {part.before}" if part.before else text


def _without_part(jump: Jump) -> str:
    if jump.base_peak_bytes is None or jump.new_peak_bytes is None:
        return "no part is named: a peak is unknown"
    return (
        f"no part of the peak moved that way ({human_bytes(jump.base_peak_bytes)} before, "
        f"{human_bytes(jump.new_peak_bytes)} after): the rest is holes between values"
    )


def signed(count: int) -> str:
    """Return a change of bytes: +64.0 MiB."""
    return f"{'+' if count > 0 else '-'}{human_bytes(abs(count))}"
