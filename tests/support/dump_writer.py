"""Random modules, and a writer that prints them as XLA of any year would.

``modules()`` and ``dialects()`` are hypothesis strategies. ``write(module, dialect)`` gives the
files of the module by kind; ``rows(module, dialect)`` gives the rows that a reader must find in
them. A module holds more than any one dialect prints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import second_savings
from hypothesis import strategies as st
from second_reader import entry_hash, value_users, with_tree_ordinals

Row = dict[str, Any]
Place = tuple[str, str | None]  # instruction, braced index or None where none is printed


@dataclass(frozen=True)
class Shape:
    text: str
    row: Row = field(hash=False)
    elements: tuple[Shape, ...] | None = None


@dataclass
class Instruction:
    name: str
    shape: Shape
    opcode: str
    operands: list[tuple[str, str]]  # shape, name
    literal: str | None
    attributes: list[str]
    op_type: str
    op_name: str
    source: tuple[str, int, int, int, int]
    frame: int
    extra: str
    backend_config: str | None
    in_hlo: bool

    @property
    def is_tuple(self) -> bool:
        return self.shape.elements is not None


@dataclass
class Value:
    number: int
    instruction: Instruction
    index: str
    shape: Shape
    is_phi: bool
    color: int
    allocation: int
    offset: int
    size: int
    positions: list[Place]  # the defining one left out
    uses: list[tuple[str, int, str | None]]
    live: tuple[int, int] | None

    @property
    def short(self) -> str:
        index = self.index if self.instruction.is_tuple else ""
        phi = " (phi)" if self.is_phi else ""
        return f"<{self.number} {self.instruction.name}{index}{phi} @{self.color}>"

    @property
    def defining(self) -> Place:
        return self.instruction.name, self.index if self.instruction.is_tuple else None


@dataclass
class Allocation:
    kind: str
    color: int
    page: int
    size: int
    parameter: tuple[int, str, str]  # number, shape, index
    output_shape: str | None
    other: str | None


@dataclass
class Frames:
    files: list[str]
    functions: list[str]
    locations: list[tuple[int, int, int, int, int, int]]
    frames: list[tuple[int, int]]  # location, true parent


@dataclass
class Module:
    name: str
    allocations: list[Allocation]
    values: list[Value]  # by number
    instructions: list[Instruction]
    sequence: list[str]
    unassigned: list[tuple[str, int, int]]  # live ranges without a value
    peak_time: int
    tree: list[tuple[int, str, int]]  # depth, label, current
    frames: Frames
    layout: str | None
    aliases: list[tuple[str, int, str, str]]
    partitions: int
    replicas: int
    options: list[tuple[str, str]] | None
    received: list[tuple[int, str, str]] | None  # parameters as the compiler received them


@dataclass
class Dialect:
    era: str  # 2019-04, 2019-07, A, B or C
    pointer: bool
    page: bool
    parameter_shapes: bool
    total: str  # absent, plain or human
    instruction_style: str  # absent, tight, spaced or glued
    operand_shapes: bool
    uses: str  # listed, none ("(none)" for an empty list) or uninitialized
    peak: str  # absent, v1, v2, v3, undetermined or unavailable
    tree: bool
    reuse: bool
    frames: bool
    hlo: str  # absent, percent or plain
    analysis: bool

    @property
    def has_list(self) -> bool:
        return self.era in ("A", "B") or (self.era == "C" and self.analysis)

    @property
    def has_live(self) -> bool:
        return (self.era == "B" or (self.era == "C" and self.analysis)) and (
            self.peak != "unavailable"
        )

    @property
    def has_peak(self) -> bool:
        return self.has_live and self.peak in ("v1", "v2", "v3")


ERAS = ("2019-04", "2019-07", "A", "B", "C")


@st.composite
def dialects(draw: st.DrawFn, era: str | None = None) -> Dialect:
    """Any form that XLA has printed, and some that mix what no year mixed."""
    era = era or draw(st.sampled_from(ERAS))
    first = era.startswith("2019")
    totals = {"A": ("absent", "plain"), "B": ("plain", "human"), "C": ("human",)}
    styles = {
        "B": ("absent", "tight", "spaced", "glued"),
        "C": ("spaced",),
    }
    peaks = ("absent", "v1", "v2", "v3", "undetermined")
    return Dialect(
        era=era,
        pointer=era != "C" and (era != "B" or draw(st.booleans())),
        page=era == "C" and draw(st.booleans()),
        parameter_shapes=not first and (era != "A" or draw(st.booleans())),
        total=draw(st.sampled_from(totals.get(era, ("absent",)))),
        instruction_style=draw(st.sampled_from(styles.get(era, ("absent",)))),
        operand_shapes=draw(st.booleans()),
        uses=draw(
            st.sampled_from(["listed", "none", "uninitialized"] if not first else ["listed"])
        ),
        peak=draw(st.sampled_from([*peaks, "unavailable"] if era == "C" else peaks)),
        tree=draw(st.booleans()),
        reuse=era == "C" and draw(st.booleans()),
        frames=draw(st.booleans()),
        hlo=draw(st.sampled_from(["absent", "percent", "plain"])),
        analysis=era != "C" or draw(st.integers(0, 4)) > 0,
    )


# Modules

INTEGERS = st.one_of(st.integers(0, 9), st.integers(0, 5000), st.just(2**62), st.just(2**62 + 7))
BASES = [
    *("fusion", "add", "copy-start", "while", "_x", "Arg_0", "get-tuple-element", "uses"),
    *("positions", "constant", "size", "bitcast.12", "p.1-2_c", "allocation", "value"),
]
names = st.builds(
    "{}{}".format, st.sampled_from(BASES), st.sampled_from(["", ".1", ".20", "-3", "_4.5", ".x"])
)
# Pieces that tempt a reader to cut at the wrong place.
PIECES = [
    *("jit(f)/", "jvp()/", "dot_general", " ", "a", "[0]", "['w']", "{", "}", "(", ")", ",", '"'),
    *(
        "'",
        "\\",
        "\\n",
        "\n",
        "\n",
        "\n",
        "\n    ",
        "\t",
        "\r",
        "\x01",
        "\x0b",
        "\x85",
        "\u2028",
        "é",
        "漢",
        "😀",
        "%",
    ),
    *("->", "=", "metadata={", ", backend_config=", "/*index=5*/", "│   ", "├── ", "└── ", ": "),
    " (1.0%, total: 1 bytes, current: 1 bytes, remaining: 0 bytes)x",
    *(" positions:", " uses:", " from instruction:", "<1 x @0>", "\303", "\\303\\251", "/*", "//"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
lines = texts.map(lambda text: "".join(text.splitlines()).replace("\r", ""))
indices = st.lists(st.integers(0, 12), max_size=3).map(
    lambda numbers: "{" + ",".join(map(str, numbers)) + "}"
)

WIDTHS = {
    **{"pred": 8, "s4": 8, "u1": 8, "s8": 8, "f8e4m3fn": 8, "f8e5m2": 8, "f4e2m1fn": 8},
    **{"bf16": 16, "f16": 16, "u16": 16, "s32": 32, "f32": 32, "u64": 64, "c64": 64, "c128": 128},
}


def shape_row(shape: str, **known: Any) -> Row:
    """A row of shapes; what is not given is unknown."""
    row: Row = dict.fromkeys(
        [
            *("shape", "dtype", "dimensions", "dimensions_text", "layout", "memory_space"),
            *("element_count", "logical_bytes", "is_tuple"),
        ]
    )
    return {**row, "shape": shape, "is_tuple": False, **known}


@st.composite
def arrays(draw: st.DrawFn) -> Shape:
    dtype = draw(st.sampled_from(sorted(WIDTHS)))
    dimensions = draw(
        st.lists(st.one_of(st.integers(0, 70), st.sampled_from([2**31, 2**40])), max_size=3)
    )
    forms = [draw(st.sampled_from(["{}"] * 6 + ["<={}", "?"])) for _ in dimensions]
    printed = ",".join(f.format(d) for f, d in zip(forms, dimensions, strict=True))
    width, space, attributes = WIDTHS[dtype], 0, ""
    if draw(st.booleans()):
        attributes += draw(st.sampled_from(["", "T(128)", "T(8,128)", "T(8,128)(2,1)", "L(2)"]))
        attributes += draw(st.sampled_from(["", "#(u8)", "*(u32)"]))
        if draw(st.booleans()):
            width = draw(st.sampled_from([1, 2, 4, 8]))
            attributes += f"E({width})"
        if draw(st.booleans()):
            space = draw(st.integers(1, 10))
            attributes += f"S({space})"
        attributes += draw(
            st.sampled_from(["", "SC(0:4)(1:2)", "P((f32[2]{0:S(9)E(4)}))", "M(128)", "D(D)"])
        )
    order = ",".join(str(place) for place in reversed(range(len(dimensions))))
    inside = order + (":" + attributes if attributes else "")
    layout = "{" + inside + "}" if inside else None
    bounds = [None if f == "?" else d for f, d in zip(forms, dimensions, strict=True)]
    count: int | None = 1
    for bound in bounds:
        count = None if count is None or bound is None else count * bound
    size = None if count is None else (count * width + 7) // 8
    text = f"{dtype}[{printed}]{layout or ''}"
    return Shape(
        text,
        shape_row(
            text,
            dtype=dtype,
            dimensions=bounds,
            dimensions_text=printed,
            layout=layout,
            memory_space=space,
            element_count=count if count is not None and count < 2**63 else None,
            logical_bytes=size if size is not None and size < 2**63 else None,
        ),
    )


def bare(dtype: str, size: int) -> Shape:
    text = dtype + "[]"
    known = {"dimensions_text": "", "memory_space": 0, "element_count": 1}
    return Shape(text, shape_row(text, dtype=dtype, logical_bytes=size, **known))


ODD_SHAPES = [
    bare("token", 0),
    bare("opaque", 8),
    Shape(
        "b(f32[2]{0})",
        shape_row(
            "b(f32[2]{0})",
            dtype="f32",
            dimensions=[2],
            dimensions_text="2",
            layout="{0}",
            memory_space=0,
            element_count=2,
            logical_bytes=8,
        ),
    ),
]


def tuple_shape(elements: list[Shape]) -> Shape:
    parts = [
        (f"/*index={place}*/" if place and place % 5 == 0 else "") + element.text
        for place, element in enumerate(elements)
    ]
    text = "(" + ", ".join(parts) + ")"
    known = {"element_count": len(elements), "logical_bytes": 8 * len(elements)}
    return Shape(text, shape_row(text, dtype="tuple", is_tuple=True, **known), tuple(elements))


leaves = st.one_of(arrays(), arrays(), arrays(), st.sampled_from(ODD_SHAPES))
shapes = st.one_of(
    leaves,
    st.lists(st.one_of(leaves, st.lists(leaves, max_size=2).map(tuple_shape)), max_size=6).map(
        tuple_shape
    ),
)


def subshapes(shape: Shape, index: tuple[int, ...] = ()) -> list[tuple[str, Shape]]:
    """The shape and all within it, with their indices."""
    indexed_shapes = [("{" + ",".join(map(str, index)) + "}", shape)]
    for place, element in enumerate(shape.elements or ()):
        indexed_shapes += subshapes(element, (*index, place))
    return indexed_shapes


ATTRIBUTES = [
    "kind=kLoop",
    "calls=%fused_computation.3",
    "dimensions={0,1}",
    r'custom_call_target="a\"b, metadata={op_name=\"no\"}"',
    'sharding={devices=[2,1]<=[2] metadata={op_name="no" source_file="no"}}',
    'frontend_attributes={k="v",j={"z":"q"},mesh={mesh = #sdy.mesh<["one"=1]>}}',
    "replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}",
    "window={size=2x2 pad=0_0x1_1}",
    'origin={{"x" {0}}}',
]
EXTRAS = [
    "",
    "profile_type={1}",
    'deduplicated_name="d } e"',
    "preserve_layout=true",
    'profile_type={0,1} scheduling_name="fusion.1"',
]
OPCODES = ["add", "custom-call", "rng-get-and-update-state", "get-tuple-element", "while"]
SOURCES = [
    "",
    "/home/me/é.py",
    "/a b/c.py",
    "/usr/lib/python3.11/site-packages/flax/core.py",
    'q"\\.py',
]


@st.composite
def some_instruction(draw: st.DrawFn, name: str, frame_count: int) -> Instruction:
    opcode = draw(st.sampled_from([*OPCODES, "parameter", "constant"]))
    literal = None
    if opcode == "parameter":
        literal = str(draw(st.integers(0, 20)))
    elif opcode == "constant":
        literal = draw(st.sampled_from(["{...}", "{ {1, 2}, {3, 4} }", "false", "-1.5", "inf"]))
    operand_shapes = draw(st.lists(shapes, max_size=2)) if literal is None else []
    return Instruction(
        name=name,
        shape=draw(shapes),
        opcode=opcode,
        operands=[(shape.text, draw(names)) for shape in operand_shapes],
        literal=literal,
        attributes=draw(st.lists(st.sampled_from(ATTRIBUTES), max_size=2)),
        op_type=draw(st.sampled_from(["", "", "Mul"])),
        op_name=draw(texts),
        source=(
            draw(st.sampled_from(SOURCES)),
            *[draw(st.integers(0, 300)) for _ in range(4)],
        ),
        frame=draw(st.integers(0, frame_count)),
        extra=draw(st.sampled_from(EXTRAS)),
        backend_config=draw(st.sampled_from(["", "", "quoted", "json", "raw", "raw"])),
        in_hlo=draw(st.integers(0, 4)) > 0,
    )


RAW_LINES = [
    "<{first}>",
    "{first}\n positions:\n  p\n uses:\n  u, operand 0\n from instruction: %z = f32[] add()",
    "{first}\n positions:",
    "<1000000007 lookalike{{0}} @0>\n positions:\n  lookalike {{0}}\n uses:",
    "<0 lookalike @0>\n positions:",
    "HloLiveRange (max 3):\n  InstructionSequence:\n    0:lookalike\n  BufferLiveRange:",
    "Total bytes used: 12345",
    "Used values:",
    "allocation 0: size 5, constant:\n value: <3 lookalike @0> (size=1,offset=0): f32[]",
    ', metadata={{op_name="no"}}',
    "",
    " uses:",
    "{{}}",
    '"}}"',
]


@st.composite
def configs(draw: st.DrawFn, form: str | None, first: str) -> str | None:
    """The text after backend_config=; first is a header that came before or is this one."""
    if form == "quoted":
        return f'"{escape(draw(texts))}"'
    if form == "json":
        return '{"a":{"b":"}"},"c":["1","2"]}'
    if form == "raw":
        inside = draw(st.lists(st.sampled_from(RAW_LINES), max_size=3))
        return "{\n" + "".join(line.format(first=first) + "\n" for line in inside) + "}"
    return None


@st.composite
def modules(draw: st.DrawFn) -> Module:
    frames = draw(frame_tables())
    chosen = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    all_instructions = [draw(some_instruction(name, len(frames.frames))) for name in chosen]
    allocations = draw(st.lists(some_allocation(), min_size=1, max_size=4))
    sequence = draw(st.lists(st.sampled_from(chosen), max_size=6, unique=True))

    defined = [
        (instruction, index, shape)
        for instruction in all_instructions
        for index, shape in subshapes(instruction.shape)
        if draw(st.integers(0, 3)) > 0
    ]
    numbers = draw(
        st.lists(
            st.integers(0, 3 * len(defined) + 3),
            min_size=len(defined),
            max_size=len(defined),
            unique=True,
        )
    )
    values = []
    for number, (instruction, index, shape) in zip(numbers, defined, strict=True):
        place = draw(st.integers(0, len(allocations) - 1))
        allocation = allocations[place]
        ranged = allocation.kind not in ("thread_local", "constant") or draw(st.booleans())
        times = sorted(draw(st.integers(0, len(sequence))) for _ in range(2))
        values.append(
            Value(
                number=number,
                instruction=instruction,
                index=index,
                shape=shape,
                is_phi=draw(st.booleans()),
                color=allocation.color if draw(st.booleans()) else draw(st.integers(0, 9)),
                allocation=place,
                offset=draw(INTEGERS) // 2 if allocation.kind == "temp" else 0,
                size=draw(INTEGERS) // 2,
                positions=draw(
                    st.lists(st.tuples(names, st.one_of(st.none(), indices)), max_size=2)
                ),
                uses=draw(
                    st.lists(
                        st.tuples(names, st.integers(0, 300), st.one_of(st.none(), indices)),
                        max_size=2,
                    )
                ),
                live=(times[0], times[1]) if ranged else None,
            )
        )
    values.sort(key=lambda value: value.number)
    for place, allocation in enumerate(allocations):
        end = max((v.offset + v.size for v in values if v.allocation == place), default=0)
        # XLA makes a temp allocation as large as its values need; some here are larger.
        is_filled = allocation.kind == "temp" and draw(st.integers(0, 7)) > 0
        allocation.size = end if is_filled else max(allocation.size, end)
    first = values[0].short if values else "<0 none @0>"
    for instruction in all_instructions:
        instruction.backend_config = draw(configs(instruction.backend_config, first))

    with_values = {value.instruction.name for value in values}
    unassigned = [
        (name, 0, draw(st.integers(0, len(sequence))))
        for name in chosen
        if name not in with_values and draw(st.booleans())
    ]
    return Module(
        name=draw(st.sampled_from(["jit_f", "jit__lambda_.15", "SyncTensorsGraph.105381"])),
        allocations=allocations,
        values=values,
        instructions=all_instructions,
        sequence=sequence,
        unassigned=unassigned,
        peak_time=draw(st.integers(0, len(sequence))),
        tree=draw(trees()),
        frames=frames,
        layout=entry_layout(allocations) if draw(st.booleans()) else None,
        aliases=draw(
            st.lists(
                st.tuples(
                    indices,
                    st.integers(0, 20),
                    indices,
                    st.sampled_from(["may-alias", "must-alias"]),
                ),
                max_size=2,
                unique_by=lambda alias: alias[0],
            )
        ),
        partitions=draw(st.sampled_from([1, 1, 8])),
        replicas=draw(st.sampled_from([1, 1, 2])),
        options=draw(
            st.one_of(
                st.none(),
                st.lists(st.tuples(st.sampled_from(["xla_dump_to", "xla_x"]), lines), max_size=3),
            )
        ),
        received=draw(st.one_of(st.none(), given_parameters)),
    )


def entry_layout(allocations: list[Allocation]) -> str | None:
    """Shapes as the allocations have them; None where two of them disagree."""
    parameters: dict[int, set[str]] = {}
    results = {one.output_shape for one in allocations if one.output_shape} or {"f32[2]{0}"}
    for one in allocations:
        number, shape, index = one.parameter
        if "parameter" in one.kind and index == "{}":
            parameters.setdefault(number, set()).add(shape)
    if len(results) > 1 or any(len(shapes) > 1 for shapes in parameters.values()):
        return None
    every = [
        next(iter(parameters.get(number, {"f32[2]{0:T(128)}"})))
        for number in range(max(parameters, default=-1) + 1)
    ]
    return f"({', '.join(every)})->{results.pop()}"


given_parameters = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(["f32[512,64]{1,0}", "s32[]", "(f32[2]{0}, (s32[], pred[<=4]{0}))"]),
        st.sampled_from(
            [
                "",
                ", sharding={replicated}",
                ", sharding={devices=[2,1,4]<=[8] last_tile_dim_replicate}",
                ', sharding={{manual}, {maximal device=0}}, metadata={op_name="a parameter(7)"}',
            ]
        ),
    ),
    max_size=4,
    unique_by=lambda parameter: parameter[0],
)


@st.composite
def some_allocation(draw: st.DrawFn) -> Allocation:
    kind = draw(
        st.sampled_from(
            [
                *("parameter", "donated_parameter", "output", "constant", "thread_local"),
                *("temp", "temp", "temp"),
            ]
        )
    )
    shape_texts = st.sampled_from(
        ["f32[2,<=3]", "(f32[2], (s32[], pred[]), token[])", "<unknown shape>", "()"]
    )
    has_output = kind in ("output", "donated_parameter") and draw(st.booleans())
    return Allocation(
        kind=kind,
        color=draw(st.sampled_from([0, 0, 0, 1, 5])),
        page=draw(st.integers(0, 2)),
        size=draw(INTEGERS),
        parameter=(draw(st.integers(0, 30)), draw(shape_texts), draw(indices)),
        output_shape=draw(shape_texts) if has_output else None,
        other=draw(st.sampled_from([None] * 5 + ["lane 7", "lane 7, flavor sweet"])),
    )


@st.composite
def frame_tables(draw: st.DrawFn) -> Frames:
    files = draw(st.lists(st.sampled_from([*SOURCES[1:], "<frozen runpy>"]), max_size=3))
    functions = draw(st.lists(lines.filter(bool), max_size=2))
    numbers = st.integers(0, 400)
    locations = []
    frames = []
    if files:
        locations = draw(
            st.lists(
                st.tuples(
                    st.integers(1, len(files)), st.integers(0, len(functions)), *[numbers] * 4
                ),
                min_size=1,
                max_size=3,
            )
        )
        for place in range(draw(st.integers(0, 4))):
            frames.append((draw(st.integers(1, len(locations))), draw(st.integers(0, place))))
    return Frames(files, functions, locations, frames)


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    nodes: list[tuple[int, str, int]] = []
    depth = 0
    for place in range(draw(st.integers(0, 4))):
        depth = draw(st.integers(1, depth + 1)) if place else 0
        # A label that begins as a branch of the tree could be either.
        nodes.append((depth, draw(texts).lstrip("│├└"), draw(INTEGERS)))
    return nodes


# Writing


def write(module: Module, dialect: Dialect) -> dict[str, bytes]:
    """The files of the module in the dialect, by kind."""
    text = "BufferAssignment:\n" + "".join(
        allocation_text(module, place, dialect) for place in range(len(module.allocations))
    )
    files = {"buffer_assignment": text}
    if dialect.era in ("A", "B"):
        files["buffer_assignment"] += values_text(module, dialect)
    if dialect.era == "B":
        files["buffer_assignment"] += "\n\n" + live_text(module, dialect)
    if dialect.era == "C" and dialect.analysis:
        files["values"] = values_text(module, dialect)
        files["live_range"] = live_text(module, dialect)
    if dialect.hlo != "absent":
        files["hlo"] = hlo_text(module, dialect)
    if module.received is not None:
        files["before_optimizations"] = before_text(module)
    if module.options is not None:
        files["debug_options"] = "".join(f"{name}: {value}\n" for name, value in module.options)
    return {kind: content.encode() for kind, content in files.items()}


def allocation_text(module: Module, place: int, dialect: Dialect) -> str:
    allocation = module.allocations[place]
    pieces = [f"0x7f3a8c0{place:x}b00"] if dialect.pointer else []
    pieces.append(f"size {allocation.size}")
    if allocation.color:
        pieces.append(f"color {allocation.color}")
    if dialect.page:
        pieces.append(f"page {allocation.page}")
    if "parameter" in allocation.kind:
        number, shape, index = allocation.parameter
        bars = f", shape |{shape}|" if dialect.parameter_shapes else ""
        pieces.append(f"parameter {number}{bars} at ShapeIndex {index}")
    if allocation.output_shape and dialect.parameter_shapes:
        pieces.append(f"output shape is |{allocation.output_shape}|")
    words = {
        "constant": "constant",
        "thread_local": "thread-local",
        "output": "maybe-live-out",
        "donated_parameter": "maybe-live-out",
        "temp": "preallocated-temp",
    }
    pieces += [words[allocation.kind]] if allocation.kind in words else []
    pieces += [allocation.other] if allocation.other else []
    text = f"allocation {place}: {', '.join(pieces)}:\n"
    inside = [value for value in module.values if value.allocation == place]
    for value in inside:
        text += value_text(value, dialect)
    if dialect.reuse and inside:
        text += " reused by buffers of a different color:\n"
        for value in inside:
            text += f"  value: {value.short} (color={value.color})\n"
    return text


def value_text(value: Value, dialect: Dialect) -> str:
    slice_text = f" [{value.offset},{value.size}]: {value.shape.text}\n"
    if dialect.era == "2019-04":
        index = value.index.strip("{}")
        return f"  {value.instruction.name}[{index}](#{value.number} @{value.color}){slice_text}"
    if dialect.era == "2019-07":
        name, index = value.defining
        phi = "PHI " if value.is_phi else ""
        text = f"  {value.number} {phi}{name}{index or ''} @{value.color}, positions:\n"
        return text + lists_text(value, dialect) + slice_text
    return f" value: {value.short} (size={value.size},offset={value.offset}): {value.shape.text}\n"


def lists_text(value: Value, dialect: Dialect) -> str:
    """Positions and uses of a value."""
    text = ""
    for name, index in [value.defining, *value.positions]:
        text += f"  {name}{' ' + index if index else ''}\n"
    if dialect.uses == "uninitialized":
        return text + " uses are not initialized yet.\n"
    text += " uses:\n"
    for name, operand, index in value.uses:
        text += f"  {name}, operand {operand}{' ' + index if index else ''}\n"
    if not value.uses and dialect.uses == "none":
        text += "  (none)\n"
    return text


def values_text(module: Module, dialect: Dialect) -> str:
    text = "\n"
    if dialect.total != "absent":
        total = wrapped_total(module)
        suffix = f" ({human(total)})" if dialect.total == "human" else ""
        text += f"Total bytes used: {total}{suffix}\n\n"
    text += "Used values:\n"
    for value in module.values:
        text += f"{value.short}\n positions:\n{lists_text(value, dialect)}"
        if dialect.instruction_style != "absent":
            blank = "" if dialect.instruction_style == "tight" else " "
            end = "" if dialect.instruction_style == "glued" else "\n"
            instruction = instruction_text(value.instruction, dialect)
            text += f" from instruction:{blank}{instruction}{end}"
    return text


def wrapped_total(module: Module) -> int:
    total = sum(allocation.size for allocation in module.allocations)
    return (total + 2**63) % 2**64 - 2**63


def human(number: int) -> str:
    """XLA's HumanReadableNumBytes."""
    sign, number = ("-", -number) if number < 0 else ("", number)
    if number < 1024:
        return f"{sign}{number}B"
    units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while number >= 1024 * 1024:
        number //= 1024
        units.pop(0)
    return f"{sign}{number / 1024:.{1 if units[0] == 'KiB' else 2}f}{units[0]}"


