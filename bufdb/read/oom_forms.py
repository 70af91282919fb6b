"""The lines of out-of-memory messages: how each is recognized, and what it says (section 9.2).

A rule is searched for anywhere in a line; what a field of a buffer says goes into the buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bufdb.read import compiled_forms
from bufdb.read.amount import Amount, amount_of
from bufdb.read.compiled_forms import STATISTICS
from bufdb.read.instruction import metadata_of
from bufdb.read.message import KINDS, SCOPED, Buffer, Message
from bufdb.read.oom_rules import Rule, pattern_of

# -- titles, and messages of one line --------------------------------------------------------------


def _ran_out(message: Message, title: re.Match[str]) -> None:
    if title["instruction"] is not None:
        message.form = "kernel"
        message.buffers = [_scratch(None, message.total)]
        read_label(message.buffers[0], title["instruction"].strip(" |"))


def _scoped(message: Message, title: re.Match[str]) -> None:
    message.buffers = message.buffers or [_scratch(None, None)]
    message.buffers[0].size = message.total


def _operand(message: Message, title: re.Match[str]) -> None:
    message.buffers = [_scratch(title["kernel"], message.total)]
    message.buffers[0].shape = title["shape"]
    message.buffers[0].metadata = metadata_of(title.string[title.end() :].encode())


def _program(message: Message, title: re.Match[str]) -> None:
    if message.total is None or "held" in message.amounts:
        message.total = amount_of(title["size"])
        message.is_program_alone = message.space == "hbm"
    elif message.space != "hbm":
        # Everything in such a memory is the program's.
        message.is_program_alone = False


def _cores(message: Message, title: re.Match[str]) -> None:
    tensor, sparse = (message.amounts.get(name) for name in ("tensor", "sparse"))
    if tensor is not None and sparse is not None:
        message.needed = message.total = tensor + sparse


def _tile(message: Message, title: re.Match[str]) -> None:
    operation = _HLO_OP.search(title.string, 0, title.start())
    if operation is not None and title["words"]:
        words = Amount(int(title["words"]) * _WORD, 0)
        message.buffers = [_scratch(operation["name"], words)]


def _kernel(message: Message, title: re.Match[str]) -> None:
    message.buffers = [_scratch(title["kernel"], message.total)]


def _scratch(name: str | None, size: Amount | None) -> Buffer:
    return Buffer(1, size, name=name, kind="temp", is_scoped=True, is_whole=True)


def _wanted(message: Message, title: re.Match[str]) -> None:
    message.form = "program" if message.function is not None or title["bottom"] else "array"


def _allocate(message: Message, title: re.Match[str]) -> None:
    if executable := _EXECUTABLE.search(title.string):
        message.function = executable["name"]
    if _COLLECTIVE.search(title.string):
        message.space = "collective"


def _stats(message: Message, title: re.Match[str]) -> None:
    message.total = None


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
_EXECUTABLE = re.compile(r"\[executable_name='(?P<name>[^']+)'\]")
_COLLECTIVE = re.compile(r"\bcollective(?:[ _]?memory)?\b", re.IGNORECASE)
"""A GPU's memory for collectives, which has an allocator of its own."""
_HLO_OP = re.compile(r"Hlo-Op: %?(?P<name>[^\s:]+)")
_TENSOR_COLUMN = 512
"""Bytes of a column of a GPU's tensor memory: 128 lanes of 4 bytes."""
_WORD = 4
"""Bytes of a SparseCore's word."""


