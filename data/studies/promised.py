"""Predicted and measured savings of changes that advice suggests; `recompile.py` writes the table.

A change follows a row of advice by its kind and, where the kind is about lines, by its line. Where
there is no such row, query savings says what the line saves.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duckdb import DuckDBPyConnection
from programs.registry import Case

from bufdb import resources
from bufdb.database import memory, store
from bufdb.query import catalogue, execute
from bufdb.query.header import SavedQuery

TARGETS = ("cpu", "gpu", "tpu")
TOLERANCE = 0.02
"""Share of the peak by which a saving may lie outside of its range."""
LIKELY = 0.9
"""Share of changes that make a kind likely, or unlikely."""
FEWEST = 5
"""Changes below which nothing is concluded."""
AGAIN = ("residual", "recompute")
"""Kinds that recompute; a change that wraps a line follows either of them."""
KINDS = (
    "residual", "recompute", "block", "block_of_scan", "offload", "dtype", "dtype_of_stack",
    "donate", "donation_in_product", "carry", "batch", "chunk", "scores", "shard", "gather", "copy",
    "early", "late_free", "padding", "constant",
)  # fmt: skip
LEFT_OUT = (
    "copied_donation", "least_size", "copy_in_turn", "memory_move", "single_gather", "layer_input",
)  # fmt: skip
"""Kinds that advice leaves out on every platform: they bring nothing."""
VIEW = Path(__file__).resolve().parents[2] / "schema" / "views" / "advice_sureness.sql"
IN_PRODUCT = """
SELECT DISTINCT modules.function_name
FROM answered_donations AS donations
JOIN modules ON modules.module_id = donations.module_id
WHERE donations.is_in_product
  AND NOT donations.is_copied
"""
"""Functions with an argument that is used in a product that could give its buffer to an output."""


@dataclass(frozen=True)
class Row:
    """A change that was compiled; sizes in bytes."""

    target: str
    program: str
    change: str
    kind: str
    """Kind as in advice_sureness."""
    source: str
    """The query that promised something: advice, savings, or "" if none did."""
    place: int
    """Rank of the row among the program's advice, from 1; 0 if advice does not have it."""
    sureness: str
    low: int
    high: int
    got: int
    peak: int

    @property
    def is_in_range(self) -> bool:
        slack = TOLERANCE * self.peak
        return self.low - slack <= self.got <= self.high + slack

    @property
    def is_nothing(self) -> bool:
        """Whether it saved less than a tenth of the lower bound."""
        return self.got < self.low / 10

    @property
    def is_defect(self) -> bool:
        """Whether it is the first advice and saved less than half of the lower bound."""
        return self.place == 1 and self.got < self.low / 2


@dataclass(frozen=True)
class First:
    """A first row of advice that no change follows."""

    target: str
    program: str
    kind: str
    name: str
    saving: int
    peak: int


Answer = dict[str, Any]


def answers(
    con: DuckDBPyConnection, query: SavedQuery, **settings: object
) -> dict[str, list[Answer]]:
    """Return the rows of a saved query by function, with all columns."""
    bound = execute.bind(query, {key: str(value) for key, value in settings.items()})
    names = [column.name for column in query.columns]
    by_function: dict[str, list[Answer]] = {}
    for row in execute.execute_query(con, query, bound).rows:
        answer = dict(zip(names, row, strict=True))
        if answer["unknown_reason"] is None:
            by_function.setdefault(answer["function_name"], []).append(answer)
    return by_function


def is_at(answer: Answer, line: str) -> bool:
    name = answer["name"] or ""
    if line.endswith("()"):
        return line[:-2] in name
    return re.search(rf"(^|[/ ]){re.escape(line)}\b", name) is not None


def advised(case: Case, advice: Sequence[Answer]) -> int | None:
    """The place of the row that a change follows, from 0; None if there is none."""
    kind = case.made.kind
    kinds = AGAIN if kind in AGAIN else (kind,)
    for wanted in sorted(kinds, key=lambda one: one != kind):
        for place, answer in enumerate(advice):
            is_there = any(is_at(answer, line) for line in case.lines)
            if answer["kind"] == wanted and (is_there or not case.lines or kind == "chunk"):
                return place
    return None


def kind_of(kind: str, answer: Answer, is_in_product: bool) -> str:
    if kind == "dtype" and (answer["name"] or "").startswith("saved "):
        return "dtype_of_stack"
    if kind == "block" and (answer["name"] or "").startswith("scan of "):
        return "block_of_scan"
    return "donation_in_product" if kind == "donate" and is_in_product else kind


