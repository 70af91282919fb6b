"""Compare the cost of an answer about one run in a database of many runs and in one of that run.

The dumps of a directory are ingested as one run, and as many runs in another database. Each saved
query is asked for that run, each query that compares two runs for the first two, in both databases
by turns. What is counted is the CPU of opening the database and answering, in this process; the
best of some times, of the query's own parameters the defaults.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from run import machine

from bufdb import resources
from bufdb.database import store
from bufdb.ingest.ingest import ingest
from bufdb.query import catalogue, execute
from bufdb.query.header import SavedQuery

RUNS = "run_{:03d}".format


def seconds(database: Path, query: SavedQuery, params: dict[str, str]) -> float:
    began = time.process_time()
    values = execute.bind(query, params)
    con = store.open_readable(str(database), query.sql, runs=execute.runs_asked(values))
    execute.execute_query(con, query, values)
    con.close()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dumps", type=Path, help="directory of dumps, all of one run")
    parser.add_argument("names", nargs="*", help="queries; default: all")
    parser.add_argument("--runs", type=int, default=30, help="runs of the large database")
    parser.add_argument(
        "--keep", type=Path, help="directory for the databases, used again if there"
    )
    parser.add_argument("-n", "--repetitions", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(args, args.keep or Path(folder))


def compare(args: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    databases = {count: folder / f"{count}.duckdb" for count in (1, 2, args.runs)}
    for count, path in databases.items():
        if not path.exists():
            for number in range(count):
                ingest(str(path), [args.dumps], run=RUNS(number))
    print(machine())
    print("\n| query | alone ms | among others ms | ratio |\n|---|--:|--:|--:|")
    ratios = []
    for query in catalogue.Catalogue([resources.query_folder()]).load_all():
        params = {param.name for param in query.params}
        if (args.names and query.name not in args.names) or not params & {"run", "new"}:
            continue
        chosen_runs = {"run": RUNS(0)} if "run" in params else {"base": RUNS(0), "new": RUNS(1)}
        few = databases[1 if "run" in params else 2]
        times = [
            (seconds(few, query, chosen_runs), seconds(databases[args.runs], query, chosen_runs))
            for _ in range(args.repetitions)
        ]
        alone, among = (1000 * min(side) for side in zip(*times, strict=True))
        ratios.append(among / alone)
        print(f"| {query.name} | {alone:.0f} | {among:.0f} | {among / alone:.2f} |", flush=True)
    over = sum(ratio > 2 for ratio in ratios)
    print(f"\nmedian {statistics.median(ratios):.2f}, largest {max(ratios):.2f}, {over} over 2")


if __name__ == "__main__":
    main()
