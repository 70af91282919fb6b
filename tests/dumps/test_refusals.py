"""What a compiler says of memories that no dump tells."""

import re

import pytest
from oom_messages import KERNELS, LIST, SCRATCH, SHORT
from places import DEMO

from bufdb.dumps.pasted.refusals import other_spaces

TPU = DEMO / "tpu_b8"


@pytest.mark.parametrize("text", [KERNELS["2023"], SCRATCH, SHORT["used"], SHORT["block"]])
def test_messages_about_other_spaces_are_taken(text, tmp_path):
    taken = other_spaces(f"Traceback\n  File x\n{text}\nthe end\n", tmp_path)
    assert text.rstrip().startswith(taken.rstrip())
    assert "Traceback" not in taken


@pytest.mark.parametrize("text", [LIST, SHORT["temporaries"], SHORT["gpu array"], "nothing\n"])
def test_what_the_dump_tells_is_not(text, tmp_path):
    assert other_spaces(text, tmp_path) == ""


def test_a_stack_frame_has_its_line_from_the_dump():
    path = next(TPU.glob("*train_step*after_optimizations.txt"))
    found = re.search(r"%(\S+) = \S+ [^\n]*stack_frame_id=(\d+)", path.read_text("utf-8"))
    text = (
        f"Ran out of memory in memory space vmem while allocating on stack for %{found[1]} = "
        f'f32[8] custom-call(%a), metadata={{op_name="jit(f)/k" stack_frame_id={found[2]}}}. '
        "Scoped allocation with size 72.00M and limit 16.00M exceeded scoped vmem limit by "
        "56.00M.\n"
    )
    assert re.search(
        rf'stack_frame_id={found[2]} source_file="/home/user/model/\w+\.py" source_line=\d+}}',
        other_spaces(text, TPU),
    )
    unknown = text.replace(f"%{found[1]} ", "%nowhere ")
    assert other_spaces(unknown, TPU) == unknown
