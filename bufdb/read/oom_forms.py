"""The lines of out-of-memory messages: how each is recognized, and what it says (section 9.2).

A pattern is searched for anywhere in a line; its handler writes into the message or its buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bufdb.read import compiled_forms
from bufdb.read.compiled_forms import STATISTICS
from bufdb.read.instruction import metadata_of
from bufdb.read.message import KINDS, LIMIT, PATTERN, SCOPED, Amount, Buffer, Message, amount_of

_FRONT = r"(?:^|(?<=[\s\]|:>\"'`+]))"
_END = r"[\s|\"',]*$"
"""Nothing more of the message on a line: a table or a quotation may end there."""


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(_FRONT + text.replace("SIZE", PATTERN))


# -- titles, and messages of one line --------------------------------------------------------------


def _nothing(message: Message, title: re.Match[str]) -> None:
    """Take nothing from a title without a figure, or from a line that follows from others."""


def _ran_out(message: Message, title: re.Match[str]) -> None:
    if title["instruction"] is None:
        return
    message.form = "kernel"
    message.buffers = [Buffer(1, message.total, kind="temp", is_scoped=True, is_whole=True)]
    read_label(message.buffers[0], title["instruction"].strip(" |"))


def _used(message: Message, title: re.Match[str]) -> None:
    message.needed = message.total = amount_of(title["used"])
    message.is_program_alone = True
    message.limit = amount_of(title["limit"])


def _scoped(message: Message, title: re.Match[str]) -> None:
    message.form = "kernel"
    message.needed = message.total = amount_of(title["size"])
    message.limit, message.excess = amount_of(title["limit"]), amount_of(title["over"])
    if message.total is not None:
        message.amounts["scoped"] = message.total
    if not message.buffers:
        message.buffers = [Buffer(1, kind="temp", is_scoped=True, is_whole=True)]
    message.buffers[0].size = message.total


def _operand(message: Message, title: re.Match[str]) -> None:
    message.form = "operand"
    message.needed = message.total = _bytes(title["size"])
    message.limit = _bytes(title["limit"])
    if message.total is not None:
        message.amounts["scoped"] = message.total
    message.buffers = [_scratch(title["kernel"], message.total)]
    message.buffers[0].shape = title["shape"]
    message.buffers[0].metadata = metadata_of(title.string[title.end() :].encode())


def _usage(message: Message, title: re.Match[str]) -> None:
    message.total, message.is_program_alone = amount_of(title["size"]), False


def _program(message: Message, title: re.Match[str]) -> None:
    if message.total is None or "held" in message.amounts:
        message.total = amount_of(title["size"])
        message.is_program_alone = message.space == "hbm"
    elif message.space != "hbm":
        # Everything in such a memory is the program's.
        message.is_program_alone = False


def _temporaries(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "temporaries", True
    message.needed = message.total = amount_of(title["size"])
    message.limit = amount_of(title["limit"])
    if message.total is not None:
        message.amounts["temp"] = message.total


def _cores(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "cores", True
    tensor, sparse = amount_of(title["tensor"]), amount_of(title["sparse"])
    if tensor is not None and sparse is not None:
        message.needed = message.total = tensor + sparse
        message.amounts |= {"tensor": tensor, "sparse": sparse}
    message.limit = amount_of(title["limit"])


def _tile(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "tile", True
    message.needed = message.total = _words(title["words"])
    message.limit = _words(title["most"])
    if message.total is not None:
        message.amounts["scoped"] = message.total
    named = _HLO_OP.search(title.string, 0, title.start())
    if named is not None and title["asked"]:
        message.buffers = [_scratch(named["name"], _words(title["asked"]))]


def _scratch(name: str, size: Amount | None) -> Buffer:
    return Buffer(1, size, name=name, kind="temp", is_scoped=True, is_whole=True)


def _words(text: str) -> Amount | None:
    """Return the bytes of a number of SparseCore words."""
    return _bytes(text, 4)


def _bytes(text: str, scale: int = 1) -> Amount | None:
    size = int(text, 0) * scale
    return Amount(size, 0) if size < LIMIT else None


def _block(message: Message, title: re.Match[str]) -> None:
    message.form = "block"
    scale = TENSOR_COLUMN if message.space == "tensor" else 1
    message.needed = message.total = _bytes(title["size"], scale)
    message.limit = _bytes(title["limit"], scale)
    if message.total is not None:
        message.amounts["scoped"] = message.total
    if name := title.groupdict().get("kernel"):
        message.buffers = [_scratch(name, message.total)]


def _early(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "early", True
    message.needed = message.total = amount_of(title["size"])
    message.limit = amount_of(title["limit"])


def _wanted(message: Message, title: re.Match[str]) -> None:
    is_program = message.function is not None or title["bottom"]
    message.form = "program" if is_program else "array"
    message.is_program_alone = True
    message.needed = message.total = amount_of(title["size"])


def _loading(message: Message, title: re.Match[str]) -> None:
    message.form, message.function = "program", title["program"]


def _allocate(message: Message, title: re.Match[str]) -> None:
    message.form, message.is_program_alone = "array", True
    message.needed = message.total = amount_of(title["size"].replace(" bytes", "B"))
    if named := _EXECUTABLE.search(title.string):
        message.function = named["name"]
    if _COLLECTIVE.search(title.string):
        message.space = "collective"


def _stats(message: Message, title: re.Match[str]) -> None:
    message.form, message.total, message.is_program_alone = "list", None, False


SUMS = {*compiled_forms.SUMS, "usage", "program"}
"""Titles of sums, with which a summary begins; others begin a message about a failure."""
GPU_PARTS = [*STATISTICS, "block", "allocate", "title", "stats", "peak"]
TPU_PARTS = [
    *compiled_forms.SUMS,
    "loading",
    "tile",
    "early",
    "temporaries",
    "cores",
    "wanted",
    "ran_out",
    "used",
]
TPU_PARTS += ["operand", "scoped"]
TPU_PARTS += ["usage", "program", "largest"]
ALONE = {*STATISTICS, "operand", "block", "tile", "early", "temporaries", "cores", "wanted"}
"""Titles that hold a whole message, below which there may be ..."""
AFTER_ALONE = {"usage", "program", "largest"}
FOLLOWING = {"wanted", "used", "scoped"}
"""Titles that may be on the line of another."""
_Take = Callable[[Message, re.Match[str]], None]
_EXECUTABLE = re.compile(r"\[executable_name='(?P<name>[^']+)'\]")
_COLLECTIVE = re.compile(r"\bcollective(?:[ _]?memory)?\b", re.IGNORECASE)
"""A GPU's memory for collectives, which has an allocator of its own."""
_HLO_OP = re.compile(r"Hlo-Op: %?(?P<name>[^\s:]+)")
TENSOR_COLUMN = 512
"""Bytes of a column of a GPU's tensor memory: 128 lanes of 4 bytes."""
BLOCKS = [
    re.compile(text.replace("NUMBER", r"(?:0x[\da-f]{1,15}|\d{1,18})"))
    for text in (
        r"(?P<space>Shared|Tensor) memory size limit exceeded: requested (?P<size>NUMBER), "
        r"available:? (?P<limit>NUMBER)",
        r"(?P<space>Shared) memory requested \((?P<size>NUMBER) b\) exceeds device resources "
        r"\((?P<limit>NUMBER) b\)",
        r"exceeds available (?P<space>shared) memory: (?:smem_bytes=)?(?P<size>NUMBER) > "
        r"(?:max_smem_bytes=)?(?P<limit>NUMBER)",
        r"Entry function '(?P<kernel>[^']+)' uses too much (?P<space>shared) data "
        r"\((?P<size>NUMBER) bytes, (?P<limit>NUMBER) max\)",
    )
]
"""What a GPU's kernel needs for one of its blocks; in bytes, of tensor memory in columns."""
TITLED: list[tuple[str, re.Pattern[str], _Take]] = [
    (
        "allocate",
        re.compile(
            r"(?:Out of memory (?:while trying to allocate|allocating)"
            rf"|Failed to allocate request for) (?P<size>\d+ bytes|{PATTERN})"
        ),
        _allocate,
    ),
    *(("block", pattern, _block) for pattern in BLOCKS),
    ("title", re.compile(r"BufferAssignment OOM Debugging"), _nothing),
    ("stats", re.compile(r"BufferAssignment stats:"), _stats),
    ("peak", _pattern(r"Peak buffers:" + _END), _nothing),
    ("loading", re.compile(r"Error loading program '(?P<program>[^']+)'"), _loading),
    (
        "ran_out",
        re.compile(
            r"Ran out of memory in memory space (?P<space>\w+)(?: while allocating on stack for "
            r"(?P<instruction>.+?)(?:\.{0,3} *(?=Scoped allocation with)|$))?"
        ),
        _ran_out,
    ),
    (
        "used",
        re.compile(
            rf"Used (?P<used>{PATTERN}) of (?P<limit>{PATTERN}) "
            r"(?P<space>hbm|[a-z]+mem|sflag|host)\b"
        ),
        _used,
    ),
    (
        "scoped",
        re.compile(
            rf"Scoped allocation with size (?P<size>{PATTERN}) and limit (?P<limit>{PATTERN})"
            rf" exceeded scoped (?P<space>\w+) limit by (?P<over>{PATTERN})"
        ),
        _scoped,
    ),
    (
        "operand",
        re.compile(
            r"Allocation \(size=(?P<size>\d{1,18})\) would exceed memory "
            r"\(size=(?P<limit>\d{1,18})\) :: #\w+ \[shape = '(?P<shape>[^']*)', "
            r"space=(?P<space>\w+), [^\]]*\] :: (?P<kernel>[\w.-]+)"
        ),
        _operand,
    ),
    ("usage", _pattern(r"Total (?P<space>\w+) usage >= (?P<size>SIZE)"), _usage),
    ("program", _pattern(r"Program (?P<space>\w+) requirement (?P<size>SIZE)"), _program),
    ("largest", _pattern(r"Largest program allocations in (?P<space>\w+)"), _nothing),
    (
        "temporaries",
        re.compile(
            rf"memory required for HLO temporaries \((?P<size>{PATTERN})\) exceeds available "
            rf"(?P<space>HBM) \((?P<limit>{PATTERN})\)"
        ),
        _temporaries,
    ),
    (
        "cores",
        re.compile(
            rf"TensorCore (?P<space>Hbm) usage:? (?P<tensor>{PATTERN}), SparseCore Hbm usage:? "
            rf"(?P<sparse>{PATTERN}), exceeding available bytes:? (?P<limit>{PATTERN})"
        ),
        _cores,
    ),
    (
        "tile",
        re.compile(
            r"current allocation offset upper bound \((?P<words>\d{1,15}) words\) exceeds the "
            r"legitimate user allocatable offset upper bound \((?P<most>\d{1,15}) words\)"
            r" in memory space (?P<space>\d{1,9})(?: when allocating (?P<asked>\d{1,15}) words)?"
        ),
        _tile,
    ),
    (
        "early",
        re.compile(
            rf"have enough (?:device )?memory\. Requires (?P<size>{PATTERN}), "
            rf"has (?P<limit>{PATTERN}) available"
        ),
        _early,
    ),
    (
        "wanted",
        re.compile(
            rf"Attempting to (?:reserve|allocate) (?P<size>{PATTERN})"
            r"(?P<bottom> at the bottom of memory)?"
        ),
        _wanted,
    ),
    *compiled_forms.TITLED,
]


