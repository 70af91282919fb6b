"""The answer of `bufdb fit` as one screen of text, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bufdb.fitting.levers.host import WORK
from bufdb.fitting.places import spans
from bufdb.fitting.plans import Answer, PlanResult, Program, Site
from bufdb.fitting.ranking import COSTS, PRODUCTS, SAME
from bufdb.fitting.records import as_json as as_plain
from bufdb.fitting.vary import Largest
from bufdb.render.text import align, human_apart, human_bytes

WIDTH = 80
_RESULT = (
    "rank", "is_compiled", "is_verified", "need_bytes", "peak_bytes", "extra_work_ratio",
    "recomputed_lines", "offloaded_lines", "donated", "fits", "error_ratio", "run", "patch",
    "steps", "saves", "changes", "offloaded_bytes", "depths", "options", "estimated_cycles",
    "gap_ratio", "gap_unknown_reason", "is_least", "is_broken", "accessed_bytes",
    "extra_accessed_ratio", "extra_cycles_ratio",
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """The largest values that fit."""

    name: str
    """What is varied."""
    largest: Sequence[Largest]


def as_dict(answer: Answer, sizes: Sizes | None = None) -> dict[str, Any]:
    """Return the object of `--format json`."""
    fields: dict[str, Any] = {
        "function": answer.program.function,
        "target": answer.program.target,
        "limit_bytes": answer.limit_bytes,
        "as_written": {
            "need_bytes": answer.as_written.need_bytes,
            "peak_bytes": answer.as_written.peak_bytes,
            "estimated_cycles": answer.as_written.estimated_cycles,
            "accessed_bytes": answer.as_written.accessed_bytes,
            "accessed_unknown_reason": answer.as_written.accessed_unknown_reason,
            "fits": answer.fits_as_written if answer.limit_bytes is not None else None,
            "run": answer.as_written.run,
        },
        "order": answer.order,
        "plans": [_plan(row) for row in answer.plans],
        "best": answer.best,
        "by_hand": answer.by_hand,
        "patch": answer.patch,
        "compile_count": answer.compile_count,
        "before_count": answer.before_count,
        "trace_count": answer.trace_count,
        "notes": list(answer.notes),
        "is_complete": answer.is_complete,
        "untried": list(answer.untried),
    }
    if sizes is not None:
        largest = [{**as_plain(one), "is_proved": one.is_proved} for one in sizes.largest]
        fields["vary"] = {"name": sizes.name, "largest": largest}
    return fields


def _plan(row: PlanResult) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in _RESULT}
    return {name: list(item) if isinstance(item, tuple) else item for name, item in fields.items()}


def as_json(answer: Answer, sizes: Sizes | None = None) -> str:
    """Return the answer as JSON, exact."""
    return json.dumps(as_dict(answer, sizes), indent=2) + "\n"


def text(answer: Answer, sizes: Sizes | None = None) -> str:
    """Format the answer in at most 80 columns, the patch excepted."""
    parts = [_headline(answer), table(answer), *_footer(answer)]
    if sizes is not None:
        parts.insert(2, _sizes(answer, sizes))
    if (patch := _patch(answer)) is not None:
        parts.append(patch)
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _headline(answer: Answer) -> str:
    program, need = answer.program, answer.as_written.need_bytes
    where = f" for {program.target}" if program.target is not None else ""
    shown = "an unknown amount" if need is None else human_bytes(need)
    line = f"{program.function}{where} needs {shown} as written"
    if answer.limit_bytes is None and answer.as_written.refusal is not None:
        line += ", which XLA gives up"
        line += "" if answer.best is None else f"; plan {answer.best} compiles"
    if answer.limit_bytes is not None:
        limit = human_bytes(answer.limit_bytes)
        if answer.fits_as_written:
            line += f", which fits {limit}"
        elif answer.best is not None:
            line += f"; plan {answer.best} fits {limit}"
            best, other = _row_of(answer, answer.best), _row_of(answer, answer.by_hand)
            if best is not None and best.steps:
                line += f" with {_steps(best)} by hand; none that was proved does without"
            elif best is not None and other is not None:
                costs = [_cost(row, COSTS[answer.order]) for row in (best, other)]
                line += (
                    f" at {costs[0]} of {answer.order}; so does plan {other.rank} at {costs[1]}, "
                    f"with {_steps(other)} by hand"
                )
        elif not answer.is_complete:
            line += f"; no plan that fits {limit} was found in time{_least(answer)}"
        elif any(row.fits and row.is_broken for row in answer.plans):
            line += f"; no plan fits {limit} whose patch does"
        elif any(row.fits for row in answer.plans):
            line += f"; no plan that was compiled fits {limit}{_least(answer)}"
        else:
            line += f"; nothing fits {limit}{_least(answer)}"
        if answer.untried:
            line += f"; not tried: --also {','.join(answer.untried)}"
    return textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False)


def _row_of(answer: Answer, rank: int | None) -> PlanResult | None:
    return next((row for row in answer.plans if row.rank == rank), None)


def _steps(row: PlanResult) -> str:
    return "a step" if len(row.steps) == 1 else f"{len(row.steps)} steps"


def _least(answer: Answer) -> str:
    """Return the least need that was compiled, in words."""
    rows = [row for row in answer.plans if not row.is_broken and row.need_bytes is not None]
    proved = [row for row in rows if row.is_compiled]
    needs = {row.rank: row.need_bytes or 0 for row in proved}
    written = answer.as_written.need_bytes
    least = min([*needs.values(), *([] if written is None else [written])], default=None)
    if least is None:
        return ""
    is_least = all((row.need_bytes or 0) >= least for row in rows)
    which = "least" if is_least else "least that was compiled"
    if least == written:
        return f", the {which} is as written"
    rank = min(rank for rank, need in needs.items() if need == least)
    return f", the {which} is plan {rank} with {human_bytes(least)}"


@dataclass(frozen=True)
class Described:
    """What an answer says, part by part."""

    headline: str
    states: Mapping[int, str]
    """By rank, how a plan was checked."""
    changes: Mapping[int, str]
    """By rank, what a plan changes."""
    notes: Sequence[str]


def described(answer: Answer, sizes: Sizes | None = None) -> Described:
    """Return the words of the answer without its table and patch, unwrapped."""
    costs = _costs(answer)
    states = {row.rank: _row(answer, row, costs)[-1] for row in answer.plans}
    changes = {row.rank: _unwrapped("\n".join(_changes(answer, row))) for row in answer.plans}
    notes = [_unwrapped(part) for part in _footer(answer)]
    if sizes is not None:
        notes.insert(0, _sizes(answer, sizes))
    return Described(_unwrapped(_headline(answer)), states, changes, notes)


def _unwrapped(text: str) -> str:
    return " ".join(text.split())


def no_patch(answer: Answer) -> str:
    """Return why there is no patch to write."""
    best = _row_of(answer, answer.best)
    if best is not None:
        why = f"plan {best.rank} is to be done by hand"
    elif answer.limit_bytes is None:
        why = "without a limit no plan is the best"
    elif answer.fits_as_written:
        why = "no plan is needed, it fits as written"
    else:
        why = "no plan fits" if answer.is_complete else "no plan that fits was found in time"
    return f"there is no patch to write: {why}"


# -- The table -------------------------------------------------------------------------------------


def table(answer: Answer) -> str:
    """Return a line for each plan, and below it what it changes; '' without plans."""
    if not answer.plans:
        return ""
    costs = _costs(answer)
    heads = ["", "plan", "need", "saves", *costs, ""]
    written = [
        "",
        "-",
        _bytes(answer.as_written.need_bytes),
        "",
        *("" for _ in costs),
        "as written",
    ]
    cells = [heads, written, *(_row(answer, row, costs) for row in answer.plans)]
    aligned = align(cells, [False, *(True for _ in heads[1:-1]), False]).splitlines()
    lines = [line.rstrip() for line in aligned[:2]]
    for line, row in zip(aligned[2:], answer.plans, strict=True):
        lines.append(line.rstrip())
        lines += _changes(answer, row)
    return "\n".join(lines)


def _costs(answer: Answer) -> dict[str, str]:
    """Return the columns of what plans cost beyond as written, with the field of each.

    A cost that is unknown of the function as written has none.
    """
    written, costs = answer.as_written, dict(COSTS)
    if not written.accessed_bytes:
        del costs["bytes"]
    if not written.estimated_cycles:
        del costs["cycles"]
    return costs


def _cost(row: PlanResult, field: str) -> str:
    ratio: float | None = getattr(row, field)
    if ratio is None:
        return "unknown" if row.is_compiled else ""
    return f"{ratio:+.1%}"


def _row(answer: Answer, row: PlanResult, costs: dict[str, str]) -> list[str]:
    written = answer.as_written.need_bytes
    saves = ""
    if written and row.need_bytes is not None:
        saves = f"{1 - row.need_bytes / written:.1%}"
    need = _bytes(row.need_bytes)
    words = []
    if not row.is_compiled:
        error = "" if row.error_ratio is None else f", error so far {row.error_ratio:.1%}"
        words.append(f"traced{error}")
    else:
        patched = ", patch too" if row.is_verified else ", its patch fails" if row.is_broken else ""
        words.append(f"compiled{patched}")
    if row.rank in (answer.best, answer.by_hand):
        words += ["fits"] if answer.limit_bytes is not None else []
        if row.steps:
            words[-1] += ", by hand"
    mark = ">" if row.rank == answer.best else ""
    return [
        mark,
        str(row.rank),
        need if row.is_compiled else f"~{need}",
        saves,
        *(_cost(row, field) for field in costs.values()),
        "; ".join(words),
    ]


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else human_bytes(count)


def _sites(program: Program, row: PlanResult, at: int) -> Sequence[Site]:
    """Return where a plan changes a region: of the first calls alone their places."""
    region, depth = program.regions[at], row.plan.depth(at)
    if region.kind != "call":
        return region.sites
    sites = row.plan.sites(at, region)
    if depth is None or depth.with_dots:
        return sites
    return [site for site in region.order[: depth.count] if site in sites]


def _changes(answer: Answer, row: PlanResult) -> list[str]:
    """Return what a plan changes: lines computed again, offloaded, donated, and where to edit."""
    from bufdb.fitting.levers import LEVERS  # NumPy, which --help does without

    parts = [*row.changes, *(words for lever in LEVERS for words in lever.words(row))]
    if row.estimated_cycles is not None and row.extra_cycles_ratio is None:
        parts.append(f"{row.estimated_cycles / 1e6:.3g} million estimated cycles")
    touched = [
        site
        for at in (*row.plan.scans, *row.plan.calls)
        for site in _sites(answer.program, row, at)
    ]
    if touched:
        places = sorted({(Path(site.file).name, site.line) for site in touched})
        parts.append(f"edit at {spans([f'{file}:{line}' for file, line in places])}")
    indent = " " * 8
    return textwrap.wrap(
        "; ".join(parts),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _sizes(answer: Answer, sizes: Sizes) -> str:
    """Return a line for each plan with the largest value that fits, and what the next one needs."""
    name, limit = sizes.name, human_bytes(answer.limit_bytes or 0)
    cells = [["plan", name, "need", f"next {name}", "need"]]
    for one in sizes.largest:
        who = "as written" if one.rank is None else f"plan {one.rank}"
        needs = [count for count in (one.need_bytes, one.next_need_bytes) if count is not None]
        shown = dict(zip(needs, human_apart(needs), strict=True))
        need = "" if one.need_bytes is None else shown[one.need_bytes]
        after, above = "", "fits, too: the search ended"
        if one.next_value is not None:
            after = str(one.next_value)
            above = "XLA gave up" if one.next_need_bytes is None else shown[one.next_need_bytes]
        cells.append([who, str(one.value), need, after, above])
    lines = [line.rstrip() for line in align(cells, [False, True, True, True, True]).splitlines()]
    return "\n".join([f"largest {name} that fits {limit}, compiled:", *lines])


# -- What is said below it -------------------------------------------------------------------------


def _footer(answer: Answer) -> list[str]:
    before = f" ({answer.before_count} before)" if answer.before_count else ""
    sentences = [f"{answer.compile_count} compiled{before}, {answer.trace_count} traced."]
    if not all(row.is_compiled for row in answer.plans):
        sentences.append("A need with ~ is an estimate of a trace; without it, it is compiled.")
    if answer.plans:
        sentences += _beyond(answer)
    sentences += _bound(answer)
    runs = [row.run for row in answer.plans if row.run is not None]
    if answer.as_written.run is not None and runs:
        sentences.append(
            f"Stored as runs: 'bufdb diff {answer.as_written.run} {runs[0]}' compares."
        )
    unknown = answer.program.as_written.unknown
    if unknown:
        sentences.append(f"Not in products: {', '.join(unknown)}.")
    parts = [_filled(" ".join(sentences))]
    if answer.notes:
        parts.append("\n".join(_filled(note) for note in answer.notes))
    return parts


def _beyond(answer: Answer) -> list[str]:
    """Return what the columns of costs are."""
    more = {"bytes": "bytes read and written", "cycles": "cycles as the compiler estimates them"}
    names = ["products (elementwise work is not in them)"]
    names += [more[name] for name in _costs(answer) if name in more]
    listed = ", ".join(names[:-1]) + ("," if len(names) > 2 else "") + f" and {names[-1]}"
    sentences = [f"{listed[0].upper()}{listed[1:]} are those beyond as written."]
    if len(names) == 1:
        sentences = ["Products are those beyond as written; elementwise work is not in them."]
    if why := answer.as_written.accessed_unknown_reason:
        sentences.append(f"What it reads and writes is unknown: {why}.")
    if answer.order != PRODUCTS:
        sentences.append(f"Ranked by {answer.order}.")
    return sentences


def _bound(answer: Answer) -> list[str]:
    """Return how much less work a plan could do than the best one."""
    best = _row_of(answer, answer.best)
    if best is None:
        return _no_less(answer)
    if best.gap_ratio is None:
        return [f"No bound is known for plan {best.rank}: {best.gap_unknown_reason}."]
    size = f"plan {best.rank} at its size of residuals"
    choice = "choice of these values and layers costs"
    if best.gap_ratio < SAME:
        less = f"By traces, no {choice} less than {size}"
    else:
        less = f"By traces, the best {choice} {best.gap_ratio:.1%} of all products less than {size}"
    if answer.program.has_host_memory:
        return [f"{less}; a byte to the host and back counts as {WORK:,} operations."]
    return [f"{less}."]


def _no_less(answer: Answer) -> list[str]:
    """Return whether something else may need less than the least, where nothing fits."""
    rows = [row for row in answer.plans if row.is_compiled and not row.is_broken]
    if answer.limit_bytes is None or answer.fits_as_written or not rows:
        return []
    row = min(rows, key=lambda row: row.need_bytes or 0)
    if row.is_least:
        choice = "choice of these values and layers saves fewer bytes"
        return [f"By traces, no {choice} on the device than plan {row.rank}."]
    why = row.gap_unknown_reason or "by traces, another choice saves fewer bytes"
    return [f"That plan {row.rank} needs least is no bound: {why}."]


def _filled(words: str) -> str:
    return textwrap.fill(words, WIDTH, break_long_words=False, break_on_hyphens=False)


def _patch(answer: Answer) -> str | None:
    """Return the patch of the best plan with what is to be done by hand."""
    best, other = _row_of(answer, answer.best), _row_of(answer, answer.by_hand)
    if best is None:
        return None
    steps = [_filled(step) for step in best.steps]
    if other is not None:
        steps += [_filled(f"plan {other.rank}: {step}") for step in other.steps] + [""]
    if not best.patch:
        return "\n".join(steps) or None
    name = f"patch of plan {best.rank}"
    if best.is_verified:
        more = " with what is done by hand" if best.steps else ""
        head = f"{name}; compiled{more}, it needs the same; 'git apply' takes it:"
    else:
        head = f"{name}{', in part' if best.steps else ''}, not verified; 'git apply' takes it:"
    return "\n".join([*steps, _filled(head), "", best.patch])
