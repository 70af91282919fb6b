"""What `bufdb what-if` predicts, beside what XLA makes of the changed program.

Compiles the train steps of `changes.py`, each as it is and with each change, and compares the
peaks. GPU and TPU are compiled for ahead of time, where the packages for it are installed
(data/README.md names them). Writes tables in Markdown.

    python recompile.py [--backend cpu ...] [-o recompiled.md]  # needs jax; 9 minutes of CPU
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import changes
import figures
from duckdb import DuckDBPyConnection

from bufdb.database import store
from bufdb.errors import UsageError
from bufdb.ingest.ingest import ingest
from bufdb.what_if import answer, choice, donation
from bufdb.what_if.answer import Answer, Asked
from bufdb.what_if.choice import Choice

HERE = Path(__file__).resolve().parent
NEEDS = {"cpu": "jaxlib", "gpu": "jax_cuda12_plugin", "tpu": "libtpu"}
FLAGS = {"cpu": "", "gpu": "--xla_gpu_autotune_level=0", "tpu": ""}
# Machine code comes after buffer assignment.
QUICKLY = "--xla_backend_optimization_level=0"
# All of VMEM is for fusions, so that programs this small have their arrays in HBM.
TPU_FLAGS = "--xla_tpu_scoped_vmem_limit_kib=131072"
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
"""Names of the values that bear some lines, without gradients; of all, or of what loops stack."""
SQL = "\n".join([choice.SQL, donation.CANDIDATES, donation.SPANS, answer.SQL, FORWARD])


@dataclass(frozen=True)
class Row:
    """A change, as it was predicted and as it came."""

    backend: str
    program: str
    change: str
    peak: int
    """Of the program as it is [bytes], as all that follows."""
    what_if: int
    """By how much the peak falls, as bufdb says."""
    forward: int
    """The same without gradients, which bear the line of what they are gradients of, if the change
    leaves them as they are."""
    real: int
    is_layer_input: bool
    """Whether an input of a scanned layer is given up."""
    is_bf16: bool
    """Whether something is in bfloat16 already."""

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
"""What is known to save nothing, by what tells it from a dump and the change."""
TRIED: dict[str, Rule] = {
    "drop, layers unrolled": lambda row: row.backend != "cpu" and unrolled(row, "drop"),
    "drop, an input of an unrolled layer": lambda row: (
        unrolled(row, "drop") and row.change == "drop x"
    ),
    "half, layers scanned": lambda row: row.backend != "cpu" and scanned(row, "half"),
    "half, layers unrolled": lambda row: unrolled(row, "half") and not row.is_bf16,
}
"""What might, counted beside them; no prediction goes by it."""
PAGE = """# What was predicted, and what came of it

Written by `recompile.py` with jax {jax} for {backends}: the train steps of `changes.py` with one
change each, compiled again. GPU is an H100 and TPU a v5e, both ahead of time; of the TPU it is HBM,
with VMEM left to fusions.

| change | what is asked of bufdb |
|---|---|
| drop a | the array is computed again: its line without memory; of a scan, what it stacks for it |
| half a | it is kept in bfloat16: the same with half of the bytes |
| chunk | logits and loss in {chunks} parts: their line with 1/{chunks} of the bytes |
| donate | weights to new weights |

Bytes. What is known to save nothing is predicted as 0, all else as what-if says. The error is what
was predicted less what came, as share of the peak; "real of predicted" is of the sums. Gradients
bear the line of what they are gradients of, and drop and half leave them: the last column has the
errors if what-if left them as well.

{by_kind}

## What saves nothing

Counted are changes of which what-if promises something; a rule is true of one that brought no more
than a tenth of it.

{by_rule}

## Each change

