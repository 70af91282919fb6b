"""Scratch memory of kernels: what the files next to the buffer files print of it.

Of a TPU, `after_codegen.txt` is the optimized HLO text again, with what each instruction uses of
vector memory; the optimized text itself is written earlier and has an empty list there. Of a GPU,
`thunk_sequence.txt` has the shared memory of each kernel, `thunk_metadata.txt` the instruction of
each thunk, `gpu_target_config.pbtxt` what one block may use (format section 9.3).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

TPU_TARGET = b"tpu_custom_call"
TARGETS = (
    TPU_TARGET,
    *(b"__gpu$xla.gpu.triton", b"triton_kernel_call", b"triton_kernel_call_ffi"),
    *(b"mosaic_gpu", b"mosaic_gpu_v2"),
)
"""Targets of custom calls that are kernels of the program, by the names that JAX has used."""
_TARGET = re.compile(rb'custom_call_target="([^"]{1,64})"')
VECTOR_MEMORY = 1
"""Number of a TPU's vector memory (format section 11)."""
_CONFIGS = re.compile(rb'\\?"((?:used_)?scoped_memory_configs)\\?":\[([^\]]{0,4000})\]')
_FIELD = re.compile(rb'\\?"(memory_space|size)\\?":\\?"?(\d{1,18})')
_NAME = re.compile(rb"\s*(?:ROOT )?%?([^\s=]+) = ")
_CONFIG = b", backend_config="


def target_of(attributes: bytes) -> bytes | None:
    """Return the target of a custom call if it is a kernel's; None if not."""
    match = _TARGET.search(attributes)
    return match[1] if match is not None and match[1] in TARGETS else None


def scoped(attributes: bytes) -> tuple[int | None, int | None]:
    """Return what an instruction uses of a TPU's vector memory, and its limit [bytes].

    None where the text has no entry. A kernel's own module is base64, which has no brackets.
    """
    sizes: dict[bytes, int] = {}
    for name, entries in _CONFIGS.findall(attributes):
        for entry in entries.split(b"}"):
            fields = {key: int(number) for key, number in _FIELD.findall(entry)}
            # A field of 0 may be omitted, as protobuf's JSON does.
            if fields.get(b"memory_space", 0) == VECTOR_MEMORY:
                sizes[name] = sizes.get(name, 0) + fields.get(b"size", 0)
    return sizes.get(b"used_scoped_memory_configs"), sizes.get(b"scoped_memory_configs")


class CompiledCalls:
    """The kernels of an `after_codegen` text, which arrives in parts of whole lines."""

    def __init__(self) -> None:
        """Begin a text."""
        self.used: dict[bytes, int] = {}
        """Bytes of vector memory by the kernel's instruction."""
        self.texts: dict[bytes, bytes] = {}
        """The same instruction up to its configuration, which is that of the optimized text."""
        self.line_count = 0
        self.read_count = 0

    def feed(self, text: bytes) -> None:
        """Scan the next part."""
        mark = b'custom_call_target="' + TPU_TARGET + b'"'
        at = text.find(mark)
        while at >= 0:
            begin = text.rfind(b"\n", 0, at) + 1
            end = text.find(b"\n", at)
            end = len(text) if end < 0 else end
            line = text[begin:end].rstrip(b"\r")
            name, (used, _) = _NAME.match(line), scoped(line)
            if name is not None and used is not None and name[1] not in self.used:
                self.used[name[1]] = used
                self.texts[name[1]] = line.partition(_CONFIG)[0]
                self.read_count += 1
            at = text.find(mark, end)
        self.line_count += text.count(b"\n") + (bool(text) and not text.endswith(b"\n"))

    def used_by(self, name: bytes, attributes: bytes) -> int | None:
        """Return what a kernel uses; None if this text has no instruction like it."""
        text = self.texts.get(name)
        if text is None or not text.endswith(b")" + attributes.partition(_CONFIG)[0]):
            return None
        return self.used[name]


# -- Thunks of a GPU: what it launches, one line each ----------------------------------------------

_THUNK = re.compile(
    rb"^ *(\d{1,9}): k(?:CustomKernel|Kernel)\b.* shared_memory: (\d{1,18}) bytes", re.MULTILINE
)
_METADATA = re.compile(rb"^thunk_metadata \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ANNOTATION = re.compile(rb'^    profile_annotation: "([^"\n]+)"', re.MULTILINE)
_ID = re.compile(rb"^    thunk_id: (\d{1,9})$", re.MULTILINE)
_OF_BLOCK = re.compile(rb"^\s+shared_memory_per_block_optin: (\d{1,18})\r?$", re.MULTILINE)


def read_thunks(text: bytes) -> dict[int, int]:
    """Return the bytes of shared memory of each kernel that a program launches, by its thunk."""
    return {int(thunk): int(size) for thunk, size in _THUNK.findall(text)}


def read_thunk_names(text: bytes) -> dict[int, bytes]:
    """Return the instruction of each thunk."""
    names = {}
    for block in _METADATA.findall(text.replace(b"\r\n", b"\n")):
        name, number = _ANNOTATION.search(block), _ID.search(block)
        if name is not None and number is not None:
            names[int(number[1])] = name[1]
    return names


def read_block_limit(text: bytes) -> int | None:
    """Return the shared memory that one block of a GPU may use [bytes]; None if not printed."""
    match = _OF_BLOCK.search(text)
    return int(match[1]) if match else None


# -- Together --------------------------------------------------------------------------------------


@dataclass
class Companions:
    """What files next to a module's HLO text print of its kernels."""

    calls: CompiledCalls | None = None
    """Of a TPU; None without that file."""
    thunks: dict[int, int] | None = None
    """Shared memory of a GPU's kernels by thunk; None without that file."""
    names: dict[int, bytes] = field(default_factory=dict)
    """Instructions of thunks."""
    block_limit: int | None = None
    """What a block of the GPU may use [bytes]."""

    @cached_property
    def named(self) -> frozenset[bytes]:
        """The instructions that have thunks."""
        return frozenset(self.names.values())

    def shared(self) -> dict[bytes, int]:
        """Return the shared memory of instructions by name; of several thunks the largest."""
        sizes: dict[bytes, int] = {}
        for thunk, size in (self.thunks or {}).items():
            if thunk in self.names:
                name = self.names[thunk]
                sizes[name] = max(size, sizes.get(name, 0))
        return sizes
