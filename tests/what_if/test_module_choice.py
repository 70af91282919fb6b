"""Selection of a module by name."""

import pytest
from small_db import Module
from what_if_cases import Case

from bufdb.errors import BufdbError, UsageError
from bufdb.what_if.module_choice import choose


def case(con, module_id, size, **cells):
    made = Case(con, module_id, **cells)
    made.temp(1, size, (1, 3))
    made.close()


def test_by_key_name_or_function_or_a_glob_of_one(con):
    case(con, 1, 5, module_key="d/module_0001.jit_f", module_name="jit_f", function_name="f")
    for name in ("d/module_0001.jit_f", "jit_f", "f", "d/*", "jit*", "?"):
        assert choose(con, name, None, None).module_id == 1
    with pytest.raises(UsageError, match=r"no module 'jit_g'; did you mean 'jit_f'\?"):
        choose(con, "jit_g", None, None)


def test_a_name_with_signs_of_a_glob_is_found_literally(con):
    case(con, 1, 5, function_name="f[0]")
    assert choose(con, "f[0]", None, None).function_name == "f[0]"


def test_the_largest_need_of_several_with_a_known_peak(con):
    case(con, 1, 9)
    case(con, 2, 12)
    Module(con, 3, has_live_ranges=False).allocation(0, "temp", 100)
    con.execute("UPDATE memory_sums SET temp_bytes = 20 WHERE module_id = 1")
    choice = choose(con, "f", None, None)
    assert (choice.module_id, choice.peak_bytes, choice.need_bytes) == (1, 9, 20)
    assert choice.others == (
        "3 modules match; m1 of run r has the largest need of those whose peak is known; "
        "that of 1 is not"
    )
    assert choose(con, "m1", None, None).others == ""


@pytest.mark.slow
def test_of_several_runs_the_one_with_the_largest_need(con):
    for number in range(7):
        case(con, number, 5 + (number == 4), run_name=f"r{number}")
    choice = choose(con, "f", None, None)
    assert choice.run_name == "r4"
    assert choice.others == "7 modules in 7 runs match; m4 of run r4 has the largest need"
    assert choose(con, "f", "r3", None).run_name == "r3"
    with pytest.raises(UsageError, match="no module 'f' with run 'x'"):
        choose(con, "f", "x", None)


def test_device_memory_or_the_requested_space(con):
    made = Case(con, 1, platform="tpu")
    made.allocation(1, "temp", 50, color=1)
    made.temp(1, 5, (1, 3))
    made.value(2, 1, 0, 50)
    made.close()
    assert choose(con, "f", None, None).memory_space == "hbm"
    for vmem in (1, "1", "vmem", "all"):
        assert choose(con, "f", None, vmem).memory_space == "vmem"
    with pytest.raises(UsageError, match=r"no memory space 7; there are 0 \(hbm\), 1 \(vmem\)"):
        choose(con, "f", None, 7)


def test_an_unknown_peak_says_why(con):
    Module(con, 1, has_live_ranges=False).allocation(0, "temp", 100)
    with pytest.raises(BufdbError, match="the peak of m1 is unknown: the dump has no live ranges"):
        choose(con, "f", None, None)
    Module(con, 2, function_name="bare", has_live_ranges=False)
    with pytest.raises(BufdbError, match="unknown"):
        choose(con, "bare", None, None)
