"""Instructions and their stack frames as rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bufdb.columnar.rows import Labels
from bufdb.columnar.scan import Bools, Columns, Ints, Numbers, Text, Words, take
from bufdb.columnar.section import Piece, Rounds, Section
from bufdb.columnar.sets import distinct, union
from bufdb.read import instruction, used_values
from bufdb.read.hlo import HloHeader
from bufdb.rows.context import Context, allocation_rounds, live_range_rounds, used_value_rounds
from bufdb.rows.lifetimes import Lifetimes
from bufdb.rows.value_index import ValueIndex, isin, lookup, places_of

# --------------------------------------------------------------------------------------------------
# Source places of instructions that name a stack frame instead of a file (format section 7.1).

_PLACES = ("source_line", "source_end_line", "source_column", "source_end_column")


class StackFrames:
    """The stack frames of a batch's modules end to end."""

    def __init__(self, headers: dict[int, HloHeader]) -> None:
        """Take the frames of HLO headers, by module ordinal."""
        frames = [(number, f) for number, header in headers.items() for f in header.frames]
        frame_ids = np.array([frame.stack_frame_id for _, frame in frames], np.int64)
        self._ids = distinct(frame_ids)
        keys = self._keys(np.array([number for number, _ in frames], np.int64), frame_ids)
        self._order = np.argsort(keys, kind="stable")
        self._ordered = keys[self._order]
        codes: dict[str | None, int] = {None: -1}
        for _, frame in frames:
            codes.setdefault(frame.source_file, len(codes) - 1)
        self._files = [name for name in codes if name is not None]
        self._file_codes = np.array([codes[frame.source_file] for _, frame in frames], np.int64)
        self._numbers = {}
        for name in _PLACES:
            fields = [getattr(frame, name) for _, frame in frames]
            valid = np.array([value is not None for value in fields], np.bool_)
            self._numbers[name] = np.array([v or 0 for v in fields], np.int64), valid

    def _keys(self, modules: Ints, frame_ids: Ints) -> Ints:
        """Return module and frame in one; -1 for a frame that no module has."""
        place = places_of(self._ids, frame_ids)
        return np.where(place >= 0, modules * len(self._ids) + place, -1)

    def fill_sources(self, columns: Columns) -> tuple[list[int], Ints]:
        """Fill in file, line and columns from the frames.

        Args:
            columns: of `instructions`, with the ordinal of each row's module.

        Returns:
            The modules that have instructions with frames, and the module of every instruction
            whose frame is in no table.
        """
        frame_id: Numbers = columns["stack_frame_id"]
        source_file: Text = columns["source_file"]
        assert frame_id.valid is not None
        has_file = source_file.there()
        framed = np.flatnonzero(frame_id.valid & (~has_file if has_file is not None else False))
        modules = columns["module"][framed]
        place = lookup(self._ordered, self._order, self._keys(modules, frame_id.values[framed]))
        there = np.flatnonzero(place >= 0)
        if len(there):
            self._fill(columns, framed[there], place[there])
        return distinct(modules).tolist(), modules[place < 0]

    def _fill(self, columns: Columns, rows: Ints, place: Ints) -> None:
        """Put the frames of these places into rows without a file of their own."""
        source_file: Text = columns["source_file"]
        labels: list[str | bytes | None] = [None, *self._files]
        codes = np.zeros(len(source_file), np.int64)
        codes[rows] = self._file_codes[place] + 1
        has_file = source_file.there()
        inline = np.arange(len(source_file)) if has_file is None else np.flatnonzero(has_file)
        known: dict[bytes | None, int] = {}
        for row, text in zip(inline.tolist(), source_file.take(inline).tolist(), strict=True):
            if text not in known:
                known[text] = len(labels)
                labels.append(text)
            codes[row] = known[text]
        columns["source_file"] = Labels(codes, labels)
        for name in _PLACES:
            values, valid = columns[name].values.copy(), columns[name].valid.copy()
            values[rows], valid[rows] = (numbers[place] for numbers in self._numbers[name])
            columns[name] = Numbers(values, valid)


# -- Instructions: one row each, from its description, the HLO text, or its name alone -------------
#
# An instruction is described with every value it defines; the first description counts.

_NAMES = ("module", "instruction_name", "program_order")
_ROUND_BYTES = 1 << 21
"""Text of HLO that is read at once, as much as stays in a cache: with a text of 37 MB as a whole
the ingest of its module took 4 % more."""


