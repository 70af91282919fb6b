"""A module's rows depend on its own files alone.

Dumps, whole and damaged, are ingested together: in any order and grouping, in blocks of any size
(tiny ones make every module a large one, read in rounds), with one job or two. Every module must
have row for row what it has when it is ingested alone with default blocks.

A few hundred cases run with every test run. Thousands on demand:

    python tests/support/isolation.py --cases 5000      # each case is its own number
    python tests/support/isolation.py --case 1234       # one case again, in full
    python tests/support/isolation.py --dumps 100000    # many damaged dumps, in bulk
    python tests/support/isolation.py --dump 17055      # one again, in blocks of all sizes
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
from damage import Sample, damage, samples
from ingesting import ingest_into

from bufdb.database import store
from bufdb.errors import UsageError
from bufdb.ingest.ingest import ingest
from bufdb.ingest.rows import MODULE_TABLES

POOL = 48
"""Damaged and whole dumps that the cases of a chunk are made of."""
CASES_PER_POOL = 30
DEFAULT = 10 << 20
TINY = (200, 300, 500, 1000, 2000, 5000)
FOLDER = re.compile(r"\bd\d/")
RUN = "r"

Content = dict[str, tuple[int, int]]
"""Per table the number of a module's rows and the sum of their hashes."""


@dataclass(frozen=True)
class Dump:
    """A sample as some accident left it."""

    sample: Sample
    accident: int

    @property
    def number(self) -> int:
        """The module number of its files, which no other dump has."""
        return 1000 + self.accident * 1000 + self.sample.number

    @property
    def description(self) -> str:
        """Describe the sample and its damage."""
        return f"{self.sample.name}, accident {self.accident}: {self.files[1]}"

    @property
    def files(self) -> tuple[dict[str, bytes], str]:
        """Return its files by name, and what happened to them."""
        files, damages = damage(self.sample, self.accident)
        return self.sample.renamed(self.number, files), damages

    def put(self, folder: Path) -> None:
        """Write the dump's files."""
        folder.mkdir(exist_ok=True)
        for name, text in self.files[0].items():
            (folder / name).write_bytes(text)


@dataclass
class Difference:
    """A module that is not as it is alone."""

    dump: str
    tables: list[str]
    rows: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n    ".join([f"{self.dump}\n    differs in {', '.join(self.tables)}", *self.rows])


# -- what the database holds -----------------------------------------------------------------------


class Base:
    """A database in memory that is emptied between ingests: to make one costs 0.15 s."""

    def __init__(self) -> None:
        self.con = store.open_writable(":memory:")
        columns = self.con.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal "
            "AND table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY ALL"
        ).fetchall()
        self.columns: dict[str, list[str]] = {}
        for table, column in columns:
            self.columns.setdefault(table, []).append(column)

    def empty(self) -> None:
        for table in self.columns:
            if table not in ("schema_info", "memory_spaces", "op_categories", "role_rules"):
                self.con.execute(f'DELETE FROM "{table}"')

    def ingest(self, folder: Path, block_bytes: int = DEFAULT) -> None:
        """The folder as the only run of the database."""
        self.empty()
        try:
            ingest_into(self.con, folder, RUN, block_bytes)
        except UsageError as error:  # renamed files, so damaged that nothing is recognized
            if "no buffer assignment" not in str(error):
                raise
        except BaseException:
            self.con.close()
            self.con = store.open_writable(":memory:")
            raise


@cache
def base() -> Base:
    return Base()


def contents(con: duckdb.DuckDBPyConnection) -> dict[int, Content]:
    """Every module by its number."""
    numbers = numbers_of(con)
    modules: dict[int, Content] = {number: {} for number in numbers.values()}
    for table, module_id, count, total in con.execute(_contents_query()).fetchall():
        number = numbers.get(module_id, -1)
        modules.setdefault(number, {})[table] = (count, total)
    return modules


def numbers_of(con: duckdb.DuckDBPyConnection) -> dict[int, int]:
    """The number in the files' names by module_id: a module's name in these tests."""
    rows = con.execute("SELECT module_id, module_key FROM modules").fetchall()
    return {module_id: number_in(key) for module_id, key in rows}