@dataclass(frozen=True)
class Answers:
    """Answers of bufdb about a program as written."""

    peak: int
    advice: Sequence[Answer]
    savings: Sequence[Answer]
    """Savings of source lines."""
    is_in_product: bool
    """Whether an argument that could be donated is used in a product."""


def row_of(target: str, case: Case, of: Answers, left: int) -> Row:
    kind, source, sureness, answer = case.made.kind, "", "", None
    place = advised(case, of.advice)
    if place is not None:
        source, answer = "advice", of.advice[place]
        kind = answer["kind"]
    elif kind in ("residual", "recompute", "layer_input", "offload", "dtype"):
        at = [one for one in of.savings if any(is_at(one, line) for line in case.lines)]
        if at:
            source, answer = "savings", at[0]
    low = high = 0
    if answer is not None:
        # The low end of savings is of what is wrapped in a scan.
        is_range = source == "advice" or kind in (*AGAIN, "layer_input")
        is_half = source == "savings" and kind == "dtype"
        kind = kind_of(kind, answer, of.is_in_product)
        high = answer["half_saving_bytes" if is_half else "saving_bytes"]
        low = answer.get("low_saving_bytes") if is_range else high
        low = high if low is None else low
        sureness = answer.get("sureness") or ""
    place = 0 if place is None else place + 1
    return Row(
        target, case.program, case.change, kind, source, place, sureness, low, high,
        of.peak - left, of.peak,
    )  # fmt: skip


def rows_of(
    database: Path, target: str, cases: Sequence[Case], peaks: Mapping[str, int]
) -> tuple[list[Row], list[First]]:
    """Every change of one line, and first rows of advice that no change follows.

    Args:
        database: holds the programs as they are written.
        target: cpu, gpu or tpu, the name of the run.
        cases: programs and their changes.
        peaks: of all of them, by function.
    """
    saved = catalogue.Catalogue([resources.query_folder()])
    advice_query, savings_query = saved.find("advice"), saved.find("savings")
    sql = "\n".join([IN_PRODUCT, advice_query.sql, savings_query.sql])
    memory.MEMORY_LIMIT.set(4 << 30)  # all programs at once
    con = store.open_readable(str(database), sql)
    some = {"run": target, "function": "*__base", "color": 0, "top_functions": 10_000}
    advice = answers(con, advice_query, top_n=10_000, **some)
    savings = answers(con, savings_query, top_n=10_000, what="source_line", **some)
    for name, value in some.items():
        con.execute(f"SET VARIABLE {name} = ?", [value])
    in_product = {name for (name,) in con.execute(IN_PRODUCT).fetchall()}
    rows, firsts = [], []
    for base in cases:
        if base.made is not None:
            continue
        of = Answers(
            peaks[base.function],
            advice.get(base.function, []),
            savings.get(base.function, []),
            base.function in in_product,
        )
        changed = [
            row_of(target, case, of, peaks[case.function])
            for case in cases
            if case.program == base.program and case.made and "+" not in case.made.at
        ]
        rows += changed
        if of.advice and not any(row.place == 1 for row in changed):
            first = of.advice[0]
            firsts.append(
                First(target, base.program, first["kind"], first["name"], first["saving_bytes"],
                      of.peak)
            )  # fmt: skip
    return rows, firsts


# -- how sure a kind is ------------------------------------------------------------------------


