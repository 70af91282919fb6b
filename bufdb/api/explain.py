"""`bufdb.explain`: the summary of one function, without flags or files."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bufdb.answers.summary import DEVICE_LABEL
from bufdb.answers.summary import summary as ask
from bufdb.answers.targets import Outcome, table
from bufdb.api.answer import Answer, dicts
from bufdb.api.database import Database, connect
from bufdb.errors import DatabaseError, UsageError
from bufdb.query.parameters import glob
from bufdb.render.text import human_bytes

# -- Memory over a program as an inline SVG, for a notebook ----------------------------------------
#
# Invariant: it loads no script, style or file, and names from dumps are never taken for markup.

WIDTH, HEIGHT, LINE = 640, 120, 16
"""Size of the drawing, and height of the line of text above it [px]."""


@dataclass(frozen=True)
class Span:
    """A part of a program: a row of the query timeline."""

    start_time: int
    """First instant [program order]."""
    end_time: int
    """Last instant, inclusive [program order]."""
    occupied_bytes: int
    """Maximum of the occupied bytes in it."""
    instruction_name: str | None
    """The instruction at that maximum; None at the end of the program."""


def svg(spans: Sequence[Span]) -> str:
    """Return a bar per span, as wide as it lasts, with figures as tooltip; '' if all are 0."""
    highest = max((span.occupied_bytes for span in spans), default=0)
    if not highest:
        return ""
    first, last = spans[0].start_time, spans[-1].end_time + 1
    bars = []
    for span in spans:
        left = (span.start_time - first) * WIDTH / (last - first)
        width = (span.end_time + 1 - span.start_time) * WIDTH / (last - first)
        height = span.occupied_bytes * HEIGHT / highest
        shade = "" if span.occupied_bytes < highest else ' fill="#c33"'
        times = f"{span.start_time}-{span.end_time}"
        title = f"{times}: {human_bytes(span.occupied_bytes)} {span.instruction_name or ''}".strip()
        bars.append(
            f'<rect x="{left:.2f}" y="{LINE + HEIGHT - height:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}"{shade}><title>{html.escape(title)}</title></rect>'
        )
    label = f"memory over the program, highest {human_bytes(highest)}"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {LINE + HEIGHT}" '
        f'style="max-width:{WIDTH}px" fill="#69c" shape-rendering="crispEdges">'
        f'<text y="12" font-size="12" fill="currentColor">{label}</text>{"".join(bars)}</svg>'
    )


# -- `bufdb.explain`: the summary of one function, without flags or files --------------------------

RUN = "compiled"
BARS = 320
"""Maximum bars of the picture."""
_MORE = (
    'steps, maps of the memory and every value: <code>.db.report("page.html")</code>; '
    'tables: <code>.db.query("peak")</code>'
)


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """The summary of a function, with a database for further questions."""

    db: Database = field(kw_only=True)
    """In memory: `explanation.db.what_if("step", donate=["0"])`, `.query("peak-by", by="op")`."""

    def _repr_html_(self) -> str:
        """Return a picture of memory over the program, the text, and pointers to more."""
        if isinstance(self.data, list):  # several targets
            return super()._repr_html_()
        try:
            spans = _spans(self.db, self.data["peak"])
        except DatabaseError:  # closed
            return super()._repr_html_()
        return f"<div>{svg(spans)}</div>{super()._repr_html_()}<div>{_MORE}</div>"


def _spans(db: Database, peak: Mapping[str, Any] | None) -> list[Span]:
    """Return the timeline of the module with the highest peak; empty if that is unknown."""
    if peak is None:
        return []
    parameters = {"module": glob(peak["module_key"]), "color": peak["color"], "top_n": BARS}
    columns = "start_time, end_time, occupied_bytes, instruction_name"
    rows = db.query("timeline", **parameters).filter("unknown_reason IS NULL").project(columns)
    return [Span(*row) for row in rows.fetchall()]


def explain(
    function: Any,
    /,
    *args: Any,
    target: str | Sequence[str] | None = None,
    limit: int | str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Explanation:
    """Return a function's memory at its peak, shown by a notebook, by `print`, as `.data`.

    It is compiled, not run: `jax.ShapeDtypeStruct` can replace arrays, so that a large model can be
    explained on a laptop. A function that XLA refuses because it is too large is explained from
    what XLA has planned by then; `.notes` has XLA's message.

    Args:
        function: plain or jitted, with the arguments to lower it for; or the result of
            `jax.jit(f).lower(...)` or `.compile()`, without arguments.
        args: its arguments.
        target: hardware to compile for, which need not be present, such as "tpu:v5e:2x2", "v5e-4"
            or "gpu:h100"; TPUs need the package libtpu (pip install 'bufdb[tpu]'). For several
            the answer is a table, with a dict for each as `.data`, and a run for each in `.db`.
        limit: memory of the device: bytes, a size such as "16GiB", or a name such as "TPU v5e"; by
            default that of the target.
        compiler_options: passed to `compile`.
        kwargs: arguments of the function by name.

    Raises:
        UsageError: it cannot be compiled.
        BufdbError: it has no buffer assignment; the message says what to do.
    """
    call = (function, args, kwargs)
    if target is not None and not isinstance(target, str):
        return _compared(call, list(dict.fromkeys(target)), limit, compiler_options)
    stage, metadata, options = _lowered(*call, target, compiler_options)
    from bufdb.capture.child import unused_note

    db = connect()
    done = db.ingest(stage, run=RUN, metadata=metadata, compiler_options=options)
    answer = db.summary(limit=limit)
    refusals = [f"XLA gave up: {text}" for text in done.refusals]
    unused = unused_note(stage)
    notes = (*answer.notes, *refusals, *([unused] if unused else []))
    return Explanation(answer.text, answer.data, notes, db=db)


def _lowered(
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    target: str | None,
    options: Mapping[str, Any] | None,
) -> tuple[Any, dict[str, str], Mapping[str, Any] | None]:
    """Return the lowered function to compile, the metadata of its run, and the options.

    Raises:
        UsageError: it cannot be compiled.
    """
    if hasattr(function, "memory_analysis") or callable(getattr(function, "compile", None)):
        if args or kwargs or target is not None:
            raise UsageError(
                "a lowered or compiled function takes neither arguments nor a target; "
                "pass the function"
            )
        return function, {}, options
    from bufdb.capture.child import lowered
    from bufdb.capture.target import target as described

    hardware = None if target is None else described(target)
    stage = lowered(function, args, kwargs, hardware)
    if hardware is None:
        return stage, {}, options
    metadata = {DEVICE_LABEL: hardware.device_kind, "target": hardware.name}
    return stage, metadata, {**hardware.options, **(options or {})}


def _compared(
    call: tuple[Any, Sequence[Any], Mapping[str, Any]],
    targets: Sequence[str],
    limit: int | str | None,
    compiler_options: Mapping[str, Any] | None,
) -> Explanation:
    """Return a table with a row for each target."""
    from bufdb.capture.child import unused_note
    from bufdb.render import formats

    stages = [_lowered(*call, name, compiler_options) for name in targets]
    db = connect()
    outcomes = []
    for name, (stage, metadata, options) in zip(targets, stages, strict=True):
        run = f"{RUN}@{name}"
        done = db.ingest(stage, run=run, metadata=metadata, compiler_options=options)
        refusal = done.refusals[0] if done.refusals else None
        with db._opener.several() as opened:
            overviews = ask(opened, run=glob(run), limit=limit).overview
        outcomes.append(Outcome(name, metadata[DEVICE_LABEL], run, overviews, refusal))
    rows = table(outcomes)
    text, _ = formats.render(rows, "table")
    unused = unused_note(stages[0][0])  # the same for each
    return Explanation(text, dicts(rows), (unused,) if unused else (), db=db)
