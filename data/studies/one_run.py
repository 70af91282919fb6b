"""Compare the cost of an answer about one run in a database of many runs and in one of that run.

    python one_run.py [QUERY...] [--runs 30]

`data/demo` is ingested as one run, as two, and as many runs in another database. Each saved query
is asked for one run, each query that compares two runs for the first two, in both databases by
turns. What is counted is the CPU of opening the database and answering, in this process; the best
of five times, of the query's own parameters the defaults.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from bufdb import resources
from bufdb.database import store
from bufdb.ingest.ingest import ingest
from bufdb.query import catalogue, execute
from bufdb.query.header import SavedQuery

DEMO = Path(__file__).parents[1] / "demo"
RUNS = "run_{:03d}".format
REPETITIONS = 5


def seconds(database: Path, query: SavedQuery, params: dict[str, str]) -> float:
    began = time.process_time()
    values = execute.bind(query, params)
    con = store.open_readable(str(database), query.sql, runs=execute.runs_asked(values))
    execute.execute_query(con, query, values)
    con.close()
    return time.process_time() - began


def compare(names: list[str], runs: int, folder: Path) -> None:
    databases = {count: folder / f"{count}.duckdb" for count in (1, 2, runs)}
    for count, path in databases.items():
        for number in range(count):
            ingest(str(path), [DEMO], run=RUNS(number))
    print("| query | alone ms | among others ms | ratio |\n|---|--:|--:|--:|")
    ratios = []
    for query in catalogue.Catalogue([resources.query_folder()]).load_all():
        params = {param.name for param in query.params}
        if (names and query.name not in names) or not params & {"run", "new"}:
            continue
        chosen_runs = {"run": RUNS(0)} if "run" in params else {"base": RUNS(0), "new": RUNS(1)}
        few = databases[1 if "run" in params else 2]
        times = [
            (seconds(few, query, chosen_runs), seconds(databases[runs], query, chosen_runs))
            for _ in range(REPETITIONS)
        ]
        alone, among = (1000 * min(side) for side in zip(*times, strict=True))
        ratios.append(among / alone)
        print(f"| {query.name} | {alone:.0f} | {among:.0f} | {among / alone:.2f} |", flush=True)
    over = sum(ratio > 2 for ratio in ratios)
    print(f"\nmedian {statistics.median(ratios):.2f}, largest {max(ratios):.2f}, {over} over 2")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="queries; default: all")
    parser.add_argument("--runs", type=int, default=30, help="runs of the large database")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        compare(args.names, args.runs, Path(name))