# -- lines below them ------------------------------------------------------------------------------


def _amount(*names: str) -> _Take:
    def take(message: Message, found: re.Match[str]) -> None:
        for name in names:
            if text := found.groupdict().get(name):
                amount = amount_of(text)
                if amount is not None:
                    message.amounts[name] = amount

    return take


def _total(message: Message, found: re.Match[str]) -> None:
    message.total = amount_of(found["total"])


def _arguments(message: Message, found: re.Match[str]) -> None:
    if found["argument"]:
        _amount("argument")(message, found)
    else:
        message.is_program_alone = True


def _part(message: Message, found: re.Match[str]) -> None:
    """Take a part of the total: what the runtime reserves, or the program."""
    if {"use", "usage"} <= message.parts and "program" not in message.parts:
        _amount("reserved", "program")(message, found)


def _free(message: Message, found: re.Match[str]) -> None:
    message.limit = amount_of(found["reservable"] or found["free"])


def _excess(message: Message, found: re.Match[str]) -> None:
    message.excess = amount_of(found["over"])


def _module(message: Message, found: re.Match[str]) -> None:
    message.function = found["name"]


_SHARE = r"(?: \([^()]*\))?"
"""`(99.9% utilization)`, as until 2020."""
GPU_FIELDS: list[tuple[re.Pattern[str], _Take]] = [
    *compiled_forms.FIELDS,
    (_pattern(r"parameter allocation: +(?P<argument>SIZE)"), _amount("argument")),
    (_pattern(r"constant allocation: +(?P<constant>SIZE)"), _amount("constant")),
    (_pattern(r"maybe_live_out allocation: +(?P<output>SIZE)"), _amount("output")),
    (_pattern(r"preallocated temp allocation: +(?P<temp>SIZE)"), _amount("temp")),
    (
        _pattern(r"preallocated temp fragmentation: +(?P<fragmentation>SIZE)"),
        _amount("fragmentation"),
    ),
    (_pattern(r"total allocation: +(?P<total>SIZE)"), _total),
    (_pattern(r"total fragmentation: +"), _nothing),
]
TPU_FIELDS: list[tuple[re.Pattern[str], _Take]] = [
    (
        _pattern(
            r"HLO temp +(?P<temp>SIZE)(?:\s*\(.*?fragmentation \((?P<fragmentation>SIZE)\)\))?"
        ),
        _amount("temp", "fragmentation"),
    ),
    (_pattern(rf"arguments +(?:(?P<argument>SIZE){_SHARE}|unknown size)" + _END), _arguments),
    (
        _pattern(
            rf"Output size (?:(?P<output>SIZE){_SHARE}(?:; shares (?P<alias>SIZE) with arguments)?"
            r"|unknown)"
        ),
        _amount("output", "alias"),
    ),
    (_pattern(r"(?:Currently allocated:|heap allocations \(.*?\)) +(?P<held>SIZE)"),
     _amount("held")),
    (_pattern(r"scoped +(?P<scoped>SIZE)"), _amount("scoped")),
    (_pattern(r"(?:reserved +(?P<reserved>SIZE)|program +(?P<program>SIZE))"), _part),
    (
        _pattern(
            r"(?:reserved(?:\([\w/]+\))?|program|global|scoped|overlays|output|HLO \w+)"
            r" +(?:SIZE|unknown)"
        ),
        _nothing,
    ),
    (_pattern(r"Used (?P<used>SIZE) of (?P<limit>SIZE)"), _used),
    (_pattern(r"Exceeded \w+ capacity by (?P<over>SIZE)"), _excess),
    (
        _pattern(
            r"There are (?P<free>SIZE) free"
            r"(?:, SIZE reserved, and (?P<reservable>SIZE) reservable)?"
        ),
        _free,
    ),
    (compiled_forms.BETWEEN, _nothing),
    (re.compile(r"HLO module: (?P<name>[\w.<>-]*[\w<>-])"), _module),
    (
        _pattern(
            r"(?:HBM capacity|Top-of-Memory reserved:|Program requirement:|Max free chunk"
            r"|Available after request:|No (?:program )?allocations in )[ :]*"
        ),
        _nothing,
    ),
    (
        _pattern(
            r"(?:Heap allocator status:|Persistent allocations include"
            r"|attempting reservation for|That was not possible\.?$|It should not be possible"
            r"|See https://openxla\.org/xla/errors)"
        ),
        _nothing,
    ),
]  # fmt: skip
GPU_HEAD = _pattern(r"Buffer (?P<number>\d{1,9}):" + _END)
TPU_HEAD = _pattern(r"(?P<number>\d{1,9})\. Size: (?P<size>SIZE)" + _END)
OPERATOR = _pattern(r"Operator: (?P<text>.*)$")
END_OF_OPERATOR = re.compile(
    r"Scoped allocation with|={10}"
    r"|(?:XLA [Ll]abel|Shape|Entry Parameter Subshape|Size|Tag|Allocation type): "
)
_INSTRUCTION = re.compile(
    r"%?(?P<name>[^\s=%]+) = (?:(?P<shape>\(.*?\)|[a-z]\w*\[\S*) )?(?P<opcode>[a-z][a-z0-9-]*)\(.*"
)
"""An instruction; since 2023 without the shape of its result."""
_NAME = re.compile(r"%?(?P<name>[^\s=%]+)(?: = .*)?")


