"""Lines and op_names of instructions that are not read as plain text."""

from types import SimpleNamespace

import numpy as np

from bufdb.columnar.scan import Block, Text
from bufdb.read import instruction
from bufdb.read.own import NOTHING_MORE
from bufdb.rows.attribution import Attributed, Attribution, Users
from bufdb.rows.op_names import OpNames, Stripped

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
    return columns | {"module": np.zeros(len(lines), np.int64), "name": np.arange(len(lines))}


def test_texts_of_single_lines_are_distinguished():
    for odd in (ODD, "dimensions={}"):
        columns = columns_of("a", "b", "a", odd=odd)
        keys = columns["op_name"].hashes(np.uint64(7)).tolist()
        assert keys[0] == keys[2] != keys[1], odd


def test_such_a_line_has_its_own_op_name_and_line():
    context = SimpleNamespace(source=SimpleNamespace(headers={}, own=NOTHING_MORE))
    names = np.arange(3, dtype=np.uint64)
    attribution = Attribution(context, SimpleNamespace(names=names))
    attribution.see_instructions(columns_of("a", "b", "a"), names)
    assert [attribution.op_names[number] for number in attribution.ops.tolist()] == ["a", "b", "a"]
    lines = [attribution.line_names.texts[number] for number in attribution.lines.tolist()]
    assert lines == ["a.py:3", "b.py:3", "a.py:3"]


def test_what_a_value_is_for_does_not_depend_on_its_line_number():
    """Numbers of few lines are held in a byte, which does not hold those of uses."""
    context = SimpleNamespace(source=SimpleNamespace(headers={}, own=NOTHING_MORE))
    names = np.arange(101, dtype=np.uint64)
    attribution = Attribution(context, SimpleNamespace(names=names, name=np.array([100, 99])))
    attribution.see_instructions(columns_of(*(f"n{n}" for n in range(100))), names[:100])
    users = SimpleNamespace(of_values=lambda rows, _: (np.array([99, -1]), None))
    labelled, is_backward = attribution.of_values(np.arange(2), Attributed(), users, None)
    assert not is_backward.any()
    for kind, (labels, texts) in labelled.items():
        own = {"source_line": "n99.py:3", "op": "n99"}[kind]
        assert [texts[number] for number in labels.tolist()] == [f"for {own}", own]


def test_such_a_line_is_named():
    users = Users(context=None, values=SimpleNamespace(names=np.array([4, 5, 6], np.uint64)))
    columns = columns_of("a", "b") | {"name": np.array([1, 0])}
    users.see_instructions(columns, np.array([5, 4], np.uint64))
    assert users.is_named.tolist() == [True, True, False]


def test_op_names_are_equal_packed_or_not(monkeypatch):
    monkeypatch.setattr("bufdb.rows.op_names.PART", 2)
    op_names, given_names = OpNames(), ["jit(f)/a", "b", "jit(g)/a", "c", "d/ü", "jit(h)/b", "e"]
    left = ["a", "b", "a", "c", "d/ü", "b", "e"]
    numbers = [op_names.numbers(columns_of(name)["op_name"])[0] for name in given_names]
    assert [op_names[number] for number in numbers] == left
    assert [op_names[number] for number in reversed(numbers)] == left[::-1]
    assert len(op_names) == 7


def test_op_names_that_were_forgotten_are_one_text_all_the_same(monkeypatch):
    monkeypatch.setattr("bufdb.rows.op_names._REMEMBERED", 1)
    op_names = OpNames()
    numbers = [
        op_names.numbers(columns_of(*some)["op_name"])
        for some in (["jit(f)/a", "b"], ["b", "jit(g)/a", "jit(f)/a"])
    ]
    all_of_them = np.concatenate(numbers)
    texts = [op_names[number] for number in all_of_them.tolist()]
    assert (texts, len(op_names)) == (["a", "b", "b", "a", "a"], 5)
    is_wanted = np.ones(5, np.bool_)
    is_wanted[all_of_them[-1]] = False
    stripped = Stripped(op_names, is_wanted)
    places = stripped.places(np.append(all_of_them, -1)).tolist()
    assert places[0] == places[3] != places[1] == places[2]
    assert places[4:] == [-1, -1]
    assert [stripped[place] for place in places[:2]] == ["a", "b"]
    assert [stripped.find(text) for text in ("a", "b", "c")] == [*places[:2], -1]
