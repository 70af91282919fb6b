"""Predictions of `bufdb what-if` for train steps and the measured savings, for `recompile.py`."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from duckdb import DuckDBPyConnection
from programs import steps
from programs.registry import Case

from bufdb.database import store
from bufdb.errors import UsageError
from bufdb.what_if import donation, module_choice, removal
from bufdb.what_if.module_choice import Choice
from bufdb.what_if.removal import Answer, Reduction

TARGETS = ("cpu", "gpu", "tpu")
FORWARD = """
SELECT
  held.instruction_name || CASE held.shape_index WHEN '{}' THEN '' ELSE held.shape_index END
FROM value_details AS held
LEFT JOIN value_origin_details AS origins
  ON origins.module_id = held.module_id
  AND origins.value_id = held.value_id
WHERE held.module_id = $1
  AND held.color = 0
  AND held.allocation_kind = 'temp'
  AND held.size_bytes > 0
  AND list_contains($2, coalesce(origins.own_source_line, held.own_source_line))
  AND (NOT $3 OR origins.relation = 'saved ')
  AND coalesce(origins.op_name, held.op_name) NOT LIKE '%transpose(%'
"""
"""Names of the values with some lines, without gradients: all, or only those that loops stack."""
SQL = "\n".join([module_choice.SQL, donation.CANDIDATES, donation.SPANS, removal.SQL, FORWARD])


@dataclass(frozen=True)
class Row:
    """Predicted and measured effects of a change."""

    backend: str
    program: str
    change: str
    peak: int
    """Peak of the unchanged program [bytes], as are all the following."""
    what_if: int
    """Saving at the peak according to bufdb."""
    forward: int
    """The same without gradients, which have the line of their primal values, if the change leaves
    them as they are."""
    real: int
    is_layer_input: bool
    """Whether an input of a scanned layer is dropped."""
    is_bf16: bool
    """Whether something is bfloat16 already."""

    @property
    def kind(self) -> str:
        return self.change.partition(" ")[0]

    @property
    def layers(self) -> str:
        return "scanned" if "_scan" in self.program else "unrolled"

    @property
    def title(self) -> str:
        if self.kind == "drop" and self.is_layer_input:
            return "drop, an input of a scanned layer"
        return f"{self.kind}, layers {self.layers}"

    @property
    def rule(self) -> str:
        """The first rule by which this saves nothing; "" if none holds."""
        return next((name for name, applies in RULES.items() if applies(self)), "")

    @property
    def predicted(self) -> int:
        return 0 if self.rule else self.what_if

    @property
    def error(self) -> float:
        return (self.predicted - self.real) / self.peak


Rule = Callable[[Row], bool]


def unrolled(row: Row, kind: str) -> bool:
    return (row.kind, row.layers) == (kind, "unrolled")


def scanned(row: Row, kind: str) -> bool:
    return (row.kind, row.layers) == (kind, "scanned") and not row.is_bf16


RULES: dict[str, Rule] = {
    "drop, an input of a scanned layer": lambda row: row.kind == "drop" and row.is_layer_input,
    "half, bf16 already": lambda row: row.kind == "half" and row.is_bf16,
    "drop, layers unrolled, CPU": lambda row: row.backend == "cpu" and unrolled(row, "drop"),
    "half, layers scanned, CPU": lambda row: row.backend == "cpu" and scanned(row, "half"),
}
"""Values known to save nothing, by the rule that finds them from a dump and the change."""
TRIED: dict[str, Rule] = {
    "drop, layers unrolled": lambda row: row.backend != "cpu" and unrolled(row, "drop"),
    "drop, an input of an unrolled layer": lambda row: (
        unrolled(row, "drop") and row.change == "drop x"
    ),
    "half, layers scanned": lambda row: row.backend != "cpu" and scanned(row, "half"),
    "half, layers unrolled": lambda row: unrolled(row, "half") and not row.is_bf16,
}
"""Rules that might do the same, counted with them; no prediction uses them."""
PAGE = """# Predicted and measured savings

Written by `recompile.py` with jax {jax} for {backends}: the train steps of `programs/steps.py` with
one change each, compiled again. GPU is an H100 and TPU a v5e, both ahead of time; TPU figures are
HBM, with VMEM left to fusions.

| change | question to bufdb |
|---|---|
| drop a | the array is recomputed: its line without memory; in a scan, its stack |
| half a | it is stored in bfloat16: the same with half of the bytes |
| chunk | logits and loss in {chunks} parts: their line with 1/{chunks} of the bytes |
| donate | weights to new weights |

Bytes. Changes known to save nothing are predicted as 0, all others as what-if says. The error is
the prediction minus the result, as share of the peak; "real of predicted" compares the sums. A
gradient has the line of its value, and drop and half do not remove it: the last column has the
errors if what-if did not remove it either.

{by_kind}

## Changes that save nothing

Of changes for which what-if promises a saving; a rule is true of a change that saved at most a
tenth of it.

{by_rule}

## Each change

