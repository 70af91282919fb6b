"""What a compiler says about memories in no dump: kernels' scratch memory, scalars' memory.

XLA has written the dump of such a program before it gives up, in which the instruction that is
too large has its stack frame; the message has the frame's number alone, or of a list the name
alone.
"""

from __future__ import annotations

import re
from pathlib import Path

from bufdb.read import hlo, oom_text

_KERNEL = re.compile(r"allocating on stack for %?(?P<name>[^\s=]+) = .*?stack_frame_id=\d+")
_OPERAND = re.compile(r"\) would exceed memory \(size=.*\] :: (?P<name>[\w.-]+)")
_OPERATOR = re.compile(r'Operator: op_name="[^"]*"')
_LABEL = re.compile(r"XLA label: %?(?P<name>[^\s=]+) = ")
_HLO = "*after_optimizations.txt"


def other_spaces(text: str, dump: Path) -> str:
    """Return the lines of a log's out-of-memory messages that are not about HBM, or ''.

    Args:
        text: of a log, or of an exception.
        dump: folder of the dumps of what was compiled, for the lines of stack frames.
    """
    lines = text.split("\n")
    chosen: dict[int, None] = {}
    for placed in oom_text.read(text):
        if placed.message.space != "hbm" and placed.message.form != "summary":
            chosen |= dict.fromkeys(placed.lines or range(placed.first, placed.last + 1))
    numbers = sorted(chosen)
    operator: tuple[int, re.Match[str]] | None = None
    for number in numbers:
        line = lines[number]
        if found_operator := _OPERATOR.search(line):
            operator = number, found_operator
        elif kernel := _KERNEL.search(line):
            lines[number] = _with(line, kernel, _source(dump, kernel["name"]))
        elif kernel := _OPERAND.search(line):
            source = _source(dump, kernel["name"], with_op_name=True)
            lines[number] = _with(line, kernel, source and f", metadata={{{source.lstrip()}}}")
        elif operator is not None and (label := _LABEL.search(line)):
            lines[operator[0]] = _with(
                lines[operator[0]], operator[1], _source(dump, label["name"])
            )
            operator = None
    return "".join(f"{lines[number]}\n" for number in numbers)


def _with(line: str, after: re.Match[str], source: str) -> str:
    """Return a line with a source after what was found in it, if it has none."""
    return line if "source_file=" in line else line[: after.end()] + source + line[after.end() :]


def _source(dump: Path, instruction: str, *, with_op_name: bool = False) -> str:
    """Return what metadata say of an instruction's source; '' if the dump does not have it."""
    name = re.escape(instruction).encode()
    defined = re.compile(
        rb'%%%s = [^\n]*metadata={(op_name="[^"\n]*")[^\n]*stack_frame_id=(\d+)' % name
    )
    for path in sorted(dump.rglob(_HLO)):
        text = path.read_bytes()
        if (match := defined.search(text)) is not None:
            source = _of_frame(text, int(match[2]))
            return f" {match[1].decode()}{source}" if with_op_name else source
    return ""


def _of_frame(text: bytes, number: int) -> str:
    frames = {
        frame.stack_frame_id: frame for frame in hlo.read(text[: hlo.header_end(text)]).frames
    }
    frame = frames.get(number)
    if frame is not None and frame.own_frame_id is not None:
        frame = frames.get(frame.own_frame_id)
    if frame is None or frame.source_file is None or '"' in frame.source_file:
        return ""
    return f' source_file="{frame.source_file}" source_line={frame.source_line}'
