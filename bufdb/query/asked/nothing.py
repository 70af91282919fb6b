"""Why an answer has no rows: what was named that is not there, and what is there instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bufdb.errors import did_you_mean, quote
from bufdb.query.asked.known import FILTERS, Known
from bufdb.query.asked.texts import is_list

if TYPE_CHECKING:
    from bufdb.query.header import SavedQuery, Value

_WILD = re.compile(r"[*?]")
_SPECIAL = re.compile(r"[*?[]")
_SHOWN = 6
"""Names listed where none is near."""


def notes(
    known: Known, query: SavedQuery, values: Mapping[str, Value], row_count: int
) -> list[str]:
    """What to say beside an answer: which labels and runs there are not, and why it has no rows."""
    said = unknown_labels(known, query, values)
    if not row_count:
        return [*said, why(known, query, values)]
    for side in ("base", "new") if query.is_own else ():
        if query.param(side) is not None and values.get(side) is not None:
            selectors = known.selectors()
            if values[side] not in selectors:
                said.append(f"no run {_near(str(values[side]), selectors)}")
    return said


def why(known: Known, query: SavedQuery, values: Mapping[str, Value]) -> str:
    """Why a query without rows has none, on one line."""
    if not query.is_own:  # its parameters may mean anything
        return "no rows"
    selectors = known.selectors()
    if not selectors:
        return "no rows: no run is stored"
    for side in ("base", "new"):
        if query.param(side) is not None:
            if values.get(side) is None:
                return f"no rows: {query.name} compares two runs: -p base RUN -p new RUN"
            if values[side] not in selectors:
                return f"no rows: no run {_near(str(values[side]), selectors)}"
    run = values.get("run")
    if run is not None and not known.has_run(str(run)):
        return f"no rows: no run {_near(str(run), selectors)}"
    return "no rows: " + (
        _no_module(known, values) or _no_label(known, query, values) or _no_row(known, values)
    )


def unknown_labels(known: Known, query: SavedQuery, values: Mapping[str, Value]) -> list[str]:
    """A line for each label of a list of labels that no run has: it keeps nothing apart."""
    own = query.params if query.is_own else ()
    # A run without one of `label` is no row: why there is none is told by `why`.
    lists = [param.name for param in own if is_list(param) and param.name != "label"]
    given = [name for key in lists for name in str(values.get(key) or "").split(",") if name]
    labels = known.labels() if given else []
    return [f"no run has a label {_near(name, labels)}" for name in given if name not in labels]


def _no_module(known: Known, values: Mapping[str, Value]) -> str | None:
    """Which of the filters no module passes, alone or with the others."""
    runs = {"run": values["run"]} if values.get("run") is not None else {}
    given = {name: values[name] for name in FILTERS if values.get(name) is not None}
    for name, value in given.items():
        if not known.runs_of({**runs, name: value}):
            elsewhere = known.runs_of({name: value}) if runs else []
            if elsewhere:
                return (
                    f"run {quote(str(runs['run']))} has no {name} {quote(str(value))}; "
                    f"it is in {_some(elsewhere)}"
                )
            return f"no {name} {_near(str(value), known.names(name, runs))}"
    if not known.runs_of({**runs, **given}):
        pairs = " and ".join(f"{name} {quote(str(v))}" for name, v in {**runs, **given}.items())
        return f"no module has {pairs}" if pairs else "no module is stored"
    return None


def _no_label(known: Known, query: SavedQuery, values: Mapping[str, Value]) -> str | None:
    param = query.param("label")
    if param is None:
        return None
    label = values.get("label") or param.default
    labels = known.labels()
    names = [] if label is None else str(label).split(",") if is_list(param) else [str(label)]
    missing = [name for name in names if name not in labels]
    return f"no run has a label {_near(missing[0], labels)}" if missing else None


def _no_row(known: Known, values: Mapping[str, Value]) -> str:
    """The modules are there: what else was asked of them, and whether they can tell."""
    peaks = known.peaks(values)
    text = "nothing of this kind in " + (
        "the module asked about" if len(peaks) == 1 else f"the {len(peaks)} modules asked about"
    )
    others = {name: value for name, value in values.items() if name not in (*FILTERS, "run")}
    if others:
        text += " with " + ", ".join(f"{name} {value}" for name, value in others.items())
    reasons = [reason for reason in peaks if reason is not None]
    if reasons:
        text += f"; the peak of {len(reasons)} is unknown: {reasons[0]}"
    if count := known.message_count(values):
        text += f"; {count} known from an out-of-memory message alone, which has no live ranges"
    return text


def _near(name: str, names: Iterable[str]) -> str:
    """A name that is not there, and the nearest of those that are, or the first of them."""
    names = list(names)
    if name in names:  # a name that is no glob of itself
        literal = _SPECIAL.sub(r"[\g<0>]", name)
        return f"{quote(name)}; the name, where [ * ? stand for others, is {quote(literal)}"
    hint = did_you_mean(_WILD.sub("", name), names)
    return quote(name) + (hint or f"; there is {_some(names)}")


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return (", ".join(names[:_SHOWN]) or "none") + (f" and {more} more" if more > 0 else "")
