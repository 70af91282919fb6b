"""Scratch memory of kernels in the files next to the buffer files (format section 9.3)."""

import pytest

from bufdb.read import kernels

CONFIG = (
    ', custom_call_target="tpu_custom_call", backend_config={"flag_configs":[],'
    '"scoped_memory_configs":[LIMIT],"custom_call_config":{"body":"TUzv=="},'
    '"used_scoped_memory_configs":[USED],"aliasing_operands":{"lists":[]}}'
)
VMEM = '{"memory_space":"1","offset":"0","size":"N"}'


def config(used="", limit=""):
    made = (f"{VMEM.replace('N', size)}" if size else "" for size in (used, limit))
    used, limit = made
    return CONFIG.replace("USED", used).replace("LIMIT", limit)


@pytest.mark.parametrize(
    ("used", "limit", "expected"),
    [
        ("4550656", "16777216", (4550656, 16777216)),
        ("4550656", "", (4550656, None)),
        ("", "16777216", (None, 16777216)),
        ("", "", (None, None)),
        ("0", "", (0, None)),
    ],
)
def test_used_and_limit(used, limit, expected):
    assert kernels.scoped(config(used, limit).encode()) == expected


def test_entries_of_other_spaces_do_not_count():
    entries = '{"memory_space":"4","offset":"0","size":"64"},' + VMEM.replace("N", "8")
    text = CONFIG.replace("USED", entries).replace("LIMIT", '{"offset":"0","size":"9"}')
    assert kernels.scoped(text.encode()) == (8, None)


def test_a_configuration_within_quotes():
    text = config("8", "9").replace('"', '\\"')
    assert kernels.scoped(text.encode()) == (8, 9)


def test_code_of_calls_in_parts_of_a_file():
    call = "  %mm.1 = f32[8] custom-call(%x)"
    other = '  %f.2 = f32[8] custom-call(%x), custom_call_target="other"\n'
    calls = kernels.CompiledCalls()
    for part in ("HloModule jit_f\n\n", other, f"{call}{config('8')}\n", "}"):
        calls.feed(part.encode())
    assert (calls.used, calls.line_count, calls.read_count) == ({b"mm.1": 8}, 5, 1)
    attributes = config().encode()
    assert calls.used_by(b"mm.1", attributes) == 8
    assert calls.used_by(b"mm.1", b", metadata={}" + attributes) is None
    assert calls.used_by(b"mm.2", attributes) is None


SEQUENCE = b"""\
001: kCopy  [source       | next=003 (2)] kCopy
003: kWhile [prev=002 (1) | sink        ]
  body:
    004: kCustomKernel [source | sink] f grid: [1, 1, 1] threads: [1, 1, 1]  shared_memory: 0 bytes
    005: kKernel [source | sink] mm grid: [8, 8, 1] cluster: [2, 1, 1] shared_memory: 32768 bytes
"""
METADATA = b"""\
thunk_metadata {
  thunk_info {
    profile_annotation: "command_buffer_1"
  }
  thunk_kind: "kCommandBuffer"
}
thunk_metadata {
  thunk_info {
    profile_annotation: "pallas_call.5"
    thunk_id: 5
  }
  thunk_kind: "kCustomKernel"
}
"""


def test_thunks_of_a_gpu():
    assert kernels.read_thunks(SEQUENCE) == {4: 0, 5: 32768}
    assert kernels.read_thunk_names(METADATA.replace(b"\n", b"\r\n")) == {5: b"pallas_call.5"}
    assert kernels.read_thunks(METADATA) == kernels.read_thunk_names(SEQUENCE) == {}


def test_what_a_block_may_use():
    text = b"gpu_device_info {\n  shared_memory_per_block: 49152\n"
    assert kernels.read_block_limit(text) is None
    assert kernels.read_block_limit(text + b"  shared_memory_per_block_optin: 232448\n}") == 232448
