"""What a compiler says of memories that no dump tells: kernels' scratch memory, scalars' memory.

XLA has written the dump of such a program before it gives up, in which the instruction that is too
large has its stack frame; the message has the frame's number alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from bufdb.read import hlo
from bufdb.read.reports import oom_text

_STACK = re.compile(r"allocating on stack for %?(\S+) = ")
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_HLO = "*after_optimizations.txt"


def other_spaces(text: str, dump: Path) -> str:
    """The lines of a log's out-of-memory messages that are not about HBM; '' if there are none.

    Args:
        text: of a log, or of an exception.
        dump: folder of the dumps of what was compiled, for the lines of stack frames.
    """
    lines = text.split("\n")
    chosen: dict[int, None] = {}
    for found in oom_text.read(text):
        if found.message.space != "hbm":
            chosen |= dict.fromkeys(found.lines or range(found.first, found.last + 1))
    return "".join(f"{_with_source(lines[number], dump)}\n" for number in sorted(chosen))


def _with_source(line: str, dump: Path) -> str:
    """A line with the source of the stack frame that it names, if the dump has it."""
    instruction, number = _STACK.search(line), _FRAME.search(line)
    if instruction is None or number is None or "source_file=" in line:
        return line
    defined = f"%{instruction[1]} = ".encode()
    for path in sorted(dump.rglob(_HLO)):
        text = path.read_bytes()
        if defined in text and number[0].encode() in text:
            end = number.end()
            return line[:end] + _source(text, int(number[1])) + line[end:]
    return line


def _source(text: bytes, number: int) -> str:
    frames = {
        frame.stack_frame_id: frame for frame in hlo.read(text[: hlo.header_end(text)]).frames
    }
    frame = frames.get(number)
    if frame is not None and frame.own_frame_id is not None:
        frame = frames.get(frame.own_frame_id)
    if frame is None or frame.source_file is None or '"' in frame.source_file:
        return ""
    return f' source_file="{frame.source_file}" source_line={frame.source_line}'
