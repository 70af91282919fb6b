"""`bufdb.explain`: the summary of one function, with no flags and no files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bufdb.api.answer import Answer
from bufdb.api.curve import Span, svg
from bufdb.api.database import Database, connect
from bufdb.errors import DatabaseError, UsageError
from bufdb.summary.overview import DEVICE_LABEL, glob

RUN = "compiled"
BARS = 320
"""Of the picture, at most."""
_MORE = (
    'steps, maps of the memory and every value: <code>.db.report("page.html")</code>; '
    'tables: <code>.db.query("peak")</code>'
)


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """The summary of a function, and where to ask further."""

    db: Database = field(kw_only=True)
    """In memory: `explanation.db.what_if("step", donate=["0"])`, `.query("peak-by-op")`."""

    def _repr_html_(self) -> str:
        """The memory over the program as a picture, the text, and where there is more."""
        try:
            spans = _spans(self.db, self.data["peak"])
        except DatabaseError:  # it was closed
            return super()._repr_html_()
        return f"<div>{svg(spans)}</div>{super()._repr_html_()}<div>{_MORE}</div>"


def _spans(db: Database, peak: Mapping[str, Any] | None) -> list[Span]:
    """The course of the module with the highest peak; none if that is unknown."""
    if peak is None:
        return []
    asked = {"module": glob(peak["module_key"]), "color": peak["color"], "top_n": BARS}
    columns = "start_time, end_time, occupied_bytes, instruction_name"
    rows = db.query("timeline", **asked).filter("unknown_reason IS NULL").project(columns)
    return [Span(*row) for row in rows.fetchall()]


def explain(
    function: Any,
    /,
    *args: Any,
    target: str | None = None,
    limit: int | str | None = None,
    compiler_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Explanation:
    """What the memory of a function is at its peak: shown by a notebook, by `print`, as `.data`.

    It is compiled, not run: `jax.ShapeDtypeStruct` in place of arrays will do, so that a large
    model can be explained on a laptop.

    Args:
        function: plain or jitted, with the arguments to lower it for; or what
            `jax.jit(f).lower(...)` or `.compile()` gave, without.
        args: its arguments.
        target: hardware to compile for that need not be there, such as "tpu:v5e:2x2"; it takes
            the package libtpu (pip install 'bufdb[tpu]').
        limit: memory of the device: bytes, a size such as "16GiB", or a name such as "TPU v5e"; by
            default that of the target.
        compiler_options: passed on to `compile`.
        kwargs: arguments of the function by name.

    Raises:
        UsageError: it is nothing that can be compiled.
        BufdbError: it holds no buffer assignment; the message says what to do.
    """
    metadata = {}
    stage = function
    if not hasattr(function, "memory_analysis") and not callable(
        getattr(function, "compile", None)
    ):
        from bufdb.compiled.lower import lowered
        from bufdb.compiled.target import target as described

        hardware = None if target is None else described(target)
        stage = lowered(function, args, kwargs, hardware)
        if hardware is not None:
            metadata = {DEVICE_LABEL: hardware.device_kind, "target": hardware.name}
            compiler_options = {**hardware.options, **(compiler_options or {})}
    elif args or kwargs or target is not None:
        raise UsageError(
            "what is lowered or compiled takes neither arguments nor a target; give the function"
        )
    db = connect()
    db.ingest(stage, run=RUN, metadata=metadata, compiler_options=compiler_options)
    found = db.summary(limit=limit)
    return Explanation(found.text, found.data, found.notes, db=db)