def number_in(key: str) -> int:
    match = re.match(r"(?:\d+\.)?(?:module_)?(\d+)", key.rpartition("/")[2])
    assert match is not None, key
    return int(match[1])


@cache
def _contents_query() -> str:
    parts = []
    for table in MODULE_TABLES:
        names = [_normal(n) for n in base().columns[table] if n not in ("module_id", "run_name")]
        where = "WHERE module_id IS NOT NULL" if table == "diagnostics" else ""
        parts.append(
            f"SELECT '{table}', module_id, count(*), sum(hash({', '.join(names)})) "
            f'FROM "{table}" {where} GROUP BY module_id'
        )
    used = (
        'SELECT "values".module_id, shapes.* FROM "values" '
        'LEFT JOIN shapes ON shapes.shape = "values".shape'
    )
    names = [f'"{name}"' for name in base().columns["shapes"]]
    parts.append(
        f"SELECT 'shapes', module_id, count(*), sum(hash({', '.join(names)})) "
        f"FROM ({used}) GROUP BY module_id"
    )
    return " UNION ALL ".join(parts)


def _normal(column: str) -> str:
    """A column as it is compared: file names without the folder, which is no part of a dump."""
    if column in ("path", "module_key", "message"):
        return f"regexp_replace(\"{column}\", '\\bd[0-9]/', '', 'g')"
    return f'"{column}"'


def rows_of(con: duckdb.DuckDBPyConnection, table: str, number: int) -> Counter[str]:
    """The rows of one module, for people."""
    names = [_normal(n) for n in base().columns[table] if n not in ("module_id", "run_name")]
    ids = [module_id for module_id, n in numbers_of(con).items() if n == number]
    sql = f'SELECT {", ".join(names)} FROM "{table}" WHERE module_id IN (SELECT unnest(?))'
    if table == "shapes":
        sql = (
            'SELECT DISTINCT shapes.* FROM "values" LEFT JOIN shapes '
            'ON shapes.shape = "values".shape WHERE module_id IN (SELECT unnest(?))'
        )
    return Counter(repr(row) for row in con.execute(sql, [ids]).fetchall())


# -- alone and together ----------------------------------------------------------------------------


@cache
def alone(dump: Dump) -> Content:
    """Return a dump's rows when ingested alone; none if no file of it is recognized."""
    ingest_alone(dump)
    modules = contents(base().con)
    if not modules and not dump.sample.has_xla_names:
        return {}
    assert list(modules) == [dump.number], f"{dump.description}: modules {list(modules)}"
    return modules[dump.number]


def ingest_alone(dump: Dump) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dump.put(Path(folder) / "d0")
        base().ingest(Path(folder))


@dataclass
class Case:
    """Some dumps, how they lie in folders and how they are ingested."""

    number: int
    folders: list[list[Dump]]
    block_bytes: int
    jobs: int

    def __str__(self) -> str:
        lines = [f"case {self.number}: block_bytes={self.block_bytes}, jobs={self.jobs}"]
        for n, dumps in enumerate(self.folders):
            lines += [f"  d{n}: {dump.description}" for dump in dumps]
        return "\n".join(
            [*lines, f"  again: python tests/support/isolation.py --case {self.number}"]
        )

    def put(self, folder: Path) -> None:
        """Write the files."""
        for n, dumps in enumerate(self.folders):
            for dump in dumps:
                dump.put(folder / f"d{n}")

    def dumps(self) -> Iterator[Dump]:
        """All of them."""
        for dumps in self.folders:
            yield from dumps


@cache
def pool(number: int) -> list[Dump]:
    """Return dumps for some cases: a small pool, so that few must be ingested alone."""
    rng = random.Random(f"pool {number}")
    pairs: set[tuple[int, int]] = set()
    while len(pairs) < POOL:
        sample = rng.choice(samples()).number
        pairs.add((sample, 0 if rng.random() < 0.35 else rng.randrange(1, 1_000_000)))
    return [Dump(samples()[sample], accident) for sample, accident in sorted(pairs)]


