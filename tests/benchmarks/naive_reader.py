"""The baseline: what most people would write. Regexes line by line, lists, Arrow, INSERT … SELECT.

It fills the tables allocations, values, positions, uses, instructions, live_ranges,
peak_contributors, modules and runs of the project's own schema, for dumps as jaxlib 0.6.1 and
later write them. It does less than bufdb: no shapes, no logical sizes of values, no occupancy,
no stack trace breakdown, no hashes of files, no diagnostics; it skips lines that it does not know.
"""

import argparse
import hashlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from bufdb.database import definitions

PARTS = ("-buffer-assignment", "-buffer-assignment-values", "-live-range")
ROWS_AT_ONCE = 1_000_000

ALLOCATION = re.compile(r"allocation (\d+): size (\d+)(.*):$")
COLOR = re.compile(r", color (\d+)")
PAGE = re.compile(r", page (\d+)")
PARAMETER = re.compile(r", parameter (\d+), shape \|([^|]*)\| at ShapeIndex (\{[\d,]*\})")
OUTPUT = re.compile(r", output shape is \|([^|]*)\|")
VALUE = re.compile(
    r" value: <(\d+) ([\w.-]+)(\{[\d,]*\})?( \(phi\))? @(\d+)> \(size=(\d+),offset=(\d+)\): (.*)$"
)
TOTAL = re.compile(r"Total bytes used: (-?\d+)")
HEADER = re.compile(r"<(\d+) ([\w.-]+)(\{[\d,]*\})?( \(phi\))? @(\d+)>$")
POSITION = re.compile(r"  ([\w.-]+)(?: (\{[\d,]*\}))?$")
USE = re.compile(r"  ([\w.-]+), operand (\d+)(?: (\{[\d,]*\}))?$")
INSTRUCTION = re.compile(r" from instruction: ?(%([\w.-]+) = (.*?) ([\w-]+)\(.*)$")
METADATA = re.compile(r'(op_type|op_name|source_file)="((?:[^"\\]|\\.)*)"')
NUMBER = re.compile(
    r"(source_line|source_end_line|source_column|source_end_column|stack_frame_id)=(\d+)"
)
LENGTH = re.compile(r"HloLiveRange \(max (\d+)\):")
STEP = re.compile(r"    (\d+):([\w.-]+)$")
RANGE = re.compile(r"    ([\w.-]+)(\{[\d,]*\}):(\d+)-(\d+)$")
PEAK = re.compile(r"  Live ranges at (\d+) \(peak\):")
CONTRIBUTOR = re.compile(
    r"    ([\w.-]+)(\{[\d,]*\})?: (\d+) bytes(?: \(cumulative: (\d+) bytes\))?$"
)
MODULE = re.compile(r"module_(\d+)\.(.+?)\.(?:cl_(\d+)\.)?((?:[\w.]+_)?)after_optimizations$")

NO_NAME: tuple[Any, ...] = (None, None, None, "")
COLUMNS = (
    "program_order",
    "opcode",
    "shape",
    "op_type",
    "op_name",
    "source_file",
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "stack_frame_id",
    "text",
)
"""Columns of an instruction; a scheduled name may lack all of them."""

Row = dict[str, Any]


def unescape(text: str) -> str:
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1").decode()


def kind(flags: str, parameter: object) -> str:
    if parameter:
        return "donated_parameter" if ", maybe-live-out" in flags else "parameter"
    for flag, name in ((", constant", "constant"), (", thread-local", "thread_local")):
        if flag in flags:
            return name
    return "output" if ", maybe-live-out" in flags else "temp"


