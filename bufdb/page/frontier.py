"""The plans of `bufdb fit` as one file: need against cost as a curve, and each plan with its patch.

The page has no script: a point is a link to its plan, and the style shows the one that is linked
to. All texts are escaped, and the policy allows nothing but the style.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from bufdb import __version__
from bufdb.fitting.ranking import COSTS
from bufdb.page.page import page_frame, text_hash
from bufdb.render.text import escape_control, human_bytes

_NAMES = {
    "products": "extra products",
    "bytes": "extra bytes read and written",
    "cycles": "extra estimated cycles",
}
"""What plans cost, by the order of an answer."""
_WIDE, _NARROW = (1000, 430), (360, 340)
"""Sizes of the curve [CSS px]; a narrow screen shows the second."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 28, 16, 46
_MOST_TICKS = 5
_KINDS = {"+": "new", "-": "old"}


class Described(Protocol):
    """What an answer says in words; see `bufdb.fitting.answer_text.Described`."""

    @property
    def headline(self) -> str:
        """What fits, or why nothing does."""

    @property
    def states(self) -> Mapping[int, str]:
        """By rank, how a plan was checked."""

    @property
    def changes(self) -> Mapping[int, str]:
        """By rank, what a plan changes."""

    @property
    def notes(self) -> Sequence[str]:
        """What to know of all plans."""


_Scale = Callable[[float], float]
"""From a figure to a place in the curve."""


@dataclass(frozen=True)
class _Point:
    """A plan in the curve, or the function as written."""

    anchor: str
    label: str
    cost: float
    need: int
    kind: str
    """written, compiled, traced or broken."""
    is_best: bool = False


