from small_db import Module, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-dtype", "run_name")


def test_bytes_of_the_peak_by_element_type_unknown_last(con):
    for shape, dtype in (("f32[4]{0}", "f32"), ("f32[2]{0}", "f32"), ("bf16[6]{0}", "bf16")):
        insert(con, "shapes", shape=shape, dtype=dtype)
    insert(con, "shapes", shape="odd[]")
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.allocation(1, "output", 12)
    module.value(1, 0, offset=0, size=16, shape="f32[4]{0}")
    module.value(2, 0, offset=16, size=8, shape="f32[2]{0}")
    module.value(3, 0, offset=24, size=12, shape="bf16[6]{0}")
    module.value(4, 0, offset=36, size=12, shape="odd[]")
    module.close()
    holds(con, "peak-by-dtype", """
        held_bytes | held_ratio | value_count | dtype
        24         | 0.4        | 2           | f32
        24         | 0.4        | 2           | NULL
        12         | 0.2        | 1           | bf16
    """)  # fmt: skip