class Instructions:
    """The instructions of a batch, and the values with which they have been described."""

    def __init__(self, context: Context, values: ValueIndex, lifetimes: Lifetimes) -> None:
        """Start without any description."""
        self.context, self.values, self.lifetimes = context, values, lifetimes
        self._is_described = np.zeros(len(values), np.bool_)
        self._is_first = np.zeros(len(values) + 1, np.bool_)
        """Whether each value is its instruction's first; the last entry is for row -1."""
        self._is_first[values.first] = True
        self._is_first[-1] = True
        self._strangers = np.empty(0, np.uint64)
        """Names with a row that no value's own description gave: those of damaged dumps."""
        self._frames = StackFrames(context.source.headers)

    def add_described(self, section: Section, descriptions: Columns, rows: Ints) -> None:
        """Emit rows for the `from instruction:` lines of values in these rows of the index."""
        rows = rows[descriptions["head"]]
        first = np.flatnonzero(self._is_first[rows])
        chosen = take(descriptions, first)
        self._emit(section, chosen["text"], chosen["line"], chosen["module"], rows[first])

    def _lack_rows(self, keys: Words, names: Ints, rows: Ints, modules: Ints) -> Ints:
        """Return which of these descriptions give rows: those of instructions without one yet.

        Args:
            keys: names of the described instructions.
            names: which of the names of the index they are, or -1.
            rows: the values that they are printed below, in the index; -1 if that is unknown.
            modules: the modules of the instructions.
        """
        values = self.values
        own = rows >= 0
        own[own] = values.name[rows[own]] == names[own]
        new = np.flatnonzero(own)
        new = new[~self._is_described[rows[new]]]
        _, first = np.unique(rows[new], return_index=True)
        new = new[np.sort(first)]
        self._is_described[rows[new]] = True
        if own.all():
            return new
        # Below a value of another name, or of an unreadable one.
        others = np.flatnonzero(~own)
        _, first = np.unique(keys[others], return_index=True)
        others = others[np.sort(first)]
        others = others[~isin(keys[others], self._strangers)]
        free_names = names[others]
        free_names[free_names >= 0] = values.first[free_names[free_names >= 0]]
        is_free = free_names < 0
        is_free[~is_free] = ~self._is_described[free_names[~is_free]]
        is_scheduled = self._came_with_schedule()[modules[others]] & (free_names < 0)
        is_free &= ~(is_scheduled & self.lifetimes.is_scheduled(keys[others]))
        others, free_names = others[is_free], free_names[is_free]
        self._is_described[free_names[free_names >= 0]] = True
        self._strangers = union(self._strangers, keys[others])
        return np.sort(np.concatenate([new, others]))

    def add_undescribed(self) -> None:
        """Add instructions that no line describes: from the HLO text, or by name alone."""
        context, values = self.context, self.values
        described = _Given(values.names)
        described.is_given[values.name[self._is_described]] = True
        described.add(self._strangers)
        missing = self._modules_lacking(described)
        has_hlo = context.has_hlo()
        if (missing & has_hlo).any():
            self._add_from_hlo(context.source.hlo(), missing, described)
            missing = self._modules_lacking(described)
        if (missing & has_hlo).any():
            missing &= has_hlo
            rounds = context.source.instructions_of_protos(missing)
            self._add_from_hlo(rounds, missing, described)
            missing = self._modules_lacking(described)
        if not missing.any():
            return
        is_scheduled = self._came_with_schedule()
        for _, live in live_range_rounds(context):
            names = live.sequence
            steps = values.is_defined(context.name_keys(names)) | ~is_scheduled[names["module"]]
            self._add_names(take(names, steps), missing, described)
        for _, allocated in allocation_rounds(context):
            self._add_names(allocated.values, missing, described)
        lacking = set(np.flatnonzero(~context.having("has_allocations")).tolist())
        if lacking:
            for _, used in used_value_rounds(context, used_values.NothingAssigned(), only=lacking):
                self._add_names(used.heads, missing, described)

    def _came_with_schedule(self) -> Bools:
        """Return in which modules steps without a value have their rows from the schedule."""
        return self.context.having("has_descriptions") & ~self.context.has_hlo()

    def _modules_lacking(self, described: _Given) -> Bools:
        """Return which modules have a value, or a schedule step, whose name has no row yet."""
        lacking = np.zeros(self.context.count, np.bool_)
        lacking[self.lifetimes.modules_lacking(described.others)] = True
        lacking &= ~self._came_with_schedule()
        lacking[self.values.module[self.values.first[~described.is_given]]] = True
        return lacking

    def check_frames(self) -> None:
        """Check that every frame that an instruction names is in the tables, if there are any."""
        for module, facts in enumerate(self.context.facts):
            header = self.context.source.headers.get(module)
            if facts.lost_frames and header is not None and header.frames:
                message = f"{facts.lost_frames} instructions name stack frames that no table has"
                self.context.find(module, "data_loss", "missing_frame", message)

    def _emit(
        self, section: Section, text: Text, lines: Ints, modules: Ints, rows: Ints | None = None
    ) -> Words:
        """Emit rows for texts printed below the values in `rows`; return the names read."""
        columns, c = instruction.read(text)
        good = section.good(lines, c)
        columns["module"], columns["text"] = modules, text
        columns = take(columns, good)
        name_keys = self.context.name_keys(columns)
        if rows is None:
            columns["name"] = places_of(self.values.names, name_keys)
        else:
            rows = rows if good is None else rows[good]
            columns["name"] = names = self.values.names_of(name_keys, rows)
            lacking = self._lack_rows(name_keys, names, rows, columns["module"])
            columns, name_keys = take(columns, lacking), name_keys[lacking]
        facts = self.context.facts
        if any(f.jit_name is None for f in facts):
            self._keep_jit_names(columns)
        self._number_frames(columns)
        self._name_calls(columns)
        for observer in self.context.observers:
            observer.see_instructions(columns, name_keys)
        framed, lost = self._frames.fill_sources(columns)
        for module in framed:
            facts[module].needs_frames = True
        for module, count in enumerate(np.bincount(lost).tolist()):
            facts[module].lost_frames += count
        columns["program_order"] = self.lifetimes.order_of(columns["name"], name_keys)
        self.context.emit("instructions", columns)
        return name_keys

    def _number_frames(self, columns: Columns) -> None:
        """Fill in the frames of instructions that a description has none of, but another file."""
        frame_ids = {number: ids for number, ids in self.context.source.frame_ids.items() if ids}
        if not frame_ids:
            return
        modules = columns["module"]
        values: Ints = columns["stack_frame_id"].filled(0).copy()
        lacking = np.flatnonzero(np.isin(modules, list(frame_ids)) & (values == 0))
        names = columns["instruction_name"].take(lacking).tolist()
        frames = [
            frame_ids[module].get(name or b"", 0)
            for module, name in zip(modules[lacking].tolist(), names, strict=True)
        ]
        values[lacking] = frames
        columns["stack_frame_id"] = Numbers(values, values != 0)

    def _name_calls(self, columns: Columns) -> None:
        """Give instructions of a function that JAX lowers once op and frame of its calls."""
        of_modules = {number: ops for number, ops in self.context.source.call_ops.items() if ops}
        if not of_modules:
            return
        values: Ints = columns["stack_frame_id"].filled(0).copy()
        op_name: Text = columns["op_name"]
        there = op_name.there()
        valid = np.ones(len(values), np.bool_) if there is None else there.copy()
        patches = dict(op_name.patches)
        modules = columns["module"]
        lacking = np.flatnonzero(np.isin(modules, list(of_modules)) & (values == 0))
        names = columns["instruction_name"].take(lacking).tolist()
        places = zip(lacking.tolist(), modules[lacking].tolist(), names, strict=True)
        for row, module, name in places:
            call_op = of_modules[module].get(name or b"")
            if call_op is not None:
                values[row] = call_op.frame_id
                patches[row], valid[row] = call_op.op_name, call_op.op_name is not None
        columns["stack_frame_id"] = Numbers(values, values != 0)
        columns["op_name"] = replace(op_name, valid=valid, patches=patches)

    def _keep_jit_names(self, columns: Columns) -> None:
        """Keep the first jit(…) of each module's op_names, if its name is not known yet."""
        op_name: Text = columns["op_name"]
        assert op_name.valid is not None
        starts = np.flatnonzero(op_name.valid)
        words = op_name.block.words[op_name.start[starts]]
        jit = (words & np.uint64(0xFFFFFFFF)) == np.uint64(int.from_bytes(b"jit(", "little"))
        pjit = (words & np.uint64(0xFFFFFFFFFF)) == np.uint64(int.from_bytes(b"pjit(", "little"))
        rows = starts[jit | pjit]
        modules, first = np.unique(columns["module"][rows], return_index=True)
        names = op_name.take(rows[first]).tolist()
        for module, name in zip(modules.tolist(), names, strict=True):
            if self.context.facts[module].jit_name is None:
                text = (name or b"").decode(errors="replace")
                self.context.facts[module].jit_name = _inside(text)

    def _add_names(self, names: Columns, is_wanted: Bools, described: _Given) -> None:
        """Emit rows for the names among these that have none."""
        names = take({n: names[n] for n in _NAMES if n in names}, is_wanted[names["module"]])
        keys = self.context.name_keys(names)
        _, first = np.unique(keys, return_index=True)
        new = np.sort(first[~described.has(keys[first])])
        if len(new):
            rows = take(names, new)
            if "program_order" not in names and self.lifetimes.has_schedule:
                rows["program_order"] = self.lifetimes.program_order(keys[new])
            self.context.emit("instructions", rows)
        described.add(keys[new])

    def _add_from_hlo(self, rounds: Rounds, is_wanted: Bools, described: _Given) -> None:
        """Add what lines of HLO say about instructions of these modules."""
        lacking = self.lifetimes.names_lacking(described.others)
        lacking = union(self.values.names[~described.is_given], lacking)
        for pieces in _together(rounds, is_wanted):
            section = Section(pieces, self.context.account)
            text, names, lines = _hlo_instructions(section)
            modules_of = section.module_of[lines]
            keys = names.hashes(self.context.seeds[modules_of])
            rows = np.flatnonzero(isin(keys, lacking))
            keys_once, first = np.unique(keys[rows], return_index=True)
            rows = rows[np.sort(first)]
            lacking = lacking[~isin(lacking, keys_once)]
            read = self._emit(section, text.take(rows), lines[rows], modules_of[rows])
            described.add(read)
            section.settle()
            section.close()


