"""Examples at the end of each command's --help; tests/commands/test_examples.py runs them."""

from __future__ import annotations

import click

EXAMPLES = {
    "ingest": (
        "bufdb ingest data/demo --run-from-dir",
        "bufdb ingest data/demo/cpu_b16 --run base --label batch=16",
        "bufdb ingest data/demo --run-from-dir --out dataset",
    ),
    "capture": (
        "bufdb capture --run base -- python train.py",
        "bufdb capture --sweep batch=8,16,32 --limit 16GiB -- python train.py --batch {batch}",
    ),
    "explain": (
        "bufdb explain train.py:step --args 'f32[1024,1024], f32[32,1024]'",
        "bufdb explain train.py:step --args 'state(), batch(8)' --target tpu:v5e:2x2",
    ),
    "summary": (
        "bufdb summary",
        "bufdb summary --run gpu_b8 --limit 16GiB",
        "bufdb summary --run cpu_b16 --function eval_step --format json",
    ),
    "show": (
        "bufdb show",
        "bufdb show train_step --run gpu_b8 --peak 2",
        "bufdb show init --run cpu_b8 --by op",
    ),
    "report": (
        "bufdb report --run gpu_b8 -o report.html",
        "bufdb report --run cpu_b8 --diff cpu_b8_remat --limit 16GiB -o report.html",
    ),
    "query": (
        "bufdb query advice",
        "bufdb query peak --run gpu_b8 --function train_step --top 5",
        "bufdb query peak-by -p run gpu_b8 -p loops carrier --format csv",
    ),
    "queries": ("bufdb queries", "bufdb queries --format json"),
    "sql": (
        "bufdb sql 'SELECT run_name, function_name, peak_bytes FROM memory_figures'",
        "bufdb sql 'SELECT count(*) AS value_count FROM value_details' --format csv",
    ),
    "schema": (
        "bufdb schema --brief",
        "bufdb schema modules value_details",
        "bufdb schema --format json",
    ),
    "check": ("bufdb check", "bufdb check --examples 10 --format json"),
    "runs": ("bufdb runs", "bufdb runs --help"),
    "runs list": ("bufdb runs list", "bufdb runs list --format json"),
    "runs label": (
        "bufdb runs label cpu_b8 batch=8",
        "bufdb runs label gpu_b8 device='TPU v5e' --metadata",
    ),
    "runs unlabel": ("bufdb runs unlabel cpu_b8 batch", "bufdb runs unlabel gpu_b8 device"),
    "runs remove": ("bufdb runs remove base", "bufdb runs remove cpu_b8 cpu_b16"),
    "compact": ("bufdb compact dataset", "bufdb compact dataset --grace 0"),
    "budget": (
        "bufdb budget budget.toml --run cpu_b8",
        "bufdb budget budget.toml --run cpu_b8 --base cpu_b8_remat --format markdown",
    ),
    "diff": (
        "bufdb diff cpu_b8_remat cpu_b8",
        "bufdb diff cpu_b8 cpu_b16 --function train_step --by source --top 5",
        "bufdb diff cpu_b8_remat cpu_b8 --format markdown -o diff.md",
    ),
    "what-if": (
        "bufdb what-if train_step --run gpu_b8 --without line:train.py:66",
        "bufdb what-if train_step --run gpu_b8 --keep 1/8 --without 'line:saved *train.py:65'",
        "bufdb what-if train_step --run cpu_b8 --until 5MiB",
    ),
    "advice": (
        "bufdb advice",
        "bufdb advice train_step --run gpu_b8 --code",
    ),
    "export": (
        "bufdb export --format parquet -o tables",
        "bufdb export --format speedscope --run gpu_b8 --function train_step -o peak.json",
        "bufdb export --format bundle --run cpu_b8 --anonymize -o bug.duckdb",
    ),
    "mcp": ("bufdb mcp", "bufdb mcp --db runs.duckdb"),
    "lint": ("bufdb lint", "bufdb lint query.sql"),
}
"""Commands as they are typed, by command."""


def with_examples(command: click.Command, name: str) -> click.Command:
    """The command, its examples at the end of its help, and so those below it."""
    lines = "".join(f"\n  {line}" for line in EXAMPLES.get(name, ()))
    if lines:
        before = f"{command.epilog}\n\n" if command.epilog else ""
        command.epilog = f"{before}\b\nExamples:{lines}"
    for below, part in getattr(command, "commands", {}).items():
        with_examples(part, f"{name} {below}")
    return command
