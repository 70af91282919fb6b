"""The summary and its advice as text of 80 columns, and as JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bufdb.answers import growth, kernels, pool, process
from bufdb.answers.devices import GIB
from bufdb.answers.summary import LIMITED, Overview, Row, need
from bufdb.answers.summary_parts import Figure, Section, held, of_library, of_step
from bufdb.render import table
from bufdb.render.notes import listed
from bufdb.render.table import bar
from bufdb.render.text import (
    BOLD,
    RED,
    YELLOW,
    display_width,
    escape_control,
    human_apart,
    human_bytes,
    human_ratio,
    human_time,
    painted,
    style_of,
)

# -- Advice as text: changes that would lower the peak, by how much, and the code for them ---------

ADVICE_WIDTH = 80
_DOES = 20
"""Column at which the advice begins."""
_PREFIX = r"^(saved|for|library|slice of|copy of) "
_CODE = r"(?ms)(?:^(With [^`](?:[^\n]|\n(?!\n))*:)\n\n)?^```python\n(.*?)```"
"""A code block of a page, with the paragraph before it if that names the library."""


def least(row: Row) -> str:
    """Return the low end of a saving, to show under the high one; '' if they are equal."""
    low, high = row["low_saving_bytes"], row["saving_bytes"]
    if low is None or low == high:
        return ""
    if low < 0:
        return f"or {human_bytes(-low)} more"
    return f"at least {human_bytes(low)}" if low else "or nothing"


def _none(overview: Overview) -> str:
    """Return a note that nothing saves 1 %, or on a line that does although no advice covers it."""
    peak = overview.peak["peak_bytes"] if overview.peak is not None else 0
    for row in overview.parts.get("savings", []):
        if row["what"] == "source_line" and row["saving_bytes"] * 100 >= peak > 0:
            less = human_bytes(row["saving_bytes"])
            text = f"no advice, but without {row['name']} it is {less} less ('bufdb query savings')"
            if row["platform"] == "cpu":
                text += (
                    "; on the CPU XLA merges what jax.checkpoint computes again outside of loops"
                )
            return text
    return "nothing that saves 1 % of it by itself"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        escape_control(text), ADVICE_WIDTH, initial_indent="  ", subsequent_indent="  "
    )


def advice_text(overview: Overview, code: Callable[[str], str] | None = None) -> str:
    """Return all advice about the highest peak; with `code` (page by kind), also code to type."""
    shown = []
    if overview.peak is not None:
        of = f"{overview.peak['function_name']} of run {overview.peak['run_name']}"
        shown.append(
            f"{human_bytes(overview.peak['peak_bytes'])}, the peak of {escape_control(of)}"
        )
        if not overview.parts.get("advice"):
            shown += _wrapped(_none(overview))
        elif overview.parts["advice"][0].get("ranked_by") == "time":
            shown.append(
                "what costs no time first, then the most bytes for each millisecond (profile)"
            )
    for row in overview.parts.get("advice", []):
        shown += ["", *_advice(row)]
        if row["kind"] is not None:
            shown += [f"{' ' * _DOES}{line}" for line in _details(row)]
    if code is not None:
        of_kinds: dict[str, list[Row]] = {}
        for row in overview.parts.get("advice", []):
            if row["kind"] is not None:
                of_kinds.setdefault(row["kind"], []).append(row)
        for kind, rows in of_kinds.items():
            shown += ["", *_typed(code(kind), rows)]
    return "".join(f"{line.rstrip()}\n" for line in shown)


def _advice(row: Row) -> list[str]:
    if row["saving_bytes"] is None:
        return _wrapped(row["unknown_reason"])
    return _rows(Section("advice", "", [_advised(row)], [], has_bars=False))


def _details(row: Row) -> list[str]:
    """Return what the saving range refers to, and where to find more."""
    forms = {
        "wrap": "the low end: jax.checkpoint around the expression alone",
        "policy": "the low end: one name less in the existing policy",
    }
    details = [forms[row["saving_form"]]] if row["saving_form"] else []
    low, high = row.get("low_recompute_ns"), row.get("recompute_ns")
    if low is not None or high is not None:
        known = dict.fromkeys(human_time(ns) for ns in (low, high) if ns is not None)
        each = row["saving_bytes_per_ms"]
        rate = f", {human_bytes(round(each))} saved per ms" if each is not None and each > 0 else ""
        details.append(f"computed again in {' to '.join(known)} of a run{rate}")
    return [*details, f"more: bufdb query {row['query_name']}, {row['page']}"]


def _typed(page: str, rows: list[Row]) -> list[str]:
    """Return the code of a page for its pieces of advice, each part below its heading."""
    title = re.match(r"# (.*)", page)
    code_lines = _comment(f"{title[1] if title else 'Example'} ({rows[0]['page']})")
    code_lines += _comment(f"for {', '.join(dict.fromkeys(row['name'] for row in rows))}")
    names = _names(rows)
    pattern = "|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in names)
    for heading, code in re.findall(_CODE, page):
        filled = re.sub(pattern, lambda match: names[match[0]], f"{heading}```{code}")
        heading, _, code = filled.rpartition("```")
        code_lines += ["", *(_comment(" ".join(heading.split())) if heading else [])]
        code_lines += [escape_control(line) for line in code.splitlines()]
    return code_lines


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        escape_control(text), ADVICE_WIDTH, initial_indent="# ", subsequent_indent="#   ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _label(line: str) -> str | None:
    """Return train_65 for a/train.py:65; None if it is not a source line."""
    place = re.search(r"([^/\\]+)[.]py:([0-9]+)", line)
    return None if place is None else re.sub(r"\W", "_", f"{place[1]}_{place[2]}")


def _names(rows: list[Row]) -> dict[str, str]:
    """Return the program's names by the example's: of the first row, and all lines in a list."""
    row, lines = rows[0], [re.sub(_PREFIX, "", row["name"]) for row in rows]
    line, labels = lines[0], [label for label in map(_label, lines) if label is not None]
    names = {"train.py:65": line}
    if labels:
        names["train_65"] = labels[0]
        names['["train_65"]'] = "[" + ", ".join(f'"{each}"' for each in dict.fromkeys(labels)) + "]"
    if re.fullmatch(r"[A-Za-z_]\w*", row["function_name"]):
        names["step"] = row["function_name"]
    if row["kind"] in ("donate", "shard"):
        names["params"] = re.split(r"[^A-Za-z_0-9]", line)[0] or "params"
    if row["kind"] == "block" and not row["name"].startswith("scan of"):
        parts = [
            word for word in line.partition(" (")[0].split(".") if not word.startswith(("_", "<"))
        ]
        names["Block"] = parts[-1] if parts else "Block"
    return names


# -- A summary as one screen of text: figures with bars, at most 80 columns wide, or as JSON -------

WIDTH = ADVICE_WIDTH
"""Maximum columns of a summary, also in a wider terminal."""
MOST_CATEGORIES = 4
MOST_REASONS = 2
_STEP = "highest with a gradient"
NEARLY = 0.9
"""Share at which a memory space counts as nearly full."""
_HEADINGS = {
    "categories": "what holds it",
    "lines": "lines that hold most of it",
    "advice": "what would lower it most (savings do not add up)",
}
_UNREAD = ("error", "data_loss")
_UNREAD_CODES = ("unreadable_line",)
"""Codes of lines not understood that do not concern memory."""

Paint = Callable[[str, str | None], str]


class Sentence(NamedTuple):
    """A line about the highest peak."""

    name: str
    """What it is about."""
    text: str
    strong: str = ""
    """The part to stress."""
    style: str | None = None
    ratio: float | None = None
    """A share to draw as a bar after it."""


def text(overview: Overview, *, is_coloured: bool = False, more: str | None = None) -> str:
    """Return the screen; with `more`, a short one that ends in it (a command for the rest)."""
    paint: Paint = painted if is_coloured else (lambda text, _style: text)
    if (overview.accounts or overview.pools) and not overview.counts["module_count"]:
        what = "memory profiles" if overview.accounts else "a log of an allocator"
        lines = [f"no dumps of programs, {what} alone"]
    else:
        shown = sentences(overview, is_short=more is not None)
        lines = [_compiled(overview), *(line for one in shown for line in _laid_out(one, paint))]
    account = _account(overview, paint)
    for section in sections(overview):
        if section.name == "advice":
            lines += account
            account = []
        lines += ["", paint(section.heading, BOLD), *_rows(section)]
    lines += [*account, *_not_understood(overview, paint), *([more] if more else [])]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def sections(overview: Overview) -> list[Section]:
    """Return what holds the highest peak, and what would lower it, in the order of a screen."""
    parts = overview.parts
    shown = []
    if parts.get("categories"):
        kinds = parts["categories"]
        figures = [held(_category(row), row) for row in kinds[:MOST_CATEGORIES]]
        rest = len(kinds) - len(figures)
        if rest > 0:
            ratio = max(0.0, 1 - sum(one.ratio for one in figures))
            figures.append(Figure(f"{rest} more", 0, "", ratio, f"{ratio:.1%}"))
        shown.append(Section("categories", _HEADINGS["categories"], figures, []))
    if parts.get("lines"):
        figures = [held(row["source"], row) for row in parts["lines"]]
        shown.append(Section("lines", _HEADINGS["lines"], figures, []))
    if parts.get("library_lines"):
        shown.append(of_library(parts["library_lines"]))
    if parts.get("step_lines"):
        shown.append(of_step(parts["step_lines"]))
    if "advice" in parts:
        figures = [_advised(row) for row in parts["advice"] if row["saving_bytes"] is not None]
        reasons = [row["unknown_reason"] for row in parts["advice"] if row["saving_bytes"] is None]
        notes = reasons if parts["advice"] else [_none(overview)]
        heading = _HEADINGS["advice"]
        shown.append(Section("advice", heading, figures, notes, has_bars=False))
    return shown


def _category(row: Row) -> str:
    phase = f", {row['category']}" if row["category"] is not None else ""
    return f"{row['allocation_kind'] or 'kind unknown'}{phase}"


def _advised(row: Row) -> Figure:
    notes = [(least(row), f"{row['advice']} ({row['sureness']})")]
    if row["kept_name"]:
        notes.append(("", f"kept instead: {row['kept_name']}"))
    size, share = human_bytes(row["saving_bytes"]), f"{row['saving_ratio']:.1%}"
    return Figure(row["name"], row["saving_bytes"], size, row["saving_ratio"], share, notes)


def _laid_out(one: Sentence, paint: Paint) -> list[str]:
    """Return a sentence in lines of a screen."""
    if one.name == "message":
        parts = textwrap.wrap(one.text, WIDTH, subsequent_indent="  ")
        return [paint(part, one.style) for part in parts]
    line = paint(one.text, one.style)
    if one.strong:
        line = line.replace(one.strong, paint(one.strong, BOLD), 1)
    return [line if one.ratio is None else f"{line} {bar(one.ratio)}"]


def _rows(section: Section) -> list[str]:
    """Return a section in lines of a screen."""
    lines = []
    kind = "source" if section.name.endswith("lines") else "name"
    for one in section.figures:
        bars = f"{bar(one.ratio):<{table.BAR_WIDTH}}  " if section.has_bars else ""
        head = f"{one.size:>10}  {one.share:>6}  {bars}"
        shown = escape_control(one.name)
        lines.append(head + table.give_way(kind, shown, WIDTH - display_width(head)))
        for low, note in one.notes:
            lines += _noted(low, note)
    return lines + [line for note in section.notes for line in _wrapped(note)]


def _noted(low: str, note: str) -> list[str]:
    if not low and note.startswith("kept instead: "):
        shown = " " * _DOES + escape_control(note)
        return [table.give_way("kept_name", shown, ADVICE_WIDTH)]
    return textwrap.wrap(
        escape_control(note), ADVICE_WIDTH,
        initial_indent=f"{low:>18}  ", subsequent_indent=" " * _DOES,
    )  # fmt: skip


def _account(overview: Overview, paint: Paint) -> list[str]:
    """Return what the process holds besides, from a memory profile, and what its pool has."""
    if not overview.accounts:
        return _pool(overview.pools[-1], paint) if overview.pools else []
    heading = f"what the process holds ({_profile(overview)})"
    lines = ["", paint(heading, BOLD), *process.lines(overview.accounts[-1])]
    here = pool.place(overview.accounts[-1][0])
    for rows in overview.pools:
        if pool.place(rows[0]) == here:
            lines += _pool_lines(rows, paint)
    processes = {(row["run_name"], row["account_name"]) for row in overview.moments}
    if len(overview.moments) > 1 and len(processes) == 1:
        lines.append(growth.curve(overview.moments))
    lines += growth.lines(overview.growth, overview.copies)
    if overview.accounts[1:]:
        count = len(overview.accounts) - 1
        others = f"{_many(count, 'other profile')} or device{'' if count == 1 else 's'}"
        lines.append(f"{others}: 'bufdb query process'")
    return lines


def _pool(rows: Sequence[Row], paint: Paint) -> list[str]:
    """Return what the pool of a device has, from a log alone."""
    lines = _pool_lines(rows, paint)
    of = escape_control(f"{rows[0]['profile_name']}, {rows[0]['device']}")
    return ["", paint(f"the pool ({of})", BOLD), *lines] if lines else []


def _pool_lines(rows: Sequence[Row], paint: Paint) -> list[str]:
    style = RED if pool.decisive(rows)["fit"] == "no" else None
    return [
        paint(line, style if number == 0 else None)
        for number, sentence in enumerate(pool.sentences(rows))
        for line in textwrap.wrap(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    ]


def _profile(overview: Overview) -> str:
    """Return which account is shown; with the run, unless there is only one."""
    row = overview.accounts[-1][0]
    runs = {rows[0]["run_name"] for rows in overview.accounts}
    if overview.peak is not None:
        runs.add(overview.peak["run_name"])
    is_one = len(runs) == 1 and overview.counts["run_count"] <= 1
    run = None if is_one else f"run {row['run_name']}"
    parts = (run, row["profile_name"], row["device"])
    return escape_control(", ".join(part for part in parts if part is not None))


def _compiled(overview: Overview) -> str:
    """Return a line such as '2 modules of 2 functions for gpu in one run'."""
    counts = overview.counts
    text = f"{_many(counts['module_count'], 'module')} of "
    text += _many(counts["function_count"], "function")
    if counts["platforms"] is not None:
        text += f" for {escape_control(counts['platforms']).replace(' ', ', ')}"
    return f"{text} in {_many(counts['run_count'], 'run')}"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


_WARNINGS = (
    *("autotuned", "arguments_exceed_limit", "memory_not_reduced"),
    "involuntary_rematerialization",
)
_HINTS = ("out_of_memory", "compiled")


def sentences(overview: Overview, *, width: int = WIDTH, is_short: bool = False) -> list[Sentence]:
    """Return lines on the highest peak, the limit, other memory spaces, and what is unknown.

    Args:
        overview: the summary.
        width: columns to shorten names to.
        is_short: whether to leave out that there is no limit.
    """
    if overview.peak is None:
        lines = [Sentence("peak", "no peak is known", style=YELLOW)]
    else:
        size = human_bytes(overview.peak["peak_bytes"])
        if "peak_at_least" in overview.out_of_memory:
            size = f"at least {size}"
        where = _space(overview.peak)
        owner = _owner(overview.peak, width - len(f"highest peak: {size} of {where} memory, "))
        peak = f"highest peak: {size} of {where} memory, {owner}"
        lines = [Sentence("peak", peak, strong=size), *_needs(overview.peak)]
        lines += _step(overview, width)
    has_message = bool(overview.out_of_memory)
    if overview.peak is not None and overview.largest is None:
        lines += _filled(overview.peak)
    elif overview.limit_ratio is not None or (
        overview.peak is not None and not (is_short or has_message)
    ):
        lines += [_limit(overview, width), *_of_device(overview)]
    if overview.peak is not None:
        lines += _besides(overview)
    if (text := kernels.sentence(overview.kernels)) is not None:
        lines.append(Sentence("kernel", text))
    by_reason = _by_reason(overview.unknown)
    lines += [_unknown(rows, width) for rows in by_reason[:MOST_REASONS]]
    color = RED if "out_of_memory" in overview.out_of_memory else None
    warnings = [(code, YELLOW) for code in _WARNINGS]
    for code, style in (("memory_limit", color), *warnings, *((code, None) for code in _HINTS)):
        if (message := overview.out_of_memory.get(code)) is not None:
            lines.append(Sentence("message", escape_control(message), style=style))
    more = sum(map(len, by_reason[MOST_REASONS:]))
    if more > 0:
        rest = f"{_many(more, 'more function')} with an unknown peak"
        lines.append(Sentence("unknown", rest, style=YELLOW))
    return lines


def _step(overview: Overview, width: int) -> list[Sentence]:
    """Return a sentence on the training step, where another program is higher."""
    if not overview.steps:
        return []
    step = overview.steps[0]
    size, ran = human_bytes(step["peak_bytes"]), _ran(step)
    head = f"{_STEP}: {size}, "
    owner = _owner(step, width - len(head) - len(ran))
    return [Sentence("step", f"{head}{owner}{ran}", strong=size)]


def step_words(step: Row) -> str:
    """Return what the training step is, in a list that has its size and name."""
    return _STEP + _ran(step)


def _ran(step: Row) -> str:
    """Return how often a training step ran; '' if that is not known."""
    count = step["run_count"]
    return "" if count is None else f", run {_many(count, 'time')}"


def _besides(overview: Overview) -> list[Sentence]:
    """Return a sentence on the other memory spaces, if there are any."""
    known = [row for row in overview.others if need(row) is not None]
    if not known:
        return []
    full = [text for row in known if (text := _fullness(row))]
    rest = [f"{human_bytes(need(row) or 0)} {_space(row)}" for row in known if not _fullness(row)]
    spaces = "; ".join([*full, ", ".join(rest)]).removesuffix("; ")
    return [Sentence("besides", f"besides: {spaces}")]


def _why(row: Row) -> str:
    reason: str = row["unknown_reason"]
    return reason.rpartition(" compilations is unknown: ")[2]


def _by_reason(unknown: Sequence[Row]) -> list[list[Row]]:
    """Return functions with an unknown peak by the reason, in the order of the first of each."""
    groups: dict[str, list[Row]] = {}
    for row in unknown:
        group = groups.setdefault(_why(row), [])
        if _same(row) not in map(_same, group):
            group.append(row)
    return list(groups.values())


def _same(row: Row) -> tuple[object, object]:
    return row["run_name"], row["function_name"]


def _unknown(rows: Sequence[Row], width: int) -> Sentence:
    """Return why the peaks of functions are unknown, with the names of the functions."""
    row, count = rows[0], ""
    if len(rows) > 1:
        names = listed([escape_control(one["function_name"]) for one in rows])
        text = f"unknown peak of {len(rows)} functions: {escape_control(_why(row))} ({names})"
        return Sentence("message", text, style=YELLOW)
    if row["module_count"] > 1:
        count = f" ({row['unknown_count']} of {row['module_count']} compilations)"
    reason = f"unknown peak, {_owner(row, width // 2)}{count}: {escape_control(_why(row))}"
    return Sentence("unknown", table.give_way("reason", reason, width), style=YELLOW)


def _needs(row: Row) -> list[Sentence]:
    """Return e.g. `needs 234.5 MiB: 214.9 MiB at the peak, 19.6 MiB of holes in the arena`."""
    peak, need_bytes = row["peak_bytes"], row["need_bytes"]
    if need_bytes is None or human_bytes(need_bytes) == human_bytes(peak):
        return []
    holes = human_bytes(need_bytes - peak)
    parts = f"{human_bytes(peak)} at the peak, {holes} of holes in the arena"
    return [Sentence("needs", f"needs {human_bytes(need_bytes)}: {parts}")]


def _filled(row: Row) -> list[Sentence]:
    """Return the use of a memory space that a limit does not apply to, if its size is known."""
    size, capacity = need(row) or 0, row.get("capacity_bytes")
    if not capacity:
        return []
    of = f"of the {human_bytes(capacity)} that XLA fills"
    ratio = size / capacity
    return [Sentence("taken", f"taken: {human_ratio(ratio)} {of}", ratio=ratio)]


def _fullness(row: Row) -> str:
    """Return e.g. `vmem is nearly full: 108 of 112 MiB`; '' if not, or if its size is unknown."""
    size, capacity = need(row) or 0, row.get("capacity_bytes")
    if not capacity or size < NEARLY * capacity:
        return ""
    is_limit = size > capacity and row["color"] in LIMITED
    word = "does not fit" if is_limit else "is full" if size >= capacity else "is nearly full"
    have, of = human_apart([size, capacity])
    number, _, unit = have.rpartition(" ")
    return f"{_space(row)} {word}: {number if of.endswith(f' {unit}') else have} of {of}"


def _space(row: Row) -> str:
    if row["memory_space_name"] is not None:
        return escape_control(row["memory_space_name"])
    return f"color {row['color']}"


def _owner(row: Row, width: int) -> str:
    """Return the function and its run: train_step of run base."""
    function, run = escape_control(row["function_name"]), escape_control(row["run_name"])
    text = f"{function} of run {run}"
    return table.give_way("name", text, max(table.SMALLEST, width))


def _limit(overview: Overview, width: int) -> Sentence:
    ratio = overview.limit_ratio
    if ratio is None or overview.limit_bytes is None:
        hint = "limit: no dump names the device; --limit 16GiB or --limit 'TPU v5e' does"
        return Sentence("limit", hint)
    of = human_bytes(overview.limit_bytes)
    if overview.limit_name is not None:
        # A program that needs 15.8 GiB does not fit 15.75.
        of = f"{overview.limit_bytes / GIB:.2f} GiB ({_title(overview)})"
    if overview.largest is not None and overview.largest is not overview.peak:
        of += f" ({_owner(overview.largest, width // 2)})"
    if ratio > 1:
        return Sentence("limit", f"limit: {human_ratio(ratio)} of {of}: it does not fit", style=RED)
    share = human_ratio(ratio) if ratio >= 0.001 else "under 0.1%"
    return Sentence("limit", f"limit: {share} of {of}", ratio=ratio)


def _title(overview: Overview) -> str:
    known = overview.device
    return str(overview.limit_name) if known is None else known.title


def _of_device(overview: Overview) -> list[Sentence]:
    """Explain a device's limit, and mention a larger device of the same name."""
    known = overview.device
    if known is None:
        return []
    more = [] if known.larger is None else [f"the smaller of two: {known.larger} has more"]
    return [Sentence("device", f"  {text}") for text in (known.explained, *more)]


