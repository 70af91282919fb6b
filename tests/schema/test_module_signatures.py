"""View module_signatures, and what modules stores of it: the shapes that it was compiled for."""

import pytest
from ingesting import ingest_into
from places import DEMO
from small_db import Module

from bufdb.query import check

ALIKE = (
    "SELECT count(*) FROM modules JOIN derived_signatures USING (module_id) "
    "WHERE (modules.entry_hash, modules.shapes_name) "
    "IS DISTINCT FROM (derived_signatures.entry_hash, derived_signatures.shapes_name)"
)


def compiled(con, module_id, shapes, result, function="f"):
    """Make a module with parameters of some shapes, None if the dump does not give one."""
    module = Module(con, module_id, f"run{module_id}", function)
    for number, shape in enumerate(shapes):
        module.allocation(
            number,
            "parameter",
            4,
            parameter_number=number,
            parameter_shape=shape,
            parameter_shape_index="{}",
        )
    module.allocation(len(shapes), "output", 4, output_shape=result)
    module.close()


def signatures(con):
    """Return text and number of each module, in the order of their ids."""
    return con.execute(
        "SELECT entry_signature, entry_hash FROM module_signatures JOIN modules USING (module_id) "
        "ORDER BY module_id"
    ).fetchall()


def test_equal_parameters_and_results_have_one_number(con):
    for module_id in (1, 2):
        compiled(con, module_id, ["f32[2]", "s32[3]"], "f32[2]")
    compiled(con, 3, ["s32[3]", "f32[2]"], "f32[2]")
    compiled(con, 4, ["f32[2]", "s32[3]"], "s32[3]")
    compiled(con, 5, ["f32[2]", "s32[3]", "s32[3]"], "f32[2]")
    compiled(con, 6, [], "f32[2]")
    texts, numbers = zip(*signatures(con), strict=True)
    assert texts[0] == texts[1] == "(f32[2], s32[3]) -> f32[2]"
    assert numbers[0] == numbers[1]
    assert len({*numbers}) == len({*texts}) == 5


def test_numbers_in_comments_of_tuples_do_not_count(con):
    compiled(con, 1, ["(f32[2], s32[3])"], "(f32[2], s32[3])")
    compiled(con, 2, ["(f32[2], /*index=1*/s32[3])"], "(f32[2], /*index=1*/s32[3])")
    (first, second) = signatures(con)
    assert first == second
    assert first[0] == "((f32[2], s32[3])) -> (f32[2], s32[3])"


@pytest.mark.parametrize(
    ("shapes", "result"), [(["f32[2]", None], "f32[2]"), (["f32[2]"], None), ([], None)]
)
def test_an_unknown_shape_has_neither(con, shapes, result):
    compiled(con, 1, shapes, result)
    assert signatures(con) == [(None, None)]


def test_ingest_stores_what_allocations_say(demo):
    assert demo.execute(ALIKE).fetchall() == [(0,)]
    assert demo.execute(
        "SELECT count(*) > 3, count(DISTINCT entry_signature) = count(DISTINCT entry_hash), "
        "count(DISTINCT entry_hash) = count(DISTINCT (entry_hash, entry_signature)), "
        "count(entry_signature) = count(entry_hash), count(shapes_name) "
        "FROM module_signatures JOIN modules USING (module_id)"
    ).fetchall() == [(True, True, True, True, 0)]


def test_a_program_without_a_name_has_that_of_its_shapes(con, tmp_path):
    """As torch_xla, which has one name for all; a large module is read in several rounds."""
    for file in (DEMO / "cpu_b8").glob("module_0002*"):
        made = tmp_path / file.name.replace("jit_train_step", "SyncTensorsGraph.7")
        made.write_bytes(file.read_bytes().replace(b"jit(", b"aten("))
    for block_bytes in (1 << 20, 4096):
        ingest_into(con, tmp_path, run="r", block_bytes=block_bytes, replace=True)
        assert con.execute(ALIKE).fetchall() == [(0,)]
        ((function, name, pairing_name),) = con.execute(
            "SELECT modules.function_name, shapes_name, pairing_name "
            "FROM modules JOIN module_signatures USING (module_id)"
        ).fetchall()
        assert function is None and name == pairing_name
        assert name.startswith("SyncTensorsGraph(f32[")
    assert "signatures" not in {violation.check.name for violation in check.violations(con)}


@pytest.mark.parametrize(
    ("lines", "signature"),
    [
        ("parameter 1, shape |s32[3]| at ShapeIndex {}", None),
        ("output shape is |f32[2]|, maybe-live-out", "() -> f32[2]"),
    ],
)
def test_parts_of_parameters_are_not_in_it(con, tmp_path, lines, signature):
    """Lines with attributes in another order are read one by one."""
    head = (
        "BufferAssignment:\nallocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {0}:\n"
    )
    text = f"{head}allocation 1: size 8, {lines}:\nallocation 2: size 8, thread-local, color 0:\n"
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt").write_text(text)
    ingest_into(con, tmp_path, run="r")
    assert con.execute(ALIKE).fetchall() == [(0,)]
    assert [text for text, _ in signatures(con)] == [signature]
