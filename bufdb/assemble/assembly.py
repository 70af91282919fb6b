"""From sections to tables: keys resolved, instructions told once, sums checked.

Takes the sections of one batch (many small modules, or one large one in several rounds) through the
readers and gives the rows of every table away as columns. `module` in them is the module's ordinal
in the batch. Values are found by the hash of their name and index (64 bits, seeded per module;
a clash would show as two values of one name and is reported), in arrays sorted once, so that memory
is what the largest module's keys need.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from bufdb.assemble.checks import PEAK_PROBLEMS, Balance, Emit, ModuleFacts, check_total
from bufdb.assemble.stack_frames import fill_sources
from bufdb.assemble.value_index import Keys, isin, lookup
from bufdb.columnar.account import UNREAD, Account
from bufdb.columnar.arrow import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Text, Words, take
from bufdb.columnar.section import Piece, Rounds, Section
from bufdb.errors import quote
from bufdb.read import allocations, instruction, live_ranges, used_values
from bufdb.read.hlo import HloHeader
from bufdb.read.shape import Shape, shape_of


class Source(Protocol):
    """The sections of a batch, each to be read as often as asked, in rounds of whole lines."""

    count: int
    headers: dict[int, HloHeader]
    account: Account

    def allocations(self) -> Rounds:
        """Allocation sections."""

    def used_values(self) -> Rounds:
        """Sections of totals and used values."""

    def live_ranges(self) -> Rounds:
        """Live-range sections."""

    def hlo(self) -> Rounds:
        """Computations of the HLO texts."""


@dataclass
class Assembled:
    """The outcome of a batch."""

    facts: list[ModuleFacts]
    shapes: list[Shape]
    """Shapes met for the first time."""


def assemble(source: Source, emit: Emit, known_shapes: dict[bytes, Shape]) -> Assembled:
    """Read a batch and give the rows of its tables to `emit`, table by table and round by round.

    Args:
        source: the batch.
        emit: takes a table's name and columns.
        known_shapes: every shape met so far, by its text; new ones are added.
    """
    return _Assembly(source, emit, known_shapes).run()


_SECRET = np.uint64(secrets.randbits(64))
"""Nobody can write a dump whose names have equal hashes."""


class _Assembly:
    def __init__(self, source: Source, emit: Emit, known_shapes: dict[bytes, Shape]) -> None:
        self.source, self.emit, self.known_shapes = source, emit, known_shapes
        self.account = source.account
        self.new_shapes: list[Shape] = []
        self.facts = [ModuleFacts() for _ in range(source.count)]
        ordinals = np.arange(1, source.count + 1).astype(np.uint64)
        self.seeds: Words = _SECRET + ordinals * np.uint64(0x9E3779B97F4A7C15)
        self.keys = Keys()
        self.allocation_parts: list[Columns] = []
        self.unassigned: list[Ints] = []
        """(module, start, end) of live ranges whose value has no allocation."""
        self.order_keys: Words = np.empty(0, np.uint64)
        self.orders: Ints = np.empty(0, np.int64)

    def run(self) -> Assembled:
        self._read_allocations()
        self._add_unassigned()
        self.keys.finish()
        self._check_names()
        count = len(self.keys)
        self.start = np.zeros(count, np.int64)
        self.end = np.full(count, -1)
        self.is_live = np.zeros(count, np.bool_)
        self._look_for_tellings()
        self._read_live_ranges()
        balance = Balance(
            self._allocation_table(),
            self.keys,
            self.start,
            self.end,
            self.is_live,
            self.facts,
            self._find,
        )
        balance.check()
        occupied = balance.occupied()
        del balance
        del self.start, self.end
        self.keys.forget("key", "by_key", "sorted_key", "allocation_index", *self.keys.BYTES)
        self.allocation_parts = []
        self.told = np.zeros(count, np.bool_)
        self.is_first = np.zeros(count + 1, np.bool_)
        """Per value whether it is its instruction's first; the last entry is for row -1."""
        self.is_first[self.keys.first] = True
        self.is_first[-1] = True
        self._read_used_values()
        self._tell_the_rest()
        self._check_frames()
        for number, facts in enumerate(self.facts):
            check_total(number, facts, self._find)
        for table, columns in occupied.items():
            known = np.array([f.peak_unknown_reason is None for f in self.facts], np.bool_)
            self.emit(table, take(columns, known[columns["module"]]))
        return Assembled(self.facts, self.new_shapes)

    def _look_for_tellings(self) -> None:
        """Whether instructions are told decides what the live ranges have to add."""
        for pieces in self.source.used_values():
            for piece in pieces:
                facts = self.facts[piece.module]
                facts.has_used_values = True
                told = b"\n from instruction:" in piece.text
                facts.has_tellings |= told or piece.text.startswith(b" from instruction:")
            if self.source.count == 1 and self.facts[0].has_tellings:
                return

    # -- allocations -----------------------------------------------------------------------

    def _allocation_rounds(
        self, account: Account | None = None
    ) -> Iterator[tuple[Section, allocations.Allocations]]:
        last = -1
        for pieces in self.source.allocations():
            section = Section(pieces, account)
            found = allocations.read(section, -1 if pieces[0].begins else last)
            last = found.last_index
            yield section, found

    def _read_allocations(self) -> None:
        for section, found in self._allocation_rounds(self.account):
            for module in section.modules.tolist():
                self.facts[module].has_allocations = True
            for module in np.unique(section.module_of[section.states == UNREAD]).tolist():
                self.facts[module].has_unread_allocations = True
            rows = found.allocations
            for module in np.unique(rows["module"][rows.pop("has_pointer")]).tolist():
                self.facts[module].has_pointer = True
            shaped = rows["parameter_shape"].valid | rows["output_shape"].valid
            for module in np.unique(rows["module"][shaped]).tolist():
                self.facts[module].has_shapes = True
            self._keep_allocations(rows)
            kinds = rows.pop("kind")
            self.emit("allocations", {**rows, "kind": Labels(kinds, allocations.KINDS)})
            values = found.values
            values["logical_bytes"] = self._logical_bytes(values)
            name_key = self._name_keys(values)
            index = values["shape_index"]
            self.keys.add(
                module=values["module"],
                value_id=values["value_id"],
                name_key=name_key,
                key=index.hashes(name_key),
                check=used_values.check_of(values, self.seeds[values["module"]]),
                allocation_index=values["allocation_index"],
                offset_bytes=values["offset_bytes"],
                size_bytes=values["size_bytes"],
            )
            self.emit("values", values)
            section.close()

    def _keep_allocations(self, rows: Columns) -> None:
        names = ("module", "allocation_index", "size_bytes", "color", "kind")
        self.allocation_parts.append({name: rows[name] for name in names})

    def _name_keys(self, columns: Columns) -> Words:
        name: Text = columns["instruction_name"]
        return name.hashes(self.seeds[columns["module"]])

    def _index_keys(self, columns: Columns) -> Words:
        """Hashes of name and index; where the index is absent they mean nothing."""
        index: Text = columns["shape_index"]
        return index.hashes(self._name_keys(columns))

    def _logical_bytes(self, values: Columns) -> Numbers:
        text: Text = values["shape"]
        _, first, inverse = np.unique(text.hashes(_SECRET), return_index=True, return_inverse=True)
        sizes, valid = np.zeros(len(first), np.int64), np.zeros(len(first), np.bool_)
        tiled, odd = np.zeros(len(first), np.bool_), np.zeros(len(first), np.bool_)
        for row, shape_text in enumerate(text.take(first).tolist()):
            assert shape_text is not None
            shape = self.known_shapes.get(shape_text)
            if shape is None:
                shape = shape_of(shape_text.decode(errors="replace"))
                self.known_shapes[shape_text] = shape
                self.new_shapes.append(shape)
            odd[row] = shape.dtype is None
            if shape.logical_bytes is not None:
                sizes[row], valid[row] = shape.logical_bytes, True
            tiled[row] = shape.layout is not None and ":T(" in shape.layout
        if tiled.any():
            for module in np.unique(values["module"][tiled[inverse]]).tolist():
                self.facts[module].has_tiles = True
        for row in np.flatnonzero(odd[inverse]).tolist():
            shape_text = text.take(np.array([row])).tolist()[0] or b""
            message = f"the shape {quote(shape_text.decode(errors='replace'))} is not understood"
            self._find(int(values["module"][row]), "notice", "unknown_shape", message)
        return Numbers(sizes[inverse], valid[inverse])

    def _add_unassigned(self) -> None:
        """Values of modules whose allocations are not there are known from their heads alone."""
        lacking = {number for number, f in enumerate(self.facts) if not f.has_allocations}
        if not lacking:
            return
        for _, found in self._used_rounds(used_values.NothingAssigned(), only=lacking):
            heads = found.heads
            name_key = self._name_keys(heads)
            zeros = np.zeros(len(name_key), np.int64)
            self.keys.add(
                module=heads["module"],
                value_id=heads["value_id"],
                name_key=name_key,
                key=heads["shape_index"].hashes(name_key),
                check=heads["check"],
                allocation_index=zeros - 1,
                offset_bytes=zeros,
                size_bytes=zeros,
            )

    # -- live ranges -----------------------------------------------------------------------

    def _live_rounds(
        self, account: Account | None = None
    ) -> Iterator[tuple[Section, live_ranges.LiveRanges]]:
        kind = live_ranges.START
        for pieces in self.source.live_ranges():
            section = Section(pieces, account)
            found = live_ranges.read(section, kind)
            kind = found.last_kind
            yield section, found

    def _read_live_ranges(self) -> None:
        order_keys, orders, peaks = [], [], []
        tree_bytes: dict[int, int] = {}
        steps = np.zeros(self.source.count, np.int64)
        self.range_counts = np.zeros(self.source.count, np.int64)
        for section, found in self._live_rounds(self.account):
            section.close()
            for module, live in found.facts.items():
                mine = self.facts[module].live
                for name, value in vars(live).items():
                    if value is not None:
                        setattr(mine, name, value)
                if live.schedule_length is not None:
                    self.facts[module].has_live_ranges = True
            for module in found.unread:
                self.facts[module].has_unread_live_ranges = True
            names = self._name_keys(found.sequence)
            steps += np.bincount(found.sequence["module"], minlength=self.source.count)
            order_keys.append(names)
            orders.append(found.sequence["program_order"])
            told = np.array([f.has_tellings for f in self.facts], np.bool_)
            lone = ~self.keys.defines(names) & told[found.sequence["module"]]
            self._emit_names(take(found.sequence, lone))
            self._ranges(found.ranges)
            peaks.append(found.peak)
            self._tree(found.tree, tree_bytes)
        self._peaks(peaks)
        for module, total in tree_bytes.items():
            title = self.facts[module].live.tree_bytes
            if title is not None and total != title:
                message = f"the nodes of the peak's tree hold {total} bytes, its title says {title}"
                self._find(module, "error", "peak_tree_mismatch", message)
        for module, facts in enumerate(self.facts):
            length = facts.live.schedule_length
            if length is not None and length != steps[module]:
                message = f"the schedule has {steps[module]} steps, its title says {length}"
                self._find(module, "error", "schedule_mismatch", message)
        live_counts = np.bincount(self.keys.module[self.is_live], minlength=self.source.count)
        for module in np.flatnonzero(self.range_counts > live_counts).tolist():
            count = int(self.range_counts[module] - live_counts[module])
            message = f"{count} live ranges are of values that have another one"
            self._find(module, "error", "duplicate_live_range", message)
        if order_keys:
            keys, values = np.concatenate(order_keys), np.concatenate(orders)
            rank = np.argsort(keys, kind="stable")
            self.order_keys, self.orders = keys[rank], values[rank]

    def _ranges(self, ranges: Columns) -> None:
        rows = self.keys.rows(self._index_keys(ranges))
        there = rows >= 0
        self.range_counts += np.bincount(ranges["module"][there], minlength=self.source.count)
        self.start[rows[there]] = ranges["start_time"][there]
        self.end[rows[there]] = ranges["end_time"][there]
        self.is_live[rows[there]] = True
        if not there.all():
            lone = take(ranges, ~there)
            self.unassigned.append(
                np.stack([lone["module"], lone["start_time"], lone["end_time"]], axis=1)
            )
        value_id = np.zeros(len(rows), np.int64)
        value_id[there] = self.keys.value_id[rows[there]]
        self.emit("live_ranges", {**ranges, "value_id": Numbers(value_id, there)})

    def _tree(self, tree: Columns, tree_bytes: dict[int, int]) -> None:
        """Nodes of the trees, whose bytes are added up by module."""
        modules, first = np.unique(tree["module"], return_index=True)
        bounds = [*first.tolist(), len(tree["module"])]
        for number, module in enumerate(modules.tolist()):
            mine = tree["current_bytes"][bounds[number] : bounds[number + 1]]
            tree_bytes[module] = tree_bytes.get(module, 0) + sum(mine.tolist())
        self.emit("peak_stack_nodes", tree)

    def _peaks(self, parts: list[Columns]) -> None:
        """Printed contributors: by name and index, or in the oldest form by their order.

        Args:
            parts: the lines of the listings of all files, sorted by module.
        """
        if not parts:
            return
        named = np.concatenate([self._name_keys(part) for part in parts])
        indexes: list[Text] = [part["shape_index"] for part in parts]
        keys = [self._index_keys(part) for part in parts]
        rows = self.keys.rows(np.concatenate(keys))
        has_index = np.concatenate([index.valid for index in indexes])
        rows[~has_index] = -1
        modules = np.concatenate([part["module"] for part in parts])
        bounds = np.searchsorted(modules, np.arange(self.source.count + 1))
        for module, facts in enumerate(self.facts):
            if facts.live.peak_time is not None:
                mine = slice(*bounds[module : module + 2])
                is_old = not has_index[mine].any()
                self._peak(module, facts.live.peak_time, rows[mine], named[mine], is_old)
        at = 0
        for part in parts:
            mine_of_part = rows[at : at + len(part["module"])]
            at += len(mine_of_part)
            there = mine_of_part >= 0
            value_id = np.zeros(len(there), np.int64)
            value_id[there] = self.keys.value_id[mine_of_part[there]]
            self.emit("peak_contributors", {**part, "value_id": Numbers(value_id, there)})

    def _peak(self, module: int, time: int, rows: Ints, named: Words, is_old: bool) -> None:
        """Hold one module's listing to its live ranges; fill in its rows if it has no indexes."""
        first, behind = np.searchsorted(self.keys.module, [module, module + 1])
        span = slice(first, behind)
        live = self.is_live[span] & (self.start[span] <= time) & (time <= self.end[span])
        listed = np.flatnonzero(live) + first
        if is_old:
            size = min(len(rows), len(listed))
            same = self.keys.name_key[listed[:size]] == named[:size]
            rows[:size] = np.where(same, listed[:size], -1)
        told = rows[rows >= 0]
        others = sum(
            int(((lone[:, 0] == module) & (lone[:, 1] <= time) & (time <= lone[:, 2])).sum())
            for lone in self.unassigned
        )
        if len(rows) != len(listed) + others or set(told.tolist()) != set(listed.tolist()):
            message = (
                f"the peak listing at {time} names {len(rows)} values, the live ranges "
                f"{len(listed) + others}, and they are not the same"
            )
            self._find(module, "error", "peak_listing_mismatch", message)

    # -- used values and instructions ------------------------------------------------------

    def _used_rounds(
        self,
        assigned: used_values.Assigned,
        account: Account | None = None,
        only: set[int] | None = None,
    ) -> Iterator[tuple[Section, used_values.UsedValues]]:
        """Rounds of used values; what a round leaves unread goes in front of the next one."""
        carried, left = b"", 0
        waiting: list[Piece] = []
        for pieces, is_last in _with_last(self.source.used_values()):
            if only is not None:
                pieces = [piece for piece in pieces if piece.module in only]
            if carried:
                # A value of many rounds is read again when it has doubled, not in each of them.
                waiting += pieces
                if not is_last and sum(len(piece.text) for piece in waiting) < len(carried):
                    continue
                pieces, waiting = [_prepend(carried, waiting)], []
            section = Section(pieces, account)
            section.first_state = left
            found = used_values.read(section, assigned, self.seeds, is_last)
            yield section, found
            left = section.close()
            rest = section.block.size if found.rest < 0 else found.rest
            carried = section.block.data[rest : section.block.size]

    def _read_used_values(self) -> None:
        uses = np.array([f.has_used_values for f in self.facts], np.bool_)
        mine = np.flatnonzero(uses[self.keys.module]) if len(self.keys) else np.empty(0, np.int64)
        listed = np.zeros(len(self.keys), np.bool_)
        incomplete: list[int] = []
        for section, found in self._used_rounds(self.keys, self.account):
            heads, row_of = found.heads, found.rows
            listed[row_of[row_of >= 0]] = True
            incomplete += found.incomplete
            for module in found.unassigned:
                message = "the list of used values has some that are in no allocation"
                self._find(module, "error", "unassigned_values", message)
            for module, total, human, _ in found.totals:
                self.facts[module].total_bytes = total
                self.facts[module].human_total = human
            for table, rows_of in (("positions", found.positions), ("uses", found.uses)):
                ordinal = rows_of.pop("ordinal")
                rows_of["value_id"] = heads["value_id"][rows_of.pop("head")]
                rows_of[f"{table[:-1]}_ordinal"] = ordinal
                if table == "positions":
                    rows_of["is_defining"] = ordinal == 0
                self.emit(table, rows_of)
            self._tellings(section, found, row_of)
            told = np.zeros(len(row_of), np.bool_)
            told[found.tellings["head"]] = True
            tells = np.array([f.has_tellings for f in self.facts], np.bool_)
            incomplete += heads["module"][~told & tells[heads["module"]]].tolist()
        self._count_by_module(
            np.array(incomplete, np.int64),
            "incomplete_value",
            "used values lack their positions, uses or instruction",
        )
        self._count_by_module(
            self.keys.module[mine[~listed[mine]]],
            "used_values_mismatch",
            "assigned values are not in the list of used values",
        )

    def _count_by_module(self, modules: Ints, code: str, what: str) -> None:
        """One error for each module that is named, with how often it is."""
        for module, count in zip(*np.unique(modules, return_counts=True), strict=True):
            self._find(int(module), "error", code, f"{count} {what}")

    def _tellings(self, section: Section, found: used_values.UsedValues, row_of: Ints) -> None:
        """An instruction is told with every value it defines; the first telling counts."""
        tellings = found.tellings
        rows = row_of[tellings["head"]]
        first = np.flatnonzero(self.is_first[rows])
        self.told[rows[first][rows[first] >= 0]] = True
        tellings = take(tellings, first)
        self._emit_instructions(section, tellings["text"], tellings["line"], tellings["module"])

    def _emit_instructions(self, section: Section, text: Text, lines: Ints, modules: Ints) -> None:
        columns, c = instruction.read(text)
        good = section.good(lines, c)
        columns["module"], columns["text"] = modules, text
        columns = take(columns, good)
        if any(f.jit_name is None for f in self.facts):
            self._jit_names(columns)
        framed, lost = fill_sources(columns, self.source.headers)
        for module in framed:
            self.facts[module].needs_frames = True
        for module in lost:
            self.facts[module].lost_frames += 1
        columns["program_order"] = self._program_order(columns)
        self.emit("instructions", columns)

    def _program_order(self, columns: Columns) -> Numbers:
        place = lookup(self.order_keys, self.orders, self._name_keys(columns))
        return Numbers(np.maximum(place, 0), place >= 0)

    def _jit_names(self, columns: Columns) -> None:
        """The first jit(…) of each module's op_names, for modules whose name is not known."""
        op_name: Text = columns["op_name"]
        assert op_name.valid is not None
        starts = np.flatnonzero(op_name.valid)
        words = op_name.block.words[op_name.start[starts]]
        jit = (words & np.uint64(0xFFFFFFFF)) == np.uint64(int.from_bytes(b"jit(", "little"))
        pjit = (words & np.uint64(0xFFFFFFFFFF)) == np.uint64(int.from_bytes(b"pjit(", "little"))
        rows = starts[jit | pjit]
        modules, first = np.unique(columns["module"][rows], return_index=True)
        for module, row in zip(modules.tolist(), rows[first].tolist(), strict=True):
            if self.facts[module].jit_name is None:
                name = op_name.take(np.array([row])).tolist()[0] or b""
                self.facts[module].jit_name = _inside(name.decode(errors="replace"))

    def _tell_the_rest(self) -> None:
        """Instructions that no line tells: their names, and what the HLO text says of them."""
        told_names = np.unique(self.keys.name_key[self.told])
        untold = self.keys.first[~isin(self.keys.names, told_names)]
        modules = set(np.unique(self.keys.module[untold]).tolist())
        modules |= {m for m, f in enumerate(self.facts) if f.has_live_ranges and not f.has_tellings}
        if not modules:
            return
        emitted = self._tell_from_hlo(modules, told_names)
        told = np.array([f.has_tellings for f in self.facts], np.bool_)
        for _, live in self._live_rounds():
            names = live.sequence
            defines = self.keys.defines(self._name_keys(names))
            names = take(names, defines | ~told[names["module"]])
            emitted = self._emit_untold(names, told_names, emitted)
        for _, found in self._allocation_rounds():
            emitted = self._emit_untold(found.values, told_names, emitted)
        lacking = {number for number, f in enumerate(self.facts) if not f.has_allocations}
        if lacking:
            for _, used in self._used_rounds(used_values.NothingAssigned(), only=lacking):
                emitted = self._emit_untold(used.heads, told_names, emitted)

    def _emit_untold(self, names: Columns, told_names: Words, emitted: Words) -> Words:
        """Rows for the names among these that have none; returns all names without a telling."""
        keys = self._name_keys(names)
        _, first = np.unique(keys, return_index=True)
        fresh = np.sort(first[~isin(keys[first], told_names) & ~isin(keys[first], emitted)])
        self._emit_names(take(names, fresh))
        return np.union1d(emitted, keys[fresh])

    def _emit_names(self, names: Columns) -> None:
        if not len(names["module"]):
            return
        rows = {"module": names["module"], "instruction_name": names["instruction_name"]}
        if "program_order" in names:
            rows["program_order"] = names["program_order"]
        elif len(self.order_keys):
            rows["program_order"] = self._program_order(names)
        self.emit("instructions", rows)

    def _tell_from_hlo(self, modules: set[int], told_names: Words) -> Words:
        """What the HLO text tells of instructions of modules without `from instruction:`."""
        emitted = np.empty(0, np.uint64)
        for pieces in self.source.hlo():
            mine = [
                piece
                for piece in pieces
                if piece.module in modules and not self.facts[piece.module].has_tellings
            ]
            if not mine:
                continue
            section = Section(mine, self.account)
            text, lines = _hlo_instructions(section)
            names = Text(text.block, text.start + _percent(text), text.stop)
            c = section.block.cursor(lines)
            c.at, c.end = names.start, names.stop
            name = c.until(b" ")
            owner = section.module_of[lines]
            keys = name.hashes(self.seeds[owner])
            wanted = self.keys.defines(keys) | (lookup(self.order_keys, self.orders, keys) >= 0)
            wanted &= ~isin(keys, told_names) & ~isin(keys, emitted)
            rows = np.flatnonzero(wanted)
            _, first = np.unique(keys[rows], return_index=True)
            rows = rows[np.sort(first)]
            self._emit_instructions(section, text.take(rows), lines[rows], owner[rows])
            emitted = np.union1d(emitted, keys[rows])
            section.settle()
            section.close()
        return emitted

    def _check_frames(self) -> None:
        """Every frame that an instruction names is in the tables, if they are there."""
        for module, facts in enumerate(self.facts):
            header = self.source.headers.get(module)
            if facts.lost_frames and header is not None and header.frames:
                message = f"{facts.lost_frames} instructions name stack frames that are in no table"
                self._find(module, "data_loss", "missing_frame", message)

    def _allocation_table(self) -> Columns:
        names = ("module", "allocation_index", "size_bytes", "color", "kind")
        parts = self.allocation_parts
        empty = np.empty(0, np.int64)
        return {n: np.concatenate([p[n] for p in parts]) if parts else empty for n in names}

    def _check_names(self) -> None:
        duplicate = self.keys.sorted_key[1:] == self.keys.sorted_key[:-1]
        rows = np.union1d(
            self.keys.by_key[1:][duplicate],
            1 + np.flatnonzero(self.keys.numbers[1:] == self.keys.numbers[:-1]),
        )
        self._count_by_module(
            self.keys.module[rows], "duplicate_value", "values have the name or number of another"
        )

    def _find(self, module: int, severity: str, code: str, message: str) -> None:
        self.account.find(module, severity, code, message)
        facts = self.facts[module]
        if code in PEAK_PROBLEMS and facts.peak_problem is None:
            facts.peak_problem = message


