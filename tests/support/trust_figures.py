"""Write the table in tests/README.md of what was tried against bufdb.

Runs the commands in the table's last column, reads what they print, and writes the table
between its markers. With --quick each tries a hundredth, and the table is printed only. With --only
some are run, and printed; with --write, too, the other rows stay as they are.

    python tests/support/trust_figures.py [--quick] [--only NAME …] [--write]
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

README = ROOT / "tests" / "README.md"
BEGIN, END = "<!-- figures: written by trust_figures.py -->", "<!-- end of figures -->"
HEADER = "| what | tried | wrong | command |\n|---|--:|--:|---|"


@dataclass(frozen=True)
class Measure:
    """One or more rows of the table."""

    name: str
    what: str
    """Description of the count; `{group}` is replaced with the first group of the pattern."""
    command: str
    quick: str
    pattern: str
    """Finds `tried` and `wrong`, or `right`, in what the command prints, once for each row."""
    needs: str
    """The script it runs, below tests/."""


MEASURES: Sequence[Measure] = (
    Measure(
        "kills",
        "ingests killed at a random moment, jobs 1 and 2: whole modules, the next ingest mends all",
        "tests/support/kill.py --kills 100",
        "tests/support/kill.py --kills 4",
        r"^(?P<tried>\d+) kills, (?P<wrong>\d+) wrong$",
        "support/kill.py",
    ),
    Measure(
        "dumps",
        "damaged dumps of {group} generations: in any grouping and block size the same rows",
        "tests/support/isolation.py --dumps 100000",
        "tests/support/isolation.py --dumps 1000",
        r"^(?P<tried>\d+) dumps of (?P<group>\d+) generations, (?P<wrong>\d+) failed$",
        "support/isolation.py",
    ),
    Measure(
        "isolation",
        "ingests of several dumps of {group} generations: each module as it is alone",
        "tests/support/isolation.py --cases 5000",
        "tests/support/isolation.py --cases 50",
        r"^(?P<tried>\d+) cases of (?P<group>\d+) generations, (?P<wrong>\d+) failed$",
        "support/isolation.py",
    ),
    Measure(
        "accounting",
        "tests of lines read, known or reported (800 damaged dumps, and each silent loss by name)",
        "-m pytest -q -m '' tests/whole/test_accounting.py",
        "-m pytest -q -m '' tests/whole/test_accounting.py -k 'mark or total'",
        r"^(?:(?P<wrong>\d+) failed, )?(?P<right>\d+) passed",
        "whole/test_accounting.py",
    ),
    Measure(
        "messages",
        "tests of out-of-memory messages: each form in each log, 4,760 damaged ones line by line",
        "-m pytest -q -m '' tests/read/test_oom_text.py tests/ingest/test_messages.py",
        "-m pytest -q tests/ingest/test_messages.py -k 'damaged or doubled or gone'",
        r"^(?:(?P<wrong>\d+) failed, )?(?P<right>\d+) passed",
        "ingest/test_messages.py",
    ),
    Measure(
        "fuzz",
        "texts for the reader `{group}`",
        "tests/support/fuzz.py --cases 1000000",
        "tests/support/fuzz.py --cases 10000",
        r"^(?P<group>\w+): (?P<tried>\d+) cases, (?P<wrong>\d+) failed, \d+/s$",
        "support/fuzz.py",
    ),
    Measure(
        "linear",
        "kinds of text, ordinary and hostile: calls, bytes scanned and memory grow as it does",
        "-m pytest -q -m '' tests/whole/test_linear.py -k cost_grows",
        "-m pytest -q -m '' tests/whole/test_linear.py -k 'cost_grows and one'",
        r"^(?:(?P<wrong>\d+) failed, )?(?P<right>\d+) passed",
        "whole/test_linear.py",
    ),
    Measure(
        "corruptions",
        "single corruptions of a database that `bufdb check` looks for (wrong: not found)",
        "tests/support/corrupt.py {db} --cases 200",
        "tests/support/corrupt.py {db} --cases 5",
        r"found (?P<right>\d+) of (?P<tried>\d+)",
        "support/corrupt.py",
    ),
    Measure(
        "faults",
        "faults of directories, disk, memory and database files: one line, nothing stored is lost",
        "-m pytest -q -m '' tests/whole/test_faults.py",
        "-m pytest -q -m '' tests/whole/test_faults.py -k odd",
        r"^(?:(?P<wrong>\d+) failed, )?(?P<right>\d+) passed",
        "whole/test_faults.py",
    ),
    Measure(
        "attacks",
        "attacks by queries, parameters and databases from others",
        "-m pytest -q -m '' tests/whole/test_trust.py -k no_attack_succeeds",
        "-m pytest -q -m '' tests/whole/test_trust.py -k no_attack_succeeds",
        r"^(?:(?P<wrong>\d+) failed, )?(?P<right>\d+) passed",
        "whole/test_trust.py",
    ),
    Measure(
        "files",
        "attacks by datasets, archives, bodies of HTTP, links and names from others",
        "-m pytest -q -m '' tests/dataset/test_trust.py tests/dataset/test_compact.py "
        "tests/dumps/test_places.py tests/dumps/test_streams.py tests/dumps/test_remote.py "
        "tests/commands/test_completion.py",
        "-m pytest -q tests/dataset/test_trust.py -k link",
        r"^(?:(?P<wrong>\d+) failed, )?(?P<right>\d+) passed",
        "dataset/test_trust.py",
    ),
)


def rows_of(measure: Measure, output: str, command: str) -> list[str]:
    """The rows that a command's output makes; one that says so if it printed no count."""
    rows = []
    for match in re.finditer(measure.pattern, output, re.MULTILINE):
        numbers = {
            name: int(text) for name, text in match.groupdict().items() if text and name != "group"
        }
        wrong = numbers.get("wrong", 0)
        tried = numbers.get("tried", numbers.get("right", 0) + wrong)
        if "wrong" not in numbers and "right" in numbers:
            wrong = tried - numbers["right"]
        what = measure.what.format(group=match.groupdict().get("group"))
        rows.append(f"| {what} | {tried:,} | {wrong:,} | `python {command}` |")
    return rows or [f"| {measure.what.format(group='?')} | – | no count | `python {command}` |"]


