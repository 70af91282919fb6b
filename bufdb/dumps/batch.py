"""Modules as batches of sections: many small ones, or one large module in rounds."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bufdb.columnar.scan import Bools
from bufdb.columnar.section import READ, UNREAD, Account, Piece, Rounds
from bufdb.dumps.files import (
    BEFORE,
    BLOCK_BYTES,
    BUFFER_KINDS,
    CODE,
    GPU_CONFIG,
    LARGE_BLOCK_BYTES,
    MESSAGE_KIND,
    PROTO,
    THUNK_NAMES,
    THUNKS,
)
from bufdb.dumps.load import LOOK_BYTES, DumpText, Loaded
from bufdb.errors import quote
from bufdb.proto.reader import UnreadableProto
from bufdb.read import hlo, kernels, layout_2019, other_files
from bufdb.read.arrays import ArrayRows, SectionArrays
from bufdb.read.boundaries import Span, Titles, cut
from bufdb.read.calls import CallOp
from bufdb.read.hlo import HloHeader
from bufdb.read.kernels import Companions
from bufdb.read.live_ranges import Facts
from bufdb.read.other_files import BeforeOptimizations
from bufdb.read.own import NOTHING_MORE, Own

if TYPE_CHECKING:
    from bufdb.read.message import Message


# -- Batches of dump files as the sections that the assembly reads ---------------------------------
#
# Many small modules are read whole and go through the readers end to end, in one round. A large
# module is a batch of its own and goes through in rounds of a block each, so that memory does not
# grow with the file.

_BEHIND_END = re.compile(rb'(?: // [^\s"]+)?\s*\Z')
"""What may follow the last brace of an HLO text: a name (format section 7.4)."""


# A section of each kind, from the bytes of a block to the rows of its modules.
class Batch:
    """Small modules, whole; or the one large module of `LargeModule`."""

    def __init__(self, modules: list[Loaded], own: Own = NOTHING_MORE) -> None:
        self.modules = modules
        self.own = own
        self.count = len(modules)
        self.account = Account()
        self.headers: dict[int, hlo.HloHeader] = {}
        self.frame_ids: dict[int, dict[bytes, int]] = {}
        """Frames by instruction, of modules whose other files may have none and whose proto has."""
        self.call_ops: dict[int, dict[bytes, CallOp]] = {}
        self.before: dict[int, BeforeOptimizations] = {}
        """HLO texts before optimization, of modules that they fit."""
        self.messages: dict[int, Message] = {}
        self.options: dict[int, list[tuple[str, str]]] = {}
        self.kernels: dict[int, Companions] = {}
        """What files next to the HLO text print of a module's kernels."""
        self.reported_sums: dict[int, list[tuple[int | None, int]]] = {}
        self.has_block_layout: set[int] = set()
        self.one_file: set[int] = set()
        """Modules with used values or live ranges in the same file, after the allocations."""
        self.described_once: set[int] = set()
        self.doubts: dict[int, str] = {}
        self.arrays = ArrayRows()
        self._hlo: list[Piece] = []
        self._allocations: list[Piece] = []
        self._used_values: list[Piece] = []
        self._live_ranges: list[Piece] = []
        for number, loaded in enumerate(modules):
            self._derive(number, loaded)
            self._companions(number, loaded)
            for kind in BUFFER_KINDS:
                if kind in loaded.titles:
                    self._sections(number, DumpText(number, loaded, kind, self.account))

    def allocations(self) -> Rounds:
        """Return the allocation sections."""
        return iter([self._allocations] if self._allocations else [])

    def used_values(self) -> Rounds:
        """Return the sections of totals and used values."""
        return iter([self._used_values] if self._used_values else [])

    def live_ranges(self) -> Rounds:
        """Return the live-range sections."""
        return iter([self._live_ranges] if self._live_ranges else [])

    def hlo(self) -> Rounds:
        """Return the computations of the HLO texts."""
        return ([piece] for piece in self._hlo if piece.module in self.headers)

    def path_of(self, module: int, kind: str) -> str | None:
        """Return the path of a module's file of this kind; if derived, that of the proto."""
        loaded = self.modules[module]
        file = loaded.files.files.get(PROTO if kind in loaded.derived else kind)
        return None if file is None else file.name

    def leave_out_hlo(self, module: int) -> None:
        """Have no HLO text of this module from here on: it is of another compilation."""
        del self.headers[module]
        self.frame_ids.pop(module, None)
        self.call_ops.pop(module, None)

    def instructions_of_protos(self, is_wanted: Bools) -> Rounds:
        """Yield instructions of modules with an HLO text and a proto, read from the proto."""
        from bufdb.proto import sections

        for number in np.flatnonzero(is_wanted).tolist():
            loaded = self.modules[number]
            if PROTO not in loaded.texts or "hlo" in loaded.derived:
                continue
            path = loaded.files.files[PROTO].name
            try:
                text = sections.instructions(loaded.texts[PROTO])
            except UnreadableProto as error:
                self.account.find(number, "data_loss", "unreadable_proto", str(error), path)
                continue
            loaded.derived |= {"instructions"}
            path = f"{path}#instructions"
            self.account.open(number, path, text.count(b"\n"), rest_is_known=False)
            yield [Piece(number, path, text)]

    def _derive(self, number: int, loaded: Loaded) -> None:
        """Derive what no text of a module has from its proto."""
        if PROTO not in loaded.texts:
            return
        path = loaded.files.files[PROTO].name
        self.account.open(number, path, 0, rest_is_known=False)
        if not loaded.derived:
            return
        from bufdb.proto import sections  # 30 ms that texts need not spend

        try:
            derived = sections.read(loaded.texts[PROTO], loaded.derived)
        except UnreadableProto as error:
            self.account.find(number, "error", "unreadable_proto", str(error), path)
            loaded.derived = frozenset()
            del loaded.texts[PROTO]  # it is not needed again
            return
        for severity, code, message in derived.problems:
            self.account.find(number, severity, code, message, path)
            if severity == "error":
                self.doubts[number] = message
        loaded.derived &= derived.kinds
        if "values" in loaded.derived:
            self.described_once.add(number)
        if derived.hlo is not None:
            titles = loaded.titles["hlo"] = Titles("hlo")
            titles.feed(derived.hlo)
            loaded.texts["hlo"] = derived.hlo
        facts = Facts(derived.schedule_length, derived.peak_time, "printed")
        arrays = SectionArrays(
            derived.strings, derived.tables, derived.descriptions, derived.total_bytes, facts
        )
        self.arrays.add(number, path, arrays, self.account)

    def _companions(self, number: int, loaded: Loaded) -> None:
        if "hlo" in loaded.texts:
            text = DumpText(number, loaded, "hlo", self.account)
            self._header(number, text)
            del loaded.texts["hlo"]  # the computations are kept, which may be of 100 MB
        if loaded.before is not None:
            self._before(number, loaded, loaded.before)
        if MESSAGE_KIND in loaded.texts:
            self._message(number, DumpText(number, loaded, MESSAGE_KIND, self.account))
        if "memory_report" in loaded.texts:
            text = DumpText(number, loaded, "memory_report", self.account)
            sums, read_count = other_files.read_memory_usage(text.piece(0, text.size).text)
            self.reported_sums[number] = sums
            self._report(text, read_count, [])
        if "debug_options" in loaded.texts:
            text = DumpText(number, loaded, "debug_options", self.account)
            options, problems = other_files.read_debug_options(text.piece(0, text.size).text)
            self.options[number] = options
            self._report(text, len(options), problems)

        self._kernels(number, loaded)

    def _kernels(self, number: int, loaded: Loaded) -> None:
        """Read what the files of generated code print of kernels."""
        known = Companions(calls=loaded.code)
        if loaded.code is not None:
            path = loaded.files.files[CODE].name
            self.account.open(number, path, loaded.code.line_count, rest_is_known=True)
            self._count(number, path, loaded.code.read_count, [])
        texts = {
            kind: DumpText(number, loaded, kind, self.account)
            for kind in (THUNKS, THUNK_NAMES, GPU_CONFIG)
            if kind in loaded.texts
        }
        for kind, text in texts.items():
            plain = text.piece(0, text.size).text
            if kind == THUNKS:
                known.thunks = kernels.read_thunks(plain)
                self._report(text, len(known.thunks), [])
            elif kind == THUNK_NAMES:
                known.names = kernels.read_thunk_names(plain)
                self._report(text, 2 * len(known.names), [])
            else:
                known.block_limit = kernels.read_block_limit(plain)
                self._report(text, int(known.block_limit is not None), [])
        if loaded.code is not None or texts:
            self.kernels[number] = known

    def _message(self, number: int, text: DumpText) -> None:
        """Read an out-of-memory message; its other lines are known to be the log's."""
        from bufdb.read import oom_text  # its expressions take 30 ms

        plain = text.piece(0, text.size).text
        messages = [one for one in oom_text.read(plain) if not one.first]
        if not messages:
            self._nothing(number, text)
            return
        one = max(messages, key=lambda one: len(one.message.buffers))
        self.messages[number] = one.message
        unread = sorted(set(one.unread))
        states = [READ] * len(one.read - set(unread)) + [UNREAD] * len(unread)
        self.account.count(text.module, text.path, np.array(states, np.uint8))
        if unread:
            lines = plain.split(b"\n")
            quoted = [(at, lines[at].decode("utf-8", "replace")) for at in unread[:51]]
            problems = [
                (at + 1, f"expected a line of an out-of-memory message, found {quote(quotation)}")
                for at, quotation in quoted
            ]
            # A line that says nothing about memory is the program's, such as a warning.
            severity = "data_loss" if one.on_memory else "info"
            self.account.unread(text.module, text.path, problems, len(unread), severity=severity)

    def _header(self, number: int, text: DumpText) -> None:
        """Read the text above the computations; find where they begin and whether they end."""
        plain = text.piece(0, text.size).text
        above = hlo.header_end(plain)
        if not plain:
            self.headers[number] = hlo.HloHeader()
            if not text.titles.size:
                self.account.find(number, "data_loss", "empty_file", "it is empty", text.path)
            return
        header = self.headers[number] = hlo.read(plain[:above], self.own)
        self._report(text, header.read_count, header.problems)
        plain, self.frame_ids[number] = _with_frames_of_proto(self, number, header, plain)
        hlo.mend(header, plain, above)
        last = plain.rfind(b"}") + 1
        if not last or not _BEHIND_END.match(plain, last):
            message = "the HLO text does not end with the end of a computation; it was cut off"
            self.account.find(number, "data_loss", "truncated_hlo_text", message, text.path)
        begin = plain.rfind(b"\n", 0, above) + 1
        line_count = plain.count(b"\n", 0, begin)
        self._hlo.append(Piece(number, text.path, plain[begin:], lambda: line_count))

    def _before(self, number: int, loaded: Loaded, before: BeforeOptimizations) -> None:
        """Keep the text before optimization, unless it is of another compilation."""
        path = loaded.files.files[BEFORE].name
        self.account.open(number, path, before.line_count, rest_is_known=True)
        self._count(number, path, before.read_count, before.problems)
        if not before.line_count:
            self.account.find(number, "data_loss", "empty_file", "it is empty", path)
            return
        if not before.has_end:
            message = "the HLO text does not end with the end of its entry; it was cut off"
            self.account.find(number, "data_loss", "truncated_hlo_text", message, path)
        header = self.headers.get(number)
        if header is not None and header.module_name and before.header.module_name:
            for what in ("module_name", "partition_count", "replica_count"):
                of_before, of_module = getattr(before.header, what), getattr(header, what)
                if of_before != of_module:
                    message = (
                        f"its {what} is {of_before}, the optimized text's {of_module}; "
                        "it is skipped"
                    )
                    self.account.find(number, "notice", "other_hlo_text", message, path)
                    return
        self.before[number] = before
        if header is not None and header.frames:
            text = next((piece.text for piece in self._hlo if piece.module == number), b"")
            self.call_ops[number] = before.calls.found_in(text, header)

    def _report(self, text: DumpText, read_count: int, problems: list[tuple[int, str]]) -> None:
        self._count(text.module, text.path, read_count, problems)

    def _count(
        self, number: int, path: str, read_count: int, problems: list[tuple[int, str]]
    ) -> None:
        states = [READ] * read_count + [UNREAD] * len(problems)
        self.account.count(number, path, np.array(states, np.uint8))
        if problems:
            self.account.unread(number, path, problems[:51], len(problems))

    def _sections(self, number: int, text: DumpText) -> None:
        texts = cut(text.titles)
        if texts.is_empty:
            self._nothing(number, text)
            return
        if texts.allocations[1] and (texts.used_values[1] or texts.live_ranges[1]):
            self.one_file.add(number)
        self._read(number, text, texts.allocations, texts.used_values, texts.live_ranges)

    def _read(self, number: int, text: DumpText, *spans: Span) -> None:
        """Keep the sections, given in the order of their sources."""
        targets = (self._allocations, self._used_values, self._live_ranges)
        for target, (start, stop) in zip(targets, spans, strict=True):
            stop = min(stop, text.size)
            if stop <= start:
                continue
            piece = text.piece(start, stop)
            assert text.whole is not None, "a small file is read whole"
            if target is self._allocations and layout_2019.is_block_layout(text.whole[:LOOK_BYTES]):
                self._block_layout(piece)
            else:
                target.append(piece)

    def _nothing(self, number: int, text: DumpText) -> None:
        lines = text.account.tallies[number, text.path]
        left = lines.line_count - lines.unread_count
        if not text.titles.size:
            message = f"the {text.kind} file is empty"
            self.account.find(number, "data_loss", "empty_file", message, text.path)
            return
        message = f"the {text.kind} file holds no section of a buffer assignment"
        self.account.find(number, "data_loss", "unreadable_file", message, text.path)
        self.account.count(number, text.path, np.full(left, UNREAD, np.uint8))

    def _block_layout(self, piece: Piece) -> None:
        """Rewrite allocations of 2019 into the later layout."""
        self.has_block_layout.add(piece.module)
        text = piece.text
        later = layout_2019.rewrite(text if text.endswith(b"\n") else text + b"\n")
        for pieces, lines, numbers in (
            (self._allocations, later.allocations, later.allocation_lines),
            (self._used_values, later.used_values, later.used_lines),
        ):
            if lines:
                rewritten = b"\n".join([*lines, b""])
                pieces.append(Piece(piece.module, piece.path, rewritten, line_numbers=numbers))