{each}
"""


def compile_all(backend: str, folder: Path) -> None:
    """Compile the programs, dumps in folder/backend."""
    given = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TPU_LOG_DIR": "disabled",
        "LIBTPU_INIT_ARGS": TPU_FLAGS,
        "XLA_FLAGS": f"--xla_dump_to={folder / backend} {QUICKLY} {FLAGS[backend]}",
    }
    subprocess.run([sys.executable, HERE / "changes.py", backend], env=given, check=True)


def line_of(function: str, name: str) -> int:
    """The line on which a function gives an array its name."""
    text = (HERE / "changes.py").read_text(encoding="utf-8")
    start = text.index(f"def {function}(")
    end = text.index(f'"{name}")', start)
    return text.count("\n", 0, end) + 1


def lines_of(program: str, names: str) -> list[int]:
    _, layer, _ = changes.programs()[program]
    functions = {"logits": "score"}
    return [line_of(functions.get(name, layer.__name__), name) for name in names.split("+")]


def answer_to(con: DuckDBPyConnection, base: Choice, asked: Asked) -> Answer:
    """The answer; what has no temporary memory saves none."""
    with suppress(UsageError):
        return answer.answer(con, base, asked)
    there = []
    for pattern in asked.without:
        with suppress(UsageError):
            answer.answer(con, base, Asked([pattern]))
            there.append(pattern)
    return answer.answer(con, base, replace(asked, without=there))


def saving(found: Answer) -> int:
    return found.choice.peak_bytes - found.left.peak_bytes


def row_of(con: DuckDBPyConnection, program: str, change: str, base: Choice, left: int) -> Row:
    kind, _, names = change.partition(" ")
    if kind == "donate":
        found = forward = answer_to(con, base, Asked(donate=["w*"]))
    else:
        keep = {"drop": Fraction(0), "half": Fraction(1, 2), "chunk": Fraction(1, changes.CHUNKS)}
        # What a scanned layer computes is there one layer at a time.
        stacked = "_scan" in program and kind != "chunk"
        lines = lines_of(program, names or "logits")
        patterns = [f"line:{'saved ' if stacked else ''}*/changes.py:{line}" for line in lines]
        found = answer_to(con, base, Asked(patterns, keep=keep[kind]))
        values = con.execute(FORWARD, [base.module_id, lines, stacked]).fetchall()
        patterns = patterns if kind == "chunk" else [f"value:{name}" for (name,) in values]
        forward = answer_to(con, base, Asked(patterns, keep=keep[kind]))
    return Row(
        base.run_name,
        program,
        change,
        base.peak_bytes,
        saving(found),
        saving(forward),
        base.peak_bytes - left,
        any(row.is_layer_input for row in found.rows),
        any(row.dtype == "bf16" for row in found.rows),
    )


def rows_of(database: Path, backend: str) -> list[Row]:
    """Every change of a backend, in the memory space with number 0."""
    con = store.open_readable(str(database), SQL)
    rows = []
    for program, (_, layer, vocabulary) in changes.programs().items():
        names = changes.changes(layer, vocabulary)
        base, *others = (
            choice.choose(con, changes.function_name(program, change), backend, 0)
            for change in ["base", *names]
        )
        rows += [
            row_of(con, program, change, base, other.peak_bytes)
            for change, other in zip(names, others, strict=True)
        ]
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
    yield "| what saves nothing | backend | changes | true of | taken for a rule |"
    yield "|---|---|--:|--:|---|"
    for name, applies in (RULES | TRIED).items():
        for backend in NEEDS:
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


def page(rows: Sequence[Row]) -> str:
    """The tables in Markdown."""
    return PAGE.format(
        jax=version("jax"),
        backends=", ".join(dict.fromkeys(row.backend.upper() for row in rows)),
        chunks=changes.CHUNKS,
        by_kind="\n".join(by_kind(rows)),
        by_rule="\n".join(by_rule(rows)),
        each="\n".join(each(rows)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=NEEDS, action="append", help="default: what is there")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "recompiled.md")
    parser.add_argument("--keep", type=Path, help="directory for the dumps, used again if there")
    args = parser.parse_args()
    missing = {name: package for name, package in NEEDS.items() if find_spec(package) is None}
    for name in args.backend or missing:
        if name in missing:
            print(f"left out: {name}, which needs {missing[name]}", file=sys.stderr)
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        for backend in args.backend or NEEDS:
            if backend in missing:
                continue
            if not (folder / backend).exists():
                compile_all(backend, folder)
            ingest(str(folder / "t.duckdb"), [folder / backend])
            rows += rows_of(folder / "t.duckdb", backend)
    text = page(rows)
    args.output.write_text(text, encoding="utf-8")
    if len({row.backend for row in rows}) == len(NEEDS):
        figures.write(text)
    print(text)


if __name__ == "__main__":
    main()