class Reader:
    """Lists of columns per table, filled line by line."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.tables: dict[str, dict[str, list[Any]]] = {}
        self.rows = 0

    def add(self, table: str, **row: Any) -> None:
        columns = self.tables.setdefault(table, defaultdict(list))
        for name, cell in row.items():
            columns[name].append(cell)
        self.rows += 1

    def flush(self) -> None:
        for table, columns in self.tables.items():
            batch = pa.table({name: pa.array(cells) for name, cells in columns.items()})
            self.con.register("batch", batch)
            self.con.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM batch')
            self.con.unregister("batch")
        self.tables, self.rows = {}, 0

    def module(self, folder: Path, stem: Path) -> None:
        key = stem.relative_to(folder).as_posix()
        digest = hashlib.sha256(f"{folder.name}\n{key}".encode()).digest()
        module = int.from_bytes(digest[:8], "big") >> 1
        files = [stem.with_name(f"{stem.name}{part}.txt") for part in PARTS]
        self.facts: Row = {}
        self.instructions: dict[str, Row] = {}
        self.values: dict[tuple[str, str], int] = {}
        self.section = ""
        for file in files:
            if file.exists():
                with file.open(encoding="utf-8") as lines:
                    self.lines(module, lines)
        for name, row in self.instructions.items():
            self.add("instructions", module_id=module, instruction_name=name, **row)
        match = MODULE.match(stem.name)
        number, name, cl, backend = match.groups() if match else NO_NAME
        platform = "cpu" if backend == "cpu_" else "gpu" if backend else "tpu" if cl else None
        self.add(
            "modules",
            module_id=module,
            run_name=folder.name,
            module_key=key,
            module_name=name,
            function_name=name and re.sub(r"^(jit|pmap)_|\.\d+$", "", name),
            module_number=number and int(number),
            platform=platform,
            backend=backend.removesuffix("_") or None,
            cl_number=cl and int(cl),
            format_era="C" if files[1].exists() else "B",
            reported_total_bytes=self.facts.get("total"),
            schedule_length=self.facts.get("length"),
            reported_peak_time=self.facts.get("peak"),
            reported_peak_status="printed" if "peak" in self.facts else None,
            has_used_values="total" in self.facts,
            has_live_ranges="length" in self.facts,
            has_hlo_text=False,
        )
        if self.rows > ROWS_AT_ONCE:
            self.flush()

    def lines(self, module: int, lines: Any) -> None:
        allocation = value = ordinal = 0
        section = self.section
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith("<") and (match := HEADER.match(line)):
                value = int(match[1])
            elif line == " positions:":
                section, ordinal = "positions", 0
            elif line == " uses:":
                section, ordinal = "uses", 0
            elif section == "positions" and (match := POSITION.match(line)):
                self.add(
                    "positions",
                    module_id=module,
                    value_id=value,
                    position_ordinal=ordinal,
                    instruction_name=match[1],
                    shape_index=match[2] or "{}",
                    is_defining=ordinal == 0,
                )
                ordinal += 1
            elif section == "uses" and (match := USE.match(line)):
                self.add(
                    "uses",
                    module_id=module,
                    value_id=value,
                    use_ordinal=ordinal,
                    instruction_name=match[1],
                    operand_number=int(match[2]),
                    operand_index=match[3] or "{}",
                )
                ordinal += 1
            elif line.startswith(" from instruction:"):
                self.instruction(line)
            elif section == "sequence" and (match := STEP.match(line)):
                row = self.instructions.setdefault(match[2], dict.fromkeys(COLUMNS))
                row["program_order"] = int(match[1])
            elif section == "ranges" and (match := RANGE.match(line)):
                self.add(
                    "live_ranges",
                    module_id=module,
                    value_id=self.values.get((match[1], match[2])),
                    instruction_name=match[1],
                    shape_index=match[2],
                    start_time=int(match[3]),
                    end_time=int(match[4]),
                )
            elif section == "peak" and (match := CONTRIBUTOR.match(line)):
                self.add(
                    "peak_contributors",
                    module_id=module,
                    contributor_ordinal=ordinal,
                    value_id=self.values.get((match[1], match[2])),
                    instruction_name=match[1],
                    shape_index=match[2],
                    logical_bytes=int(match[3]),
                    cumulative_bytes=match[4] and int(match[4]),
                )
                ordinal += 1
            elif match := VALUE.match(line):
                index = match[3] or "{}"
                self.values[match[2], index] = int(match[1])
                self.add(
                    "values",
                    module_id=module,
                    value_id=int(match[1]),
                    allocation_index=allocation,
                    offset_bytes=int(match[7]),
                    size_bytes=int(match[6]),
                    color=int(match[5]),
                    instruction_name=match[2],
                    shape_index=index,
                    is_phi=match[4] is not None,
                    shape=match[8],
                )
            elif match := ALLOCATION.match(line):
                allocation = int(match[1])
                self.allocation(module, match)
            elif match := TOTAL.match(line):
                self.facts["total"] = int(match[1])
            elif match := LENGTH.match(line):
                self.facts["length"] = int(match[1])
            elif line == "  InstructionSequence:":
                section = "sequence"
            elif line == "  BufferLiveRange:":
                section = "ranges"
            elif match := PEAK.match(line):
                section, ordinal = "peak", 0
                self.facts["peak"] = int(match[1])
            elif line.startswith("  Stack trace breakdown"):
                section = "tree"
        self.section = section

    def allocation(self, module: int, match: re.Match[str]) -> None:
        rest = match[3]
        color, page = COLOR.search(rest), PAGE.search(rest)
        parameter, output = PARAMETER.search(rest), OUTPUT.search(rest)
        self.add(
            "allocations",
            module_id=module,
            allocation_index=int(match[1]),
            size_bytes=int(match[2]),
            color=int(color[1]) if color else 0,
            page=int(page[1]) if page else None,
            kind=kind(rest, parameter),
            is_constant=", constant" in rest,
            is_thread_local=", thread-local" in rest,
            is_maybe_live_out=", maybe-live-out" in rest,
            is_preallocated_temp=", preallocated-temp" in rest,
            parameter_number=int(parameter[1]) if parameter else None,
            parameter_shape=parameter[2] if parameter else None,
            parameter_shape_index=parameter[3] if parameter else None,
            output_shape=output[1] if output else None,
        )

    def instruction(self, line: str) -> None:
        name = line[18:].lstrip(" %").partition(" ")[0]
        if name in self.instructions or (match := INSTRUCTION.match(line)) is None:
            return
        row: Row = dict.fromkeys(COLUMNS)
        row |= {"opcode": match[4], "shape": match[3], "text": match[1]}
        metadata = line[line.rfind(", metadata={") :] if ", metadata={" in line else ""
        for key, text in METADATA.findall(metadata):
            row[key] = unescape(text) if "\\" in text else text
        for key, number in NUMBER.findall(metadata):
            row[key] = int(number)
        self.instructions[name] = row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="directory of dumps")
    parser.add_argument("--db", type=Path, required=True, help="database file to make")
    args = parser.parse_args()
    if args.db.exists():
        parser.error(f"{args.db} exists")
    con = duckdb.connect(str(args.db))
    con.execute("BEGIN")
    for sql in [*definitions.tables().values(), *definitions.views().values()]:
        con.execute(sql)
    reader = Reader(con)
    con.execute(
        "INSERT INTO runs BY NAME SELECT ? AS run_name, ? AS source_path, "
        "now()::TIMESTAMP AS ingested_at, 'naive' AS bufdb_version",
        [args.folder.name, str(args.folder)],
    )
    for path in sorted(args.folder.rglob(f"*{PARTS[0]}.txt")):
        reader.module(args.folder, path.with_name(path.name.removesuffix(f"{PARTS[0]}.txt")))
    reader.flush()
    con.execute("COMMIT")
    con.close()


if __name__ == "__main__":
    main()
