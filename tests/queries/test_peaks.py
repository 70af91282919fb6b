from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peaks", "run_name")


def module(con, module_id, size, function="f"):
    made = Module(con, module_id, function_name=function)
    made.allocation(0, "output", 10)
    made.allocation(1, "temp", size)
    made.value(1, 1, 0, size, live=(0, 3), name="dot", opcode="dot", op_name="a/dot",
               program_order=0)  # fmt: skip
    made.close()
    for ordinal, (time, height, valley) in enumerate([(0, size, None), (7, size - 4, 2)], 1):
        insert(con, "peaks", module_id=module_id, color=0, peak_ordinal=ordinal, peak_time=time,
               occupied_temp_bytes=height, valley_bytes=valley)  # fmt: skip


def test_heights_and_valleys_have_the_fixed_bytes(con):
    module(con, 1, 30)
    holds(con, "peaks", """
        run_name | function_name | color | peak_ordinal | peak_bytes | peak_ratio | valley_bytes
        r        | f             | 0     | 1            | 40         | 1.0        | NULL
        r        | f             | 0     | 2            | 36         | 0.9        | 12

        peak_time | opcode | instruction_name | op_name
        0         | dot    | dot              | a/dot
        7         | NULL   | NULL             | NULL
    """)  # fmt: skip
    assert len(answer(con, "peaks", top_n=1)) == 1


def test_functions_by_largest_peak(con):
    module(con, 1, 30)
    module(con, 2, 50, function="g")
    holds(con, "peaks", """
        function_name
        g
        g
        f
        f
    """)  # fmt: skip
    assert {row["function_name"] for row in answer(con, "peaks", top_functions=1)} == {"g"}