def instruction_text(
    instruction: Instruction, dialect: Dialect, percent: str = "%", raw: bool = True
) -> str:
    operands = []
    for place, (shape, name) in enumerate(instruction.operands):
        comment = f"/*index={place}*/" if place and place % 5 == 0 else ""
        prefix = shape + " " if dialect.operand_shapes else ""
        operands.append(f"{comment}{prefix}{percent}{name}")
    inside = ", ".join(operands) if instruction.literal is None else instruction.literal
    text = f"{percent}{instruction.name} = {instruction.shape.text} {instruction.opcode}({inside})"
    text += "".join(", " + attribute for attribute in instruction.attributes)
    fields = metadata_fields(instruction, dialect)
    if fields:
        text += ", metadata={" + " ".join(fields) + "}"
    config = instruction.backend_config
    if config and (raw or "\n" not in config):
        text += f", backend_config={config}"
    return text


def metadata_fields(instruction: Instruction, dialect: Dialect) -> list[str]:
    fields = []
    if instruction.op_type:
        fields.append(f'op_type="{escape(instruction.op_type)}"')
    if instruction.op_name:
        fields.append(f'op_name="{escape(instruction.op_name)}"')
    columns = ("source_line", "source_end_line", "source_column", "source_end_column")
    if instruction.source[0] and not uses_frame(instruction, dialect):
        fields.append(f'source_file="{escape(instruction.source[0])}"')
        for column, number in zip(columns, instruction.source[1:], strict=True):
            fields += [f"{column}={number}"] if number else []
    fields += [instruction.extra] if instruction.extra else []
    if uses_frame(instruction, dialect):
        fields.append(f"stack_frame_id={instruction.frame}")
    return fields


