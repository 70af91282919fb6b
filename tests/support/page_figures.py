"""Every figure of a report's page, compared with what `bufdb summary` and the queries answer.

`python tests/support/page_figures.py DUMPS…` ingests dumps and prints the number of figures and of
differences; with `--tables` those of all tables too, which takes most of the time.
"""

import sys
import tempfile
from pathlib import Path

from small_db import Module

from bufdb import resources
from bufdb.answers import summary
from bufdb.answers.summary_text import sections, sentences
from bufdb.query import execute
from bufdb.query.catalogue import Catalogue
from bufdb.query.parameters import glob

CATALOGUE = Catalogue([resources.query_folder()])
PARTS = summary.queries(CATALOGUE, tuple(summary.QUERIES))
UNWRAPPED = 10_000
UNIT = 64
"""Bytes: peaks of rows by hand are computed byte by byte."""
KINDS = ("parameter", "output", "constant", "temp")


def holds_most(con, module_id, kind):
    """A function whose allocations of one kind hold most; its temp is on a line of its own."""
    module = Module(con, module_id, run_name=kind, function_name=f"of_{kind}", schedule_length=9)
    sizes = {"parameter": 2, "output": 3, "constant": 1, "temp": 4} | {kind: 48}
    for index, (name, size) in enumerate(sizes.items()):
        module.allocation(index, name, size * UNIT)
        opcode = name if name in ("parameter", "constant") else "dot"
        live = (2, 6) if name == "temp" else (0, 9)
        line = {} if opcode == name else {"source_file": "m.py", "source_line": 7}
        module.value(
            index, index, 0, size * UNIT, live=live, name=f"{name}.{index}", opcode=opcode, **line
        )
    module.close()
    return sizes


class Compared:
    """Figures that were compared, and those that differ."""

    def __init__(self):
        self.count = 0
        self.differences = []

    def same(self, where, shown, expected):
        self.count += 1
        if shown != expected:
            self.differences.append((where, shown, expected))

    def rows(self, where, shown, expected):
        """Compare lists of dicts, each cell as a figure."""
        self.same(f"{where}: rows", len(shown), len(expected))
        for number, (one, other) in enumerate(zip(shown, expected, strict=False)):
            self.same(f"{where} {number}: columns", list(one), list(other))
            for name in one:
                self.same(f"{where} {number}: {name}", one[name], other.get(name))


def compare(con, report, limit=(None, None)):
    """Return the `Compared` figures of a `report_making.Report` of an open database."""
    compared = Compared()
    for row in report.modules:
        head = {} if row["slot"] is None else report.slots[row["slot"]][0]
        if row["color"] is None or (row["slot"] is None and row["peak_bytes"] is not None):
            continue
        _summary(compared, con, row, head, limit)
    for row, picture in report.pictures():
        _pictures(compared, row, picture)
        _tables(compared, con, row, picture.head)
    return compared


def name_of(row):
    return f"{row['run']} {row['module_key']} {row['color']}"


def options(row, head):
    """The parameters that a page's commands have for a module."""
    filters = {
        "run": glob(row["run"]),
        "color": str(row["color"]),
        "function": glob(row["function"]),
    }
    if row["platform"] is not None:
        filters["platform"] = row["platform"]
    if "--module" in head.get("command", ""):
        filters["module"] = glob(row["module_key"])
    return filters


def _summary(compared, con, row, head, limit):
    """The first screen, with `bufdb summary` of the module alone."""
    where = name_of(row)
    overview = summary.overview(con, PARTS, options(row, head), *limit)
    shown = [one._asdict() for one in sentences(overview, width=UNWRAPPED)]
    compared.rows(f"{where} sentences", row["sentences"], shown)
    expected = [
        plain({**one._asdict(), "figures": [figure._asdict() for figure in one.figures]})
        for one in sections(overview)
    ]
    compared.rows(f"{where} sections", head.get("sections", []), expected)
    if overview.peak is not None:
        compared.same(f"{where} peak", row["peak_bytes"], overview.peak["peak_bytes"])
        compared.same(f"{where} need", row["need_bytes"], overview.peak["need_bytes"])


def plain(value):
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _pictures(compared, row, picture):
    """What the blocks add up to, with the figures of the first screen and of the tables."""
    where, time = name_of(row), row["peak_time"]
    compared.same(f"{where} blocks", picture.sums(row["length"])[time], row["peak_bytes"])
    lines = picture.held(time, lambda place: picture.of("value_line", place))
    savings = {
        picture.of("saving_name", place): picture.saving_bytes[place]
        for place in range(len(picture.saving_what))
        if picture.of("saving_what", place) == "source_line"
    }
    for section in picture.head["sections"]:
        for figure in section["figures"] if section["name"] == "lines" else []:
            name = figure["name"]
            compared.same(f"{where} line {name}", lines.get(name, 0), figure["size_bytes"])
            compared.same(f"{where} saving {name}", savings.get(name), figure["saving_bytes"])
    for peak in picture.table("peaks"):
        at = dict(zip(picture.peak_time, picture.peak_bytes, strict=True))
        compared.same(
            f"{where} peak {peak['peak_time']}", at[peak["peak_time"]], peak["peak_bytes"]
        )


def _tables(compared, con, row, head):
    """The tables, with the query of each, asked alone."""
    for table in head["tables"]:
        query = CATALOGUE.find(table["name"])
        params = {**options(row, head), "top_n": "50"}
        answer = execute.execute_query(con, query, execute.bind(query, params))
        names = [name for name, _ in answer.columns]
        known = [cells for cells in answer.rows if cells[-1] is None]
        expected = [plain(dict(zip(names, cells, strict=True))) for cells in known]
        columns = [name for name, _ in table["columns"]]
        shown = [dict(zip(columns, cells, strict=True)) for cells in table["rows"]]
        compared.rows(f"{name_of(row)} {table['name']}", shown, expected)


def main():
    from report_making import report

    from bufdb.database import store
    from bufdb.ingest.ingest import ingest

    total, different = 0, []
    has_tables = "--tables" in sys.argv
    names = None if has_tables else ("peaks",)
    for folder in (Path(word) for word in sys.argv[1:] if not word.startswith("--")):
        with tempfile.TemporaryDirectory() as place:
            path = str(Path(place) / "figures.duckdb")
            ingest(path, [folder], run=folder.name)
            with store.open_readable(path) as con:
                page = report(con, names=names, has_sections=True)
                compared = compare(con, page)
            print(folder, len(page.modules), "modules", compared.count, "figures",
                  len(compared.differences), "differ", flush=True)  # fmt: skip
            total += compared.count
            different += compared.differences
    for one in different[:50]:
        print(*one, sep="\n    ")
    print(total, "figures", len(different), "differences")


if __name__ == "__main__":
    main()
