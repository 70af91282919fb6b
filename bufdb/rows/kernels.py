"""Rows of `kernels`: scratch memory of kernels, used and allowed."""

from __future__ import annotations

from bufdb.columnar.rows import objects, strings
from bufdb.columnar.scan import Columns
from bufdb.read import kernels, mosaic_gpu
from bufdb.read.hlo_graph import HloGraph
from bufdb.read.kernels import Companions

_CALL = b'custom_call_target="'
_NO_CODE = "the dump has no after_codegen.txt, which prints it once a kernel is compiled"
_OTHER_CODE = "after_codegen.txt has no instruction like it, so it is of another compilation"
_NO_THUNKS = "the dump has no thunk_sequence.txt with thunk_metadata.txt, which print it"
_NO_SIZE = "thunk_sequence.txt does not print its shared memory"
_NO_NAME = "thunk_metadata.txt does not name it, so its thunk is not known"
_NO_MODULE = "the kernel's module, which has it, is not in the text"
_OTHER_MODULE = "the kernel's module, which has it, is not understood: "
_DEFAULT = (
    "it has no vmem_limit_bytes: the compiler's own limit, which this text does not print "
    "(16 MiB on TPU v5e, 32 MiB on v6e)"
)
_NO_GPU = "the dump has no gpu_target_config.pbtxt with shared_memory_per_block_optin"


Row = tuple[bytes, bytes | None, str, int | None, int | None, str | None, str | None]
"""The columns of the table, in order."""


def has_rows(text: bytes, companions: Companions | None) -> bool:
    """Return whether a text may have rows."""
    is_gpu = companions is not None and any((companions.thunks or {}).values())
    return is_gpu or any(_CALL + target + b'"' in text for target in kernels.TARGETS)


def columns_of(graph: HloGraph, companions: Companions | None) -> Columns:
    """Return the columns of a module, without the module; none if there are no rows."""
    rows = rows_of(graph, companions or Companions())
    if not rows:
        return {}
    names, targets, spaces, used, limits, why_used, why_limit = zip(*rows, strict=True)
    return {
        "instruction_name": strings(names),
        "target": strings(targets),
        "memory_space_name": strings(spaces),
        "used_bytes": objects(used),
        "limit_bytes": objects(limits),
        "used_unknown_reason": strings(why_used),
        "limit_unknown_reason": strings(why_limit),
    }


def rows_of(graph: HloGraph, companions: Companions) -> list[Row]:
    """Return the rows of a module, in order of the names."""
    rows: dict[bytes, Row] = {}
    shared = companions.shared()
    for ins in graph.having(_CALL):
        target = kernels.target_of(ins.attributes) if ins.opcode == "custom-call" else None
        if target == kernels.TPU_TARGET:
            rows[ins.name] = _of_tpu(ins.name, target, ins.attributes, companions)
        elif target is not None:
            rows[ins.name] = _of_gpu(ins.name, target, ins.attributes, shared, companions)
    others = [name for name, size in shared.items() if size and name not in rows]
    for name in graph.homes(others):
        rows[name] = _of_gpu(name, None, b"", shared, companions)
    return [rows[name] for name in sorted(rows)]


def _of_tpu(name: bytes, target: bytes, attributes: bytes, companions: Companions) -> Row:
    used, limit = kernels.scoped(attributes)
    why = None
    if used is None and companions.calls is None:
        why = _NO_CODE
    elif used is None and companions.calls is not None:
        used = companions.calls.used_by(name, attributes)
        why = _OTHER_CODE if used is None else None
    return name, target, "vmem", used, limit, why, _DEFAULT if limit is None else None


def _of_gpu(
    name: bytes,
    target: bytes | None,
    attributes: bytes,
    shared: dict[bytes, int],
    companions: Companions,
) -> Row:
    limit, used = companions.block_limit, shared.get(name)
    why = None
    if used is None and target is not None and target.startswith(b"mosaic"):
        used, why = _of_module(attributes)
    elif used is None and (companions.thunks is None or not companions.names):
        why = _NO_THUNKS
    elif used is None:
        why = _NO_SIZE if name in companions.named else _NO_NAME
    return name, target, "shared", used, limit, why, _NO_GPU if limit is None else None


def _of_module(attributes: bytes) -> tuple[int | None, str | None]:
    """Return the shared memory of a Mosaic GPU kernel, or why it is not known."""
    try:
        used = mosaic_gpu.shared_bytes(attributes)
    except ValueError as error:
        return None, f"{_OTHER_MODULE}{error}"
    return used, _NO_MODULE if used is None else None