{each}
"""


def answer_to(con: DuckDBPyConnection, base: Choice, reduction: Reduction) -> Answer:
    """The answer; what has no temporary memory saves none."""
    with suppress(UsageError):
        return removal.answer(con, base, reduction)
    there = []
    for pattern in reduction.without:
        with suppress(UsageError):
            removal.answer(con, base, Reduction([pattern]))
            there.append(pattern)
    return removal.answer(con, base, replace(reduction, without=there))


def saving(answer: Answer) -> int:
    return answer.choice.peak_bytes - answer.left.peak_bytes


def row_of(con: DuckDBPyConnection, case: Case, base: Choice, left: int) -> Row:
    kind = case.change.partition(" ")[0]
    if kind == "donate":
        forecast = forward = answer_to(con, base, Reduction(donate=["w*"]))
    else:
        keep = {"drop": Fraction(0), "half": Fraction(1, 2), "chunk": Fraction(1, steps.CHUNKS)}
        # What a scanned layer computes is there one layer at a time.
        stacked = "_scan" in case.program and kind != "chunk"
        lines = [int(line.rpartition(":")[2]) for line in case.lines]
        patterns = [f"line:{'saved ' if stacked else ''}*/steps.py:{line}" for line in lines]
        forecast = answer_to(con, base, Reduction(patterns, keep=keep[kind]))
        values = con.execute(FORWARD, [base.module_id, lines, stacked]).fetchall()
        patterns = patterns if kind == "chunk" else [f"value:{name}" for (name,) in values]
        forward = answer_to(con, base, Reduction(patterns, keep=keep[kind]))
    return Row(
        base.run_name,
        case.program,
        case.change,
        base.peak_bytes,
        saving(forecast),
        saving(forward),
        base.peak_bytes - left,
        any(row.is_layer_input for row in forecast.rows),
        any(row.dtype == "bf16" for row in forecast.rows),
    )


def rows_of(
    database: Path, target: str, cases: Sequence[Case], peaks: Mapping[str, int]
) -> list[Row]:
    """Every change of a train step, in the memory space with number 0.

    Args:
        database: holds the programs as they are written.
        target: cpu, gpu or tpu, the name of the run.
        cases: programs and their changes.
        peaks: of all of them, by function.
    """
    con = store.open_readable(str(database), SQL)
    rows, base = [], None
    for case in cases:
        if case.file.name == "steps.py":
            if case.made is None:
                base = module_choice.choose(con, case.function, target, 0)
            else:
                rows.append(row_of(con, case, base, peaks[case.function]))
    return rows


def ninth(errors: Sequence[float]) -> float:
    return sorted(errors)[min(len(errors) - 1, round(0.9 * len(errors)))]


def by_kind(rows: Sequence[Row]) -> Iterable[str]:
    yield (
        "| kind | backend | changes | median | 90th percentile | largest | real of predicted "
        "| median, largest without gradients |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kinds.setdefault((row.title, row.backend), []).append(row)
    for (title, backend), some in sorted(kinds.items()):
        errors = [abs(row.error) for row in some]
        without = [abs((0 if row.rule else row.forward) - row.real) / row.peak for row in some]
        predicted = sum(row.predicted for row in some)
        share = f"{sum(row.real for row in some) / predicted:.0%}" if predicted else ""
        yield (
            f"| {title} | {backend} | {len(some)} | {statistics.median(errors):.1%} "
            f"| {ninth(errors):.1%} | {max(errors):.1%} | {share} "
            f"| {statistics.median(without):.1%}, {max(without):.1%} |"
        )


def by_rule(rows: Sequence[Row]) -> Iterable[str]:
    yield "| rule | backend | changes | true of | used as a rule |"
    yield "|---|---|--:|--:|---|"
    for name, applies in (RULES | TRIED).items():
        for backend in TARGETS:
            some = [
                row for row in rows if row.backend == backend and row.what_if > 0 and applies(row)
            ]
            if some:
                true = sum(row.real <= row.what_if / 10 for row in some)
                taken = "yes" if any(row.rule == name for row in some) else "no"
                yield f"| {name} | {backend} | {len(some)} | {true} | {taken} |"


def each(rows: Sequence[Row]) -> Iterable[str]:
    yield "| backend | program | change | peak | what-if | predicted | real | error |"
    yield "|---|---|---|--:|--:|--:|--:|--:|"
    for row in rows:
        yield (
            f"| {row.backend} | {row.program} | {row.change} | {row.peak} | {row.what_if} "
            f"| {row.predicted} | {row.real} | {row.error:.1%} |"
        )


def page(rows: Sequence[Row], jax: str) -> str:
    """The tables in Markdown."""
    return PAGE.format(
        jax=jax,
        backends=", ".join(dict.fromkeys(row.backend.upper() for row in rows)),
        chunks=steps.CHUNKS,
        by_kind="\n".join(by_kind(rows)),
        by_rule="\n".join(by_rule(rows)),
        each="\n".join(each(rows)),
    )