TITLED = [
    Rule(
        r"(?:Out of memory (?:while trying to allocate|allocating)|Failed to allocate request for) "
        r"(?P<need>\d{1,18}(?= bytes)|SIZE)",
        part="allocate", form="array", is_program_alone=True, then=_allocate,
    ),
    # What a GPU's kernel needs for one of its blocks.
    Rule(
        r"(?P<space>Shared) memory size limit exceeded: requested (?P<need>NUMBER), "
        r"available:? (?P<limit>NUMBER)",
        part="block", form="block", need_is="scoped",
    ),
    Rule(
        r"(?P<space>Tensor) memory size limit exceeded: requested (?P<need>NUMBER), "
        r"available:? (?P<limit>NUMBER)",
        part="block", form="block", need_is="scoped", scale=_TENSOR_COLUMN,
    ),
    Rule(
        r"(?P<space>Shared) memory requested \((?P<need>NUMBER) b\) exceeds device resources "
        r"\((?P<limit>NUMBER) b\)",
        part="block", form="block", need_is="scoped",
    ),
    Rule(
        r"exceeds available (?P<space>shared) memory: (?:smem_bytes=)?(?P<need>NUMBER) > "
        r"(?:max_smem_bytes=)?(?P<limit>NUMBER)",
        part="block", form="block", need_is="scoped",
    ),
    Rule(
        r"Entry function '(?P<kernel>[^']+)' uses too much (?P<space>shared) data "
        r"\((?P<need>NUMBER) bytes, (?P<limit>NUMBER) max\)",
        part="block", form="block", need_is="scoped", then=_kernel,
    ),
    Rule(r"BufferAssignment OOM Debugging", part="title"),
    Rule(
        r"BufferAssignment stats:", part="stats", form="list", is_program_alone=False, then=_stats
    ),
    Rule(r"FRONTPeak buffers:END", part="peak"),
    Rule(r"Error loading program '(?P<function>[^']+)'", part="loading", form="program"),
    Rule(
        r"Ran out of memory in memory space (?P<space>\w+)(?: while allocating on stack for "
        r"(?P<instruction>.+?)(?:\.{0,3} *(?=Scoped allocation with)|$))?",
        part="ran_out", then=_ran_out,
    ),
    Rule(
        r"Used (?P<need>SIZE) of (?P<limit>SIZE) (?P<space>hbm|[a-z]+mem|sflag|host)\b",
        part="used", is_program_alone=True,
    ),
    Rule(
        r"Scoped allocation with size (?P<need>SIZE) and limit (?P<limit>SIZE)"
        r" exceeded scoped (?P<space>\w+) limit by (?P<excess>SIZE)",
        part="scoped", form="kernel", need_is="scoped", then=_scoped,
    ),
    Rule(
        r"Allocation \(size=(?P<need>\d{1,18})\) would exceed memory "
        r"\(size=(?P<limit>\d{1,18})\) :: #\w+ \[shape = '(?P<shape>[^']*)', "
        r"space=(?P<space>\w+), [^\]]*\] :: (?P<kernel>[\w.-]+)",
        part="operand", form="operand", need_is="scoped", then=_operand,
    ),
    Rule(
        r"FRONTTotal (?P<space>\w+) usage >= (?P<total>SIZE)", part="usage", is_program_alone=False
    ),
    Rule(
        r"FRONTProgram (?P<space>\w+) requirement (?P<size>SIZE)", part="program", then=_program
    ),
    Rule(r"FRONTLargest program allocations in (?P<space>\w+)", part="largest"),
    Rule(
        r"memory required for HLO temporaries \((?P<need>SIZE)\) exceeds available "
        r"(?P<space>HBM) \((?P<limit>SIZE)\)",
        part="temporaries", form="temporaries", is_program_alone=True, need_is="temp",
    ),
    Rule(
        r"TensorCore (?P<space>Hbm) usage:? (?P<tensor>SIZE), SparseCore Hbm usage:? "
        r"(?P<sparse>SIZE), exceeding available bytes:? (?P<limit>SIZE)",
        part="cores", form="cores", is_program_alone=True, then=_cores,
    ),
    Rule(
        r"current allocation offset upper bound \((?P<need>\d{1,15}) words\) exceeds the "
        r"legitimate user allocatable offset upper bound \((?P<limit>\d{1,15}) words\)"
        r" in memory space (?P<space>\d{1,9})(?: when allocating (?P<words>\d{1,15}) words)?",
        part="tile", form="tile", is_program_alone=True, need_is="scoped", scale=_WORD, then=_tile,
    ),
    Rule(
        r"have enough (?:device )?memory\. Requires (?P<need>SIZE), has (?P<limit>SIZE) available",
        part="early", form="early", is_program_alone=True,
    ),
    Rule(
        r"Attempting to (?:reserve|allocate) (?P<need>SIZE)(?P<bottom> at the bottom of memory)?",
        part="wanted", is_program_alone=True, then=_wanted,
    ),
    *compiled_forms.TITLED,
]  # fmt: skip


# -- lines below them ------------------------------------------------------------------------------


def _arguments(message: Message, line: re.Match[str]) -> None:
    message.is_program_alone = message.is_program_alone or not line["argument"]


def _part(message: Message, line: re.Match[str]) -> None:
    """Take a part of the total: what the runtime reserves, or the program."""
    amount = amount_of(line["size"])
    is_of_summary = {"use", "usage"} <= message.parts and "program" not in message.parts
    if is_of_summary and amount is not None:
        message.amounts[line["part"]] = amount


def _free(message: Message, line: re.Match[str]) -> None:
    message.limit = amount_of(line["reservable"] or line["free"])


