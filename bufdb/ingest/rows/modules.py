"""Rows of the small tables: what there is once per module, file, frame, shape or finding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bufdb.columnar.account import Finding, Tally
from bufdb.dumps.files import BUFFER_KINDS, PROTO, ModuleFiles

if TYPE_CHECKING:
    from bufdb.dumps.batch import Batch
    from bufdb.link.context import ModuleFacts
    from bufdb.read.shape import Shape

Row = dict[str, Any]
_PARTS = {
    "buffer_assignment": "allocations",
    "values": "used_values",
    "live_range": "live_ranges",
    "hlo": "hlo_text",
    "instructions": "instructions",
}
"""What each kind of text is called in modules.derived_from_proto."""

_PREFIX = re.compile(r"^(?:p?jit|pmap|xmap|xla_computation)_(?=.)")
_TENSORFLOW = re.compile(
    r"(?:a|_)_inference_(.+?)_\d+(?:__XlaMustCompile.*)?|(cluster_\d+(?:_f\d+n_\d+)?)_*"
)
_COUNTED = re.compile(r"\.\d+$")
_OF_NO_FUNCTION = re.compile(r"(?:SyncTensorsGraph|IrToHlo|ConvertXlaToHlo)(?:\.\d+)?")


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
    texts = (header, before.header if (before := source.before.get(number)) else None)
    first = next((text for text in texts if text and text.module_name), None)
    module_name = name.module_name or (first.module_name if first else None)
    return {
        "module_id": module_id,
        "run_name": run,
        "module_key": files.key,
        "module_name": module_name,
        "function_name": function_name(module_name) or facts.jit_name,
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
    }


def file_rows(module_id: int, source: Batch, number: int) -> Iterable[Row]:
    """Rows of `files` of the module with this number in its batch."""
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
    """Lines of a file; of a proto those of the text that was derived from it."""
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
    """Rows of the tables that the HLO texts and compiler options fill, by table."""
    frames: list[Row] = []
    aliases: list[Row] = []
    options: list[Row] = []
    parameters: list[Row] = []
    sums = [
        {"module_id": ids[number], "color": color, "total_bytes": total}
        for number, found in source.reported_sums.items()
        for color, total in found
    ]
    for number, header in source.headers.items():
        module = {"module_id": ids[number]}
        frames += [{**module, **vars(frame)} for frame in header.frames]
        names = ("output_index", "parameter_number", "parameter_index", "alias_kind")
        aliases += [{**module, **dict(zip(names, a, strict=True))} for a in header.aliases]
    for number, before in source.before.items():
        rows = before.parameters.values()
        parameters += [{"module_id": ids[number], **vars(row)} for row in rows]
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
        "entry_parameters": parameters,
        "reported_sums": sums,
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


def function_name(module_name: str | None) -> str | None:
    """The function that a module such as `jit_train_step.15` is named for (format section 2.2).

    Of JAX's names one underscore belongs to the prefix, the others to the function: `jit__step` is
    `_step`. TensorFlow counts its functions, and appends what it compiles them with. torch_xla has
    one name for all programs, which is that of no function.
    """
    if module_name is None or _OF_NO_FUNCTION.fullmatch(module_name):
        return None
    name = _COUNTED.sub("", module_name)
    found = _TENSORFLOW.fullmatch(name)
    return (found[1] or found[2]) if found else _PREFIX.sub("", name)


def derived_parts(derived: frozenset[str]) -> str | None:
    """modules.derived_from_proto: what no text told."""
    return " ".join(name for kind, name in _PARTS.items() if kind in derived) or None


def format_era(
    files: ModuleFiles, facts: ModuleFacts, has_block_layout: bool, derived: frozenset[str]
) -> str:
    """modules.format_era: by the files there are, then by what only some eras print."""
    if facts.is_message:
        return "M"
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
