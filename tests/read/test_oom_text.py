"""Out-of-memory messages in logs (format section 9.2)."""

import json

import pytest
from places import ROOT

from bufdb.read.reports.oom_text import MAX_FOREIGN, read
from bufdb.read.reports.sizes import Amount, amount_of, size_of

GPU = (ROOT / "data/oom/gpu.log").read_text(encoding="utf-8")
TPU = (ROOT / "data/oom/tpu.log").read_text(encoding="utf-8")
GIB = 1 << 30


def only(text):
    (found,) = read(text)
    return found.message


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0B", Amount(0, 0)),
        ("17B", Amount(17, 0)),
        ("1.5KiB", Amount(1536, 52)),
        ("980.0K", Amount(980 * 1024, 52)),
        ("1004.50MiB", Amount(1004 * 2**20 + 2**19, 5243)),
        ("2.00G", Amount(2 * GIB, 5368710)),
        ("999999999999.00E", None),
        ("12", None),
        ("many", None),
    ],
)
def test_sizes_are_rounded_but_for_bytes(text, expected):
    assert amount_of(text) == expected


@pytest.mark.parametrize(
    ("shape", "printed", "expected"),
    [
        ("f32[32,16,1448,1448]", "4.00GiB", (32 * 16 * 1448 * 1448 * 4, True)),
        ("f32[4,128,128,9,18]{4,3,0,2,1:T(8,128)}", "512.00M", (1 << 29, True)),
        ("bf16[4,512,512,64]{3,0,2,1:T(4,128)(2,1)}", "256.00M", (1 << 28, True)),
        ("f32[]{:T(256)}", "1.0K", (1024, True)),
        ("f32[16]", "1.0KiB", (1024, False)),
        ("f32[16]{0:T(0)}", "64B", (64, True)),
        ("nonsense", "2B", (2, True)),
    ],
)
def test_a_shape_makes_a_size_exact_if_it_would_be_printed_so(shape, printed, expected):
    assert size_of(shape, amount_of(printed)) == expected


# -- what a message says ---------------------------------------------------------------------------


def test_a_message_of_a_gpu():
    message = only(GPU[: GPU.index("Traceback")])
    assert not message.is_tpu
    assert not message.is_cut
    assert message.total.size_bytes == round(11.63 * GIB)
    assert {name: a.size_bytes for name, a in message.amounts.items()} == {
        "argument": 9 * GIB // 4,
        "constant": 1536,
        "output": 2 * GIB,
        "temp": round(9.38 * GIB),
        "fragmentation": 64 << 20,
    }
    first, _, third, fourth = message.buffers
    assert (first.opcode, first.shape) == ("custom-call", "f32[32,16,1448,1448]")
    assert first.metadata["source_line"] == 88
    assert (third.kind, third.shape) == ("parameter", "f32[49152,8192]")
    assert fourth.metadata == {}


def test_a_message_of_a_tpu():
    message = only(TPU)
    assert (message.space, message.color, message.is_program_alone) == ("hbm", 0, False)
    assert message.limit.size_bytes == 63 * GIB // 4
    assert message.total.size_bytes == round(18.28 * GIB)
    assert {name: a.size_bytes for name, a in message.amounts.items()} == {
        "argument": 4 * GIB,
        "output": 4 * GIB,
        "alias": 4 * GIB,
        "temp": 14 * GIB,
        "fragmentation": round(204.8 * 2**20),
    }
    first, second = message.buffers
    assert (first.name, first.opcode, first.label) == ("convolution.77", "convolution", None)
    assert second.result == "(f32[16,8,4096,64]{3,2,1,0:T(8,128)}, f32[16,8,4096]{2,1,0:T(8,128)})"
    assert second.kind == "temp"


def test_without_arguments_the_total_is_that_of_the_program():
    text = TPU.replace("arguments         4.00G", "arguments       unknown size")
    assert only(text).is_program_alone
    assert "argument" not in only(text).amounts


def test_a_message_about_one_instruction_is_whole():
    text = (
        "Ran out of memory in memory space vmem while allocating on stack for %attention.7\n"
        "Scoped allocation with size 19.85M and limit 16.00M exceeded scoped vmem limit by 3.85M.\n"
    )
    message = only(text)
    assert (message.space, message.total, message.is_cut) == ("vmem", None, False)


