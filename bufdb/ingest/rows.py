"""Rows that no reader gives: of modules and files, of what is missing; columns of tables."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bufdb import resources
from bufdb.columnar.rows import TYPES
from bufdb.columnar.section import Finding, Tally
from bufdb.dumps.batch import Batch
from bufdb.dumps.files import BUFFER_KINDS, PROTO, ModuleFiles
from bufdb.rows.context import ModuleFacts

if TYPE_CHECKING:
    from bufdb.read.shape import Shape


# -- Rows of the small tables: what there is once per module, file, frame, shape or finding --------

Row = dict[str, Any]
_PARTS = {
    "buffer_assignment": "allocations",
    "values": "used_values",
    "live_range": "live_ranges",
    "hlo": "hlo_text",
    "instructions": "instructions",
}
"""Name of each kind of text in modules.derived_from_proto."""

_PREFIX = re.compile(r"^(?:p?jit|pmap|xmap|xla_computation)_(?=.)")
_TENSORFLOW = re.compile(
    r"(?:a|_)_inference_(.+?)_\d+(?:__XlaMustCompile.*)?|(cluster_\d+(?:_f\d+n_\d+)?)_*"
)
_COUNTED = re.compile(r"\.\d+$")
_NUMBER = re.compile(r"\.[0-9]+\Z")
_OF_NO_FUNCTION = re.compile(r"(?:SyncTensorsGraph|IrToHlo|ConvertXlaToHlo)(?:\.\d+)?")


def shape_row(shape: Shape) -> Row:
    """Return a row of `shapes`; the dimensions as text that DuckDB makes a list of."""
    row = asdict(shape)
    row["shape"] = row.pop("text")
    if shape.dimensions is not None:
        parts = ("NULL" if size is None else str(size) for size in shape.dimensions)
        row["dimensions"] = f"[{', '.join(parts)}]"
    return row


def module_row(
    run: str, module_id: int, files: ModuleFiles, facts: ModuleFacts, source: Batch, number: int
) -> Row:
    """Return a row of `modules`, for the module with this number in its batch."""
    header, name, live = source.headers.get(number), files.name, facts.live
    texts = (header, before.header if (before := source.before.get(number)) else None)
    first = next((text for text in texts if text and text.module_name), None)
    module_name = name.module_name or (first.module_name if first else None)
    # The sums of a program without a name are compared by their place in two logs.
    message_name = files.key.rpartition("/")[2] if facts.has_compiled else None
    function = function_name(module_name) or facts.jit_name or message_name
    return {
        "module_id": module_id,
        "run_name": run,
        "module_key": files.key,
        "module_name": module_name,
        "function_name": function,
        "module_number": name.module_number,
        "platform": name.platform
        or ("tpu" if facts.has_tiles else "gpu" if facts.is_of_gpu else None),
        "backend": name.backend,
        "cl_number": name.cl_number,
        "dump_time_us": name.dump_time_us,
        "format_era": format_era(
            files, facts, number in source.has_block_layout, source.modules[number].derived
        ),
        "reported_total_bytes": facts.total_bytes,
        "schedule_length": live.schedule_length,
        "reported_peak_time": live.peak_time,
        "reported_peak_status": live.peak_status,
        "reported_peak_tree_bytes": live.tree_bytes,
        "hlo_module_name": first.module_name if first else None,
        "entry_computation_layout": header.entry_computation_layout if header else None,
        "partition_count": first.partition_count if first else None,
        "replica_count": first.replica_count if first else None,
        "has_used_values": facts.has_used_values,
        "has_live_ranges": facts.has_live_ranges,
        "has_hlo_text": header is not None,
        "derived_from_proto": derived_parts(source.modules[number].derived),
        "own_pattern": source.own.pattern,
        "peak_unknown_reason": facts.peak_unknown_reason,
        **_signature_cells(module_name, function, facts.entry_signature),
    }


def _signature_cells(module_name: str | None, function: str | None, signature: str | None) -> Row:
    """Return what modules has of a module's shapes; the view derived_signatures defines it."""
    if signature is None:
        return {}
    digest = hashlib.md5(signature.encode(), usedforsecurity=False).digest()
    # As md5_number_lower of DuckDB, in 63 bits.
    cells: Row = {"entry_hash": int.from_bytes(digest[8:], "little") >> 1}
    if function is None and module_name is not None:
        cells["shapes_name"] = _NUMBER.sub("", module_name) + signature
    return cells


def file_rows(module_id: int, source: Batch, number: int) -> Iterable[Row]:
    """Yield the rows of `files` of the module with this number in its batch."""
    loaded = source.modules[number]
    for kind, file in loaded.files.files.items():
        tally = tally_of(source, number, file.name, kind)
        yield {
            "module_id": module_id,
            "path": file.name,
            "file_kind": kind,
            "size_bytes": loaded.sizes[kind],
            "content_hash": loaded.hashes[kind],
            "source_stamp": file.stamp,
            "line_count": tally.line_count,
            "read_line_count": tally.read_count,
            "known_line_count": tally.known_count,
            "unread_line_count": tally.unread_count,
        }


