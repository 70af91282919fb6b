"""Compiler messages about memories that no dump describes."""

import re

import pytest
from oom_messages import KERNELS, LIST, SCRATCH, SHORT
from places import DEMO

from bufdb.dumps.refusals import other_spaces
from bufdb.read import oom_text

TPU = DEMO / "tpu_b8"


@pytest.mark.parametrize(
    "text", [KERNELS["2023"], SCRATCH, SHORT["used"], SHORT["operand"], SHORT["block"]]
)
def test_messages_about_other_spaces_are_taken(text, tmp_path):
    taken = other_spaces(f"Traceback\n  File x\n{text}\nthe end\n", tmp_path)
    assert text.rstrip().startswith(taken.rstrip())
    assert "Traceback" not in taken


@pytest.mark.parametrize("text", [LIST, SHORT["temporaries"], SHORT["gpu array"], "nothing\n"])
def test_what_the_dump_has_is_not(text, tmp_path):
    assert other_spaces(text, tmp_path) == ""


def test_an_entry_of_a_list_has_the_line_of_its_instruction(tmp_path):
    path = next(TPU.glob("*train_step*after_optimizations.txt"))
    name = re.search(r"%(\S+) = \S+ [^\n]*stack_frame_id=", path.read_text("utf-8"))[1]
    for instruction, source in ((name, r' source_file="\S+\.py" source_line=\d+'), ("no", "")):
        text = SCRATCH_OF.format(name=instruction)
        first, second = re.findall(r"Operator: [^\n]*", other_spaces(text, TPU))
        assert re.fullmatch(f'Operator: op_name="jit\\(f\\)/k"{source}', first)
        assert second == 'Operator: op_name="jit(f)/l"'


SCRATCH_OF = """\
Ran out of memory in memory space vmem. Used 128.00M of 128.00M vmem. Exceeded vmem capacity by 4K.

Program vmem requirement 128.00M:
    scoped          128.00M

  Largest program allocations in vmem:

  1. Size: 128.00M
     Operator: op_name="jit(f)/k"
     Shape: f32[65536,512]{{1,0:T(8,128)}}
     Unpadded size: 128.00M
     Tag: scratch operand
     XLA label: {name} = custom-call(x.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================

  2. Size: 4.0K
     Operator: op_name="jit(f)/l"
     Shape: u8[4096]{{0}}
     Unpadded size: 4.0K
     XLA label: nowhere = custom-call(x.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================
"""


def test_an_operand_has_the_op_and_the_line_of_its_kernel():
    path = next(TPU.glob("*train_step*after_optimizations.txt"))
    name = re.search(r"%(\S+) = \S+ [^\n]*stack_frame_id=", path.read_text("utf-8"))[1]
    (report,) = oom_text.read(other_spaces(SHORT["operand"].replace("egret.1", name), TPU))
    (buffer,) = report.message.buffers
    assert (buffer.name, buffer.shape) == (name, "f32[400000,128]{1,0:T(8,128)}")
    assert {"op_name", "source_file", "source_line"} <= buffer.metadata.keys()


def test_a_stack_frame_has_its_line_from_the_dump():
    path = next(TPU.glob("*train_step*after_optimizations.txt"))
    match = re.search(r"%(\S+) = \S+ [^\n]*stack_frame_id=(\d+)", path.read_text("utf-8"))
    text = (
        f"Ran out of memory in memory space vmem while allocating on stack for %{match[1]} = "
        f'f32[8] custom-call(%a), metadata={{op_name="jit(f)/k" stack_frame_id={match[2]}}}. '
        "Scoped allocation with size 72.00M and limit 16.00M exceeded scoped vmem limit by "
        "56.00M.\n"
    )
    assert re.search(
        rf'stack_frame_id={match[2]} source_file="/home/user/model/\w+\.py" source_line=\d+}}',
        other_spaces(text, TPU),
    )
    unknown = text.replace(f"%{match[1]} ", "%nowhere ")
    assert other_spaces(unknown, TPU) == unknown
