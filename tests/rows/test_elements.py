"""Operands that name an element of a tuple, as jaxlib 0.11 and later print them."""

from pathlib import Path

import duckdb
import pytest
from elements import with_elements
from ingesting import ingest_into, rows
from places import DEMO, ROOT
from proto_rows import differences, put
from shared_dumps import DUMPS, LOOPS

from bufdb.read.hlo_graph import HloGraph
from bufdb.rows.loop_places import Operands

SAMPLES = ROOT / "data" / "loops"
SHARED = [
    folder
    for group in (DUMPS / "gpu-0.10.2", DUMPS / "tpu-0.10.2", LOOPS / "dumps")
    if group.is_dir()
    for folder in sorted(group.iterdir())
    if any(folder.glob("*after_optimizations.txt"))
]
FOLDERS = [
    *(pytest.param(SAMPLES / name, id=f"loops/{name}") for name in ("gpu", "tpu", "cpu")),
    *(pytest.param(DEMO / name, id=name) for name in ("tpu_b8", "gpu_b8", "cpu_b8_remat")),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("folder", FOLDERS)
def test_both_forms_of_a_text_give_the_same_rows(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, folder: Path
) -> None:
    check_both_forms(con, tmp_path, folder)


@pytest.mark.sample(0, 6)
@pytest.mark.parametrize("folder", SHARED, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_so_do_both_of_the_shared_programs(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, folder: Path
) -> None:
    check_both_forms(con, tmp_path, folder)


def check_both_forms(con: duckdb.DuckDBPyConnection, tmp_path: Path, folder: Path) -> None:
    files = [file for file in folder.iterdir() if file.suffix not in (".pb", ".py")]
    for form in ("lines", "elements"):
        put(tmp_path / form, files)
    for file in (tmp_path / "elements").glob("*after_optimizations.txt"):
        file.write_text(with_elements(file.read_text()))
    for form in ("lines", "elements"):
        ingest_into(con, tmp_path / form, form)
    # Lines that are not there describe no instruction.
    others = [d for d in differences(con, "lines", "elements") if not d.startswith("instructions")]
    assert others == []
    assert rows(con, "SELECT count(*) FROM diagnostics WHERE severity <> 'info'") == [(0,)]


TEXT = b"""ENTRY %main () -> f32[] {
  %t = (s32[], (f32[64,4]{1,0}, f32[8]{0}), /*index=2*/bf16[64,512]{1,0}) parameter(0)
  %a = f32[4,512]{1,0} dot(%t#1,0, %t#2), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %b = f32[4,512]{1,0} select(%t#0, %t#1,1, %t#2)
  ROOT %c = f32[] add(%t#1, %t#7)
}
"""


def test_the_shape_of_an_operand_is_that_of_its_element() -> None:
    graph = HloGraph(TEXT, [])
    dot, root = graph.find(0, b"a"), graph.root(b"main")
    assert dot is not None and root is not None
    shapes = [graph.operand_shape(dot, n) for n in range(3)]
    assert [shape and shape.text for shape in shapes] == [
        "f32[64,4]{1,0}", "bf16[64,512]{1,0}", None
    ]  # fmt: skip
    whole, nowhere = graph.operand_shape(root, 0), graph.operand_shape(root, 1)
    assert whole is not None and whole.is_tuple
    assert nowhere is not None and nowhere.element_count is None


def test_the_largest_operand_is_the_largest_element() -> None:
    graph = HloGraph(TEXT, [])
    select = graph.find(0, b"b")
    assert select is not None
    largest = Operands(graph).largest({}, select)
    assert largest is not None
    assert (largest[0].name, largest[1]) == (b"t", (2,))


CALL = b"""%wrapped (p: f32[8], q: f32[4]) -> f32[4] {
  %p = f32[8]{0} parameter(0)
  %q = f32[4]{0} parameter(1)
  ROOT %cc = f32[4]{0} custom-call(%p, %q), custom_call_target="x"
}

ENTRY %main (a: f32[8], b: f32[4]) -> f32[4] {
  %a = f32[8]{0} parameter(0)
  %b = f32[4]{0} parameter(1)
  %s = (START, (), s32[4]{0}) async-start(GIVEN), calls=%wrapped
  %u = ((f32[8]{0}, f32[4]{0}), f32[4]{0}, s32[4]{0}) async-update(%s, TAKEN)
  ROOT %d = f32[4]{0} async-done(%u)
}
"""


@pytest.mark.parametrize(
    ("start", "operand", "taken"),
    [(b"()", b"", b"%a, %b"), (b"(f32[8]{0})", b"%a", b"%b")],
)
def test_an_update_takes_the_operands_that_the_start_does_not(
    start: bytes, operand: bytes, taken: bytes
) -> None:
    text = CALL.replace(b"START", start).replace(b"GIVEN", operand).replace(b"TAKEN", taken)
    graph = HloGraph(text, [])
    caller = graph.caller(0)
    assert caller is not None
    operands = [graph.operand(caller[0], number, ()) for number in range(3)]
    assert [at and at[0].name for at in operands] == [b"a", b"b", None]
