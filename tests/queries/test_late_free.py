import pytest
from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "late-free", "run_name")


def use(con, value_id, instruction_name, module_id=1):
    ordinal = con.execute("SELECT count(*) FROM uses").fetchone()[0]
    insert(con, "uses", module_id=module_id, value_id=value_id, use_ordinal=ordinal,
           instruction_name=instruction_name)  # fmt: skip


def one_module(con):
    """The peak is at 10; i3 to i19 are instructions at these places."""
    module = Module(con, 1, function_name="step", has_used_values=True)
    module.allocation(0, "temp", 1000)
    module.value(0, 0, offset=900, size=100, live=(10, 10))
    for order in range(3, 20):
        opcode = {5: "bitcast", 6: "tuple", 7: "get-tuple-element"}.get(order, "add")
        insert(con, "instructions", module_id=1, instruction_name=f"i{order}",
               program_order=order, opcode=opcode)  # fmt: skip
    return module


@pytest.mark.slow
def test_the_longest_time_between_two_touches_around_the_peak(con):
    module = one_module(con)
    module.value(1, 0, offset=0, size=10, live=(2, 19), opcode="dot", op_name="jit(step)/dot",
                 source_file="a.py", source_line=3)  # fmt: skip
    for name in ("i3", "i5", "i6", "i7", "i15", "i19"):
        use(con, 1, name)
    module.value(2, 0, offset=20, size=8, live=(15, 15), name="w")
    con.execute("UPDATE uses SET instruction_name = 'w' WHERE instruction_name = 'i15'")
    con.execute(
        "UPDATE instructions SET program_order = 15, opcode = 'add' WHERE instruction_name = 'w'"
    )
    module.close()
    holds(con, "late-free", """
        run_name | function_name | color | idle_byte_steps | size_bytes | saving_bytes
        r        | step          | 0     | 110.0           | 10         | NULL

        idle_start_time | idle_end_time | reason     | is_at_peak | consumer_name | consumer_bytes
        3               | 15            | before_use | True       | w             | 8

        shape | opcode | instruction_name | shape_index | op_name       | source
        f32[] | dot    | v1               | {}          | jit(step)/dot | a.py:3
    """)  # fmt: skip


def late_values(con, **params):
    return [row["instruction_name"] for row in answer(con, "late-free", **params)]


@pytest.mark.slow
def test_nobody_uses_it_after_the_peak(con):
    module = one_module(con)
    module.value(1, 0, offset=0, size=10, live=(4, 18))
    use(con, 1, "i8")
    module.close()
    holds(con, "late-free", """
        instruction_name | idle_byte_steps | size_bytes | idle_start_time | idle_end_time
        v1               | 90.0            | 10         | 8               | 18

        reason         | is_at_peak | consumer_name | consumer_bytes
        after_last_use | True       | NULL          | NULL
    """)  # fmt: skip


def test_a_use_after_the_end_counts_as_at_the_end(con):
    module = one_module(con)
    module.value(1, 0, offset=0, size=10, live=(4, 14))
    use(con, 1, "i16")  # such as a while, which comes after its body
    module.close()
    holds(con, "late-free", """
        instruction_name | idle_byte_steps | size_bytes | idle_start_time | idle_end_time
        v1               | 90.0            | 10         | 4               | 14

        reason     | is_at_peak | consumer_name | consumer_bytes
        before_use | True       | i16           | NULL
    """)  # fmt: skip


@pytest.mark.slow
def test_a_touch_at_the_peak_ends_an_idle_time(con):
    module = one_module(con)
    module.value(1, 0, offset=0, size=10, live=(4, 14))
    use(con, 1, "i10")
    module.close()
    assert late_values(con) == []
    holds(con, "late-free", """
        instruction_name | idle_byte_steps | size_bytes | idle_start_time | idle_end_time
        v1               | 50.0            | 10         | 4               | 10

        reason     | is_at_peak | consumer_name | consumer_bytes
        before_use | False      | i10           | NULL
    """, at_peak="false")  # fmt: skip


@pytest.mark.slow
def test_a_use_of_unknown_opcode_leaves_the_function_unanswered(con):
    module = one_module(con)
    module.value(1, 0, offset=0, size=10, live=(4, 14))
    use(con, 1, "i6")
    module.close()
    assert len(late_values(con)) == 1
    con.execute("UPDATE instructions SET opcode = NULL WHERE instruction_name = 'i6'")
    holds(con, "late-free", """
        run_name | function_name | color | idle_byte_steps | size_bytes | saving_bytes
        r        | step          | 0     | NULL            | NULL       | NULL

        idle_start_time | idle_end_time | reason | is_at_peak | consumer_name | consumer_bytes
        NULL            | NULL          | NULL   | NULL       | NULL          | NULL

        shape | opcode | instruction_name | shape_index | op_name | source
        NULL  | NULL   | NULL             | NULL        | NULL    | NULL

        unknown_reason
        which uses read a value and which pass it on is unknown: no HLO text
    """)  # fmt: skip


@pytest.mark.slow
def test_ties_by_value_id_and_limits(con):
    module = one_module(con)
    for value_id in (3, 2):
        module.value(value_id, 0, offset=value_id * 10, size=10, live=(4, 14))
    module.close()
    assert late_values(con) == ["v2", "v3"]
    assert late_values(con, top_n=1) == ["v2"]
    assert late_values(con, run="x") == []
    assert late_values(con, function="x") == []
    assert late_values(con, platform="tpu") == []
    assert late_values(con, color=1) == []


def test_without_a_list_of_uses_nothing_is_said(con):
    module = one_module(con)
    module.value(1, 0, offset=0, size=10, live=(4, 14))
    module.close()
    con.execute("UPDATE modules SET has_used_values = FALSE")
    holds(con, "late-free", """
        run_name | function_name | color | idle_byte_steps | size_bytes | saving_bytes
        r        | step          | 0     | NULL            | NULL       | NULL

        idle_start_time | idle_end_time | reason | is_at_peak | consumer_name | consumer_bytes
        NULL            | NULL          | NULL   | NULL       | NULL          | NULL

        shape | opcode | instruction_name | shape_index | op_name | source
        NULL  | NULL   | NULL             | NULL        | NULL    | NULL

        unknown_reason
        the dump does not list uses
    """)  # fmt: skip