def page(answer: Mapping[str, Any], described: Described) -> str:
    """Return the page.

    Args:
        answer: the object of `bufdb fit --format json`.
        described: the same in words.
    """
    style = page_frame().style + _style()
    policy = (
        f"default-src 'none'; style-src {text_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    title = f"bufdb fit {answer['function']}"
    return _TEMPLATE.format(
        policy=policy,
        title=_text(title),
        style=style,
        headline=_text(described.headline),
        curves="".join(_curve(answer, size) for size in ("wide", "narrow")),
        undrawn=_undrawn(answer),
        table=_table(answer, described),
        plans="".join(_plan(answer, plan, described) for plan in answer["plans"]),
        notes="".join(f"<p>{_text(note)}</p>" for note in described.notes),
        version=_text(__version__),
    )


@cache
def _style() -> str:
    folder = files(__package__) / "static"
    return (folder / "frontier.css").read_text(encoding="utf-8").replace("\r\n", "\n")


def _text(text: str) -> str:
    return html.escape(escape_control(text))


# -- The curve -------------------------------------------------------------------------------------


def _points(answer: Mapping[str, Any]) -> list[_Point]:
    field = COSTS[answer["order"]]
    written = answer["as_written"]["need_bytes"]
    points = []
    if written is not None:
        points.append(_Point("as-written", "as written", 0.0, written, "written"))
    for plan in answer["plans"]:
        if plan[field] is None or plan["need_bytes"] is None:
            continue
        kind = "compiled" if plan["is_compiled"] else "traced"
        kind = "broken" if plan["is_broken"] else kind
        rank = plan["rank"]
        is_best = rank == answer["best"]
        points.append(
            _Point(f"plan-{rank}", f"plan {rank}", plan[field], plan["need_bytes"], kind, is_best)
        )
    return points


def frontier(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the points than which no other costs and needs less, by cost."""
    least: list[tuple[float, int]] = []
    for cost, need in sorted(points):
        if not least or need < least[-1][1]:
            least.append((cost, need))
    return least


def _undrawn(answer: Mapping[str, Any]) -> str:
    drawn = {point.label for point in _points(answer)}
    lost = [f"plan {plan['rank']}" for plan in answer["plans"]]
    lost = [label for label in lost if label not in drawn]
    if not lost:
        return ""
    name = _NAMES[answer["order"]]
    return f"<p class='dim'>Not in the curve, as need or {name} are unknown: {', '.join(lost)}.</p>"


def _curve(answer: Mapping[str, Any], size: str) -> str:
    """Return the curve as SVG of one size."""
    width, height = _WIDE if size == "wide" else _NARROW
    points = _points(answer)
    if not points:
        return ""
    name = _NAMES[answer["order"]]
    limit = answer["limit_bytes"]
    needs = [point.need for point in points] + ([] if limit is None else [limit])
    top: float = max(needs) * 1.05
    low: float
    high: float
    low, high = min(0.0, *(point.cost for point in points)), max(point.cost for point in points)
    span = (high - low) or 0.1
    low, high = (low - 0.04 * span if low < 0 else low), high + 0.08 * span

    def x(cost: float) -> float:
        return _LEFT + (cost - low) / (high - low) * (width - _LEFT - _RIGHT)

    def y(need: float) -> float:
        return height - _BOTTOM - need / top * (height - _TOP - _BOTTOM)

    parts = [*_grid(x, y, low, high, top, width, height)]
    if limit is not None:
        at, text_x = y(limit), _LEFT + (width - _LEFT - _RIGHT) / 3
        parts.append(
            f"<line class='limit' x1='{_LEFT}' x2='{width - _RIGHT}' y1='{at:.1f}' y2='{at:.1f}'/>"
            f"<text class='limit' x='{text_x:.1f}' y='{at - 5:.1f}'>"
            f"limit {human_bytes(limit)}</text>"
        )
    whole = [(point.cost, point.need) for point in points if point.kind != "broken"]
    path = " ".join(f"{x(cost):.1f},{y(need):.1f}" for cost, need in frontier(whole))
    parts.append(f"<polyline class='frontier' points='{path}'/>")
    places: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda point: not point.is_best):  # the larger mark is below
        parts.append(_mark(point, x(point.cost), y(point.need), name, places, width))
    middle = (_LEFT + width - _RIGHT) / 2
    parts.append(
        f"<text class='axis' x='{middle:.0f}' y='{height - 8}' text-anchor='middle'>{name}, "
        "beyond as written</text>"
    )
    label = f"need of device memory against {name}: {len(points)} points, each a link to its plan"
    return (
        f"<svg class='{size}' viewBox='0 0 {width} {height}' role='group' "
        f"aria-label='{_text(label)}'>{''.join(parts)}</svg>"
    )


def _grid(
    x: _Scale, y: _Scale, low: float, high: float, top: float, width: int, height: int
) -> Iterator[str]:
    step = _byte_step(top)
    for number in range(int(top / step) + 1):
        at = y(number * step)
        yield f"<line class='grid' x1='{_LEFT}' x2='{width - _RIGHT}' y1='{at:.1f}' y2='{at:.1f}'/>"
        yield (
            f"<text class='axis' x='{_LEFT - 6}' y='{at + 4:.1f}' text-anchor='end'>"
            f"{human_bytes(number * step)}</text>"
        )
    step_of_cost = _decimal_step(high - low, 3 if width < _WIDE[0] else _MOST_TICKS)
    digits = max(0, -math.floor(math.log10(step_of_cost * 100)))
    for number in range(math.ceil(low / step_of_cost), math.floor(high / step_of_cost) + 1):
        at, cost = x(number * step_of_cost), number * step_of_cost * 100
        yield (
            f"<text class='axis' x='{at:.1f}' y='{height - _BOTTOM + 18}' text-anchor='middle'>"
            f"{cost:+.{digits}f}%</text>"
        )


def _byte_step(top: float) -> int:
    """Return a power of two of bytes that divides an axis into few parts."""
    return max(1, 1 << math.ceil(math.log2(max(top, 1) / _MOST_TICKS)))


def _decimal_step(span: float, most: int) -> float:
    """Return 1, 2 or 5 times a power of ten that divides an axis into few parts."""
    power = math.pow(10, math.floor(math.log10(span / most)))
    steps = (power * number for number in (1, 2, 5, 10))
    return next(step for step in steps if span / step <= most)


def _mark(
    point: _Point,
    x: float,
    y: float,
    cost_name: str,
    places: list[tuple[float, float]],
    width: int,
) -> str:
    """Return a point with its name, moved from the names that are there already."""
    is_left = x > width - 110
    text_y = y - 9
    while any(abs(text_y - there_y) < 14 and abs(x - there_x) < 60 for there_x, there_y in places):
        text_y += 14
    places.append((x, text_y))
    about = "~" if point.kind == "traced" else ""
    words = f"{point.label}: {about}{human_bytes(point.need)}, {point.cost:+.1%} {cost_name}"
    words += {"traced": ", estimated", "broken": ", its patch fails"}.get(point.kind, "")
    words += ", the best that fits" if point.is_best else ""
    best = " best" if point.is_best else ""
    shape = f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{8 if point.is_best else 6}'/>"
    text_x, end = (x - 10, "end") if is_left else (x + 10, "start")
    return (
        f"<a class='point {point.kind}{best}' href='#{point.anchor}' aria-label='{_text(words)}'>"
        f"<title>{_text(words)}</title>{shape}"
        f"<text x='{text_x:.1f}' y='{text_y:.1f}' text-anchor='{end}'>{_text(point.label)}</text>"
        "</a>"
    )


# -- Below it --------------------------------------------------------------------------------------


def _ratio(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:+.1%}"


def _need(plan: Mapping[str, Any]) -> str:
    if plan["need_bytes"] is None:
        return "unknown"
    return ("" if plan["is_compiled"] else "~") + human_bytes(plan["need_bytes"])


def _table(answer: Mapping[str, Any], described: Described) -> str:
    """Return the plans as a table, which has what the curve shows."""
    field, name = COSTS[answer["order"]], _NAMES[answer["order"]]
    written = answer["as_written"]["need_bytes"]
    need = "unknown" if written is None else human_bytes(written)
    rows = [
        f"<tr id='as-written'><th scope='row'>as written</th><td class='figure'>{need}</td>"
        "<td class='figure'></td><td></td><td></td></tr>"
    ]
    for plan in answer["plans"]:
        rank = plan["rank"]
        best = " class='best'" if rank == answer["best"] else ""
        rows.append(
            f"<tr{best}><th scope='row'>"
            f"<a href='#plan-{rank}'>plan {rank}</a></th><td class='figure'>{_need(plan)}</td>"
            f"<td class='figure'>{_ratio(plan[field])}</td>"
            f"<td>{_text(described.states[rank])}</td><td>{_text(described.changes[rank])}</td></tr>"
        )
    heads = ["plan", "need", name, "how it is known", "what it changes"]
    figure = " class='figure'"
    head = "".join(
        f"<th scope='col'{figure if one in ('need', name) else ''}>{one}</th>" for one in heads
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _plan(answer: Mapping[str, Any], plan: Mapping[str, Any], described: Described) -> str:
    """Return a plan with its patch, which is shown where the page is linked to it."""
    rank = plan["rank"]
    name = _NAMES[answer["order"]]
    parts = [
        f"<h2>plan {rank}: {_need(plan)}, {_ratio(plan[COSTS[answer['order']]])} {name}</h2>",
        f"<p>{_text(described.states[rank])}</p><p>{_text(described.changes[rank])}</p>",
    ]
    if plan["steps"]:
        steps = "".join(f"<li>{_text(step)}</li>" for step in plan["steps"])
        parts.append(f"<h3>by hand</h3><ul>{steps}</ul>")
    if plan["patch"]:
        proof = "compiled, it needs the same" if plan["is_verified"] else "not compiled itself"
        parts.append(
            f"<h3>the patch, for git apply ({proof})</h3>"
            f"<pre tabindex='0' aria-label='patch of plan {rank}'>{_diff(plan['patch'])}</pre>"
        )
    elif plan["is_broken"]:
        parts.append(
            "<p class='dim'>Its patch cannot be compiled, or needs more than the limit: see the "
            "notes.</p>"
        )
    elif not plan["steps"]:
        parts.append("<p class='dim'>It has no patch: plans that cost less or save more have.</p>")
    best = " best" if rank == answer["best"] else ""
    return f"<section class='plan{best}' id='plan-{rank}'>{''.join(parts)}</section>"


def _diff(patch: str) -> str:
    lines = []
    for line in patch.splitlines():
        kind = "" if line.startswith(("+++", "---")) else _KINDS.get(line[:1], "")
        shown = "\t".join(map(_text, line.split("\t")))
        lines.append(f"<span class='{kind}'>{shown}</span>" if kind else shown)
    return "\n".join(lines)


_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{style}</style>
</head>
<body data-ready="yes">
<a id="skip" href="#main">to the answer</a>
<header><b>bufdb fit</b></header>
<main id="main" tabindex="-1">
<h1>{title}</h1>
<p id="answer">{headline}</p>
<section id="curves">
<h2>Need against cost</h2>
{curves}
<p class="key dim"><span><i class="dot compiled"></i>compiled</span>
<span><i class="dot traced"></i>estimated by a trace</span>
<span><i class="dot broken"></i>its patch fails</span> The line joins plans than which none
costs and needs less. Choose a point to see its patch.</p>
{undrawn}
</section>
<div id="plans">{plans}</div>
<h2>All plans</h2>
<div class="scroll" tabindex="0" role="region" aria-label="all plans">{table}</div>
<div id="notes">{notes}</div>
</main>
<footer><p>bufdb {version}. This page asks for nothing from the network.</p></footer>
</body>
</html>
"""