_SHARE = r"(?: \([^()]*\))?"
"""`(99.9% utilization)`, as until 2020."""
GPU_FIELDS = [
    *compiled_forms.FIELDS,
    Rule(r"FRONTparameter allocation: +(?P<argument>SIZE)"),
    Rule(r"FRONTconstant allocation: +(?P<constant>SIZE)"),
    Rule(r"FRONTmaybe_live_out allocation: +(?P<output>SIZE)"),
    Rule(r"FRONTpreallocated temp allocation: +(?P<temp>SIZE)"),
    Rule(r"FRONTpreallocated temp fragmentation: +(?P<fragmentation>SIZE)"),
    Rule(r"FRONTtotal allocation: +(?P<total>SIZE)"),
    Rule(r"FRONTtotal fragmentation: +"),
]
TPU_FIELDS = [
    Rule(r"FRONTHLO temp +(?P<temp>SIZE)(?:\s*\(.*?fragmentation \((?P<fragmentation>SIZE)\)\))?"),
    Rule(rf"FRONTarguments +(?:(?P<argument>SIZE){_SHARE}|unknown size)END", then=_arguments),
    Rule(
        rf"FRONTOutput size (?:(?P<output>SIZE){_SHARE}"
        r"(?:; shares (?P<alias>SIZE) with arguments)?|unknown)"
    ),
    Rule(r"FRONT(?:Currently allocated:|heap allocations \(.*?\)) +(?P<held>SIZE)"),
    Rule(r"FRONTscoped +(?P<scoped>SIZE)"),
    Rule(r"FRONT(?P<part>reserved|program) +(?P<size>SIZE)", then=_part),
    Rule(
        r"FRONT(?:reserved(?:\([\w/]+\))?|program|global|scoped|overlays|output|HLO \w+)"
        r" +(?:SIZE|unknown)"
    ),
    Rule(r"FRONTUsed (?P<need>SIZE) of (?P<limit>SIZE)", is_program_alone=True),
    Rule(r"FRONTExceeded \w+ capacity by (?P<excess>SIZE)"),
    Rule(
        r"FRONTThere are (?P<free>SIZE) free"
        r"(?:, SIZE reserved, and (?P<reservable>SIZE) reservable)?",
        then=_free,
    ),
    compiled_forms.BETWEEN,
    Rule(r"HLO module: (?P<function>[\w.<>-]*[\w<>-])"),
    Rule(
        r"FRONT(?:HBM capacity|Top-of-Memory reserved:|Program requirement:|Max free chunk"
        r"|Available after request:|No (?:program )?allocations in )[ :]*"
    ),
    Rule(
        r"FRONT(?:Heap allocator status:|Persistent allocations include"
        r"|attempting reservation for|That was not possible\.?$|It should not be possible"
        r"|See https://openxla\.org/xla/errors)"
    ),
]
GPU_HEAD = pattern_of(r"FRONTBuffer (?P<number>\d{1,9}):END")
TPU_HEAD = pattern_of(r"FRONT(?P<number>\d{1,9})\. Size: (?P<size>SIZE)END")
OPERATOR = pattern_of(r"FRONTOperator: (?P<text>.*)$")
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


def _bare(match: re.Match[str]) -> str:
    """Return the value of a field, without the end of a table's cell or of a quotation."""
    return match["text"].rstrip(" \t|\"',").strip()


def unquoted(text: str) -> str:
    """Return a text without the quote that ends a quotation on its line."""
    bare = text.rstrip(" |,")
    is_odd = len(re.findall(r'(?<!\\)"', bare)) % 2 == 1
    return bare[:-1] if is_odd and bare.endswith('"') and bare[-2:-1] != "=" else text


def _size(buffer: Buffer, match: re.Match[str]) -> None:
    buffer.size = amount_of(match["size"])


def _shape(buffer: Buffer, match: re.Match[str]) -> None:
    buffer.shape = _bare(match)


def _parameter(buffer: Buffer, match: re.Match[str]) -> None:
    buffer.shape, buffer.kind, buffer.opcode = _bare(match), "parameter", "parameter"


def _label(buffer: Buffer, match: re.Match[str]) -> None:
    text = unquoted(match["text"]).rstrip(" |").strip()
    if re.fullmatch(r"[a-z][a-z0-9-]*", text):
        buffer.opcode = text
    else:
        read_label(buffer, text)


def _kind(buffer: Buffer, match: re.Match[str]) -> None:
    text = _bare(match).lower()
    buffer.kind, buffer.is_scoped = KINDS.get(text), text == SCOPED
    buffer.is_whole = buffer.size is None


def _end(buffer: Buffer, match: re.Match[str]) -> None:
    buffer.is_whole = True


def _known(buffer: Buffer, match: re.Match[str]) -> None:
    """Take nothing from a line that follows from the size and shape, or that states a purpose."""


LABEL_LINE = pattern_of(r"FRONTXLA [Ll]abel: (?P<text>.+)$")
BUFFER_FIELDS: list[tuple[re.Pattern[str], Callable[[Buffer, re.Match[str]], None]]] = [
    (pattern_of(r"FRONTSize: (?P<size>SIZE)END"), _size),
    (pattern_of(r"FRONTEntry Parameter Subshape: (?P<text>.+)$"), _parameter),
    (pattern_of(r"FRONTShape: (?P<text>.+)$"), _shape),
    (LABEL_LINE, _label),
    (pattern_of(r"FRONTAllocation type: (?P<text>.+)$"), _kind),
    (pattern_of(r"FRONTUnpadded size: SIZE"), _known),
    (pattern_of(r"FRONTExtra memory due to padding: SIZE"), _known),
    (pattern_of(r"FRONTTag: \S"), _known),
    (pattern_of(r"FRONT={20,}END"), _end),
]
FIELDS = [
    *(rule.pattern for rule in (*GPU_FIELDS, *TPU_FIELDS)),
    *(GPU_HEAD, TPU_HEAD, OPERATOR),
    *(pattern for pattern, _ in BUFFER_FIELDS),
]
"""All lines other than titles."""
