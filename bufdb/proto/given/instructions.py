"""Instructions of serialised computations, end to end: a list of each field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np

from bufdb.proto import reader
from bufdb.proto.given.columns import Messages, chunks
from bufdb.proto.reader import UnreadableProto

_NAME = re.compile(rb"[A-Za-z_][\w.\-]*")
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_IS_FIRST = np.isin(np.arange(256), np.frombuffer(_LETTERS, np.uint8))
_OTHERS = _LETTERS + b"0123456789.-"
_ATTRIBUTES = (
    *("fusion_kind", "dimensions", "window", "convolution_dimension_numbers", "channel_id"),
    *("custom_call_target", "dot_dimension_numbers", "sharding", "replica_groups"),
    *("feature_group_count", "source_target_pairs", "batch_group_count", "comparison_direction"),
    *("collective_device_list", "iota_collective_device_list", "mesh_axes_replica_group_list"),
)
"""Fields that only the printed attributes are made of: few are different from all others."""


@dataclass
class Instructions:
    """Instructions in the order of the proto; each list has all of them."""

    ids: list[int] = field(default_factory=list)
    """As the proto has them: from jaxlib 0.7 on the computation's is in the high half."""
    names: list[str] = field(default_factory=list)
    opcodes: list[str] = field(default_factory=list)
    shapes: list[bytes] = field(default_factory=list)
    """Serialised, as are the next three."""
    metadata: list[bytes] = field(default_factory=list)
    literals: list[bytes] = field(default_factory=list)
    attributes: list[bytes] = field(default_factory=list)
    """What else is printed, as an instruction that has nothing but these fields."""
    configs: list[bytes] = field(default_factory=list)
    """What backends add."""
    operand_ids: list[int] = field(default_factory=list)
    """Operands of all, one behind the other."""
    operand_counts: list[int] = field(default_factory=list)
    called: dict[int, Sequence[int]] = field(default_factory=dict)
    """Ids of the computations that instructions name, if they name any."""
    parameter_numbers: list[int] = field(default_factory=list)
    """0 where it is none, as in the next."""
    tuple_indexes: list[int] = field(default_factory=list)

    def first_operand(self, i: int) -> int:
        """The id of an instruction's first operand, -1 without one."""
        return self.operand_ids[self._first_operands[i]] if self.operand_counts[i] else -1

    @cached_property
    def _first_operands(self) -> list[int]:
        return list(accumulate(self.operand_counts, initial=0))


def read(serialised: Sequence[bytes], payloads: Sequence[bytes] = ()) -> Instructions:
    """Read instructions.

    Args:
        serialised: them.
        payloads: of their module.

    Raises:
        UnreadableProto: one cannot be parsed, or has a name or an opcode that is none.
    """
    found = Instructions()
    names: list[bytes] = []
    opcodes: list[bytes] = []
    for some in chunks("HloInstructionProto", serialised):
        first = len(found.ids)
        found.ids += some.numbers("id").tolist()
        names += some.texts("name")
        opcodes += some.texts("opcode")
        found.shapes += some.texts("shape")
        found.metadata += some.texts("metadata")
        found.literals += some.joined("literal")
        found.attributes += some.parts(_ATTRIBUTES)
        found.configs += _configs(some, payloads)
        operands, counts = some.all_numbers("operand_ids")
        found.operand_ids += operands
        found.operand_counts += counts
        called, counts = some.all_numbers("called_computation_ids")
        spans = pairwise(accumulate(counts, initial=0))
        found.called |= {i: called[a:b] for i, (a, b) in enumerate(spans, first) if a < b}
        found.parameter_numbers += some.numbers("parameter_number").tolist()
        found.tuple_indexes += some.numbers("tuple_index").tolist()
    for data in set(found.attributes):
        reader.instruction_of(data)
    for data in set(found.literals):
        reader.literal_of(data)
    found.names = checked_names(names)
    found.opcodes = _opcodes(opcodes)
    return found


def _configs(some: Messages, payloads: Sequence[bytes]) -> list[bytes]:
    """Configurations of backends, which may be payloads of the module (2026-03 and later)."""
    found = some.texts("backend_config")
    for row, data in enumerate(some.joined("backend_config_payload")):
        if data and not found[row]:
            given = reader.payload_of(data)
            source = given.WhichOneof("payload_source")
            if source == "value":
                found[row] = given.value
            elif source == "id" and 0 <= given.id < len(payloads):
                found[row] = payloads[given.id]
    return found


def _opcodes(words: Sequence[bytes]) -> list[str]:
    """Opcodes, held to what names are: nothing in them can end a line either."""
    different = list(set(words))
    texts = dict(zip(different, checked_names(different), strict=True))
    return [texts[word] for word in words]


def checked_names(names: Sequence[bytes]) -> list[str]:
    """The same as text, if all are names, with nothing in them that could end a line.

    Raises:
        UnreadableProto: one is none.
    """
    together = b"\n".join(names)
    # All at once: what is left without the letters of names are the ends between them.
    ends = together.translate(None, _OTHERS)
    if not names:
        return []
    if len(ends) == ends.count(b"\n") == len(names) - 1:
        letters = np.frombuffer(b"\n" + together + b"\n", np.uint8)
        if _IS_FIRST[letters[np.flatnonzero(letters[:-1] == ord("\n")) + 1]].all():
            return together.decode("ascii").split("\n")
    for name in names:
        if not _NAME.fullmatch(name):
            found = name[:80].decode("ascii", "backslashreplace")
            raise UnreadableProto(f"it is damaged: {found!r} is no name")
    return []