def read_label(buffer: Buffer, text: str) -> None:
    """Take what a label says: an instruction, with or without its result's shape, or words."""
    instruction = _INSTRUCTION.fullmatch(text)
    if instruction is None:
        named = _NAME.fullmatch(text)  # cut off within the shape of its result
        buffer.name = text if named is None else named["name"].rstrip(".")
        return
    buffer.name, buffer.opcode = instruction["name"], instruction["opcode"]
    buffer.result = instruction["shape"]
    if not text.endswith("..."):
        parsed = metadata_of(text[instruction.end("opcode") :].encode())
        buffer.metadata = {**parsed, **buffer.metadata}
        if parsed == buffer.metadata and buffer.result is not None:
            buffer.label = text if text.startswith("%") else f"%{text}"


def _bare(found: re.Match[str]) -> str:
    """Return the value of a field, without the end of a table's cell or of a quotation."""
    return found["text"].rstrip(" \t|\"',").strip()


def unquoted(text: str) -> str:
    """Return a text without the quote that ends a quotation on its line."""
    bare = text.rstrip(" |,")
    is_odd = len(re.findall(r'(?<!\\)"', bare)) % 2 == 1
    return bare[:-1] if is_odd and bare.endswith('"') and bare[-2:-1] != "=" else text


def _size(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.size = amount_of(found["size"])


def _shape(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.shape = _bare(found)


def _parameter(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.shape, buffer.kind, buffer.opcode = _bare(found), "parameter", "parameter"


def _label(buffer: Buffer, found: re.Match[str]) -> None:
    text = unquoted(found["text"]).rstrip(" |").strip()
    if re.fullmatch(r"[a-z][a-z0-9-]*", text):
        buffer.opcode = text
    else:
        read_label(buffer, text)


def _kind(buffer: Buffer, found: re.Match[str]) -> None:
    text = _bare(found).lower()
    buffer.kind, buffer.is_scoped = KINDS.get(text), text == SCOPED
    buffer.is_whole = buffer.size is None


def _end(buffer: Buffer, found: re.Match[str]) -> None:
    buffer.is_whole = True


def _known(buffer: Buffer, found: re.Match[str]) -> None:
    """Take nothing from a line that follows from the size and shape, or that states a purpose."""


LABEL_LINE = _pattern(r"XLA [Ll]abel: (?P<text>.+)$")
BUFFER_FIELDS: list[tuple[re.Pattern[str], Callable[[Buffer, re.Match[str]], None]]] = [
    (_pattern(r"Size: (?P<size>SIZE)" + _END), _size),
    (_pattern(r"Entry Parameter Subshape: (?P<text>.+)$"), _parameter),
    (_pattern(r"Shape: (?P<text>.+)$"), _shape),
    (LABEL_LINE, _label),
    (_pattern(r"Allocation type: (?P<text>.+)$"), _kind),
    (_pattern(r"Unpadded size: SIZE"), _known),
    (_pattern(r"Extra memory due to padding: SIZE"), _known),
    (_pattern(r"Tag: \S"), _known),
    (_pattern(r"={20,}" + _END), _end),
]
FIELDS = [
    *(pattern for pattern, _ in (*GPU_FIELDS, *TPU_FIELDS)),
    *(GPU_HEAD, TPU_HEAD, OPERATOR),
    *(pattern for pattern, _ in BUFFER_FIELDS),
]
"""All lines other than titles."""