def uses_frame(instruction: Instruction, dialect: Dialect) -> bool:
    return dialect.frames and instruction.frame > 0


def escape(text: str) -> str:
    """absl::CEscape: C escapes, octal for control and non-ASCII bytes."""
    plain = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
    plain |= {ord(character): "\\" + character for character in "\"'\\"}
    return "".join(
        plain.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
        for byte in text.encode()
    )


def spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def live_text(module: Module, dialect: Dialect) -> str:
    if dialect.peak == "unavailable":
        return "HloLiveRange not available (finalized or constructed from proto)"
    text = f"HloLiveRange (max {len(module.sequence)}):\n  InstructionSequence:\n"
    for place, name in enumerate(module.sequence):
        text += f"    {place}:{name}\n"
    text += "  BufferLiveRange:\n"
    for _, name, index, start, end in ranges(module):
        text += f"    {name}{index}:{start}-{end}\n"
    if dialect.peak == "undetermined":
        text += "  Peak memory could not be determined due to unbounded dynamic shape.\n"
    if dialect.peak in ("absent", "undetermined"):
        return text
    text += f"  Live ranges at {module.peak_time} (peak):\n"
    for row in contributors(module, dialect):
        cumulative = ""
        if row["cumulative_bytes"] is not None:
            cumulative = f" (cumulative: {row['cumulative_bytes']} bytes)"
        name = row["instruction_name"] + (row["shape_index"] or "")
        text += f"    {name}: {row['logical_bytes']} bytes{cumulative}\n"
    if dialect.tree:
        nodes = tree_rows(module)
        total = nodes[0]["total_bytes"] if nodes else 0
        text += f"  Stack trace breakdown for peak usage: {spaced(total)} bytes\n"
        text += "".join(node_text(nodes, node) for node in nodes)
    return text


