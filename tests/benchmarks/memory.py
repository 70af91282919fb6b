"""Measure peak memory of ingesting one large module, and its growth with the size of the text.

    python memory.py DIR/one_300 DIR/one_1000 [--against CHECKOUT]

Each directory holds the dumps of one module, as `make_inputs.py --kind one` makes; the first is
what the others are held to. With another checkout of bufdb both ingest in turn, and what this one
takes of memory and CPU is printed as a share of what the other does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from run import PARTS, Measurement, agree, contents, measure

INGEST = [sys.executable, "-P", "-c", "from bufdb.cli import main; main()", "ingest"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", nargs="+", type=Path, help="directories of one module each")
    parser.add_argument("--against", type=Path, help="another checkout of bufdb, to compare with")
    parser.add_argument("--memory-limit", default="256MB", help="DuckDB's, for bufdb ingest")
    parser.add_argument("--ingest-options", default="", help="further options of bufdb ingest")
    parser.add_argument("--work", type=Path, help="directory for databases (default: temporary)")
    args = parser.parse_args()
    more = ["--memory-limit", args.memory_limit, *args.ingest_options.split()]
    columns = ("input", "text MB", "values", "CPU s", "peak MB", "per GB", "of first", "of other")
    print(("{:>12}" * len(columns)).format(*columns), " CPU of other")
    first = None
    for place in args.inputs:
        text = sum(f.stat().st_size for part in PARTS for f in place.rglob(f"*{part}.txt")) / 1e6
        if not text:
            parser.error(f"no dumps in {place}")
        with tempfile.TemporaryDirectory(prefix="bufdb-memory-", dir=args.work) as work:
            database = Path(work) / "here.duckdb"
            here = measure([*INGEST, str(place), "--db", str(database), *more], database)
            counts, _ = contents(database)
            other = None
            if args.against is not None:
                other_database = Path(work) / "other.duckdb"
                command = [*INGEST, str(place), "--db", str(other_database), *more]
                other = measure(command, other_database, args.against.resolve())
                agree({"this": counts, "other": contents(other_database)[0]})
        first = first or here
        print(line(place.name, text, counts["values"], here, first, other), flush=True)


def line(
    name: str,
    text: float,
    values: int,
    here: Measurement,
    first: Measurement,
    other: Measurement | None,
) -> str:
    """One row of the table."""
    cells = f"{name:>12}{text:12,.0f}{values:12,}{here.cpu:12.1f}{here.rss:12,.0f}"
    cells += f"{1000 * here.rss / text:12,.0f}{here.rss / first.rss:12.2f}"
    if other is None:
        return cells
    return f"{cells}{here.rss / other.rss:12.2f}{here.cpu / other.cpu:14.2f}"


if __name__ == "__main__":
    main()