def run(measure: Measure, quick: bool, db: Path) -> list[str]:
    """Run a measure and read off its rows."""
    template = measure.quick if quick else measure.command
    shown = template.format(db="DATABASE")
    if not (ROOT / "tests" / measure.needs).exists():
        return [f"| {measure.what.format(group='?')} | – | not there | `python {shown}` |"]
    command = [sys.executable, *shlex.split(template.format(db=db))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows = rows_of(measure, done.stdout, shown)
    if any("no count" in row for row in rows):
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n", file=sys.stderr)
    return rows


def table(measures: Sequence[Measure], quick: bool) -> str:
    """The whole table."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "demo.duckdb"
        script = "from bufdb.cli import main; main()"
        ingest = ["ingest", "data/demo", "--run-from-dir", "--db", str(db)]
        subprocess.run(
            [sys.executable, "-c", script, *ingest],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        for measure in measures:
            some = run(measure, quick, db)
            rows += some
            print("\n".join(some), file=sys.stderr, flush=True)
    return "\n".join([HEADER, *rows])


def written(readme: str, new: str) -> str:
    """The README with another table between the markers."""
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n\n{new}\n\n{END}{rest.split(END)[1]}"


def rows_in(readme: str) -> list[str]:
    """The rows of the table."""
    return readme.split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]


def with_rows(old: Sequence[str], new: Sequence[str]) -> str:
    """The table of the old rows, with new ones in place of those with the same command."""
    rows: list[str] = []
    for row in old:
        command = _command(row)
        same = [other for other in new if _command(other) == command]
        rows += [some for some in same or [row] if some not in rows]
    if missing := set(new) - set(rows):
        raise ValueError(f"the table has no row with the command of: {missing}")
    return "\n".join([HEADER, *rows])


def _command(row: str) -> str:
    return row.rsplit(" | ", 1)[1]


def has_wrong(new: str) -> bool:
    """Return whether any row has a wrong count, except up to 5 % of corruptions, or no count."""
    for line in new.splitlines()[2:]:
        _, what, tried, wrong, *_ = (cell.strip() for cell in line.split("|"))
        if not wrong.replace(",", "").isdigit():
            return True
        share = 0.05 if "corruptions" in what else 0
        if int(wrong.replace(",", "")) > share * int(tried.replace(",", "")):
            return True
    return False


def main() -> int:
    """Write the table, or print a quick one; 1 if any row says that something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="a hundredth; the table is printed only"
    )
    names = [m.name for m in MEASURES]
    parser.add_argument(
        "--only", choices=names, nargs="+", default=names, help="run and print these measures only"
    )
    parser.add_argument(
        "--write", action="store_true", help="put the rows of --only into the table"
    )
    options = parser.parse_args()
    new = table([m for m in MEASURES if m.name in options.only], options.quick)
    is_all = options.only == names
    if options.quick or not (is_all or options.write):
        print(new)
    else:
        text = README.read_text(encoding="utf-8")
        new = new if is_all else with_rows(rows_in(text), new.splitlines()[2:])
        README.write_text(written(text, new), encoding="utf-8")
    return 1 if has_wrong(new) else 0


if __name__ == "__main__":
    sys.exit(main())