def node_text(nodes: list[Row], node: Row) -> str:
    below: dict[int | None, list[int]] = {}
    for other in nodes:
        below.setdefault(other["parent_ordinal"], []).append(other["node_ordinal"])

    def is_last(ordinal: int) -> bool:
        return below[nodes[ordinal]["parent_ordinal"]][-1] == ordinal

    indent = "    "
    if node["depth"]:
        cells = []
        above = node["parent_ordinal"]
        while above is not None:
            cells.append("    " if is_last(above) else "│   ")
            above = nodes[above]["parent_ordinal"]
        branch = "└── " if is_last(node["node_ordinal"]) else "├── "
        indent = "  " + "".join(reversed(cells)) + branch
    total, current, remaining = (
        spaced(node[column]) for column in ("total_bytes", "current_bytes", "remaining_bytes")
    )
    return (
        f"{indent}{node['label']} (12.5%, total: {total} bytes, current: {current} bytes,"
        f" remaining: {remaining} bytes)\n"
    )


def hlo_text(module: Module, dialect: Dialect) -> str:
    text = f"HloModule {module.name}, is_scheduled=true"
    if module.aliases:
        entries = ", ".join(
            f"{output}: ({number}, {index}, {kind})"
            for output, number, index, kind in module.aliases
        )
        text += f", input_output_alias={{ {entries} }}"
    if module.layout is not None:
        text += f", entry_computation_layout={{{module.layout}}}"
    text += device_counts(module)
    text += ', frontend_attributes={fingerprint="ce36",mesh={mesh = #sdy.mesh<["one"=1]>}}\n\n'
    tables = module.frames
    if dialect.frames and tables.frames:
        for title, entries in (("FileNames", tables.files), ("FunctionNames", tables.functions)):
            text += title + "\n"
            for place, entry in enumerate(entries):
                text += f'{place + 1} "{escape(entry)}"\n'
            text += "\n"
        text += "FileLocations\n"
        fields = ("file_name_id", "function_name_id", "line", "end_line", "column", "end_column")
        for place, location in enumerate(tables.locations):
            printed = " ".join(f"{f}={n}" for f, n in zip(fields, location, strict=True))
            text += f"{place + 1} {{{printed}}}\n"
        text += "\nStackFrames\n"
        for place, (location_id, parent) in enumerate(tables.frames):
            printed_parent = parent + 1 if parent else 0
            text += (
                f"{place + 1} {{file_location_id={location_id} parent_frame_id={printed_parent}}}\n"
            )
        text += "\n"
    percent = "%" if dialect.hlo == "percent" else ""
    text += f"ENTRY {percent}main (a: f32[]) -> f32[] {{\n"
    for place, instruction in enumerate(module.instructions):
        if instruction.in_hlo:
            root = "ROOT " if place % 3 == 2 else ""
            line = instruction_text(instruction, dialect, percent, raw=False)
            text += f"  {root}{line}\n"
    return text + "}\n\n"


