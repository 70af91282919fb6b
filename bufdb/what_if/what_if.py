"""`what-if` as an answer: takes the user's options, and returns the figures as rows and as text.

Invariant: a figure comes from `bufdb.what_if.removal`; only shares are computed here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from bufdb.answers.budget_file import parse_limit
from bufdb.answers.opening import Open
from bufdb.errors import UsageError, listed, quote
from bufdb.query.result import Result
from bufdb.query.sizes import require_unit
from bufdb.render import formats
from bufdb.render.text import escape_control, human_apart, human_bytes, markdown_escape
from bufdb.what_if import donation, module_choice, removal
from bufdb.what_if.removal import Answer, Low, Row

BY = {"line": "source_line", "op": "op", "value": "value"}
"""peak_savings.what by the user's word."""
MOST_NAMES = 20
"""Maximum names in a table that save nothing; the others are summed up."""
MEANING = (
    "Exact for today's schedule, where no change to just these saves more; a prediction for a "
    "recompilation, which schedules and fuses again."
)
FINEST = 1 << 20
"""Largest denominator of `keep`: a byte in a mebibyte."""
_LARGE_EXPONENT = re.compile(r"[eE][+-]?[\d_]{4}")
RANGE = "The need then is between the peak and the peak with today's holes in the arena."
NARROW = ("bf16", "f16")
NARROW_ALREADY = "Two bytes an element already, so bf16 saves nothing: "
FORMS = {
    "wrap": "The low end is jax.checkpoint around just the expression; what a first policy saves "
    "is known only from a trace of the changed program: ",
    "policy": "The low end is one name less in the checkpoint policy: ",
}
"""By peak_savings.saving_form, the text before the lines."""
LAYER_INPUT = "A scan saves the inputs of its layer, whatever the checkpoint policy: "
_SQL = "\n".join([module_choice.SQL, donation.CANDIDATES, donation.SPANS, removal.SQL])


@dataclass(frozen=True)
class WhatIf:
    """An answer, and the parts of the question that its text repeats."""

    answer: Answer
    limit: int | None
    """Target of --until in bytes; None without it."""
    share: Fraction
    """Share of the bytes that stays."""
    by: str = "line"
    """What --until removes: a word of `BY`."""

    @property
    def notes(self) -> list[str]:
        """Notes on other modules that match, and on parameters that cannot be donated."""
        return [text for text in (self.answer.choice.others, *self.answer.refused) if text]

    def result(self) -> Result:
        """Return every row, with the module and the details of the instant."""
        return _rows(self.answer)

    def text(self, format_name: str = "table", width: int | None = None) -> tuple[str, int]:
        """Return the text as `table` or `markdown`, and the number of cells cut to fit `width`."""
        is_markdown = format_name == "markdown"
        answer = self.answer
        table, cut = formats.render(_table(answer), format_name, width) if answer.rows else ("", 0)

        def lines(texts: list[str]) -> str:
            if is_markdown:  # only an empty line starts a new paragraph
                return "\n".join(f"{markdown_escape(text)}\n" for text in texts)
            return "".join(f"{escape_control(text)}\n" for text in texts)

        head = lines([_headline(answer, self.limit, self.share)])
        blocks = [head, table, lines(_below(answer, self.share, self.by))]
        return "\n".join(block for block in blocks if block), cut


def what_if(
    opened: Open,
    module: str,
    *,
    without: str | Sequence[str] = (),
    donate: str | Sequence[str] = (),
    keep: str | None = None,
    until: str | None = None,
    by: str | None = None,
    order: str | None = None,
    run: str | None = None,
    color: int | str | None = None,
) -> WhatIf:
    """Return a module's peak and need after changes; arguments as options of `bufdb what-if`.

    Raises:
        UsageError: nothing is requested, or a name does not exist.
        BufdbError: it cannot be computed.
    """
    require_question(without, donate, until)
    if by is not None and until is None:
        raise UsageError("--by needs --until with a size")
    if order is not None and until is None:
        raise UsageError("--order needs --until with a size")
    share, limit = _share(keep), None if until is None else _size(until)
    con = opened(_SQL, runs=None if run is None else [run])
    chosen = module_choice.choose(con, module, run, color)
    # A text is one name, not its letters.
    without, donate = (
        [patterns] if isinstance(patterns, str) else patterns for patterns in (without, donate)
    )
    reduction = removal.Reduction(
        without, donate, share, limit, _one_of("--by", BY, by or "line"), _is_cheapest(order)
    )
    return WhatIf(removal.answer(con, chosen, reduction), limit, share, by or "line")


def require_question(
    without: str | Sequence[str], donate: str | Sequence[str], until: str | None
) -> None:
    """Raise a UsageError if nothing is to be removed."""
    if not (without or donate) and until is None:
        raise UsageError("what should be removed? name it with --without, --donate or --until")


def _one_of(option: str, words: dict[str, str], word: str) -> str:
    if word not in words:
        raise UsageError(f"{option} is one of {', '.join(words)}, got {quote(word)}")
    return words[word]


