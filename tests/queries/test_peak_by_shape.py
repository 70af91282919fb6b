from small_db import Module, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-shape", "run_name")


def one_module(con):
    for shape, text in (("f32[2,3]{1,0}", "2,3"), ("f32[2,3]{0,1}", "2,3"), ("f32[]", "")):
        insert(con, "shapes", shape=shape, dtype="f32", dimensions_text=text)
    insert(con, "shapes", shape="(f32[], f32[])", dtype="tuple", is_tuple=True)
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    module.allocation(1, "output", 12)
    module.value(1, 0, offset=0, size=24, shape="f32[2,3]{1,0}")
    module.value(2, 0, offset=24, size=24, shape="f32[2,3]{0,1}")
    module.value(3, 0, offset=48, size=24, shape="f32[]")
    module.value(4, 0, offset=72, size=16, shape="(f32[], f32[])")
    module.close()


def test_layouts_of_one_shape_come_together(con):
    one_module(con)
    holds(con, "peak-by-shape", """
        held_bytes | held_ratio | value_count | shape
        48         | 0.48       | 2           | f32[2,3]
        24         | 0.24       | 1           | f32[]
        16         | 0.16       | 1           | (f32[], f32[])
        12         | 0.12       | 1           | NULL
    """)  # fmt: skip


def test_layouts_stand_apart_on_request_ties_by_text(con):
    one_module(con)
    holds(con, "peak-by-shape", """
        held_bytes | shape
        24         | f32[2,3]{0,1}
        24         | f32[2,3]{1,0}
        24         | f32[]
        16         | (f32[], f32[])
        12         | NULL
    """, layout="true")  # fmt: skip
