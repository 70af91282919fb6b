"""Lines and op_names of instructions that are not read as plain text."""

from types import SimpleNamespace

import numpy as np

from bufdb.assemble.attribution import Attribution
from bufdb.assemble.users import Users
from bufdb.columnar.scan import Block, Text
from bufdb.read import instruction
from bufdb.read.hlo import NOTHING_MORE

ODD = 'custom_call_target="a\\"b, metadata={op_name=\\"no\\"}"'
"""An attribute for which a line is read by itself: its texts are no slices of the block."""


def columns_of(*op_names, odd=ODD):
    lines = [
        f'%f = f32[] add(), {odd}, metadata={{op_name="{op_name}" source_file="{op_name}.py"'
        " source_line=3}"
        for op_name in op_names
    ]
    text = "".join(f"{line}\n" for line in lines).encode()
    block = Block(text)
    stops = np.cumsum([len(line) + 1 for line in lines]) - 1
    starts = np.concatenate([[0], stops[:-1] + 1])
    columns, _ = instruction.read(Text(block, starts, stops))
    return columns | {"module": np.zeros(len(lines), np.int64)}


def test_texts_of_a_line_read_by_itself_are_told_apart_and_alike():
    for odd in (ODD, "dimensions={}"):
        columns = columns_of("a", "b", "a", odd=odd)
        keys = columns["op_name"].hashes(np.uint64(7)).tolist()
        assert keys[0] == keys[2] != keys[1], odd


def test_such_a_line_has_its_own_op_name_and_line():
    context = SimpleNamespace(source=SimpleNamespace(headers={}, own=NOTHING_MORE))
    found = Attribution(context)
    found.see_instructions(columns_of("a", "b", "a"), np.arange(3, dtype=np.uint64))
    ops, lines = found._ops[-1].tolist(), found._lines[-1].tolist()
    assert [found._op_names[number] for number in ops] == [b"a", b"b", b"a"]
    assert [found._line_names.texts[number] for number in lines] == ["a.py:3", "b.py:3", "a.py:3"]


def test_such_a_line_is_named():
    users = Users(context=None, values=None)
    users.see_instructions(columns_of("a", "b"), np.array([5, 4], np.uint64))
    assert users._named[-1].tolist() == [4, 5]
