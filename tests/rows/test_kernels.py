"""Rows of `kernels`: what is used, what is allowed, and why either is unknown."""

import pytest
from ingesting import ingest_into, rows

from bufdb.read.hlo_graph import HloGraph
from bufdb.read.kernels import Companions, CompiledCalls
from bufdb.rows import kernels

TEXT = b"""
ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %k.1 = f32[8]{0} custom-call(%x), custom_call_target="TARGET", backend_config={LIMITUSED}
  %fusion.2 = f32[8]{0} fusion(%k.1), kind=kCustom, calls=%fused
  ROOT %sort.3 = f32[8]{0} custom-call(%fusion.2), custom_call_target="sort"
}
"""
NONE = b'"used_scoped_memory_configs":[]'
TEXT = TEXT.replace(b"USED", NONE)
LIMIT = b'"scoped_memory_configs":[{"memory_space":"1","size":"64"}],'
ENTRY = b'"used_scoped_memory_configs":[{"memory_space":"1","size":"48"}]'


def of(target, companions=None, limit=b""):
    text = TEXT.replace(b"TARGET", target).replace(b"LIMIT", limit)
    assert kernels.has_rows(text, companions)
    return kernels.rows_of(HloGraph(text, []), companions or Companions())


def code(text):
    calls = CompiledCalls()
    calls.feed(text.replace(b"TARGET", b"tpu_custom_call").replace(b"LIMIT", b""))
    return calls


def test_a_kernel_of_a_tpu():
    compiled = TEXT.replace(NONE, ENTRY)
    ((*row, _, why),) = of(b"tpu_custom_call", Companions(code(compiled)), LIMIT)
    assert row == [b"k.1", b"tpu_custom_call", "vmem", 48, 64]
    assert why is None
    ((*_, used, limit, _, why),) = of(b"tpu_custom_call", Companions(code(compiled)))
    assert (used, limit) == (48, None)
    assert "no vmem_limit_bytes" in why


@pytest.mark.parametrize(
    ("companions", "why"),
    [
        (Companions(), "no after_codegen.txt"),
        (Companions(code(TEXT)), "of another compilation"),
        (
            Companions(code(TEXT.replace(b'_configs":[]', b'_configs":[{"memory_space":"1"}]')
                            .replace(b", custom_call", b", metadata={}, custom_call"))),
            "of another compilation",
        ),
    ],
)  # fmt: skip
def test_why_the_use_of_a_tpu_is_unknown(companions, why):
    ((_, _, _, used, limit, because, _),) = of(b"tpu_custom_call", companions, LIMIT)
    assert (used, limit) == (None, 64)
    assert why in because


@pytest.mark.parametrize("mark", [b"%", b""])
def test_kernels_of_a_gpu_and_fusions_with_shared_memory(mark):
    thunks = {1: 32, 2: 16, 3: 0, 4: 64, 5: 9}
    names = {1: b"k.1", 2: b"k.1", 3: b"sort.3", 4: b"fusion.2", 5: b"gone.1"}
    text = TEXT.replace(b"TARGET", b"__gpu$xla.gpu.triton").replace(b"LIMIT", b"")
    companions = Companions(None, thunks, names, 99)
    rows = kernels.rows_of(HloGraph(text.replace(b"%", mark), []), companions)
    assert [row[:5] for row in rows] == [
        (b"fusion.2", None, "shared", 64, 99),
        (b"k.1", b"__gpu$xla.gpu.triton", "shared", 32, 99),
    ]


@pytest.mark.parametrize(
    ("target", "companions", "why"),
    [
        (b"mosaic_gpu_v2", Companions(None, {1: 0}, {1: b"k.1x"}), "is not in the text"),
        (b"triton_kernel_call", Companions(), "no thunk_sequence.txt"),
        (b"triton_kernel_call", Companions(None, {1: 8}), "no thunk_sequence.txt"),
        (b"triton_kernel_call", Companions(None, {1: 8}, {1: b"other"}), "does not name it"),
        (b"triton_kernel_call", Companions(None, {1: 8}, {2: b"k.1"}), "does not print"),
    ],
)
def test_why_the_use_of_a_gpu_is_unknown(target, companions, why):
    ((_, _, space, used, limit, because, of_limit),) = of(target, companions)
    assert (space, used, limit) == ("shared", None, None)
    assert why in because
    assert "gpu_target_config.pbtxt" in of_limit


ASSIGNMENT = """\
BufferAssignment:
allocation 0: size 32, output shape is |f32[8]|, maybe-live-out:
 value: <0 k.1 @0> (size=32,offset=0): f32[8]{0}
"""


def test_the_files_of_a_dump(con, tmp_path):
    stem, entry = "module_0001.jit_f.cl_7", TEXT.decode().replace("TARGET", "tpu_custom_call")
    hlo = f"HloModule jit_f, is_scheduled=true\n{entry.replace('LIMIT', '')}"
    made = hlo.replace(NONE.decode(), ENTRY.decode())
    for end, text in (
        ("after_optimizations-buffer-assignment.txt", ASSIGNMENT),
        ("after_optimizations.txt", hlo),
        ("after_codegen.txt", made),
        ("thunk_sequence.txt", "001: kCopy [source | sink] kCopy\n"),
    ):
        (tmp_path / f"{stem}.{end}").write_text(text)
    ingest_into(con, [tmp_path], run="r")
    assert rows(con, "SELECT instruction_name, used_bytes, limit_bytes FROM kernels") == [
        ("k.1", 48, None)
    ]
    counts = "line_count, read_line_count, known_line_count, unread_line_count"
    kinds = "'after_codegen', 'thunk_sequence'"
    sql = f"SELECT {counts} FROM files WHERE file_kind IN ({kinds}) ORDER BY file_kind"
    assert rows(con, sql) == [(8, 1, 7, 0), (1, 0, 1, 0)]
