"""Compare what `bufdb query scaling` forecasts with what XLA reserves at that size.

Compiles the programs of `growing.py` at many sizes, fits the small ones, and asks for 2, 4 and 16
times the largest of them. GPU is compiled for ahead of time, where the packages for it are
installed (data/README.md names them). Writes tables in Markdown.

    python forecasts.py [--backend cpu ...] [-o forecasts.md]  # needs jax; 4 minutes of CPU
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import duckdb

from bufdb.database import store
from bufdb.query import execute
from bufdb.query.catalogue import Catalogue
from bufdb.resources import query_folder

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "support"))

import small_db  # noqa: E402

NEEDS = {"cpu": "jaxlib", "gpu": "jax_cuda12_plugin"}
# Machine code comes after buffer assignment.
FLAGS = "--xla_backend_optimization_level=0 --xla_gpu_autotune_level=0"
POINTS = (
    (1, 2, 4), (2, 4, 8), (4, 8, 16), (1, 2, 4, 8), (2, 4, 8, 16), (1, 2, 3, 4), (2, 3, 4),
    (4, 6, 8), (8, 12, 16), (2, 4, 6, 8), (4, 6, 8, 12, 16),
)  # fmt: skip
"""Sizes that a user may have, as multiples of a program's smallest."""
DISTANCES = (2, 4, 16)
PAGE = """# Forecasts and results

Written by `forecasts.py` with jax {jax} for {backends}: `bufdb query scaling` gets XLA's need
for the {programs} programs of `growing.py` at small sizes and forecasts 2, 4 and 16 times
the largest of them, which are compiled too. Small sizes, as multiples of a program's smallest:
{points}.
GPU is an H100, ahead of time, with some of the programs.

A result is covered if it is in the range, and above if it exceeds the high end: the forecast says
that it fits, and it does not. The width is the high end divided by the low end, its mean is
geometric. The last columns have the error of the curve alone, as share of the result.

{by_model}

The last row of each distance weighs programs equally: the mean of their shares.

## By distance of the points from their curve

{by_error}

## Each program

{fitted} of {sets} sets of points have a curve. Shares are those of the sets that have one.

{each}
"""


@dataclass(frozen=True)
class Row:
    """A forecast."""

    program: str
    backend: str
    model: str
    max_error: float
    distance: int
    """Ratio of the size to the largest fitted one."""
    low: int
    middle: int
    high: int
    need: int
    """XLA's reservation [bytes], like the three before."""

    @property
    def is_covered(self) -> bool:
        return self.low <= self.need <= self.high

    @property
    def width(self) -> float:
        return self.high / self.low

    @property
    def error(self) -> float:
        return abs(self.middle / self.need - 1)


Needs = dict[tuple[str, str], dict[int, int]]
"""Bytes by multiple of the smallest size, by program and backend."""