def device_counts(module: Module) -> str:
    text = f", replica_count={module.replicas}" if module.replicas != 1 else ""
    return text + (f", num_partitions={module.partitions}" if module.partitions != 1 else "")


def before_text(module: Module) -> str:
    """The program as the compiler received it: an inner computation, and the entry."""
    text = f"HloModule {module.name}{device_counts(module)}\n\n%inner (x: f32[]) -> f32[] {{\n"
    text += "  ROOT %x.1 = f32[] parameter(0), sharding={manual}\n}\n\nENTRY %main () -> f32[] {\n"
    for line in given_lines(module):
        text += f"  {line}\n"
        text += '  %c = f32[] constant(0), metadata={op_name="%p = f32[] parameter(0)"}\n'
    return text + "}\n\n"


def given_lines(module: Module) -> list[str]:
    return [
        f"%p.{number} = {shape} parameter({number}){attributes}"
        for number, shape, attributes in module.received or []
    ]


# What must be read


def rows(module: Module, dialect: Dialect) -> dict[str, list[Row]]:
    """The rows that a reader must find in what was written."""
    has_lists = dialect.has_list or dialect.era == "2019-07"
    is_printed = dialect.has_live and dialect.peak in ("v1", "v2", "v3")
    status = "printed" if is_printed else None
    if dialect.has_live and dialect.peak == "undetermined":
        status = "undetermined"
    if dialect.era == "C" and dialect.analysis and dialect.peak == "unavailable":
        status = "unavailable"
    nodes = tree_rows(module) if is_printed and dialect.tree else []
    tree_total = nodes[0]["total_bytes"] if nodes else 0
    has_hlo = dialect.hlo != "absent"
    has_first_line = has_hlo or module.received is not None
    allocations = [
        allocation_row(place, allocation, dialect)
        for place, allocation in enumerate(module.allocations)
    ]
    module_row = {
        "reported_total_bytes": (
            wrapped_total(module) if dialect.has_list and dialect.total != "absent" else None
        ),
        "schedule_length": len(module.sequence) if dialect.has_live else None,
        "reported_peak_time": module.peak_time if is_printed else None,
        "reported_peak_status": status,
        "reported_peak_tree_bytes": tree_total if is_printed and dialect.tree else None,
        "hlo_module_name": module.name if has_first_line else None,
        "entry_computation_layout": module.layout if has_hlo else None,
        "partition_count": module.partitions if has_first_line else None,
        "replica_count": module.replicas if has_first_line else None,
        "has_used_values": dialect.has_list or (has_lists and bool(module.values)),
        "has_live_ranges": dialect.has_live,
        "has_hlo_text": has_hlo,
        "entry_hash": entry_hash(allocations),
        "format_era": dialect.era if dialect.era in "ABC" else "A",
    }
    used = module.values if has_lists else []
    tables = {
        "modules": [module_row],
        "allocations": allocations,
        "values": [value_row(value, dialect) for value in module.values],
        "shapes": list({value.shape.text: value.shape.row for value in module.values}.values()),
        "positions": [
            {
                "value_id": value.number,
                "position_ordinal": place,
                "instruction_name": name,
                "shape_index": index or "{}",
                "is_defining": place == 0,
            }
            for value in used
            for place, (name, index) in enumerate([value.defining, *value.positions])
        ],
        "uses": [
            {
                "value_id": value.number,
                "use_ordinal": place,
                "instruction_name": name,
                "operand_number": operand,
                "operand_index": index or "{}",
            }
            for value in used
            if dialect.uses != "uninitialized"
            for place, (name, operand, index) in enumerate(value.uses)
        ],
        "instructions": instruction_rows(module, dialect),
        "live_ranges": [
            {
                "value_id": number,
                "instruction_name": name,
                "shape_index": index,
                "start_time": start,
                "end_time": end,
            }
            for number, name, index, start, end in (ranges(module) if dialect.has_live else [])
        ],
        "peak_contributors": contributors(module, dialect) if is_printed else [],
        "peak_stack_nodes": nodes,
        "stack_frames": frame_rows(module.frames) if has_hlo and dialect.frames else [],
        "input_output_aliases": [
            {
                "output_index": output,
                "parameter_number": number,
                "parameter_index": index,
                "alias_kind": kind,
            }
            for output, number, index, kind in (module.aliases if has_hlo else [])
        ],
        "entry_parameters": [
            {"parameter_number": number, "shape": shape, "text": line}
            for (number, shape, _), line in zip(
                module.received or [], given_lines(module), strict=True
            )
        ],
        "compiler_options": [
            {"option_ordinal": place, "option_name": name, "option_value": value}
            for place, (name, value) in enumerate(module.options or [])
        ],
        "reported_sums": [],
        "memory_sums": memory_sums(module.allocations),
        **(
            occupancy(module) if dialect.has_live else {"occupied_peaks": [], "occupancy_steps": []}
        ),
        "peak_values": held_at_peaks(module) if dialect.has_live else [],
    }
    tables["value_users"] = value_users(tables)
    tables["peaks"] = second_savings.peaks(tables["occupancy_steps"], tables["occupied_peaks"])
    tables["peak_savings"] = second_savings.peak_savings(tables)
    return tables