def _with_frames_of_proto(
    batch: Batch, number: int, header: HloHeader, plain: bytes
) -> tuple[bytes, dict[bytes, int]]:
    """Take the stack frames, and which instruction has which, from a proto if only it has them.

    Returns:
        The HLO text, and the frames by instruction for descriptions of values, which then have none
        either.
    """
    loaded = batch.modules[number]
    if PROTO not in loaded.texts or "values" in loaded.derived:
        return plain, {}
    if not header.frames:
        from bufdb.proto import sections

        try:
            proto_text = sections.hlo_text(loaded.texts[PROTO])
        except UnreadableProto as error:
            path = loaded.files.files[PROTO].name
            batch.account.find(number, "data_loss", "unreadable_proto", str(error), path)
            return plain, {}
        header.frames = hlo.read(proto_text[: hlo.header_end(proto_text)], batch.own).frames
        if not header.frames:
            return plain, {}
        plain = hlo.with_frame_ids(plain, hlo.frame_ids(proto_text))
    elif "hlo" not in loaded.derived:
        return plain, {}
    return plain, hlo.frame_ids(plain)


# -- One large module, in rounds of a block of whole lines -----------------------------------------


class LargeModule(Batch):
    """One module in rounds of a block of whole lines."""

    def __init__(
        self,
        loaded: Loaded,
        block_bytes: int = BLOCK_BYTES,
        own: Own = NOTHING_MORE,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Take the arguments of Batch; `progress` is given the bytes of each round after it."""
        self.progress = progress
        self.block_bytes = min(block_bytes, LARGE_BLOCK_BYTES)
        self._spans: tuple[list[tuple[DumpText, Span]], ...] = ([], [], [])
        super().__init__([loaded], own)

    def _read(self, number: int, text: DumpText, *spans: Span) -> None:
        for some, span in zip(self._spans, spans, strict=True):
            if min(span[1], text.size) > span[0]:
                some.append((text, span))

    def _rounds(self, section: int) -> Iterator[Piece]:
        for text, span in self._spans[section]:
            for piece in text.rounds(span, self.block_bytes):
                yield piece
                if self.progress is not None:
                    self.progress(piece.size)

    def allocations(self) -> Rounds:
        """Return the allocation section, in rounds."""
        return ([piece] for piece in self._rounds(0))

    def used_values(self) -> Rounds:
        """Return totals and used values, in rounds."""
        return ([piece] for piece in self._rounds(1))

    def live_ranges(self) -> Rounds:
        """Yield live ranges in rounds; the tree of the printed peak comes in a single one."""
        rest: list[Piece] = []
        for piece in self._rounds(2):
            if piece.begins and rest:
                yield [_joined(rest)]
                rest = []
            if rest:
                rest.append(piece)
                continue
            text = piece.text
            place = _tree_start(text)
            if place < 0:
                yield [piece]
                continue
            if place:
                yield [replace(piece, data=text[:place], span=None)]
            above = functools.partial(_lines_above, piece, place)
            begins = piece.begins and place == 0
            rest.append(Piece(0, piece.path, text[place:], above, begins=begins))
        if rest:
            yield [_joined(rest)]


def _joined(pieces: list[Piece]) -> Piece:
    return replace(pieces[0], data=b"".join(piece.text for piece in pieces), span=None)


_TREE = b"  Stack trace breakdown for "


def _tree_start(text: bytes) -> int:
    """Return where the tree may begin, or -1."""
    # A regular expression takes twelve times as long.
    place = text.find(_TREE)
    while place > 0 and text[place - 1] != ord("\n"):
        place = text.find(_TREE, place + 1)
    return place


def _lines_above(piece: Piece, place: int) -> int:
    """Return the number of lines above a place in a piece, in its file."""
    return piece.lines_before() + piece.text.count(b"\n", 0, place)