def tally_of(source: Batch, number: int, path: str, kind: str) -> Tally:
    """Return the lines of a file; of a proto those of the text that was derived from it."""
    paths = [path]
    if kind == PROTO:
        paths += [f"{path}#{derived}" for derived in sorted(source.modules[number].derived)]
    tallies = [source.account.tallies[number, one] for one in paths]
    return Tally(
        sum(tally.line_count for tally in tallies),
        sum(tally.read_count for tally in tallies),
        sum(tally.known_count for tally in tallies),
        sum(tally.unread_count for tally in tallies),
    )


def companion_rows(source: Batch, ids: list[int]) -> dict[str, list[Row]]:
    """Return the rows of the tables that the HLO texts and compiler options fill, by table."""
    frames: list[Row] = []
    aliases: list[Row] = []
    options: list[Row] = []
    parameters: list[Row] = []
    sums = [
        {"module_id": ids[number], "color": color, "total_bytes": total}
        for number, entries in source.reported_sums.items()
        for color, total in entries
    ]
    for number, header in source.headers.items():
        module = {"module_id": ids[number]}
        frames += [{**module, **vars(frame)} for frame in header.frames]
        names = ("output_index", "parameter_number", "parameter_index", "alias_kind")
        aliases += [{**module, **dict(zip(names, a, strict=True))} for a in header.aliases]
    for number, before in source.before.items():
        rows = before.parameters.values()
        parameters += [{"module_id": ids[number], **vars(row)} for row in rows]
    for number, entries in source.options.items():
        for ordinal, (name, value) in enumerate(entries):
            options.append(
                {
                    "module_id": ids[number],
                    "option_ordinal": ordinal,
                    "option_name": name,
                    "option_value": value,
                }
            )
    return {
        "stack_frames": frames,
        "input_output_aliases": aliases,
        "compiler_options": options,
        "entry_parameters": parameters,
        "reported_sums": sums,
    }


def diagnostic_row(run: str, module_id: int | None, finding: Finding) -> Row:
    """Return a row of `diagnostics`."""
    return {
        "run_name": run,
        "module_id": module_id,
        "severity": finding.severity,
        "code": finding.code,
        "path": finding.path,
        "line_number": finding.line_number,
        "message": finding.message,
    }


def function_name(module_name: str | None) -> str | None:
    """Return the function a module such as `jit_train_step.15` is named for (format section 2.2).

    In JAX's names one underscore belongs to the prefix, the others to the function: `jit__step` is
    `_step`. TensorFlow counts its functions, and appends what it compiles them with. torch_xla has
    one name for all programs, which is that of no function.
    """
    if module_name is None or _OF_NO_FUNCTION.fullmatch(module_name):
        return None
    name = _COUNTED.sub("", module_name)
    match = _TENSORFLOW.fullmatch(name)
    return (match[1] or match[2]) if match else _PREFIX.sub("", name)


def derived_parts(derived: frozenset[str]) -> str | None:
    """Return modules.derived_from_proto: the parts that no text had."""
    return " ".join(name for kind, name in _PARTS.items() if kind in derived) or None


def format_era(
    files: ModuleFiles, facts: ModuleFacts, has_block_layout: bool, derived: frozenset[str]
) -> str:
    """Return modules.format_era: by the files there are, then by what only some eras print."""
    if facts.is_message:
        return "L" if facts.has_compiled else "M"
    if not any(kind in files.files for kind in BUFFER_KINDS):
        return "P"
    if "values" in files.files or "live_range" in files.files:
        return "C"
    has_live = (facts.has_live_ranges or facts.live.peak_status) and "live_range" not in derived
    has_used = "values" not in derived
    if has_live or (facts.has_descriptions and has_used):
        return "B"
    if facts.has_pointer or has_block_layout:
        return "A"
    return "B" if facts.has_used_values and has_used else "C"


# -- Parts that a dump lacks: files, sections, totals (format sections 1 and 12) -------------------