def allocation_row(place: int, allocation: Allocation, dialect: Dialect) -> Row:
    is_parameter = "parameter" in allocation.kind
    number, shape, index = allocation.parameter if is_parameter else (None, None, None)
    return {
        "allocation_index": place,
        "size_bytes": allocation.size,
        "color": allocation.color,
        "page": allocation.page if dialect.page else None,
        "kind": allocation.kind,
        "is_constant": allocation.kind == "constant",
        "is_thread_local": allocation.kind == "thread_local",
        "is_maybe_live_out": allocation.kind in ("output", "donated_parameter"),
        "is_preallocated_temp": allocation.kind == "temp",
        "parameter_number": number,
        "parameter_shape": shape if dialect.parameter_shapes else None,
        "parameter_shape_index": index,
        "output_shape": allocation.output_shape if dialect.parameter_shapes else None,
        "other_attributes": allocation.other,
    }


def value_row(value: Value, dialect: Dialect) -> Row:
    return {
        "value_id": value.number,
        "allocation_index": value.allocation,
        "offset_bytes": value.offset,
        "size_bytes": value.size,
        "color": value.color,
        "instruction_name": value.instruction.name,
        "shape_index": value.index,
        "is_phi": value.is_phi and dialect.era != "2019-04",
        "shape": value.shape.text,
        "logical_bytes": value.shape.row["logical_bytes"],
    }


