"""Rows of `value_origins`: whose data are in the buffers that the loops of a module carry.

A loop's buffers are the values that merge several definitions (phi), whoever shares their bytes
while they live, and what is handed to a loop in place. Those are walked; beside them the values
that bear no line of the user's and stand in a loop or use what it carries. Names are compared by
their hashes, as in the index of values. A module whose HLO text has no loop costs one search of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bufdb.assemble.loops.places import Place, Places
from bufdb.assemble.loops.walk import Origin, Walker
from bufdb.columnar.arrow import Labels, objects
from bufdb.columnar.scan import Bools, Columns, Ints, Text, Words
from bufdb.link.context import Context, Observer
from bufdb.link.lifetimes import Lifetimes
from bufdb.link.op_paths import op_path, strip_op_path
from bufdb.link.value_index import ValueIndex, isin, lookup
from bufdb.memory.buffers import places, sharers
from bufdb.memory.sums import distinct_pairs
from bufdb.read.hlo import is_library_path
from bufdb.read.hlo_graph import HloGraph, Index, Instruction, loops_in, loops_of
from bufdb.read.used_values import UsedValues

_EMPTY = np.empty(0, np.int64)


@dataclass
class _Elements:
    """Values that are elements of tuples, or merge several definitions; by row of the index."""

    module: list[Ints] = field(default_factory=list)
    value_id: list[Ints] = field(default_factory=list)
    code: list[Ints] = field(default_factory=list)
    is_phi: list[Bools] = field(default_factory=list)
    indexes: list[bytes] = field(default_factory=lambda: [b"{}"])
    """The index texts, by code."""
    codes: dict[bytes, int] = field(default_factory=lambda: {b"{}": 0})

    def encode(self, texts: Text) -> Ints:
        """A code for each index text."""
        _, first, inverse = np.unique(
            texts.hashes(np.uint64(0)), return_index=True, return_inverse=True
        )
        found = []
        for text in texts.take(first).tolist():
            found.append(self.codes.setdefault(text or b"{}", len(self.indexes)))
            if found[-1] == len(self.indexes):
                self.indexes.append(text or b"{}")
        return np.array(found, np.int64)[inverse]


class Origins(Observer):
    """The loops of a batch, from its first section to the rows of the table."""

    def __init__(self, context: Context) -> None:
        """Look for loops in the HLO texts."""
        self.context = context
        self.places: dict[int, Places] = {}
        self._loops: dict[int, list[int]] = {}
        """Where loops stand in the HLO text."""
        for pieces in context.source.hlo():
            for piece in pieces:
                if loops := loops_in(piece.text):
                    header = context.source.headers.get(piece.module)
                    self.places[piece.module] = Places(header, loops_of(piece.text, loops))
                    self._loops[piece.module] = loops
        self._has_loop = np.zeros(context.count, np.bool_)
        self._has_loop[list(self.places)] = True
        self._has_lines = np.zeros(context.count, np.bool_)
        """Modules with lines of the user's: without any, nothing is looked for but stacks."""
        self._elements = _Elements()
        self._rows = self._carrier = self._place = _EMPTY
        """Values that share the bytes of a loop, the phi value they share with, and where."""
        self._phi_keys: Words = np.empty(0, np.uint64)
        self._phi_rows = _EMPTY
        self._starts: dict[int, tuple[int, int]] = {}
        """For what is handed to a loop in place: the loop's place in the program, its element."""
        self._names: dict[int, bytes] = {}
        """Names of the instructions that may define values to walk from, by their hash."""
        self.told: dict[int, tuple[str | None, str | None]] = {}
        """Names of line and op by row of the values whose data were made elsewhere."""
        self._lineless: list[Words] = []
        """Of those without a line of the user's."""
        self._users: list[Words] = []
        """Of those that use what shares bytes with a loop."""

    # -- what the sections say -----------------------------------------------------------------

    def see_values(self, placed: Columns) -> None:
        """Remember the indexes of values, as read with their allocations."""
        if not self.places:
            return
        index: Text = placed["shape_index"]
        assert index.valid is not None
        has_index = index.valid & (index.stop - index.start > 2)
        rows = self._has_loop[placed["module"]] & (has_index | placed["is_phi"])
        self._elements.module.append(placed["module"][rows])
        self._elements.value_id.append(placed["value_id"][rows])
        self._elements.is_phi.append(placed["is_phi"][rows])
        self._elements.code.append(self._elements.encode(index.take(rows)))

    def find_sharers(self, values: ValueIndex, lifetimes: Lifetimes) -> None:
        """Find the values that share the bytes of what a loop carries, while it does."""
        self._lifetimes = lifetimes
        if not self.places:
            return
        elements = self._elements
        module, value_id = _joined(elements.module), _joined(elements.value_id)
        rows = values.by_number(module, value_id)
        there = rows >= 0
        self._codes = np.zeros(len(values), np.int64)
        self._codes[rows[there]] = _joined(elements.code)[there]
        is_phi = np.zeros(len(values), np.bool_)
        is_phi[rows[there]] = np.concatenate([np.empty(0, np.bool_), *elements.is_phi])[there]
        mine = np.flatnonzero(self._has_loop[values.module])
        parts = [values.module, values.allocation_index, values.offset_bytes, values.size_bytes]
        place = places([part[mine] for part in parts], is_phi[mine])
        mine, place = mine[place >= 0], place[place >= 0]
        start, end = lifetimes.start[mine], lifetimes.end[mine]
        found = sharers(place, start, end, is_phi[mine])
        # A loop's own elements count, live ranges or not.
        found = np.where(is_phi[mine], np.arange(len(mine)), found)
        shares = found >= 0
        self._rows, self._place = mine[shares], place[shares]
        self._carrier = mine[found[shares]]
        self._candidates = np.unique(values.name_key[self._rows])
        phis = np.flatnonzero(is_phi)
        order = np.argsort(values.key[phis], kind="stable")
        self._phi_keys, self._phi_rows = values.key[phis[order]], phis[order]

    def see_uses(self, found: UsedValues) -> None:
        """Find what is handed to a loop as an element of its operand, and stays where it is."""
        uses = found.uses
        if not self.places or not len(uses["head"]):
            return
        index: Text = uses["operand_index"]
        assert index.valid is not None
        rows = found.rows[uses["head"]]
        shared = self._place_of(rows) >= 0
        by = np.flatnonzero(shared)
        users: Text = uses["instruction_name"].take(by)
        self._users.append(users.hashes(self.context.seeds[uses["module"][by]]))
        handed = np.flatnonzero(shared & index.valid & (uses["operand_number"] == 0))
        if not len(handed):
            return
        names: Text = uses["instruction_name"].take(handed)
        keys = names.hashes(self.context.seeds[uses["module"][handed]])
        phi = lookup(self._phi_keys, self._phi_rows, index.take(handed).hashes(keys))
        order = self._lifetimes.program_order(keys).filled(-1)
        stays = (phi >= 0) & (self._place_of(phi) == self._place_of(rows[handed]))
        for row, at, loop in zip(
            rows[handed][stays].tolist(), order[stays].tolist(), phi[stays].tolist(), strict=True
        ):
            self._starts[row] = min(self._starts.get(row, (at, loop)), (at, loop))

    def _place_of(self, rows: Ints) -> Ints:
        return lookup(self._rows, self._place, rows)

    def see_instructions(self, columns: Columns, name_keys: Words) -> None:
        """Remember the instructions that bear no line of the user's."""
        if not self.places:
            return
        mine = np.flatnonzero(self._has_loop[columns["module"]])
        if not len(mine):
            return
        lineless = self._is_lineless(columns, mine)
        self._has_lines[columns["module"][mine][~lineless]] = True
        self._lineless.append(name_keys[mine][lineless])
        mine = mine[lineless | isin(name_keys[mine], self._candidates)]
        names: Text = columns["instruction_name"].take(mine)
        keys = name_keys[mine].tolist()
        self._names.update(
            (key, name or b"") for key, name in zip(keys, names.tolist(), strict=True)
        )

    def _is_lineless(self, columns: Columns, mine: Ints) -> Bools:
        """Which of these rows bear no line outside libraries, or one that is a loop's."""
        modules, lineless = columns["module"][mine], np.ones(len(mine), np.bool_)
        frames: Ints = columns["stack_frame_id"].take(mine).filled(0)
        framed = np.flatnonzero(frames)
        pairs, number = distinct_pairs(modules[framed], frames[framed])
        lines = [self.places[module].of_frame(frame) for module, frame in pairs.tolist()]
        lineless[framed] = self._are_of_no_user(pairs[:, 0], lines)[number]
        files: Text = columns["source_file"].take(mine)
        nulls = files.is_null()
        has_file = np.ones(len(mine), np.bool_) if nulls is None else ~nulls
        inline = np.flatnonzero(has_file & (frames == 0))
        numbers: Ints = columns["source_line"].take(mine).filled(0)[inline]
        keys = files.take(inline).hashes((modules[inline] << 32 ^ numbers).astype(np.uint64))
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        names = [(name or b"").decode() for name in files.take(inline[first]).tolist()]
        of_files = zip(names, numbers[first].tolist(), strict=True)
        lines = [None if is_library_path(name) else (name, line) for name, line in of_files]
        lineless[inline] = self._are_of_no_user(modules[inline[first]], lines)[number]
        return lineless

    def _are_of_no_user(self, modules: Ints, lines: list[Place | None]) -> Bools:
        found = zip(modules.tolist(), lines, strict=True)
        return np.array(
            [line is None or line in self.places[module].of_loops for module, line in found],
            np.bool_,
        )

    # -- rows ----------------------------------------------------------------------------------

    def add_rows(self, values: ValueIndex, lifetimes: Lifetimes) -> None:
        """Walk, and give the rows away."""
        if not self.places:
            return
        lineless = _distinct(self._lineless)
        chosen = np.flatnonzero(isin(values.name_key, lineless) & lifetimes.is_live)
        chosen = chosen[self._has_lines[values.module[chosen]]]
        chosen = np.union1d(self._rows, chosen)
        for pieces in self.context.source.hlo():
            for piece in pieces:
                if piece.module in self.places:
                    rows = chosen[values.module[chosen] == piece.module]
                    graph = HloGraph(piece.text, self._loops[piece.module])
                    walks = _Walks(self, values, graph, self.places[piece.module])
                    found, origins = walks.origins(rows)
                    self._emit(piece.module, values.value_id[found], origins)
                    self._tell(piece.module, found, origins)

    def _emit(self, module: int, value_ids: Ints, origins: list[Origin]) -> None:
        """Rows of one module; what several values share is made once."""
        if not origins:
            return
        unique = {id(origin): origin for origin in origins}
        number = {key: place for place, key in enumerate(unique)}
        code = np.array([number[id(origin)] for origin in origins], np.int64)
        places = self.places[module]
        cells = [_cells(origin, places) for origin in unique.values()]
        columns: Columns = {"module": np.full(len(code), module), "value_id": value_ids}
        for name in cells[0]:
            some = [row[name] for row in cells]
            if name.startswith("is_"):
                columns[name] = np.array(some, np.bool_)[code]
            elif name in _NUMBERS:
                columns[name] = objects(some)[code]
            else:
                labels = {text: number for number, text in enumerate(dict.fromkeys(some))}
                codes = np.array([labels[text] for text in some], np.int64)
                columns[name] = Labels(codes[code], list(labels))
        self.context.emit("value_origins", columns)

    def _tell(self, module: int, rows: Ints, origins: list[Origin]) -> None:
        """Name lines and ops as value_origin_details in `schema/` does."""
        places = self.places[module]
        named = {id(origin): _names(origin, places) for origin in origins}
        told = (named[id(origin)] for origin in origins)
        self.told.update(zip(rows.tolist(), told, strict=True))