def _is_cheapest(order: str | None) -> bool:
    words = {"saving": "saving", "cost": "cost"}
    return order is not None and _one_of("--order", words, order) == "cost"


def _share(text: str | None) -> Fraction:
    """Return --keep as the simple ratio that is displayed and used: 0.3333333333 is 1/3."""
    ratio = "0" if text is None else str(text)
    try:
        # A short text can denote a number with a billion digits.
        share = Fraction(-1 if _LARGE_EXPONENT.search(ratio) else ratio)
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share <= 1:
        raise UsageError(
            f"--keep wants a share from 0 to 1, such as 0.5 or 1/8, got {quote(ratio)}"
        )
    return share.limit_denominator(FINEST)


def _size(text: str) -> int:
    require_unit(text.strip(), f"--until {text}")
    wrong = f"--until wants bytes such as 123456 or '16 GiB', got {quote(text)}"
    try:
        limit = parse_limit(int(text) if re.fullmatch("[0-9]{1,30}", text) else text)
    except ValueError as error:
        raise UsageError(wrong) from error
    if limit.is_relative:
        raise UsageError(wrong)
    return int(limit.amount)


def _headline(answer: Answer, limit: int | None, share: Fraction) -> str:
    """Return 'train_step (gpu_b8, device): peak 8.29 MiB → 6.19 MiB, saves 2.09 MiB (25.3%)'."""
    choice, left = answer.choice, answer.left.peak_bytes
    saving = choice.peak_bytes - left
    ratio = f" ({saving / choice.peak_bytes:.1%})" if choice.peak_bytes else ""
    sizes = human_apart([choice.peak_bytes, left, *([] if limit is None else [limit])])
    least = answer.low_saving_bytes
    low = "" if least is None or least == saving else f"{human_bytes(least)} to "
    text = (
        f"{choice.function_name} ({choice.run_name}, {choice.memory_space}): "
        f"peak {sizes[0]} → {sizes[1]}, "
        f"saves {low}{human_bytes(saving)}{ratio}"
    )
    if share:
        text += f", {share} of the bytes kept"
    text += _needs(answer)
    if limit is not None:
        is_above = answer.need.low_bytes > limit
        verdict = "fits into" if answer.fits else "still above" if is_above else "may be above"
        text += f"; {verdict} {sizes[2]}"
        if answer.fits and least is not None and choice.peak_bytes - least > limit:
            text += ", not at the low end"
    return text


def _needs(answer: Answer) -> str:
    """Return e.g. '; needs 8.4 MiB → 6.2 to 6.3 MiB'; '' if it equals the peak."""
    choice, left, need = answer.choice, answer.left.peak_bytes, answer.need
    today, peak = human_bytes(choice.need_bytes), human_bytes(left)
    low, high = human_bytes(need.low_bytes), human_bytes(need.high_bytes)
    if today == human_bytes(choice.peak_bytes) and low == high == peak:
        return ""
    return f"; needs {today} → {low if low == high else f'{low} to {high}'}"


def _below(answer: Answer, share: Fraction, by: str) -> list[str]:
    """Return what limits the saving, what cannot be left out, and the meaning of the figure."""
    lines = []
    if answer.fits is False:
        # Another instant is as high, so no single name lowers the peak.
        lines.append(f"No {by} by itself lowers the peak further{_nameless(answer, by)}.")
    if answer.fits and not answer.rows:
        lines.append("Today's need fits already.")
    if answer.ranked_by is not None and answer.rows:
        lines.append(ORDERS[answer.ranked_by])
    left = answer.left
    instant = answer.instants.get(left.peak_time)
    if answer.rows:
        at = f"The peak then is at {left.peak_time}"
        if instant is not None:
            parts = [instant.instruction_name, instant.op_path, instant.source]
            at += ": " + ", ".join(part for part in parts if part)
        lines.append(f"{at}; today it is at {answer.choice.peak_time}.")
    if answer.rows and answer.need.low_bytes < answer.need.high_bytes:
        lines.append(RANGE)
    inputs = [row.name for row in answer.rows if row.is_layer_input and row.what != "together"]
    if inputs:
        lines.append(f"{LAYER_INPUT}{listed(inputs, MOST_NAMES)}.")
    narrow = [row.name for row in answer.rows if row.dtype in NARROW and row.what != "together"]
    for form, text in FORMS.items():
        named = [
            row.name.removeprefix("saved ") + _instead(row.low)
            for row in answer.rows
            if row.low is not None and row.low.form == form and row.what == "source_line"
        ]
        if named:
            lines.append(f"{text}{listed(named, MOST_NAMES)}.")
    if share and narrow:
        lines.append(f"{NARROW_ALREADY}{listed(narrow, MOST_NAMES)}.")
    return [*lines, MEANING]


ORDERS = {
    "time": "Taken first is what saves most bytes for each millisecond that computing them again "
    "takes, by the profile.",
    "work": "Taken first is what saves most bytes for each operation that computing them again "
    "takes: no profile was read.",
}
"""What --order cost went by."""


