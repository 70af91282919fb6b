"""Rows of value_origins: which instruction and line made what a loop carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Text, Words, take
from bufdb.columnar.sets import distinct, union
from bufdb.memory.buffers import places, sharers
from bufdb.memory.ranges import distinct_pairs, numbered
from bufdb.read.hlo_graph import HloGraph, Index, Instruction, loops_in, loops_of
from bufdb.read.jax_names import is_backward
from bufdb.read.shape import elements_of, shape_of
from bufdb.read.used_values import UsedValues
from bufdb.rows.attribution import Attributed
from bufdb.rows.context import Context, Observer
from bufdb.rows.lifetimes import Lifetimes
from bufdb.rows.loop_places import Place, Places
from bufdb.rows.loop_walk import Origin, Walker
from bufdb.rows.op_names import op_path, strip_op_path
from bufdb.rows.value_index import ValueIndex, isin, lookup

# -- Number and size of the slices in a value whose data a loop stacks -----------------------------
#
# The walk to a stack leads through conversions, tables of tuples and computations of XLA's own,
# such as what puts the gradients of several stacks into one buffer for one all-reduce. So the
# slices are counted by the shape of the value: one that is not the stack has none. Where a loop
# inserts f32 into what is kept as bf16, the slices are those of the bf16.


class Slices:
    """The slices in the values of one module."""

    def __init__(self) -> None:
        self._elements: dict[tuple[int, Index], tuple[str, ...]] = {}
        """The shapes of the elements of each tuple, which is split once."""
        self._counted: dict[tuple[int, str | None], Origin] = {}

    def counted(self, origin: Origin, ins: Instruction, index: Index) -> Origin:
        """Return the origin of what an instruction defines at an index, with its slices."""
        if origin.slice_count is None:
            return origin
        text = self._shape(ins, index) if origin.kind == "stacked" else None
        key = id(origin), text
        if key not in self._counted:
            count, size = _slices(origin, text)
            self._counted[key] = replace(origin, slice_count=count, slice_bytes=size)
        return self._counted[key]

    def _shape(self, ins: Instruction, index: Index) -> str | None:
        """Return the text of the shape at an index."""
        if not index:
            return ins.shape
        key = ins.position, index[:-1]
        if key not in self._elements:
            whole = self._shape(ins, index[:-1]) or ""
            self._elements[key] = (elements_of(whole) if whole.startswith("(") else None) or ()
        elements = self._elements[key]
        return elements[index[-1]] if index[-1] < len(elements) else None


def _slices(origin: Origin, text: str | None) -> tuple[int | None, int | None]:
    """Return how many slices fill a value of this shape, and the bytes of one in it."""
    value, slice_shape, count = shape_of(text or ""), origin.slice_shape, origin.slice_count
    if not count or slice_shape is None or not slice_shape.element_count:
        return None, None
    if value.is_tuple or value.element_count != count * slice_shape.element_count:
        return None, None
    size, rest = divmod(value.logical_bytes or 0, count)
    return (count, size) if size and not rest else (None, None)


# -- Origins as columns of `value_origins`, and the names of lines and ops that they give ----------
#
# Many values share one origin: each origin is described once.

Names = tuple[str | None, str | None, str | None]
"""The user's line, else that of a library, and the op that values are attributed to; None where
their own count."""


def columns_of(origins: Sequence[Origin], places: Places) -> Columns:
    """Return the columns of the table that do not depend on the value, a row for each origin."""
    ends = [origin.instruction for origin in origins]
    loops = [origin.loop for origin in origins]
    shapes = [origin.slice_shape for origin in origins]
    lines = [(None, None, None) if end is None else places.innermost(end) for end in ends]
    distinct = {loop.position: loop for loop in loops if loop is not None}
    trips = {position: loop.trip_count for position, loop in distinct.items()}
    return {
        "origin_kind": _texts([origin.kind for origin in origins]),
        "opcode": _texts([None if end is None else end.opcode for end in ends]),
        "op_name": _texts([None if end is None else end.op_name for end in ends]),
        "source_file": _texts([file for file, _, _ in lines]),
        "source_line": _numbers([line for _, line, _ in lines]),
        "stack_frame_id": _numbers([frame for _, _, frame in lines]),
        "instruction_name": _texts([None if end is None else end.name for end in ends]),
        "loop_instruction_name": _texts([None if loop is None else loop.name for loop in loops]),
        "written_by": _texts(
            [None if origin.written_by is None else origin.written_by.name for origin in origins]
        ),
        "slice_shape": _texts([None if shape is None else shape.text for shape in shapes]),
        "slice_bytes": _numbers([origin.slice_bytes for origin in origins]),
        "slice_count": _numbers([origin.slice_count for origin in origins]),
        "trip_count": _numbers([None if loop is None else trips[loop.position] for loop in loops]),
        "step_count": np.array([origin.step_count for origin in origins], np.int64),
        "is_layer_input": np.array([origin.is_layer_input for origin in origins], np.bool_),
        "is_exact": np.array([origin.is_exact for origin in origins], np.bool_),
    }


def names_of(origins: Sequence[Origin], places: Places) -> list[Names]:
    """Return the names of lines and ops as value_origin_details in `schema/` has them."""
    known: dict[bytes, tuple[str, str]] = {}
    return [_names(origin, places, known) for origin in origins]


def are_backward(origins: Sequence[Origin]) -> list[bool | None]:
    """Return whether the backward pass makes their data; None of what has no op_name."""
    ends = [origin.instruction for origin in origins]
    names = [None if end is None else end.op_name for end in ends]
    return [None if name is None else is_backward(name) for name in names]


def _names(origin: Origin, places: Places, known: dict[bytes, tuple[str, str]]) -> Names:
    end = origin.instruction
    if end is None:
        return None, None, None
    relation = "saved " if origin.kind in ("stacked", "slice") else ""
    if end.opcode == "parameter":
        relation = {"stacked": "saved ", "slice": "slice of "}.get(origin.kind, "copy of ")
    place, op_name = places.own(end) if places.has_own else None, end.op_name
    op = name = None
    if op_name is not None:
        if op_name not in known:
            text = op_name.decode(errors="replace")
            known[op_name] = text, strip_op_path(op_path(text))
        name, op = known[op_name]
    line = name if end.opcode == "parameter" else None
    if place is not None:
        line = f"{place[0]}:{place[1]}"
    library = places.library_source(end) if line is None else None
    line, library, op = (None if name is None else relation + name for name in (line, library, op))
    return line, library, op


def _texts(cells: Sequence[str | bytes | None]) -> Labels:
    labels = {text: number for number, text in enumerate(dict.fromkeys(cells))}
    return Labels(np.array([labels[text] for text in cells], np.int64), list(labels))


def _numbers(cells: list[int | None]) -> Numbers:
    """Return a column with NULL for None; numbers read from a line have 64 bits at most."""
    valid = np.array([cell is not None for cell in cells], np.bool_)
    return Numbers(np.array([cell or 0 for cell in cells], np.int64), valid)


# -- Rows of `value_origins`: whose data are in the buffers that the loops of a module carry -------
#
# A loop's buffers are the values that merge several definitions (phi), the values that share
# their bytes while they live, and what is handed to a loop in place. Those are walked, and so are
# the values without a line of the user's that are in a loop or use what it carries. Names are
# compared by their hashes, as in the index of values. A module whose HLO text has no loop costs one
# search of it.

_EMPTY = np.empty(0, np.int64)
_UNKNOWN_NAMES = (
    "scans have parts that a newer JAX than bufdb knows names {}; lines were found without these "
    "names, and scope paths keep them"
)


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
        """Return a code for each index text."""
        _, first, inverse = np.unique(
            texts.hashes(np.uint64(0)), return_index=True, return_inverse=True
        )
        codes = []
        for text in texts.take(first).tolist():
            codes.append(self.codes.setdefault(text or b"{}", len(self.indexes)))
            if codes[-1] == len(self.indexes):
                self.indexes.append(text or b"{}")
        return np.array(codes, np.int64)[inverse]


@dataclass(frozen=True)
class Found:
    """The origins in one module."""

    rows: Ints
    """Values that have one, as rows of the index, ascending."""
    number: Ints
    """The number of the origin of each."""
    origins: Sequence[Origin]


class Origins(Observer):
    """The loops of a batch, from its first section to the rows of the table."""

    def __init__(self, context: Context) -> None:
        """Look for loops in the HLO texts."""
        self.context = context
        self.places: dict[int, Places] = {}
        self.loops: dict[int, list[int]] = {}
        """Positions of loops in the HLO text."""
        for pieces in context.source.hlo():
            for piece in pieces:
                if loops := loops_in(piece.text):
                    header = context.source.headers.get(piece.module)
                    places = self.places[piece.module] = Places(
                        header, loops_of(piece.text, loops), context.source.own, piece.text
                    )
                    if places.unknown_names:
                        message = _UNKNOWN_NAMES.format(", ".join(places.unknown_names))
                        context.find(piece.module, "notice", "unknown_jax_name", message)
                    self.loops[piece.module] = loops
        self._has_loop = np.zeros(context.count, np.bool_)
        self._has_loop[list(self.places)] = True
        self._has_lines = np.zeros(context.count, np.bool_)
        """Modules with lines of the user's: without any, only stacks are looked for."""
        self._elements = _Elements()
        self._walks: Columns = {}
        self._modules = _EMPTY
        self._rows = self._carrier = self._place = _EMPTY
        """Values that share the bytes of a loop, the phi value they share with, and where."""
        self._phi_keys: Words = np.empty(0, np.uint64)
        self._phi_rows = _EMPTY
        self._starts: dict[int, tuple[int, int]] = {}
        """For what is handed to a loop in place: the loop's place in the program, its element."""
        self._names: dict[int, bytes] = {}
        """Names of the instructions that may define values to walk from, by their hash."""
        self.attributed = Attributed()
        """Names of line and op of the values whose data were made elsewhere."""
        self._lineless: list[Words] = []
        """Hashes of names of instructions without a line of the user's."""
        self._users: list[Words] = []
        """Hashes of names of instructions that use what shares bytes with a loop."""

    def leave_out(self, module: int) -> None:
        """Follow no loop of this module: its HLO text is of another compilation."""
        self.places.pop(module, None)
        self.loops.pop(module, None)
        self._has_loop[module] = False

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
        in_loops = np.flatnonzero(self._has_loop[values.module])
        parts = [values.module, values.allocation_index, values.offset_bytes, values.size_bytes]
        place = places([part[in_loops] for part in parts], is_phi[in_loops])
        in_loops, place = in_loops[place >= 0], place[place >= 0]
        start, end = lifetimes.start[in_loops], lifetimes.end[in_loops]
        sharer = sharers(place, start, end, is_phi[in_loops])
        # A loop's own elements count, live ranges or not.
        sharer = np.where(is_phi[in_loops], np.arange(len(in_loops)), sharer)
        shares = sharer >= 0
        self._rows, self._place = in_loops[shares], place[shares]
        self._carrier = in_loops[sharer[shares]]
        self._candidates = distinct(values.name_keys(self._rows))
        phis = np.flatnonzero(is_phi)
        order = np.argsort(values.key[phis], kind="stable")
        self._phi_keys, self._phi_rows = values.key[phis[order]], phis[order]

    def see_uses(self, used: UsedValues) -> None:
        """Find what is handed to a loop as an element of its operand, and stays where it is."""
        uses = used.uses
        if not self.places or not len(uses["head"]):
            return
        index: Text = uses["operand_index"]
        assert index.valid is not None
        rows = used.rows[uses["head"]]
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
        """Remember the instructions that define values and have no line of the user's."""
        if not self.places:
            return
        in_loops = np.flatnonzero(self._has_loop[columns["module"]])
        if not len(in_loops):
            return
        lineless = self._is_lineless(columns, in_loops)
        self._has_lines[columns["module"][in_loops][~lineless]] = True
        # What defines no value is not walked from: elements of tuples, instructions in fusions.
        defines = columns["name"][in_loops] >= 0
        in_loops, lineless = in_loops[defines], lineless[defines]
        self._lineless.append(name_keys[in_loops][lineless])
        in_loops = in_loops[lineless | isin(name_keys[in_loops], self._candidates)]
        names: Text = columns["instruction_name"].take(in_loops)
        keys = name_keys[in_loops].tolist()
        self._names.update(
            (key, name or b"") for key, name in zip(keys, names.tolist(), strict=True)
        )

    def _is_lineless(self, columns: Columns, rows: Ints) -> Bools:
        """Return which of these rows have no line outside libraries, or one that is a loop's."""
        modules, lineless = columns["module"][rows], np.ones(len(rows), np.bool_)
        frames: Ints = columns["stack_frame_id"].take(rows).filled(0)
        framed = np.flatnonzero(frames)
        pairs, number = distinct_pairs(modules[framed], frames[framed])
        lines = [self.places[module].of_frame(frame) for module, frame in pairs.tolist()]
        lineless[framed] = self._are_of_no_user(pairs[:, 0], lines)[number]
        files: Text = columns["source_file"].take(rows)
        has_file = files.there()
        inline = np.flatnonzero((frames == 0) if has_file is None else has_file & (frames == 0))
        numbers: Ints = columns["source_line"].take(rows).filled(0)[inline]
        keys = files.take(inline).hashes((modules[inline] << 32 ^ numbers).astype(np.uint64))
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        names = [(name or b"").decode() for name in files.take(inline[first]).tolist()]
        of_modules = modules[inline[first]]
        of_files = zip(of_modules.tolist(), names, numbers[first].tolist(), strict=True)
        lines = [
            None if self.places[module].is_nobodys(name) else (name, line)
            for module, name, line in of_files
        ]
        lineless[inline] = self._are_of_no_user(of_modules, lines)[number]
        return lineless

    def _are_of_no_user(self, modules: Ints, lines: list[Place | None]) -> Bools:
        lines_of_modules = zip(modules.tolist(), lines, strict=True)
        return np.array(
            [
                line is None or line in self.places[module].of_loops
                for module, line in lines_of_modules
            ],
            np.bool_,
        )

    # -- rows ----------------------------------------------------------------------------------

    def begin(self, values: ValueIndex, lifetimes: Lifetimes) -> None:
        """Find the values to walk from, when all sections are read."""
        if not self.places:
            return
        lineless = _distinct(self._lineless)
        chosen = np.flatnonzero(isin(values.names, lineless)[values.name] & lifetimes.is_live)
        chosen = chosen[self._has_lines[values.module[chosen]]]
        self._walks = self._walk_from(values, union(self._rows, chosen))
        self._modules = values.module[self._walks["row"]]

    def _walk_from(self, values: ValueIndex, rows: Ints) -> Columns:
        """Return where and why to walk from each of these values, which are in order."""
        at = np.array(sorted(self._starts), np.int64)
        loops = np.array([self._starts[row][1] for row in at.tolist()], np.int64)
        handed = lookup(at, loops, rows)
        begin = np.where(handed >= 0, handed, rows)
        carriers = lookup(self._rows, self._carrier, rows)
        shares = carriers >= 0
        return {
            "row": rows,
            "key": values.name_keys(begin),
            "code": self._codes[begin],
            "shares": shares,
            "carrier_key": np.where(shares, values.name_keys(carriers), np.uint64(0)),
            "is_near": shares | isin(values.name_keys(rows), _distinct(self._users)),
        }

    def add_module(self, values: ValueIndex, module: int, graph: HloGraph) -> Found:
        """Walk in one module and emit the rows; what several values share is made once."""
        places = self.places.get(module)
        if places is None:
            return Found(_EMPTY, _EMPTY, [])
        first, after = np.searchsorted(self._modules, (module, module + 1))
        starts = take(self._walks, slice(first, after))
        indexes = self._elements.indexes
        number, origins = _Walks(self._names, indexes, graph, places).origins(starts)
        rows, number = starts["row"][number >= 0], number[number >= 0]
        if len(rows):
            columns = take(columns_of(origins, places), number)
            columns["module"] = np.full(len(rows), module)
            columns["value_id"] = values.value_id[rows]
            self.context.emit("value_origins", columns)
            self.attributed.add(rows, number, names_of(origins, places), are_backward(origins))
        return Found(rows, number, origins)