def test_two_messages_in_a_row_are_two():
    assert [found.message for found in read(GPU)] == [read(GPU)[0].message] * 2
    assert [found.message.is_tpu for found in read(TPU + GPU)] == [True, False, False]


# -- what stands around it -------------------------------------------------------------------------

PREFIXES = {
    "a time": "2026-03-02T10:14:07.551201Z ",
    "a process": "\x1b[2m\x1b[36m(MeshHostWorker pid=489)\x1b[0m ",
    "a worker": "[worker-3] ",
    "a quote": "> ",
    "blanks": "        ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("text", [GPU[: GPU.index("Traceback")], TPU], ids=["gpu", "tpu"])
def test_prefixes_change_nothing(text, prefix):
    lines = "".join(prefix + line for line in text.splitlines(keepends=True))
    assert only(lines) == only(text)


@pytest.mark.parametrize("text", [GPU[: GPU.index("Traceback")], TPU], ids=["gpu", "tpu"])
def test_line_ends_may_be_escaped_or_of_another_system(text):
    assert only(text.replace("\n", "\r\n")) == only(text)
    assert only(text.replace("\t", "    ")) == only(text)
    assert only(json.dumps({"severity": "ERROR", "message": text}) + "\n") == only(text)


def test_an_operator_may_be_broken_over_lines():
    broken = GPU[: GPU.index("Traceback")].replace("/attention/", "/atten\ntion/")
    assert only(broken) == only(GPU[: GPU.index("Traceback")])


def test_lines_of_others_in_between_are_told_apart():
    others = "2026-03-02 10:14:07.7: W allocator.cc:494] ****__***\nstray words\n"
    text = GPU[: GPU.index("Traceback")].replace("\tBuffer 2:", others + "\tBuffer 2:")
    (found,) = read(text)
    assert found.message == only(GPU[: GPU.index("Traceback")])
    assert [text.split("\n")[line] for line in found.unread] == ["stray words"]


def test_what_comes_long_after_a_message_is_none_of_it():
    text = GPU[: GPU.index("Traceback")]
    *above, last = text.rstrip("\n").rpartition("\tBuffer 4:")
    assert above
    for count in (MAX_FOREIGN, MAX_FOREIGN + 1):
        others = "a line of the program\n" * (count - 1)  # beside an empty one
        message = only("".join(above[:-1]) + others + above[-1] + last)
        assert len(message.buffers) == (4 if count == MAX_FOREIGN else 3)


def test_numbers_of_buffers_go_up():
    text = GPU[: GPU.index("Traceback")]
    message = only(text.replace("\tBuffer 3:", "\tBuffer 1:"))
    assert [buffer.number for buffer in message.buffers] == [1, 2, 4]


def test_an_operator_that_is_never_closed_ends_at_the_next_field():
    text = GPU[: GPU.index("Traceback")]
    first = text[: text.index("\n", text.index("Operator: "))]
    message = only(text.replace(first, first.rstrip('"') + ' "open'))
    assert message.buffers[0].metadata == {}
    assert message.buffers[0].shape == only(text).buffers[0].shape
    assert message.buffers[1] == only(text).buffers[1]


def test_a_log_without_messages_has_none():
    assert read("Size: 5B\nShape: f32[2]\nBuffer 1:\n") == []


# -- cut off ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [GPU[: GPU.index("Traceback")], TPU], ids=["gpu", "tpu"])
def test_of_a_cut_message_there_is_what_stands_above_the_cut(text):
    whole = only(text)
    lines = text.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if "=====" in line)
    for stop in range(len(lines)):
        for found in read("".join(lines[:stop])):
            message = found.message
            assert message.amounts.items() <= whole.amounts.items()
            complete = [buffer for buffer in message.buffers if buffer.is_whole]
            assert complete == whole.buffers[: len(complete)]
            if message.buffers and stop <= last:
                # Whether more buffers followed cannot be told at the end of one.
                assert message.is_cut == (not message.buffers[-1].is_whole)
