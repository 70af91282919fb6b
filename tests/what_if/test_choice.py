"""Which module a name means."""

import pytest
from small_db import Module
from what_if_cases import Case

from bufdb.errors import BufdbError, UsageError
from bufdb.what_if.choice import choose


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


def test_a_name_with_signs_of_a_glob_is_found_as_it_stands(con):
    case(con, 1, 5, function_name="f[0]")
    assert choose(con, "f[0]", None, None).function_name == "f[0]"


def test_the_largest_known_peak_of_several(con):
    case(con, 1, 5)
    case(con, 2, 9)
    Module(con, 3, has_live_ranges=False).allocation(0, "temp", 100)
    found = choose(con, "f", None, None)
    assert (found.module_id, found.peak_bytes) == (2, 9)
    assert found.others == "'f' fits 3 modules; m2 has the largest known peak, that of 1 is unknown"
    assert choose(con, "m1", None, None).others == ""


def test_modules_of_several_runs_are_for_the_user_to_tell_apart(con):
    for number in range(7):
        case(con, number, 5, run_name=f"r{number}")
    with pytest.raises(UsageError, match="'f' is in 7 runs: r0, r1, r2, r3, r4 and 2 more; choose"):
        choose(con, "f", None, None)
    assert choose(con, "f", "r3", None).run_name == "r3"
    with pytest.raises(UsageError, match="no module 'f' in runs 'x'"):
        choose(con, "f", "x", None)


def test_the_memory_space_with_the_largest_peak_or_the_one_asked_for(con):
    made = Case(con, 1, platform="tpu")
    made.allocation(1, "temp", 50, color=1)
    made.temp(1, 5, (1, 3))
    made.value(2, 1, 0, 50)
    made.close()
    assert choose(con, "f", None, None).memory_space == "vmem"
    assert choose(con, "f", None, 0).memory_space == "hbm"
    with pytest.raises(UsageError, match=r"has no memory space 7; it has 0 \(hbm\), 1 \(vmem\)"):
        choose(con, "f", None, 7)


def test_an_unknown_peak_says_why(con):
    Module(con, 1, has_live_ranges=False).allocation(0, "temp", 100)
    with pytest.raises(BufdbError, match="the peak of m1 is unknown: the dump has no live ranges"):
        choose(con, "f", None, None)
    Module(con, 2, function_name="bare", has_live_ranges=False)
    with pytest.raises(BufdbError, match="unknown"):
        choose(con, "bare", None, None)