def _instead(low: Low) -> str:
    """Return the lines that are kept instead of a line."""
    return "" if low.kept_name is None else f" (keeps {low.kept_name})"


def _nameless(answer: Answer, by: str) -> str:
    """Return a note on values that --until could not remove, for lack of a known line or op."""
    count = answer.nameless
    if not count:
        return ""
    values = "1 value that is live then has" if count == 1 else f"{count} values live then have"
    return f"; {values} no {by}: --by value removes them"


def _table(answer: Answer) -> Result:
    """Return the rows of a table; names that hold and save nothing are summed up in one row."""
    columns = [
        ("what", "VARCHAR"),
        ("held_bytes", "HUGEINT"),
        ("low_saving_bytes", "HUGEINT"),
        ("saving_bytes", "HUGEINT"),
        ("peak_bytes_without", "HUGEINT"),
        ("operation_count", "HUGEINT"),
        ("recompute_ns", "BIGINT"),
        ("next_peak_time", "BIGINT"),
        ("next_peak_instruction", "VARCHAR"),
        ("name", "VARCHAR"),
    ]
    shown = answer.rows
    if len(shown) == 2 and shown[-1].what == "together":
        shown = shown[:1]  # the second row would repeat the first
    idle = [row for row in shown[:-1] if not row.held_bytes and not row.saving_bytes]
    rest = {id(row) for row in idle[MOST_NAMES:]}
    rows = [row for row in shown if id(row) not in rest]
    cells = [_cells(answer, row) for row in rows]
    if rest:
        today = (answer.choice.peak_bytes, None, None, answer.choice.peak_time, None)
        name = f"{len(rest)} more hold nothing at the peak"
        cells.insert(len(cells) - 1, ("", 0, None, 0, *today, name))
    if all(row.recompute_ns is None for row in rows):  # no profile was read
        at = [name for name, _ in columns].index("recompute_ns")
        columns, cells = _without(columns, at), [_without(row, at) for row in cells]
    return Result(columns, cells)


def _without(cells: Any, at: int) -> Any:
    return cells[:at] + cells[at + 1 :]


def _cells(answer: Answer, row: Row) -> tuple[Any, ...]:
    instant = answer.instants.get(row.next_peak_time)
    return (
        row.what,
        row.held_bytes,
        None if row.low is None else row.low.saving_bytes,
        row.saving_bytes,
        row.peak_bytes_without,
        row.operation_count,
        row.recompute_ns,
        row.next_peak_time,
        None if instant is None else instant.instruction_name,
        row.name,
    )


def _low_cells(low: Low | None) -> tuple[Any, ...]:
    if low is None:
        return (None,) * 4
    return low.saving_bytes, low.form, low.kept_name, low.operation_count


def _rows(answer: Answer) -> Result:
    """Return every row, with the module and the details of the instant."""
    columns = [
        ("run_name", "VARCHAR"),
        ("function_name", "VARCHAR"),
        ("module_key", "VARCHAR"),
        ("color", "BIGINT"),
        ("need_bytes", "HUGEINT"),
        ("peak_bytes", "HUGEINT"),
        ("what", "VARCHAR"),
        ("name", "VARCHAR"),
        ("held_bytes", "HUGEINT"),
        ("saving_bytes", "HUGEINT"),
        ("peak_bytes_without", "HUGEINT"),
        ("low_need_bytes_without", "HUGEINT"),
        ("high_need_bytes_without", "HUGEINT"),
        ("next_peak_time", "BIGINT"),
        ("next_peak_instruction", "VARCHAR"),
        ("next_peak_op", "VARCHAR"),
        ("next_peak_source", "VARCHAR"),
        ("is_layer_input", "BOOLEAN"),
        ("dtype", "VARCHAR"),
        ("operation_count", "HUGEINT"),
        ("low_saving_bytes", "HUGEINT"),
        ("saving_form", "VARCHAR"),
        ("kept_name", "VARCHAR"),
        ("low_operation_count", "HUGEINT"),
        ("recompute_ns", "BIGINT"),
    ]
    choice, rows = answer.choice, []
    for row in answer.rows:
        instant = answer.instants.get(row.next_peak_time)
        rows.append(
            (
                choice.run_name,
                choice.function_name,
                choice.module_key,
                choice.color,
                choice.need_bytes,
                choice.peak_bytes,
                row.what,
                row.name,
                row.held_bytes,
                row.saving_bytes,
                row.peak_bytes_without,
                None if row.need is None else row.need.low_bytes,
                None if row.need is None else row.need.high_bytes,
                row.next_peak_time,
                None if instant is None else instant.instruction_name,
                None if instant is None else instant.op_path,
                None if instant is None else instant.source,
                row.is_layer_input,
                row.dtype,
                row.operation_count,
                *_low_cells(row.low),
                row.recompute_ns,
            )
        )
    return Result(columns, rows)