def _names(origin: Origin, places: Places) -> tuple[str | None, str | None]:
    """The line and the op that a value is attributed to; None where its own stand."""
    end = origin.instruction
    if end is None:
        return None, None
    op_name = None if end.op_name is None else end.op_name.decode(errors="replace")
    place = places.own(end)
    line = None if place is None else f"{place[0]}:{place[1]}"
    relation = "saved " if origin.kind in ("stacked", "slice") else ""
    if end.opcode == "parameter":
        relation = {"stacked": "saved ", "slice": "slice of "}.get(origin.kind, "copy of ")
        line = op_name if line is None else line
    return (
        None if line is None else relation + line,
        None if op_name is None else relation + strip_op_path(op_path(op_name)),
    )


_NUMBERS = frozenset(
    (
        "source_line",
        "stack_frame_id",
        "slice_bytes",
        "slice_count",
        "trip_count",
        "step_count",
    )
)


def _cells(origin: Origin, places: Places) -> dict[str, Any]:
    """The columns of the table that do not depend on the value."""
    end, shape = origin.instruction, origin.slice_shape
    file, line, frame = (None, None, None) if end is None else places.innermost(end)
    return {
        "origin_kind": origin.kind,
        "opcode": None if end is None else end.opcode,
        "op_name": None if end is None else end.op_name,
        "source_file": file,
        "source_line": line,
        "stack_frame_id": frame,
        "instruction_name": None if end is None else end.name,
        "loop_instruction_name": None if origin.loop is None else origin.loop.name,
        "written_by": None if origin.written_by is None else origin.written_by.name,
        "slice_shape": None if shape is None else shape.text,
        "slice_bytes": None if shape is None else shape.logical_bytes,
        "slice_count": origin.slice_count,
        "trip_count": None if origin.loop is None else origin.loop.trip_count,
        "step_count": origin.step_count,
        "is_layer_input": origin.is_layer_input,
        "is_exact": origin.is_exact,
    }


