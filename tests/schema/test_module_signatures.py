"""View module_signatures: the shapes that a module was compiled for, as text and as a number."""

import pytest
from small_db import Module


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
        "SELECT entry_signature, entry_hash FROM module_signatures ORDER BY module_id"
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


def test_both_tell_the_same_programs_apart(demo):
    assert demo.execute(
        "SELECT count(*) > 3, count(DISTINCT entry_signature) = count(DISTINCT entry_hash), "
        "count(DISTINCT entry_hash) = count(DISTINCT (entry_hash, entry_signature)), "
        "count(entry_signature) = count(entry_hash) FROM module_signatures"
    ).fetchall() == [(True, True, True, True)]