def ranges(module: Module) -> list[tuple[int | None, str, str, int, int]]:
    """Value, name, index, start, end of each line of BufferLiveRange."""
    live_lines: list[tuple[int | None, str, str, int, int]] = [
        (value.number, value.instruction.name, value.index, *value.live)
        for value in module.values
        if value.live
    ]
    return live_lines + [(None, name, "{}", start, end) for name, start, end in module.unassigned]


def contributors(module: Module, dialect: Dialect) -> list[Row]:
    """The lines of the peak listing."""
    values = {value.number: value for value in module.values}
    listed: list[Row] = []
    for number, name, index, start, end in ranges(module):
        if not start <= module.peak_time <= end:
            continue
        size = 4
        if number is not None:
            value = values[number]
            shape = value.instruction.shape if dialect.peak == "v1" else value.shape
            size = shape.row["logical_bytes"] or 0
        listed.append(
            {
                "contributor_ordinal": 0,
                "value_id": number,
                "instruction_name": name,
                "shape_index": None if dialect.peak == "v1" else index,
                "logical_bytes": size,
                "cumulative_bytes": None,
            }
        )
    if dialect.peak == "v3":
        listed.sort(key=lambda row: (-row["logical_bytes"], row["instruction_name"]))
    cumulative = 0
    for place, row in enumerate(listed):
        cumulative += row["logical_bytes"]
        row["contributor_ordinal"] = place
        row["cumulative_bytes"] = cumulative if dialect.peak == "v3" else None
    return listed


def tree_rows(module: Module) -> list[Row]:
    nodes: list[Row] = []
    remaining = sum(current for _, _, current in module.tree)
    path: list[int] = []
    for place, (depth, label, current) in enumerate(module.tree):
        del path[depth:]
        for above in path:
            nodes[above]["total_bytes"] += current
        remaining -= current
        nodes.append(
            {
                "node_ordinal": place,
                "parent_ordinal": path[-1] if path else None,
                "depth": depth,
                "label": label,
                "total_bytes": current,
                "current_bytes": current,
                "remaining_bytes": remaining,
            }
        )
        path.append(place)
    return nodes


def instruction_rows(module: Module, dialect: Dialect) -> list[Row]:
    defining = {value.instruction.name for value in module.values}
    described = set()
    if dialect.has_list and dialect.instruction_style != "absent":
        described = defining
    table_rows = []
    for instruction in module.instructions:
        name = instruction.name
        is_scheduled = dialect.has_live and name in module.sequence
        if name not in defining and not is_scheduled:
            continue
        row: Row = {
            "instruction_name": name,
            "program_order": module.sequence.index(name) if is_scheduled else None,
            **dict.fromkeys(["opcode", "fusion_kind", "shape", "op_type", "op_name"]),
            **dict.fromkeys(SOURCE),
            **dict.fromkeys(["stack_frame_id", "text"]),
        }
        from_hlo = name not in described and dialect.hlo != "absent"
        if name in described or (from_hlo and instruction.in_hlo):
            row |= {
                "opcode": instruction.opcode,
                "fusion_kind": fusion_kind(instruction),
                "shape": instruction.shape.text,
                "op_type": instruction.op_type or None,
                "op_name": instruction.op_name or None,
                **source_columns(instruction, module, dialect),
            }
            percent = "" if from_hlo and dialect.hlo == "plain" else "%"
            row["text"] = instruction_text(instruction, dialect, percent, raw=not from_hlo)
        table_rows.append(row)
    return table_rows


