from small_db import Module, answer


def test_nothing_in_an_empty_database(con):
    assert answer(con, "peak-by-opcode") == []


def test_bytes_of_the_peak_by_opcode_ties_by_name_unknown_last(con):
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 20)
    module.allocation(2, "constant", 0)
    module.value(1, 0, offset=0, size=30, opcode="fusion")
    module.value(2, 0, offset=20, size=30, opcode="fusion")  # 20 bytes of its own
    module.value(3, 0, offset=60, size=20, opcode="copy")
    module.value(4, 0, offset=80, size=20)
    module.value(5, 1, offset=0, size=20, opcode="parameter")
    module.close()
    assert answer(con, "peak-by-opcode") == [
        ("r", "step", 0, 110, 50, 50 / 110, 2, "fusion"),
        ("r", "step", 0, 110, 20, 20 / 110, 1, "copy"),
        ("r", "step", 0, 110, 20, 20 / 110, 1, "parameter"),
        ("r", "step", 0, 110, 20, 20 / 110, 1, None),
    ]
    assert [row[7] for row in answer(con, "peak-by-opcode", top_n=1)] == ["fusion"]


def test_a_function_by_its_largest_module_on_each_platform(con):
    sizes = ((1, "cpu", 10), (2, "cpu", 30), (3, "tpu", 20), (4, None, 30))
    for module_id, platform, size in sizes:
        module = Module(con, module_id, platform=platform)
        module.allocation(0, "output", size)
        module.close()
    assert [row[3] for row in answer(con, "peak-by-opcode")] == [30, 30, 20]
    assert [row[3] for row in answer(con, "peak-by-opcode", platform="tpu")] == [20]
    assert [row[3] for row in answer(con, "peak-by-opcode", top_functions=1)] == [30]


def test_a_function_with_an_unknown_peak_has_a_row_that_says_why(con):
    module = Module(con, 1, has_live_ranges=False)
    module.allocation(0, "parameter", 100)
    assert answer(con, "peak-by-opcode") == [
        ("r", "f", 0, *[None] * 5, "the dump has no live ranges")
    ]