def measured(backend: str) -> list[str]:
    """Return the output of `growing.py`."""
    environ = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_FLAGS": FLAGS,
    }
    command = [sys.executable, HERE / "growing.py", backend]
    done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def needs_of(lines: Iterable[str]) -> Needs:
    by_size: Needs = {}
    for line in lines:
        needs = json.loads(line)
        program = by_size.setdefault((needs["program"], needs["backend"]), {})
        program[needs["size"]] = needs["need"]
    return {
        key: {size // min(sizes): need for size, need in sizes.items()}
        for key, sizes in by_size.items()
    }


def fill(con: duckdb.DuckDBPyConnection, needs: Needs) -> None:
    """A run for each program, set of points and size; the set is a label."""
    module_id = 0
    with small_db.in_bulk(con):
        for (program, backend), by_size in needs.items():
            for points in POINTS:
                for size in points:
                    module_id += 1
                    run = f"r{module_id}"
                    cells = {"function_name": program, "platform": backend}
                    module = small_db.Module(con, module_id, run, **cells)
                    module.allocation(0, "output", by_size[size])
                    module.close()
                    for label, value in (("size", size), ("points", points)):
                        cells = {"label": label, "label_value": str(value).replace(" ", "")}
                        small_db.insert(con, "run_labels", run_name=run, **cells)
    small_db.derive(con)


def rows_of(con: duckdb.DuckDBPyConnection, needs: Needs) -> list[Row]:
    query = Catalogue([query_folder()]).find("scaling")
    names = [column.name for column in query.columns]
    rows = []
    for size in sorted({points[-1] * distance for points in POINTS for distance in DISTANCES}):
        values = {"label": "size", "size": str(size), "top_n": 10**6}
        for row in execute.execute_query(con, query, values).rows:
            cells = dict(zip(names, row, strict=True))
            distance, rest = divmod(size, int(cells["max_size"]))
            if cells["model"] is None or rest or distance not in DISTANCES:
                continue
            program, backend = cells["function_name"], cells["platform"]
            ends = (cells[f"{end}predicted_bytes"] for end in ("low_", "", "high_"))
            error = cells["max_error_ratio"]
            need = needs[program, backend][size]
            rows.append(Row(program, backend, cells["model"], error, distance, *ends, need))
    return rows


def share(rows: Sequence[Row]) -> float:
    return sum(row.is_covered for row in rows) / len(rows)


def by_program(rows: Sequence[Row]) -> list[list[Row]]:
    by_name: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_name.setdefault((row.program, row.backend), []).append(row)
    return list(by_name.values())


def cells(rows: Sequence[Row]) -> str:
    widths, errors = [row.width for row in rows], [row.error for row in rows]
    tenth = statistics.quantiles(widths, n=10)[-1] if len(rows) > 1 else widths[0]
    last = statistics.quantiles(errors, n=10)[-1] if len(rows) > 1 else errors[0]
    above = sum(row.need > row.high for row in rows) / len(rows)
    return (
        f"{len(rows)} | {share(rows):.1%} | {above:.1%} | {statistics.median(widths):.2f} "
        f"| {statistics.geometric_mean(widths):.2f} | {tenth:.1f} "
        f"| {statistics.median(errors):.1%} | {last:.1%}"
    )


HEAD = "forecasts | covered | above | median width | mean | 90th percentile | error: median | 90th"


def by_model(rows: Sequence[Row]) -> Iterable[str]:
    yield f"| distance | model | backend | {HEAD} |"
    yield "|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for distance in DISTANCES:
        far = [row for row in rows if row.distance == distance]
        for model, backend in sorted({(row.model, row.backend) for row in far}):
            some = [row for row in far if (row.model, row.backend) == (model, backend)]
            yield f"| {distance} | {model} | {backend} | {cells(some)} |"
        yield f"| {distance} | all | all | {cells(far)} |"
        mean = statistics.mean(share(some) for some in by_program(far))
        count = len(by_program(far))
        yield f"| {distance} | all, by program | all | {count} | {mean:.1%} | | | | | | |"


def by_error(rows: Sequence[Row]) -> Iterable[str]:
    yield f"| within | distance | {HEAD} |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    steps = ((0, 0.0001), (0.0001, 0.005), (0.005, 1))
    for least, most in steps:
        for distance in DISTANCES:
            some = [
                row for row in rows if row.distance == distance and least <= row.max_error < most
            ]
            if some:
                yield f"| {least:.2%} to {min(most, 0.02):.2%} | {distance} | {cells(some)} |"


def each(rows: Sequence[Row]) -> Iterable[str]:
    yield "| program, size | backend | sets | covered at 2 | 4 | 16 | median width at 2 | 4 | 16 |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for some in by_program(rows):
        far = [[row for row in some if row.distance == distance] for distance in DISTANCES]
        covered = " | ".join(f"{share(rows):.0%}" for rows in far)
        widths = " | ".join(f"{statistics.median(row.width for row in rows):.2f}" for rows in far)
        yield (f"| {some[0].program} | {some[0].backend} | {len(far[0])} | {covered} | {widths} |")


def page(rows: Sequence[Row], needs: Needs) -> str:
    """The tables in Markdown."""
    return PAGE.format(
        jax=version("jax"),
        backends=", ".join(dict.fromkeys(backend.upper() for _, backend in needs)),
        programs=len({program for program, _ in needs}),
        points="; ".join(", ".join(map(str, points)) for points in POINTS),
        by_model="\n".join(by_model(rows)),
        by_error="\n".join(by_error(rows)),
        fitted=len(rows) // len(DISTANCES),
        sets=len(needs) * len(POINTS),
        each="\n".join(each(rows)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=NEEDS, action="append", help="default: what is there")
    parser.add_argument("-o", "--output", type=Path, default=HERE / "forecasts.md")
    parser.add_argument("--keep", type=Path, help="file for what was measured, read if it is there")
    args = parser.parse_args()
    if args.keep is not None and args.keep.exists():
        lines = args.keep.read_text(encoding="utf-8").splitlines()
    else:
        lines = []
        for name in args.backend or NEEDS:
            if find_spec(NEEDS[name]) is None:
                print(f"left out: {name}, which needs {NEEDS[name]}", file=sys.stderr)
                continue
            lines += measured(name)
        if args.keep is not None:
            args.keep.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    needs = needs_of(lines)
    with store.open_empty() as con:
        fill(con, needs)
        rows = rows_of(con, needs)
    text = page(rows, needs)
    args.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
