"""`bufdb what-if`: what the peak would be without some lines, ops or values."""

from __future__ import annotations

import re
import shutil
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.commands import common, completion
from bufdb.errors import UsageError, quote
from bufdb.report import formats
from bufdb.report.text import escape_control, human_bytes, markdown_escape

if TYPE_CHECKING:
    from bufdb.query.result import Result
    from bufdb.what_if.answer import Answer, Row

BY = {"line": "source_line", "op": "op", "value": "value"}
"""peak_savings.what by what the user says."""
MOST_NAMES = 20
"""Names in a table that save nothing; the others are summed up."""
MEANING = (
    "Exact for today's schedule, where treating just these saves no more; of a recompilation, "
    "which schedules and fuses anew, a prediction."
)
NARROW = ("bf16", "f16")
NARROW_ALREADY = "Of two bytes an element already, so that bf16 saves nothing: "
LEAVE_OUT = "To leave out of what the checkpoint policy saves: "
LAYER_INPUT = "A scan saves the inputs of its layer, whatever the checkpoint policy: "


@click.command(name="what-if", short_help="What the peak would be without some lines or ops.")
@click.argument("module", shell_complete=completion.known("function", "module"))
@click.option(
    "--without",
    metavar="WHAT:GLOB",
    multiple=True,
    help="Take away line:FILE:LINE, op:PATH or value:INSTRUCTION; may be repeated.",
)
@click.option(
    "--donate",
    metavar="PARAM",
    multiple=True,
    help="Donate a parameter, by number or by a glob of its name; may be repeated.",
)
@click.option(
    "--keep",
    metavar="SHARE",
    help="Share of the bytes that stays: 0.5 for f32 made bf16, 1/8 for eight chunks.  "
    "[default: 0]",
)
@click.option(
    "--until",
    metavar="SIZE",
    help="Take what lowers the peak most, and again, until it is down to SIZE, such as 16GiB.",
)
@click.option(
    "--by",
    type=click.Choice(list(BY)),
    help="What --until takes.  [default: line]",
)
@click.option(
    "--order",
    type=click.Choice(["saving", "cost"]),
    help="What --until takes first: what saves most, or what costs the fewest operations to "
    "compute again for each byte saved.  [default: saving]",
)
@click.option("--run", metavar="RUN", help="Only modules of this run: a name or a glob.")
@click.option("--color", metavar="N", help="Only this memory space: its number, or a name as hbm.")
@common.output_options
@common.db_option
def command(
    module: str,
    without: tuple[str, ...],
    donate: tuple[str, ...],
    keep: str | None,
    until: str | None,
    by: str | None,
    order: str | None,
    run: str | None,
    color: str | None,
    db: str,
    **output: Any,
) -> None:
    r"""Compute what the peak of MODULE would be if some of its values held no memory.

    MODULE is the key or name of a module, the name of a function, or a glob of one; of several the
    one with the largest known peak is taken, in its memory space with the largest.

    Names are those of 'bufdb query savings', here of all values and not only of those at the peak.
    A name in full takes just that; a glob, or the end of a path such as model.py:53, takes it with
    what a loop saves of it ("saved FILE:LINE") and what is copied for it ("for FILE:LINE"). Several
    are taken away together: savings do not add up. A donated parameter gives its bytes to an output
    of its size, which needs bytes elsewhere for what it holds before the parameter's last use.

    The figure is exact for the same instructions in the same order at the same places, and there
    nobody saves more by treating just these. XLA schedules, fuses and packs a changed program anew,
    and what is computed again, or copied to the host, needs bytes of its own: of a recompilation it
    is a prediction. Nothing is won where a scan saves the inputs of its layer (whatever the
    checkpoint policy), by bf16 where a buffer is bf16 already, and by a checkpoint of unrolled
    layers on CPU, where the compiler merges what is computed again. operation_count is what it
    costs to compute the large values again, by the shapes in the HLO text (recompute_costs).

    \b
    Exit codes:
      0  computed
      1  the peak is unknown, or stays above --until
      2  wrong usage, or a name that takes nothing
      3  database missing, in use or of another version
    """
    if not (without or donate or until):
        raise UsageError("what is to be taken away? --without, --donate or --until say it")
    if by is not None and until is None:
        raise UsageError("--by says what --until takes; name a size with --until")
    if order is not None and until is None:
        raise UsageError("--order says what --until takes first; name a size with --until")
    share, limit = _share(keep), None if until is None else _size(until)

    from bufdb.what_if import answer, choice, donation

    sql = "\n".join([choice.SQL, donation.CANDIDATES, donation.SPANS, answer.SQL])
    con = common.open_database(db, sql, runs=None if run is None else [run])
    chosen = choice.choose(con, module, run, color)
    found = answer.answer(
        con,
        chosen,
        answer.Asked(without, donate, share, limit, BY[by or "line"], order == "cost"),
    )
    for text in [chosen.others, *found.refused]:
        if text:
            common.note(text)
    if output["format_name"] in ("table", "markdown"):
        _write_text(found, limit, share, **output)
    else:
        common.emit(_result(found), **output)
    if found.fits is False:
        click.get_current_context().exit(1)