def fusion_kind(instruction: Instruction) -> str | None:
    """XLA prints it before all other attributes; elsewhere it is none."""
    is_loop = instruction.opcode == "fusion" and instruction.attributes[:1] == ["kind=kLoop"]
    return "kLoop" if is_loop else None


SOURCE = (
    *("source_file", "source_line", "source_end_line"),
    *("source_column", "source_end_column"),
)


def source_columns(instruction: Instruction, module: Module, dialect: Dialect) -> Row:
    if not uses_frame(instruction, dialect):
        path, *numbers = instruction.source
        values = [path, *(number or None for number in numbers)] if path else [None] * 5
        return dict(zip(SOURCE, values, strict=True))
    row: Row = {"stack_frame_id": instruction.frame}
    if dialect.hlo != "absent":
        frame = frame_rows(module.frames)[instruction.frame - 1]
        row |= {column: frame[column] for column in SOURCE}
    return row


def frame_rows(tables: Frames) -> list[Row]:
    table_rows: list[Row] = []
    paths: dict[int, list[int]] = {}
    for place, (location_id, parent) in enumerate(tables.frames):
        location = tables.locations[location_id - 1]
        above = table_rows[parent - 1] if parent else None
        path = tables.files[location[0] - 1]
        is_library = "site-packages" in path or path.startswith("<frozen")
        paths[place + 1] = [*(paths[parent] if parent else []), place + 1]
        own = above["own_frame_id"] if above else None
        table_rows.append(
            {
                "stack_frame_id": place + 1,
                "parent_frame_id": parent or None,
                "own_frame_id": own if is_library else place + 1,
                "depth": above["depth"] + 1 if above else 0,
                "source_file": path,
                "function_name": tables.functions[location[1] - 1] if location[1] else None,
                "source_line": location[2],
                "source_end_line": location[3],
                "source_column": location[4],
                "source_end_column": location[5],
            }
        )
    return with_tree_ordinals(table_rows, paths)


def memory_sums(allocations: list[Allocation]) -> list[Row]:
    """memory_sums, figure by figure."""

    def total(color: int, *kinds: str) -> int:
        return sum(a.size for a in allocations if a.color == color and a.kind in kinds)

    return [
        {
            "color": color,
            "argument_bytes": total(color, "parameter", "donated_parameter"),
            "output_bytes": total(color, "output", "donated_parameter"),
            "alias_bytes": total(color, "donated_parameter"),
            "temp_bytes": total(color, "temp"),
            "constant_bytes": total(color, "constant"),
            "thread_local_bytes": total(color, "thread_local"),
            "total_bytes": sum(a.size for a in allocations if a.color == color),
            "fixed_bytes": total(color, "parameter", "donated_parameter", "output", "constant"),
        }
        for color in sorted({allocation.color for allocation in allocations})
    ]


def occupancy(module: Module) -> dict[str, list[Row]]:
    """occupied_peaks and occupancy_steps, instant by instant and piece by piece."""
    peaks, steps = [], []
    for place, allocation in enumerate(module.allocations):
        ends = [v.offset + v.size for v in module.values if v.allocation == place]
        is_scratch = allocation.color > 0 and not ends  # of a kernel, which is no value
        if allocation.kind == "temp" and max(ends, default=0) < allocation.size and not is_scratch:
            return {"occupied_peaks": [], "occupancy_steps": []}
    for color in sorted({allocation.color for allocation in module.allocations}):
        inside = [
            value
            for value in module.values
            if value.live and module.allocations[value.allocation].color == color
        ]
        occupied, naive = [], []
        for instant in range(len(module.sequence) + 1):
            live = [value for value in inside if value.live[0] <= instant <= value.live[1]]
            naive.append(sum(value.size for value in live))
            occupied.append(covered(module, live))
        peaks.append(
            {
                "color": color,
                "peak_time": occupied.index(max(occupied)),
                "occupied_temp_bytes": max(occupied),
                "naive_live_bytes": max(naive),
            }
        )
        for instant, (before, now) in enumerate(zip([0, *occupied], occupied, strict=False)):
            if now != before:
                steps.append({"color": color, "start_time": instant, "occupied_temp_bytes": now})
    return {"occupied_peaks": peaks, "occupancy_steps": steps}


def held_at_peaks(module: Module) -> list[Row]:
    """peak_values, piece by piece: each counts for the first value that has it."""
    table_rows = []
    times = {peak["color"]: peak["peak_time"] for peak in occupancy(module)["occupied_peaks"]}
    for place, allocation in enumerate(module.allocations):
        if allocation.color not in times or allocation.kind == "thread_local":
            continue
        placed = [value for value in module.values if value.allocation == place]
        held: dict[int | None, int] = {}
        if allocation.kind == "temp":
            time = times[allocation.color]
            placed = [
                value for value in placed if value.live and value.live[0] <= time <= value.live[1]
            ]
            placed.sort(key=lambda value: (value.offset, -value.size, value.number))
            edges = {edge for value in placed for edge in (value.offset, value.offset + value.size)}
            for left, right in pairwise(sorted(edges)):
                for value in placed:
                    if value.offset <= left and right <= value.offset + value.size:
                        held[value.number] = held.get(value.number, 0) + right - left
                        break
        elif allocation.size:
            whole = [(-value.size, value.number) for value in placed if value.offset == 0]
            held[min(whole)[1] if whole else None] = allocation.size
        for number, size in held.items():
            table_rows.append(
                {
                    "color": allocation.color,
                    "allocation_index": place,
                    "allocation_kind": allocation.kind,
                    "value_id": number,
                    "held_bytes": size,
                }
            )
    return table_rows


def covered(module: Module, live: list[Value]) -> int:
    total = 0
    for place, allocation in enumerate(module.allocations):
        slices = [
            (value.offset, value.offset + value.size)
            for value in live
            if value.allocation == place and allocation.kind == "temp"
        ]
        edges = sorted({edge for one in slices for edge in one})
        for left, right in pairwise(edges):
            if any(start <= left and right <= end for start, end in slices):
                total += right - left
    return total
