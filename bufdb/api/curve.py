"""Memory over a program as one inline SVG, for a notebook.

Invariant: it takes no script, no style and no file from elsewhere, and no name of a dump is markup.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from bufdb.report.text import human_bytes

WIDTH, HEIGHT, LINE = 640, 120, 16
"""Of the drawing, and of the line of text above it [px]."""


@dataclass(frozen=True)
class Span:
    """A part of a program, as a row of the query timeline."""

    start_time: int
    """First instant [program order]."""
    end_time: int
    """Last instant, itself included [program order]."""
    occupied_bytes: int
    """Most bytes that are occupied in it."""
    instruction_name: str | None
    """The instruction at which that is; None at the end of the program."""


def svg(spans: Sequence[Span]) -> str:
    """A bar for each span, as wide as it lasts, with figures as tooltip; '' without any byte."""
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
        told = f"{times}: {human_bytes(span.occupied_bytes)} {span.instruction_name or ''}".strip()
        bars.append(
            f'<rect x="{left:.2f}" y="{LINE + HEIGHT - height:.2f}" width="{width:.2f}" '
            f'height="{height:.2f}"{shade}><title>{html.escape(told)}</title></rect>'
        )
    label = f"memory over the program, highest {human_bytes(highest)}"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {LINE + HEIGHT}" '
        f'style="max-width:{WIDTH}px" fill="#69c" shape-rendering="crispEdges">'
        f'<text y="12" font-size="12" fill="currentColor">{label}</text>{"".join(bars)}</svg>'
    )