def _share(text: str | None) -> Fraction:
    try:
        share = Fraction(text or "0")
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share <= 1:
        raise UsageError(f"--keep wants a share from 0 to 1, such as 0.5 or 1/8, got {text!r}")
    return share


def _size(text: str) -> int:
    from bufdb.budget.file import parse_limit

    wrong = f"--until wants bytes such as 123456 or '16 GiB', got {quote(text)}"
    try:
        limit = parse_limit(int(text) if re.fullmatch("[0-9]{1,30}", text) else text)
    except ValueError as error:
        raise UsageError(wrong) from error
    if limit.is_relative:
        raise UsageError(wrong)
    return int(limit.amount)


def _write_text(
    found: Answer,
    limit: int | None,
    share: Fraction,
    *,
    format_name: str,
    output: Path | None,
    full: bool,
) -> None:
    is_markdown = format_name == "markdown"
    to_terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if to_terminal and not full else None
    table, cut = formats.render(_table(found), format_name, width) if found.rows else ("", 0)

    def lines(texts: list[str]) -> str:
        if is_markdown:  # where only an empty line ends a line
            return "\n".join(f"{markdown_escape(text)}\n" for text in texts)
        return "".join(f"{escape_control(text)}\n" for text in texts)

    blocks = [lines([_headline(found, limit, share)]), table, lines(_below(found, share))]
    common.write("\n".join(block for block in blocks if block), output)
    if cut:
        common.note(f"{cut} cells shortened to fit the terminal; --full shows all of them")


def _headline(found: Answer, limit: int | None, share: Fraction) -> str:
    """train_step (gpu_b8, device): peak 8.3 MiB → 6.2 MiB, saves 2.1 MiB (25.3%)."""
    choice, left = found.choice, found.left.peak_bytes
    saving = choice.peak_bytes - left
    ratio = f" ({saving / choice.peak_bytes:.1%})" if choice.peak_bytes else ""
    text = (
        f"{choice.function_name} ({choice.run_name}, {choice.memory_space}): "
        f"peak {human_bytes(choice.peak_bytes)} → {human_bytes(left)}, "
        f"saves {human_bytes(saving)}{ratio}"
    )
    if share:
        text += f", {share} of the bytes stays"
    if limit is not None:
        text += f"; {'fits into' if found.fits else 'still above'} {human_bytes(limit)}"
    return text