def by_kind(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Return changes by kind and platform: of advice, or of savings for kinds it leaves out."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.source:
            kinds.setdefault((row.kind, row.target), []).append(row)
    return {
        key: [row for row in some if row.source == "advice"] or some
        for key, some in sorted(kinds.items())
    }


def sureness_of(some: Sequence[Row]) -> str:
    if len(some) < FEWEST:
        return "possible"
    if sum(row.is_in_range for row in some) >= LIKELY * len(some):
        return "likely"
    if sum(row.is_nothing for row in some) >= LIKELY * len(some):
        return "unlikely"
    return "possible"


# -- the page ----------------------------------------------------------------------------------

PAGE = """# Promised and measured savings

Written by `recompile.py` with jax {jax}: programs of `programs/`, compiled unchanged and
with one change each, as a row of `bufdb query advice` says. GPU is an H100 and TPU a v5e, both
ahead of time; TPU figures are HBM, with VMEM left to fusions. Bytes; "got" is the peak before minus
the peak after. In the range is a result within {tolerance:.0%} of the peak from the
promise.

{total}

## Each kind

Sureness is likely where at least {likely:.0%} of {fewest} changes or more are in the range,
unlikely where as many saved less than a tenth of the low end, and possible otherwise;
`recompile.py --write-sureness` writes it into the view advice_sureness. For kinds that
advice leaves out, the promise is the line's in query savings.

{kinds}

## First advice that saved less than half of its low end

{defects}

## First advice without a change that follows it

{firsts}

## Each change

{each}
"""


def total(rows: Sequence[Row]) -> str:
    """Count the likely advice whose saving is in the range, by the current rows."""
    likely = [row for row in rows if row.source == "advice" and row.sureness == "likely"]
    inside = sum(row.is_in_range for row in likely)
    advised = [row for row in rows if row.source == "advice"]
    return (
        f"{len(rows)} changes, {len(advised)} of them advised. In the range: {inside} of "
        f"{len(likely)} likely ones, and {sum(row.is_in_range for row in advised)} of all advised."
    )


def kinds(rows: Sequence[Row]) -> Iterable[str]:
    yield "| kind | platform | promised by | changes | in range | share | nothing came | sureness |"
    yield "|---|---|---|--:|--:|--:|--:|---|"
    for (kind, target), some in by_kind(rows).items():
        inside = sum(row.is_in_range for row in some)
        yield (
            f"| {kind} | {target} | {some[0].source} | {len(some)} | {inside} "
            f"| {inside / len(some):.0%} | {sum(row.is_nothing for row in some)} "
            f"| {sureness_of(some)} |"
        )


def each(rows: Iterable[Row]) -> Iterable[str]:
    yield (
        "| target | program | change | kind | promised by | place | sureness | low | high | got "
        "| peak | in range |"
    )
    yield "|---|---|---|---|---|--:|---|--:|--:|--:|--:|---|"
    for row in rows:
        promised = f"{row.low} | {row.high}" if row.source else " | "
        verdict = ("yes" if row.is_in_range else "no") if row.source else ""
        yield (
            f"| {row.target} | {row.program} | {row.change} | {row.kind} | {row.source} "
            f"| {row.place or ''} | {row.sureness} | {promised} | {row.got} | {row.peak} "
            f"| {verdict} |"
        )


def unfollowed(firsts: Sequence[First]) -> Iterable[str]:
    yield "| target | program | kind | name | saving | peak |"
    yield "|---|---|---|---|--:|--:|"
    for one in firsts:
        name = re.sub(r"(/\S*/)", "", one.name or "")
        yield (
            f"| {one.target} | {one.program} | {one.kind} | {name} | {one.saving} | {one.peak} |"
        )


def page(rows: Sequence[Row], firsts: Sequence[First], jax: str) -> str:
    """The tables in Markdown."""
    defects = [row for row in rows if row.is_defect]
    return PAGE.format(
        jax=jax,
        tolerance=TOLERANCE,
        likely=LIKELY,
        fewest=FEWEST,
        total=total(rows),
        kinds="\n".join(kinds(rows)),
        defects="\n".join(each(defects)) if defects else "None.",
        firsts="\n".join(unfollowed(firsts)) if firsts else "None.",
        each="\n".join(each(rows)),
    )


# -- the view ----------------------------------------------------------------------------------


def of_any(sureness: Sequence[str]) -> str:
    """Return the sureness that holds on every platform."""
    return sureness[0] if len(set(sureness)) == 1 else "possible"


def write_sureness(rows: Iterable[Row]) -> None:
    """Write the table's sureness into the view advice_sureness."""
    shares = by_kind(rows)
    lines = []
    for kind in (*KINDS, *LEFT_OUT):
        each = [
            "unlikely" if kind in LEFT_OUT else sureness_of(shares.get((kind, target), []))
            for target in TARGETS
        ]
        cells = ", ".join(f"'{cell}'" for cell in (kind, *each, of_any(each)))
        lines.append(f"    ({cells})")
    text = VIEW.read_text("utf-8")
    begin = text.index("  VALUES\n") + len("  VALUES\n")
    end = text.index("\n) AS kinds", begin)
    VIEW.write_text(text[:begin] + ",\n".join(lines) + text[end:], encoding="utf-8")
