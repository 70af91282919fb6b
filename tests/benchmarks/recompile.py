"""What `bufdb what-if` predicts, beside what XLA makes of the changed program.

Compiles the train steps of `changes.py` on the CPU, each once as it is and once for each array that
is given up, and compares the peaks. What is known to save nothing is predicted as 0: inputs of a
scanned layer (value_origins.is_layer_input), what is bf16 already, and checkpoints of unrolled
layers, where the CPU compiler merges what is computed again. Writes a table in Markdown.

    python recompile.py [-o recompiled.md]      # needs jax; 3 minutes
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

from bufdb.database import store
from bufdb.errors import BufdbError
from bufdb.ingest.ingest import ingest
from bufdb.what_if import answer, choice, donation

HERE = Path(__file__).resolve().parent
CHANGES = {
    "mlp_scan": {"drop": "abcdx", "half": "abcd"},
    "attention_scan": {"drop": "yqkvpozuhx", "half": "ypuh"},
    "mlp_unrolled": {"drop": "abcd", "half": "ac"},
    "attention_unrolled": {"drop": "qpuh", "half": "pu"},
}


def compile_all(folder: Path) -> None:
    given = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    for program, changes in CHANGES.items():
        pairs = [(kind, name) for kind, names in changes.items() for name in names]
        for change, name in [("base", ""), *pairs]:
            dumps = folder / f"{program}-{change}{name}"
            given["XLA_FLAGS"] = f"--xla_dump_to={dumps}"
            command = [sys.executable, HERE / "changes.py", program, change, name]
            subprocess.run(command, env=given, check=True)
    ingest(str(folder / "t.duckdb"), sorted(folder.iterdir()))


def line_of(layer: str, name: str) -> int:
    """The line on which a layer gives an array its name."""
    text = (HERE / "changes.py").read_text(encoding="utf-8")
    start = text.index(f"def {layer}(")
    end = text.index(f', "{name}")', start)
    return text.count("\n", 0, end) + 1


def predict(con, program: str, change: str, name: str) -> int:
    line = line_of(program.partition("_")[0], name)
    keep = Fraction(1, 2) if change == "half" else Fraction(0)
    stacked = "saved *" if program.endswith("scan") else "*"
    chosen = choice.choose(con, "step", f"{program}-base", None)
    asked = answer.Asked(without=[f"line:{stacked}/changes.py:{line}"], keep=keep)
    try:
        found = answer.answer(con, chosen, asked)
    except BufdbError:  # nothing of that line is there to be taken
        return 0
    if (
        any(row.is_layer_input for row in found.rows)
        or (change == "half" and any(row.dtype == "bf16" for row in found.rows))
        or (change == "drop" and program.endswith("unrolled"))
    ):
        return 0
    return chosen.peak_bytes - found.left.peak_bytes


def rows_of(folder: Path) -> list[tuple[str, str, str, int, int, int]]:
    sql = "\n".join([choice.SQL, donation.CANDIDATES, donation.SPANS, answer.SQL])
    con = store.open_readable(str(folder / "t.duckdb"), sql)
    found = con.execute(
        "SELECT run_name, max(peak_bytes) FROM memory_figures "
        "WHERE function_name = 'step' GROUP BY run_name"
    )
    peaks = dict(found.fetchall())
    rows = []
    for program, changes in CHANGES.items():
        base = peaks[f"{program}-base"]
        for change, names in changes.items():
            for name in names:
                real = base - peaks[f"{program}-{change}{name}"]
                rows.append(
                    (program, change, name, base, predict(con, program, change, name), real)
                )
    return rows


def table(rows: list[tuple[str, str, str, int, int, int]], version: str) -> str:
    lines = [
        "# What was predicted, and what came of it",
        "",
        f"Written by `recompile.py` with jax {version} on the CPU: one array of a train step is",
        "computed again (drop) or kept in bfloat16 (half), and the step compiled again. Bytes; the",
        "error is the difference as share of the peak.",
        "",
        "| kind | changes | median | 90th percentile | largest |",
        "|---|--:|--:|--:|--:|",
    ]
    kinds: dict[str, list[float]] = {}
    for program, change, _, base, predicted, real in rows:
        kind = f"{change}, layers {'scanned' if program.endswith('scan') else 'unrolled'}"
        kinds.setdefault(kind, []).append(abs(predicted - real) / base)
    for kind, errors in kinds.items():
        ninth = sorted(errors)[min(len(errors) - 1, round(0.9 * len(errors)))]
        median = statistics.median(errors)
        lines.append(f"| {kind} | {len(errors)} | {median:.1%} | {ninth:.1%} | {max(errors):.1%} |")
    lines += [
        "",
        "| program | change | peak | predicted | real | error |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for program, change, name, base, predicted, real in rows:
        error = (predicted - real) / base
        lines.append(
            f"| {program} | {change} {name} | {base} | {predicted} | {real} | {error:.1%} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=HERE / "recompiled.md")
    parser.add_argument("--keep", type=Path, help="directory for the dumps, used again if there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        if not (folder / "t.duckdb").exists():
            folder.mkdir(exist_ok=True)
            compile_all(folder)
        version = subprocess.run(
            [sys.executable, "-c", "import jax; print(jax.__version__)"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        text = table(rows_of(folder), version)
    assert not re.search("nan", text)
    args.output.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