class _Walks:
    """The walks of one module."""

    def __init__(
        self, names: Mapping[int, bytes], indexes: list[bytes], graph: HloGraph, places: Places
    ) -> None:
        """Start without any walk.

        Args:
            names: names of instructions by their hash.
            indexes: places in shapes by their code.
            graph: the module's text.
            places: lines of its instructions.
        """
        self.names, self.indexes, self.graph, self.places = names, indexes, graph, places
        self.walker, self.slices = Walker(graph, places), Slices()
        self.homes: dict[bytes, int] = {}
        self._starts: list[tuple[Instruction | None, Instruction | None]] = []
        self._numbers: dict[tuple[int, bool], int] = {}
        self._number_of_name: dict[int, int] = {}
        self._carries: dict[tuple[int, int], Origin] = {}
        self._has_line: dict[int, bool] = {}

    def origins(self, starts: Columns) -> tuple[Ints, list[Origin]]:
        """Return for each value which origin it has, -1 if there is nothing to say; and these."""
        keys, codes, shares = starts["key"], starts["code"], starts["shares"]
        near = np.concatenate([keys[starts["is_near"]], starts["carrier_key"][shares]])
        self._find_homes(near, keys)
        begin = self._numbered(keys)
        loop = np.where(shares, self._numbered(starts["carrier_key"]), -1)
        # What several values have in common is walked only once.
        case = numbered(begin, codes, loop)
        first = np.sort(np.unique(case, return_index=True)[1])
        cells = [column[first].tolist() for column in (case, begin, codes, loop)]
        origins: dict[int, tuple[int, Origin]] = {}
        of_case = np.full(len(case) + 1, -1)
        for place, start, code, carrier in zip(*cells, strict=True):
            ins = self._starts[start][0]
            if ins is None:
                continue
            around = self._starts[carrier][1] if carrier >= 0 else None
            origin = self._origin(ins, _index(self.indexes[code]), around)
            if origin is not None:
                of_case[place] = origins.setdefault(id(origin), (len(origins), origin))[0]
        return of_case[case], [origin for _, origin in origins.values()]

    def _numbered(self, keys: Words) -> Ints:
        """Return for each name where its walk begins, as a number: one for the same place."""
        distinct, inverse = np.unique(keys, return_inverse=True)
        numbers = self._number_of_name
        for key in _in_order(keys).tolist():
            if key not in numbers:
                ins, loop = self._start(key)
                at = -1 if ins is None else ins.position, loop is not None
                numbers[key] = self._numbers.setdefault(at, len(self._starts))
                if numbers[key] == len(self._starts):
                    self._starts.append((ins, loop))
        return np.array([numbers[key] for key in distinct.tolist()], np.int64)[inverse]

    def _find_homes(self, near: Words, keys: Words) -> None:
        """Find where the names are; outside loops only those that share or use bytes of one."""
        names, others = self.names, keys[~isin(keys, distinct(near))]
        self.homes = self.graph.homes(
            (names[key] for key in _in_order(others).tolist() if key in names), only_in_loops=True
        )
        near = _in_order(near)
        self.homes |= self.graph.homes(names[key] for key in near.tolist() if key in names)

    def _start(self, key: int) -> tuple[Instruction | None, Instruction | None]:
        """Return where the walk for a name begins, and the loop if the name is an element of one.

        A walk from what the body of a loop is given begins at the loop. Parameters and constants of
        the program are what they are.
        """
        name = self.names.get(key)
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
        """Return the origin of a value, as a loop carries it; None if there is nothing to say."""
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
        origin = self.slices.counted(origin, ins, index)
        if origin.kind == "stacked":
            return origin
        if id(origin) not in self._has_line:
            self._has_line[id(origin)] = self._is_named(origin)
        return origin if self._has_line[id(origin)] else None

    def _is_named(self, origin: Origin) -> bool:
        """Return whether the walk ended at a user's or library's line, or a named parameter."""
        end = origin.instruction
        if end is None:
            return False
        is_parameter = end.opcode == "parameter" and end.op_name is not None
        has_line = self.places.own(end) is not None or self.places.is_librarys(end)
        return is_parameter or has_line


@lru_cache(maxsize=1 << 14)
def _index(text: bytes) -> Index:
    inside = text.strip(b"{} ")
    return tuple(int(number[:9]) for number in inside.split(b",")) if inside else ()


def _in_order(keys: Words) -> Words:
    """Return each key once, in the order of the values, which is nearly that of the text.

    In the order of the hashes each name is somewhere else in the text, and waiting for memory takes
    longer than the work.
    """
    return keys[np.sort(np.unique(keys, return_index=True)[1])]


def _distinct(parts: list[Words]) -> Words:
    return distinct(np.concatenate([np.empty(0, np.uint64), *parts]))


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([_EMPTY, *parts])
