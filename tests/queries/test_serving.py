"""Query serving: programs that share weights, and what is left for a cache."""

import pytest
from small_db import Module, derived, insert, rows
from tables import holds


def program(con, number, function, temp, *arguments, run="r", output=0):
    """A program; its arguments are name, shape, size and kind."""
    one = Module(con, number, run_name=run, function_name=function, module_key=f"m{number}",
                 platform="gpu")  # fmt: skip
    one.allocation(0, "temp", temp)
    one.allocation(1, "output", output)
    for place, (name, shape, size, kind) in enumerate(arguments):
        index = place + 2
        one.allocation(index, kind, size, parameter_number=place, parameter_shape_index="{}")
        one.value(index, index, 0, size, name=f"p{place}", shape=shape, opcode="parameter",
                  op_name=name)  # fmt: skip
    one.close()


@pytest.fixture
def served(con):
    insert(con, "runs", run_name="r")
    weights = ("params['w']", "f32[10]{0}", 40, "parameter")
    bias = ("params['b']", "f32[1]{0}", 4, "parameter")
    cache = ("cache", "f32[5]{0}", 20, "donated_parameter")
    program(con, 1, "prefill", 100, weights, bias, cache, ("tokens", "s32[8]{0}", 32, "parameter"))
    program(con, 2, "prefill", 60, weights, bias, cache, ("tokens", "s32[4]{0}", 16, "parameter"))
    program(con, 3, "decode", 90, weights, bias, cache, output=7)
    return con


def test_nothing_in_an_empty_database(con):
    holds(con, "serving", "part")


def test_weights_and_caches_are_there_once(served):
    holds(served, "serving", """
        part    | function_name | module_key | low_bytes | held_bytes | array_count
        weights | NULL          | NULL       | 44        | 44         | 2
        cache   | NULL          | NULL       | 20        | 20         | 1
        own     | NULL          | NULL       | 0         | 16         | NULL
        program | prefill       | m1         | 132       | 132        | NULL
        code    | NULL          | NULL       | NULL      | NULL       | NULL
        bucket  | prefill       | m1         | 132       | 132        | NULL
        bucket  | decode        | m3         | 97        | 97         | NULL
        bucket  | prefill       | m2         | 76        | 76         | NULL
    """)  # fmt: skip


def test_a_program_of_unknown_need_may_be_the_largest(served):
    Module(served, 4, run_name="r", function_name="verify", module_key="m4", platform="gpu")
    holds(served, "serving", """
        part    | module_key | low_bytes | held_bytes | unknown_reason
        weights | NULL       | 44        | NULL       | verify: the dump has no allocations
        cache   | NULL       | 20        | NULL       | verify: the dump has no allocations
        own     | NULL       | 0         | NULL       | verify: the dump has no allocations
        program | m1         | 132       | NULL       | verify: the dump has no allocations
        code    | NULL       | NULL      | NULL       | no memory profile of the run has the size of the loaded programs' code
        left    | NULL       | NULL      | 804        | verify: the dump has no allocations
        bucket  | m1         | 132       | 132        | NULL
        bucket  | m3         | 97        | 97         | NULL
        bucket  | m2         | 76        | 76         | NULL
        bucket  | m4         | NULL      | NULL       | the dump has no allocations
    """, budget="1000B")  # fmt: skip  # noqa: E501


LEFT = ["low_bytes", "held_bytes", "low_cache_bytes", "cache_bytes"]
LEFT += ["low_token_count", "token_count"]
ASKED = {"budget": "1000B", "reserved_bytes": "50B", "token_bytes": "7B"}


def left(con, expected, **params):
    answered = [row for row in answers(con, **params) if row["part"] == "left"]
    assert [tuple(row[name] for name in LEFT) for row in answered] == [expected]


def answers(con, **params):
    with derived(con):
        return rows(con, "serving", **params)


def test_parts_and_what_is_left_are_the_memory(served):
    insert(served, "live_profiles", run_name="r", profile_name="p", code_bytes=3)
    # 1000 - 44 - 20 - 132 - 3 - 50, and 16 less at the least.
    left(served, (735, 751, 755, 771, 107, 110), **ASKED)
    parts = [row for row in answers(served, **ASKED) if row["part"] != "bucket"]
    one, other = ("low_bytes", "held_bytes")
    (rest,) = (row for row in parts if row["part"] == "left")
    assert sum(row[one] for row in parts if row is not rest) + rest[other] == 1000
    assert sum(row[other] for row in parts if row is not rest) + rest[one] == 1000


def test_without_the_size_of_code_the_least_is_not_known(served):
    left(served, (None, 754, None, 774, None, 110), **ASKED)
    (code,) = (row for row in answers(served) if row["part"] == "code")
    assert "no memory profile" in code["unknown_reason"]


def test_the_same_shape_alone_is_a_range(con):
    insert(con, "runs", run_name="r")
    program(con, 1, "prefill", 5, ("a", "f32[10]{0}", 40, "parameter"),
            ("b", "f32[10]{0}", 40, "parameter"))  # fmt: skip
    # The layout is the compiler's.
    program(con, 2, "decode", 9, ("x", "f32[10]{0:T(256)}", 40, "parameter"))
    holds(con, "serving", """
        part    | function_name | low_bytes | held_bytes | array_count | sharing
        weights | NULL          | 80        | 120        | 3           | same shape
        program | decode        | 9         | 9          | NULL        | NULL
        code    | NULL          | NULL      | NULL       | NULL        | NULL
        bucket  | decode        | 9         | 9          | NULL        | NULL
        bucket  | prefill       | 5         | 5          | NULL        | NULL
    """)  # fmt: skip


def test_one_program_shares_nothing(served):
    holds(served, "serving", """
        part    | low_bytes | held_bytes
        weights | 0         | 0
        program | 161       | 161
        code    | NULL      | NULL
        bucket  | 161       | 161
    """, function="decode")  # fmt: skip
    holds(served, "serving", """
        part    | function_name | held_bytes
        weights | NULL          | 44
        cache   | NULL          | 20
        own     | NULL          | 16
        program | prefill       | 132
        code    | NULL          | NULL
        bucket  | prefill       | 132
        bucket  | prefill       | 76
    """, skip="dec*")  # fmt: skip