def _not_understood(overview: Overview, paint: Paint) -> list[str]:
    """Return what could not be read, or that everything was."""
    if not overview.findings:
        return ["everything in the dumps was understood"]
    lines = []
    by_severity: dict[str, list[str]] = {}
    for row in overview.findings:
        shown = f"{row['finding_count']} {escape_control(row['code'])}"
        by_severity.setdefault(row["severity"], []).append(shown)
    for severity, codes in by_severity.items():
        line = table.give_way("reason", f"{severity}: {', '.join(codes)}", WIDTH)
        lines.append(paint(line, style_of("severity", severity)))
    if any(row["severity"] in _UNREAD or row["code"] in _UNREAD_CODES for row in overview.findings):
        return ["not understood in full ('bufdb query diagnostics' has the lines):", *lines]
    return ["all lines understood; noted ('bufdb query diagnostics'):", *lines]


def as_json(overview: Overview) -> str:
    """Return the whole summary as one JSON object."""
    import json  # 2 ms, which few summaries want

    return json.dumps(as_dict(overview), indent=2, ensure_ascii=False) + "\n"


def as_dict(overview: Overview) -> dict[str, Any]:
    """Return the whole summary as a dict with the queries' column names and exact figures."""
    return {
        **overview.counts,
        "process": [row for rows in overview.accounts for row in rows],
        "pool": [row for rows in overview.pools for row in rows],
        "kernels": overview.kernels,
        "process_growth": overview.growth,
        "loaded_programs": overview.copies,
        "process_moments": overview.moments,
        "peak": overview.peak,
        "other_memory_spaces": overview.others,
        "steps": overview.steps,
        "unknown_peaks": overview.unknown,
        "limit_bytes": overview.limit_bytes,
        "limit_device": overview.limit_name,
        "limit_ratio": overview.limit_ratio,
        "out_of_memory": overview.out_of_memory,
        **overview.parts,
        "diagnostics": overview.findings,
    }