class _Walks:
    """The walks of one module."""

    def __init__(self, found: Origins, values: ValueIndex, graph: HloGraph, places: Places) -> None:
        self.found, self.values, self.graph, self.places = found, values, graph, places
        self.walker = Walker(graph, places)
        self.homes: dict[bytes, int] = {}
        self._starts: dict[int, tuple[Instruction | None, Instruction | None]] = {}
        self._carries: dict[tuple[int, int], Origin] = {}
        self._has_line: dict[int, bool] = {}

    def origins(self, rows: Ints) -> tuple[Ints, list[Origin]]:
        """The values of which there is something to say, by row, and their origins."""
        found, names = self.found, self.found._names
        handed = [found._starts.get(row, (0, row))[1] for row in rows.tolist()]
        keys = self.values.name_key[handed].tolist()
        carriers = lookup(found._rows, found._carrier, rows)
        carrier_keys = self.values.name_key[carriers].tolist()
        is_near = (carriers >= 0) | isin(self.values.name_key[rows], _distinct(found._users))
        near = {key for key, is_so in zip(keys, is_near.tolist(), strict=True) if is_so}
        near.update(carrier_keys)
        others = [names[key] for key in keys if key in names and key not in near]
        self.homes = self.graph.homes(others, only_in_loops=True)
        self.homes |= self.graph.homes(names[key] for key in near if key in names)
        indexes = [_index(text) for text in found._elements.indexes]
        cells = zip(
            keys, found._codes[handed].tolist(), carriers.tolist(), carrier_keys, strict=True
        )
        kept, origins = [], []
        for place, (key, code, carrier, carrier_key) in enumerate(cells):
            ins, _ = self._start(key)
            if ins is None:
                continue
            loop = self._start(carrier_key)[1] if carrier >= 0 else None
            origin = self._origin(ins, indexes[code], loop)
            if origin is not None:
                kept.append(place)
                origins.append(origin)
        return rows[kept], origins

    def _start(self, key: int) -> tuple[Instruction | None, Instruction | None]:
        """Where the walk for a name begins, and the loop if the name is an element of one.

        What the body of a loop is given begins at the loop. Parameters and constants of the
        program are what they are.
        """
        if key not in self._starts:
            self._starts[key] = self._look_up(key)
        return self._starts[key]

    def _look_up(self, key: int) -> tuple[Instruction | None, Instruction | None]:
        name = self.found._names.get(key)
        home = None if name is None else self.homes.get(name)
        ins = None if name is None or home is None else self.graph.find(home, name)
        if ins is None or ins.opcode in ("constant", "iota"):
            return None, None
        if ins.opcode == "while":
            return ins, ins
        if ins.opcode == "parameter":
            caller = self.graph.caller(ins.computation)
            if caller is None:
                return None, None
            if caller[1] in ("body", "condition"):
                return caller[0], caller[0]
        return ins, None

    def _origin(self, ins: Instruction, index: Index, loop: Instruction | None) -> Origin | None:
        """The origin of a value that a loop carries, or none; None if nothing is to be said."""
        origin = self.walker.origin(ins, index)
        if origin.kind == "self":
            if loop is None:
                return None
            key = id(origin), loop.position
            if key not in self._carries:
                self._carries[key] = replace(origin, kind="carry", loop=loop)
            origin = self._carries[key]
        elif loop is None and origin.loop is None:
            return None
        if origin.kind == "stacked":
            return origin
        if id(origin) not in self._has_line:
            self._has_line[id(origin)] = self._is_named(origin)
        return origin if self._has_line[id(origin)] else None

    def _is_named(self, origin: Origin) -> bool:
        """Whether the walk ended at a line of the user's, or at a parameter with a name."""
        end = origin.instruction
        if end is None:
            return False
        is_parameter = end.opcode == "parameter" and end.op_name is not None
        return is_parameter or self.places.own(end) is not None


def _index(text: bytes) -> Index:
    inside = text.strip(b"{} ")
    return tuple(int(number[:9]) for number in inside.split(b",")) if inside else ()


def _distinct(parts: list[Words]) -> Words:
    return np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([_EMPTY, *parts])