def _hlo_instructions(section: Section) -> tuple[Text, Ints]:
    """Instruction lines of an HLO text, from the name on: `  ROOT %add.1 = …`."""
    block = section.block
    heads = block.heads()
    lines = np.flatnonzero((heads & np.uint64(0xFFFF)) == np.uint64(0x2020))
    c = block.cursor(lines)
    c.expect(b"  ")
    c.optional(b"ROOT ")
    start = c.at
    c.optional(b"%")
    c.until(b" ")
    is_instruction = c.matches(b" = ")
    good = c.good()
    keep = is_instruction if good is None else is_instruction & good
    lines = lines[keep]
    return Text(block, start[keep], block.ends[lines]), lines


def _percent(text: Text) -> Bools:
    found: Bools = text.block.bytes[text.start] == ord("%")
    return found


def _with_last(rounds: Rounds) -> Iterator[tuple[list[Piece], bool]]:
    """Each round, and whether no other one goes on with its last section."""
    before: list[Piece] | None = None
    for pieces in rounds:
        if before is not None:
            yield before, pieces[0].begins
        before = pieces
    if before is not None:
        yield before, True


def _prepend(carried: bytes, pieces: list[Piece]) -> Piece:
    """Pieces of one section in one, with the unread end of the one above them put in front."""
    lines = carried.count(b"\n")
    first = pieces[0]
    text = b"".join([carried, *(piece.text for piece in pieces)])
    return replace(first, text=text, lines_before=lambda: first.lines_before() - lines)


def _inside(op_name: str) -> str | None:
    """What stands in the outermost parentheses of `jit(f(x))/…`."""
    start, depth = op_name.find("(") + 1, 1
    for end in range(start, len(op_name)):
        depth += (op_name[end] == "(") - (op_name[end] == ")")
        if depth == 0:
            return op_name[start:end] or None
    return None