def case(number: int) -> Case:
    """A case is its number."""
    rng = random.Random(f"case {number}")
    dumps = rng.sample(pool(number // CASES_PER_POOL), rng.choice((2, 3, 4, 5, 8)))
    folders: list[list[Dump]] = [[] for _ in range(rng.choice((1, 1, 2, 3, 8)))]
    for dump in dumps:
        rng.choice(folders).append(dump)
    block_bytes = rng.choice((DEFAULT, DEFAULT, 20_000, rng.randrange(1, 40_000), rng.choice(TINY)))
    return Case(number, folders, block_bytes, 2 if rng.random() < 0.05 else 1)


def together(some: Case) -> list[Difference]:
    """Ingest a case; the modules that are not what they are alone."""
    expected = {dump.number: (dump, alone(dump)) for dump in some.dumps()}
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder) / "dumps"
        dumps.mkdir()
        some.put(dumps)
        if some.jobs == 1:
            base().ingest(dumps, some.block_bytes)
            return differences(base().con, expected)
        db = str(Path(folder) / "t.duckdb")
        try:
            ingest(db, [dumps], run=RUN, jobs=some.jobs, block_bytes=some.block_bytes)
        except UsageError as error:
            if "no buffer assignment" not in str(error):
                raise
            store.open_writable(db).close()
        with duckdb.connect(db) as con:
            return differences(con, expected)


def differences(
    con: duckdb.DuckDBPyConnection, expected: dict[int, tuple[Dump, Content]]
) -> list[Difference]:
    modules = contents(con)
    differ = []
    for number, (dump, content) in expected.items():
        actual = modules.pop(number, {})
        tables = [t for t in content.keys() | actual.keys() if content.get(t) != actual.get(t)]
        if tables:
            rows = {table: rows_of(con, table, number) for table in sorted(tables)}
            differ.append((dump, rows))
    if modules:
        differ.append((next(iter(expected.values()))[0], {"modules": Counter(map(str, modules))}))
    return [explained(dump, rows) for dump, rows in differ]


def explained(dump: Dump, rows: dict[str, Counter[str]]) -> Difference:
    """The rows that only one ingest has."""
    ingest_alone(dump)
    lines = []
    for table, actual in rows.items():
        wanted = rows_of(base().con, table, dump.number)
        for sign, some in (("only together", actual - wanted), ("only alone", wanted - actual)):
            lines += [f"{table} {sign}: {row[:300]}" for row in list(some)[:3]]
    return Difference(dump.description, list(rows), lines)


def failures(numbers: Iterable[int]) -> Iterator[str]:
    """Describe the failures in these cases."""
    for number in numbers:
        some = case(number)
        try:
            differing = together(some)
        except Exception as error:  # any at all is a failure of the case: reported whole
            yield f"{some}\n  {traceback.format_exc()}\n  {type(error).__name__}: {error}"
            continue
        if differing:
            yield "\n  ".join([str(some), *map(str, differing)])


# -- on demand -------------------------------------------------------------------------------------


def bulk(first: int, count: int) -> tuple[int, list[str]]:
    """Damaged dumps in two groupings that must agree; alone where they do not.

    To ingest each dump alone takes 30 ms; in groups of a hundred it takes 3.

    Returns:
        the number of dumps, and what went wrong.
    """
    messages: list[str] = []
    done = 0
    for number in range(first, first + count, 200):
        rng = random.Random(f"bulk {number}")
        size = min(200, first + count - number)
        dumps = [
            Dump(samples()[(number + n) % len(samples())], 1 + (number + n) // len(samples()))
            for n in range(size)
        ]
        seen: list[dict[int, Content]] = []
        for block_bytes in (DEFAULT, rng.choice((*TINY, 20_000, 100_000, 400_000))):
            rng.shuffle(dumps)
            folders = [dumps[n::8] for n in range(8)]
            some = Case(-number, folders, block_bytes, 1)
            with tempfile.TemporaryDirectory() as folder:
                some.put(Path(folder))
                try:
                    base().ingest(Path(folder), block_bytes)
                    seen.append(contents(base().con))
                except Exception:  # a failure of all these dumps: reported whole
                    messages.append(f"dumps {number} to {number + size}\n{traceback.format_exc()}")
                    seen.append({})
        alones = set(rng.sample(range(size), max(1, size // 50)))
        for n, dump in enumerate(dumps):
            one, other = (content.get(dump.number) for content in seen)
            if one != other or n in alones:
                try:
                    whole = alone(dump)
                except Exception:  # a failure of this dump: reported whole
                    messages.append(f"alone: {dump.description}\n{traceback.format_exc()}")
                    continue
                for content in (one, other):
                    if content is not None and content != whole:
                        tables = [t for t in whole if whole[t] != content.get(t)]
                        again = f"again: python tests/support/isolation.py --dump {dump.number}"
                        messages.append(f"{dump.description}\n  differs in {tables}\n  {again}")
        done += size
        alone.cache_clear()
    return done, messages


def in_blocks(number: int) -> list[str]:
    """List differences of a damaged dump, alone in its folder, in blocks of other sizes."""
    accident, sample = divmod(number - 1000, 1000)
    dump = Dump(samples()[sample], accident)
    messages = []
    print(dump.description)
    for block_bytes in (*TINY, 20_000, 100_000, 400_000):
        try:
            differ = together(Case(-1, [[dump]], block_bytes, 1))
        except Exception:  # a failure at this block size: reported whole
            messages.append(f"block_bytes={block_bytes}\n{traceback.format_exc()}")
            continue
        messages += [f"block_bytes={block_bytes}: {one}" for one in differ]
    return messages


def main() -> int:
    """Run cases on demand, in processes of their own: a crash is one case's failure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--dumps", type=int, default=0, help="damaged dumps, in bulk")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--dump", type=int, help="number of a damaged dump")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(case(options.case))
        messages = list(failures([options.case]))
        print("\n\n".join(messages) or "as alone")
        return 1 if messages else 0
    if options.dump is not None:
        messages = in_blocks(options.dump)
        print("\n\n".join(messages) or "in blocks of all sizes as in one")
        return 1 if messages else 0
    if options.worker:
        return _work(options)
    return _spread(options)


def _work(options: argparse.Namespace) -> int:
    if options.dumps:
        done, messages = bulk(options.first, options.dumps)
        print("\n\n".join([*messages, f"done {done} failed {len(messages)}"]), flush=True)
        return 0
    failed = 0
    for number in range(options.first, options.first + options.cases):
        print(f"case {number}", file=sys.stderr, flush=True)
        for failure in failures([number]):
            failed += 1
            print(failure + "\n", flush=True)
    print(f"done {options.cases} failed {failed}", flush=True)
    return 0


def _spread(options: argparse.Namespace) -> int:
    """Chunks over processes; the last line says how many were done and how many failed."""
    kind, total = ("--dumps", options.dumps) if options.dumps else ("--cases", options.cases)
    step = 2000 if options.dumps else CASES_PER_POOL * 4
    waiting = [
        (first, min(step, options.first + total - first))
        for first in range(options.first, options.first + total, step)
    ]
    running: list[tuple[int, int, subprocess.Popen[str]]] = []
    done = failed = 0
    while waiting or running:
        while waiting and len(running) < options.jobs:
            first, count = waiting.pop(0)
            command = [
                sys.executable,
                __file__,
                "--worker",
                kind,
                str(count),
                "--first",
                str(first),
            ]
            pipe: Any = subprocess.PIPE
            running.append(
                (first, count, subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
            )
        first, count, process = running.pop(0)
        out, err = process.communicate()
        summary = re.search(r"^done (\d+) failed (\d+)$", out, re.MULTILINE)
        body = re.sub(r"^done .*$", "", out, flags=re.MULTILINE).strip()
        if body:
            print(body, flush=True)
        if summary is None:
            cases = re.findall(r"^case (\d+)$", err, re.MULTILINE)
            at = f"case {cases[-1]}" if cases else f"dumps {first} to {first + count}"
            print(f"CRASHED (exit code {process.returncode}) in {at}\n{err[-2000:]}", flush=True)
            failed += 1
            if cases and (left := first + count - int(cases[-1]) - 1) > 0:
                waiting.insert(0, (int(cases[-1]) + 1, left))
            done += int(cases[-1]) - first + 1 if cases else 0
        else:
            done, failed = done + int(summary[1]), failed + int(summary[2])
    generations = len({sample.generation for sample in samples()})
    print(f"{done} {kind[2:]} of {generations} generations, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    began = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    sys.exit(code)