def missing(
    files: ModuleFiles, facts: ModuleFacts, era: str, source: Batch, number: int
) -> Iterator[Finding]:
    """Yield what is missing of the module with this number in its batch.

    A file that another one points to and that may not have been kept is a notice; a part that XLA
    always writes into a file that is there is data loss.
    """
    header, derived = source.headers.get(number), source.modules[number].derived
    if facts.needs_frames and (header is None or not header.frames):
        why = "source lines are unknown: instructions name stack frames, and the tables are"
        if header is None or not header.module_name:
            has_text = header is None and ("hlo" in files.files or "hlo" in derived)
            state = "of another compilation" if has_text else "missing"
            message = f"{why} in the HLO text {files.key}.txt, which is {state}"
            yield Finding(number, "notice", "missing_hlo_text", message)
        else:
            has = "proto" if "hlo" in derived else "HLO text"
            flag = "" if "hlo" in derived else ", as --xla_dump_disable_metadata leaves it"
            message = f"{why} not in its {has}{flag}"
            yield Finding(number, "notice", "missing_stack_frames", message)
    if era == "C":
        yield from _missing_files(files, derived, number)
    if number not in source.has_block_layout:
        is_one_file = number in source.one_file
        for what in _missing_sections(facts, era, is_one_file, "live_range" in derived):
            path = next(iter(files.files.values())).name
            message = f"{what} missing; the file may have been cut off"
            yield Finding(number, "data_loss", "missing_section", message, path)


def _missing_files(files: ModuleFiles, derived: frozenset[str], number: int) -> Iterator[Finding]:
    for kind, suffix, what in (
        ("buffer_assignment", "-buffer-assignment.txt", "sizes and offsets"),
        ("values", "-buffer-assignment-values.txt", "positions, uses and opcodes"),
        ("live_range", "-live-range.txt", "live ranges and the peak"),
    ):
        if kind not in files.files and kind not in derived:
            message = f"{what} are unknown: {files.key}{suffix} is not there"
            yield Finding(number, "notice", "missing_file", message)


def _missing_sections(
    facts: ModuleFacts, era: str, is_one_file: bool, is_derived: bool
) -> Iterator[str]:
    """Yield the missing parts that the version of XLA that wrote the rest always writes."""
    # The total came in 2019-10, addresses went in 2022-09, shapes of parameters came in 2019-12.
    has_total = not facts.has_pointer or facts.has_shapes or facts.has_descriptions
    is_old = facts.has_pointer and facts.has_shapes and facts.has_allocations
    if (facts.has_used_values or is_old) and has_total and facts.total_bytes is None:
        yield "the line 'Total bytes used' is"
    if is_one_file:
        # Live ranges came in 2021-04, the human form of the total in 2021-08.
        has_ranges = facts.has_descriptions or facts.human_total is not None
        if has_ranges and not facts.has_live_ranges and facts.live.peak_status is None:
            yield "the live ranges are"
        if facts.has_live_ranges and not facts.has_used_values:
            yield "the list of used values is"
    if facts.has_live_ranges and facts.live.peak_status is None:
        yield "the peak listing is"
    # The tree came with jaxlib 0.7.1, stack frames with 0.8.2.
    # No proto has it.
    is_new = (era == "C" or facts.needs_frames) and not is_derived
    if facts.live.peak_status == "printed" and is_new and facts.live.tree_bytes is None:
        yield "the stack trace breakdown of the peak is"


# --------------------------------------------------------------------------------------------------
# Tables of modules, and types of their columns, read from the SQL that makes them: no database.
#
# Readers of modules in another process, and writers of rows elsewhere, use these types.

_COLUMN = re.compile(r'^  "?(\w+)"? ([A-Z]+(?:\[\])?)', re.MULTILINE)

LARGE = (
    "allocations",
    "values",
    "positions",
    "uses",
    "instructions",
    "live_ranges",
    "peak_contributors",
    "peak_stack_nodes",
)
"""Tables whose rows keep blocks of text alive; few rows of others may wait for the end of a
transaction."""
MODULE_TABLES = (
    "modules",
    "files",
    "allocations",
    "values",
    "positions",
    "uses",
    "instructions",
    "live_ranges",
    "memory_sums",
    "occupied_peaks",
    "occupancy_steps",
    "peaks",
    "peak_values",
    "value_users",
    "value_origins",
    "recompute_costs",
    "recompute_parts",
    "recompute_instructions",
    "instruction_costs",
    "kernels",
    "instruction_executions",
    "instruction_times",
    "peak_savings",
    "peak_contributors",
    "peak_stack_nodes",
    "stack_frames",
    "input_output_aliases",
    "compiler_options",
    "entry_parameters",
    "reported_sums",
    "scheduled_limits",
    "diagnostics",
    "row_counts",
)
"""Every table that holds rows of a module, by module_id."""
Types = dict[str, dict[str, str]]
"""DuckDB type of each column in order, by table."""


@functools.cache
def column_types() -> Types:
    """Return the types of every table that rows of modules can be put into."""
    files = resources.schema_files("tables")
    types = {file.stem: _columns(file.read_text("utf-8")) for file in files}
    return {name: columns for name, columns in types.items() if set(columns.values()) <= set(TYPES)}


def _columns(sql: str) -> dict[str, str]:
    inner = sql.partition("CREATE TABLE ")[2].partition("\n);")[0]
    return dict(_COLUMN.findall(inner))
