"""Rows of the small tables: what is told once per module, file, frame, shape or finding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from bufdb.balance import ModuleFacts
from bufdb.discover import ModuleFiles
from bufdb.read.section import Finding
from bufdb.read.shape import Shape
from bufdb.source import Batch, Loaded

Row = dict[str, Any]


def shape_row(shape: Shape) -> Row:
    """A row of `shapes`; the dimensions as text that DuckDB makes a list of."""
    row = asdict(shape)
    row["shape"] = row.pop("text")
    if shape.dimensions is not None:
        parts = ("NULL" if size is None else str(size) for size in shape.dimensions)
        row["dimensions"] = f"[{', '.join(parts)}]"
    return row


def module_row(
    run: str, module_id: int, files: ModuleFiles, facts: ModuleFacts, source: Batch, number: int
) -> Row:
    """A row of `modules`, for the module with this number in its batch."""
    header, name, live = source.headers.get(number), files.name, facts.live
    hlo_name = header.module_name if header else None
    module_name = name.module_name or hlo_name
    return {
        "module_id": module_id,
        "run_name": run,
        "module_key": files.key,
        "module_name": module_name,
        "function_name": function_name(module_name) or facts.jit_name,
        "module_number": name.module_number,
        "platform": name.platform or ("tpu" if facts.has_tiles else None),
        "backend": name.backend,
        "cl_number": name.cl_number,
        "dump_time_us": name.dump_time_us,
        "format_era": format_era(files, facts, number in source.has_block_layout),
        "reported_total_bytes": facts.total_bytes,
        "schedule_length": live.schedule_length,
        "reported_peak_time": live.peak_time,
        "reported_peak_status": live.peak_status,
        "reported_peak_tree_bytes": live.tree_bytes,
        "hlo_module_name": hlo_name,
        "entry_computation_layout": header.entry_computation_layout if header else None,
        "partition_count": header.partition_count if header and hlo_name else None,
        "replica_count": header.replica_count if header and hlo_name else None,
        "has_used_values": facts.has_used_values,
        "has_live_ranges": facts.has_live_ranges,
        "has_hlo_text": header is not None,
        "peak_unknown_reason": peak_unknown_reason(facts),
    }


def peak_unknown_reason(facts: ModuleFacts) -> str | None:
    """modules.peak_unknown_reason: one sentence; None if the peak is known."""
    if not facts.has_allocations:
        return "the dump has no allocations"
    if not facts.has_live_ranges:
        return "the dump has no live ranges"
    return None


def file_rows(module_id: int, loaded: Loaded) -> Iterable[Row]:
    """Rows of `files` of one module."""
    for kind, file in loaded.files.files.items():
        yield {
            "module_id": module_id,
            "path": file.name,
            "file_kind": kind,
            "size_bytes": loaded.sizes[kind],
            "content_hash": loaded.hashes[kind],
        }


def companion_rows(source: Batch, ids: list[int]) -> dict[str, list[Row]]:
    """Rows of the tables that the HLO texts and compiler options fill, by table."""
    frames: list[Row] = []
    aliases: list[Row] = []
    options: list[Row] = []
    for number, header in source.headers.items():
        module = {"module_id": ids[number]}
        frames += [{**module, **vars(frame)} for frame in header.frames]
        names = ("output_index", "parameter_number", "parameter_index", "alias_kind")
        aliases += [{**module, **dict(zip(names, a, strict=True))} for a in header.aliases]
    for number, found in source.options.items():
        for ordinal, (name, value) in enumerate(found):
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
    }


def diagnostic_row(run: str, module_id: int | None, finding: Finding) -> Row:
    """A row of `diagnostics`."""
    return {
        "run_name": run,
        "module_id": module_id,
        "severity": finding.severity,
        "code": finding.code,
        "path": finding.path,
        "line_number": finding.line_number,
        "message": finding.message,
    }


def missing_parts(
    files: ModuleFiles, facts: ModuleFacts, source: Batch, number: int
) -> Iterable[Finding]:
    """Files that are not there and would tell more, as notices."""
    header = source.headers.get(number)
    if facts.needs_frames and (header is None or not header.frames):
        message = (
            "source lines are unknown: instructions name stack frames, and the tables are in "
            f"the HLO text {files.key}.txt, which is not there"
        )
        yield Finding(number, "notice", "missing_hlo_text", message)
    if format_era(files, facts, number in source.has_block_layout) != "C":
        return
    for kind, suffix, what in (
        ("buffer_assignment", "-buffer-assignment.txt", "sizes and offsets"),
        ("values", "-buffer-assignment-values.txt", "positions, uses and opcodes"),
        ("live_range", "-live-range.txt", "live ranges and the peak"),
    ):
        if kind not in files.files:
            message = f"{what} are unknown: {files.key}{suffix} is not there"
            yield Finding(number, "notice", "missing_file", message)


def function_name(module_name: str | None) -> str | None:
    """The jitted function that a module name such as `jit_train_step.15` is made from."""
    if module_name is None:
        return None
    name = re.sub(r"\.\d+$", "", module_name)
    return re.sub(r"^(?:p?jit|pmap|xmap)_+(?=.)", "", name)


def format_era(files: ModuleFiles, facts: ModuleFacts, has_block_layout: bool) -> str:
    """modules.format_era: by the files there are, then by what only some eras print."""
    if "values" in files.files or "live_range" in files.files:
        return "C"
    if facts.has_live_ranges or facts.has_tellings or facts.live.peak_status:
        return "B"
    if facts.has_pointer or has_block_layout:
        return "A"
    return "B" if facts.has_used_values else "C"
