"""Advice as text: what would lower the peak, by how much, and the code to type."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable

from bufdb.report import cells
from bufdb.report.text import display_width, escape_control, human_bytes
from bufdb.summary.overview import Overview, Row

WIDTH = 80
_DOES = 20
"""Column in which what to do begins."""
_PREFIX = re.compile(r"^(saved|for|library|slice of|copy of) ")
_CODE = re.compile(
    r"(?:^(With [^`](?:[^\n]|\n(?!\n))*:)\n\n)?^```python\n(.*?)```", re.DOTALL | re.M
)
"""Code of a page, with the paragraph before it if that says which library it is with."""


def lines(found: Overview) -> list[str]:
    """Each piece of advice in two lines, a third for what is kept instead; a sentence if none."""
    if not found.parts["advice"]:
        return _none(found)
    return [line for row in found.parts["advice"] for line in _lines(row)]


def _lines(row: Row) -> list[str]:
    if row["saving_bytes"] is None:
        return _wrapped(row["unknown_reason"])
    head = f"{human_bytes(row['saving_bytes']):>10}  {row['saving_ratio']:>6.1%}  "
    left = WIDTH - display_width(head)
    does = f"{escape_control(row['advice'])} ({row['sureness']})"
    found = [
        head + cells.give_way("name", escape_control(row["name"]), left),
        *textwrap.wrap(
            does, WIDTH, initial_indent=f"{least(row):>18}  ", subsequent_indent=" " * _DOES
        ),
    ]
    if row["kept_name"]:
        kept = f"{' ' * _DOES}kept instead: {escape_control(row['kept_name'])}"
        found.append(cells.give_way("kept_name", kept, WIDTH))
    return found


def least(row: Row) -> str:
    """The low end of what comes, under the high one; nothing where they do not differ."""
    low, high = row["low_saving_bytes"], row["saving_bytes"]
    if low is None or low == high:
        return ""
    if low < 0:
        return f"or {human_bytes(-low)} more"
    return f"at least {human_bytes(low)}" if low else "or nothing"


def _none(found: Overview) -> list[str]:
    """That nothing saves 1 %, or what does, though no advice is about it."""
    peak = found.peak["peak_bytes"] if found.peak is not None else 0
    for row in found.parts.get("savings", []):
        if row["what"] == "source_line" and row["saving_bytes"] * 100 >= peak > 0:
            less = human_bytes(row["saving_bytes"])
            text = f"no advice, but without {row['name']} it is {less} less ('bufdb query savings')"
            if row["platform"] == "cpu":
                text += (
                    "; on the CPU XLA merges what jax.checkpoint computes again outside of loops"
                )
            return _wrapped(text)
    return ["  nothing that saves 1 % of it by itself"]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(escape_control(text), WIDTH, initial_indent="  ", subsequent_indent="  ")


def text(found: Overview, code: Callable[[str], str] | None = None) -> str:
    """All advice about the highest peak; with `code`, which gives a kind's page, what to type."""
    shown = []
    if found.peak is not None:
        of = f"{found.peak['function_name']} of run {found.peak['run_name']}"
        shown.append(f"{human_bytes(found.peak['peak_bytes'])}, the peak of {escape_control(of)}")
        if not found.parts.get("advice"):
            shown += _none(found)
    for row in found.parts.get("advice", []):
        shown += ["", *_lines(row)]
        if row["kind"] is not None:
            shown += [f"{' ' * _DOES}{line}" for line in _details(row)]
    if code is not None:
        of_kinds: dict[str, list[Row]] = {}
        for row in found.parts.get("advice", []):
            if row["kind"] is not None:
                of_kinds.setdefault(row["kind"], []).append(row)
        for kind, rows in of_kinds.items():
            shown += ["", *_typed(code(kind), rows)]
    return "".join(f"{line.rstrip()}\n" for line in shown)


def _details(row: Row) -> list[str]:
    """What the range is about, and where there is more."""
    forms = {
        "wrap": "the low end: jax.checkpoint around the expression alone",
        "policy": "the low end: one name less in the policy that is there",
    }
    found = [forms[row["saving_form"]]] if row["saving_form"] else []
    return [*found, f"more: bufdb query {row['query_name']}, {row['page']}"]


def _typed(page: str, rows: list[Row]) -> list[str]:
    """The code of a page, once for all advice that it is about, each part below what it is for."""
    title = re.match(r"# (.*)", page)
    found = _comment(f"{title[1] if title else 'Example'} ({rows[0]['page']})")
    found += _comment(f"for {', '.join(dict.fromkeys(row['name'] for row in rows))}")
    names = _names(rows)
    pattern = "|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in names)
    for heading, code in _CODE.findall(page):
        filled = re.sub(pattern, lambda match: names[match[0]], f"{heading}```{code}")
        heading, _, code = filled.rpartition("```")
        found += ["", *(_comment(" ".join(heading.split())) if heading else [])]
        found += [escape_control(line) for line in code.splitlines()]
    return found


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        escape_control(text), WIDTH, initial_indent="# ", subsequent_indent="#   ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _label(line: str) -> str | None:
    """train_65 for a/train.py:65; None for what is no line."""
    place = re.search(r"([^/\\]+)[.]py:([0-9]+)", line)
    return None if place is None else re.sub(r"\W", "_", f"{place[1]}_{place[2]}")


def _names(rows: list[Row]) -> dict[str, str]:
    """Names of the program by those of the example: of the first row, and all lines of a list."""
    row, lines = rows[0], [_PREFIX.sub("", row["name"]) for row in rows]
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
