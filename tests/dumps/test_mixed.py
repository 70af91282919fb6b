"""Dumps of several processes in one directory: recognized by names, numbers and times."""

import os
from pathlib import Path

import pytest

from bufdb.dumps.discover import discover

SUFFIXES = (
    ".before_optimizations.txt",
    ".cpu_after_optimizations.txt",
    ".cpu_after_optimizations-buffer-assignment.txt",
    ".cpu_after_optimizations-buffer-assignment-values.txt",
    ".cpu_after_optimizations-live-range.txt",
)
SECOND = 1_000_000_000


@pytest.fixture
def write(tmp_path):
    """Write the files of a module as XLA does, a hundredth of a second apart."""

    def written(name, begun, suffixes=SUFFIXES):
        for number, suffix in enumerate(suffixes):
            path = tmp_path / f"{name}{suffix}"
            path.parent.mkdir(exist_ok=True)
            path.write_text("")
            time = int((begun + number / 100) * SECOND)
            os.utime(path, ns=(time, time))

    return written


@pytest.fixture
def reasons(tmp_path):
    """What shows that several processes wrote, by directory."""

    def shown():
        odd = []
        discover(tmp_path, odd)
        notices = [one for one in odd if one.code == "several_processes"]
        assert all(one.severity == "notice" for one in notices)
        return {one.name: one.message.split(": ")[1].split(". ")[0] for one in notices}

    return shown


def test_one_process_is_not_several(write, reasons):
    write("module_0001.jit_f", 10)
    write("module_0002.jit_f", 10.5)
    write("module_0003.jit_g", 10.2)  # compiled by another thread
    write("process-2/module_0001.jit_f", 5)
    assert reasons() == {}


def test_a_number_has_one_name(write, reasons):
    write("a/module_0001.jit_f", 10)
    write("a/module_0001.jit_g", 10)
    write("module_0001.jit_f", 10)
    assert reasons() == {"a": "module 1 is jit_f and jit_g"}


def test_a_number_has_one_time(write, reasons):
    write("1700000000000000.module_0001.jit_f", 10)
    write("1700000000000009.module_0001.jit_f", 10)
    assert reasons() == {None: "module 1 is jit_f at two times"}


def test_backends_of_several_libraries_count_apart(write, reasons):
    write("module_0001.jit_f", 10)
    write("module_0001.jit_g", 10, [s.replace("cpu_", "sm_9.0_gpu_") for s in SUFFIXES])
    write("module_0001.jit_h", 10, [s.replace("cpu_", "cl_7.") for s in SUFFIXES])
    assert reasons() == {}


def test_modules_begin_in_the_order_of_their_numbers(write, reasons):
    write("module_0001.jit_f", 12)
    write("module_0002.jit_g", 12.1)
    write("module_0003.jit_h", 10)
    assert reasons() == {None: "module 3 was written before module 2"}


def test_times_in_names_count_where_files_have_none(write, reasons):
    write("1700000009000000.module_0001.jit_f", 10)
    write("1700000001000000.module_0002.jit_f", 10)
    assert reasons() == {None: "module 2 was written before module 1"}


def test_times_that_a_copy_has_set_say_nothing(write, reasons, tmp_path):
    write("module_0001.jit_f", 12)
    write("module_0003.jit_h", 10)
    before = Path(tmp_path / f"module_0001.jit_f{SUFFIXES[0]}")
    os.utime(before, ns=(13 * SECOND, 13 * SECOND))
    assert reasons() == {}


def test_the_buffer_files_of_a_module_are_written_together(write, reasons):
    write("module_0001.jit_f", 10)
    write("module_0001.jit_f", 14, SUFFIXES[3:])
    assert reasons() == {None: "the buffer files of module 1 were written at two times"}


def test_modules_without_a_number_or_buffers_say_nothing(write, reasons):
    write("module_0001.jit_f", 10)
    write("module_0001.jit_g", 10, SUFFIXES[:2])
    write("log", 10, SUFFIXES[2:])
    assert reasons() == {}