def _below(found: Answer, share: Fraction) -> list[str]:
    """What caps the saving, what cannot be left out, and what the figure means."""
    lines = []
    if found.fits is False:
        # What is as high elsewhere stays, whatever single name is taken.
        lines.append("Nothing by itself lowers the peak further.")
    if found.fits and not found.rows:
        lines.append("Today's peak fits already.")
    left = found.left
    instant = found.instants.get(left.peak_time)
    if found.rows:
        at = f"The peak then is at {left.peak_time}"
        if instant is not None:
            parts = [instant.instruction_name, instant.op_path, instant.source]
            at += ": " + ", ".join(part for part in parts if part)
        lines.append(f"{at}; today it is at {found.choice.peak_time}.")
    inputs = [row.name for row in found.rows if row.is_layer_input and row.what != "together"]
    if inputs:
        lines.append(f"{LAYER_INPUT}{_list(inputs)}.")
    narrow = [row.name for row in found.rows if row.dtype in NARROW and row.what != "together"]
    policy = [
        row.name.removeprefix("saved ")
        for row in found.rows
        if row.is_residual and row.what == "source_line" and not row.is_layer_input
    ]
    if policy and not share:
        lines.append(f"{LEAVE_OUT}{_list(policy)}.")
    if share and narrow:
        lines.append(f"{NARROW_ALREADY}{_list(narrow)}.")
    return [*lines, MEANING]


def _list(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _table(found: Answer) -> Result:
    """What a table shows: names that hold nothing at the peak and save nothing in one row."""
    from bufdb.query.result import Result

    columns = [
        ("what", "VARCHAR"),
        ("held_bytes", "HUGEINT"),
        ("saving_bytes", "HUGEINT"),
        ("peak_bytes_without", "HUGEINT"),
        ("operation_count", "HUGEINT"),
        ("next_peak_time", "BIGINT"),
        ("next_peak_instruction", "VARCHAR"),
        ("name", "VARCHAR"),
    ]
    shown = found.rows
    if len(shown) == 2 and shown[-1].what == "together":
        shown = shown[:1]  # it says the same again
    idle = [row for row in shown[:-1] if not row.held_bytes and not row.saving_bytes]
    rest = {id(row) for row in idle[MOST_NAMES:]}
    rows = [row for row in shown if id(row) not in rest]
    cells = [_cells(found, row) for row in rows]
    if rest:
        today = (found.choice.peak_bytes, None, found.choice.peak_time, None)
        name = f"{len(rest)} more that hold nothing at the peak"
        cells.insert(len(cells) - 1, ("", 0, 0, *today, name))
    return Result(columns, cells)


def _cells(found: Answer, row: Row) -> tuple[Any, ...]:
    instant = found.instants.get(row.next_peak_time)
    return (
        row.what,
        row.held_bytes,
        row.saving_bytes,
        row.peak_bytes_without,
        row.operation_count,
        row.next_peak_time,
        None if instant is None else instant.instruction_name,
        row.name,
    )


def _result(found: Answer) -> Result:
    """Every row, with the module and all that is known of the instant."""
    from bufdb.query.result import Result

    columns = [
        ("run_name", "VARCHAR"),
        ("function_name", "VARCHAR"),
        ("module_key", "VARCHAR"),
        ("color", "BIGINT"),
        ("peak_bytes", "HUGEINT"),
        ("what", "VARCHAR"),
        ("name", "VARCHAR"),
        ("held_bytes", "HUGEINT"),
        ("saving_bytes", "HUGEINT"),
        ("peak_bytes_without", "HUGEINT"),
        ("next_peak_time", "BIGINT"),
        ("next_peak_instruction", "VARCHAR"),
        ("next_peak_op", "VARCHAR"),
        ("next_peak_source", "VARCHAR"),
        ("is_layer_input", "BOOLEAN"),
        ("dtype", "VARCHAR"),
        ("operation_count", "HUGEINT"),
    ]
    choice, rows = found.choice, []
    for row in found.rows:
        instant = found.instants.get(row.next_peak_time)
        rows.append(
            (
                choice.run_name,
                choice.function_name,
                choice.module_key,
                choice.color,
                choice.peak_bytes,
                row.what,
                row.name,
                row.held_bytes,
                row.saving_bytes,
                row.peak_bytes_without,
                row.next_peak_time,
                None if instant is None else instant.instruction_name,
                None if instant is None else instant.op_path,
                None if instant is None else instant.source,
                row.is_layer_input,
                row.dtype,
                row.operation_count,
            )
        )
    return Result(columns, rows)