class _Given:
    """Names of instructions that have a row."""

    def __init__(self, names: Words) -> None:
        """Start with none marked, of those that define values or of others."""
        self._names = names
        self.is_given = np.zeros(len(names), np.bool_)
        """Whether each of the names that define values has a row."""
        self.others = np.empty(0, np.uint64)
        """Other names that have a row, ascending."""

    def add(self, keys: Words) -> None:
        """Mark these as having a row."""
        name = places_of(self._names, keys)
        self.is_given[name[name >= 0]] = True
        if (name < 0).any():
            self.others = union(self.others, keys[name < 0])

    def has(self, keys: Words) -> Bools:
        """Return which of these have a row."""
        name = places_of(self._names, keys)
        is_other = isin(keys, self.others)
        is_other[name >= 0] = self.is_given[name[name >= 0]]
        return is_other


def _together(rounds: Rounds, is_wanted: Bools) -> Rounds:
    """Yield the pieces of these modules, small ones together and large ones in parts."""
    some: list[Piece] = []
    size = 0
    for pieces in rounds:
        for piece in pieces:
            for part in piece.parts(_ROUND_BYTES) if is_wanted[piece.module] else ():
                some.append(part)
                size += len(part.text)
                if size >= _ROUND_BYTES:
                    yield some
                    some, size = [], 0
    if some:
        yield some


def _hlo_instructions(section: Section) -> tuple[Text, Text, Ints]:
    """Return the instructions of an HLO text from the name on, their names and their lines."""
    block = section.block
    heads = block.heads()
    lines = np.flatnonzero((heads & np.uint64(0xFFFF)) == np.uint64(0x2020))
    c = block.cursor(lines)
    c.expect(b"  ")
    c.optional(b"ROOT ")
    start = c.at
    c.optional(b"%")
    name = c.until(b" ")
    is_instruction = c.matches(b" = ")
    good = c.good()
    keep = is_instruction if good is None else is_instruction & good
    lines = lines[keep]
    return Text(block, start[keep], block.ends[lines]), name.take(keep), lines


def _inside(op_name: str) -> str | None:
    """Return the text in the outermost parentheses of `jit(f(x))/…`."""
    start, depth = op_name.find("(") + 1, 1
    for end in range(start, len(op_name)):
        depth += (op_name[end] == "(") - (op_name[end] == ")")
        if depth == 0:
            return op_name[start:end] or None
    return None
