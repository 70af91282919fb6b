"""Out-of-memory messages in logs (format section 9.2)."""

import html
import json
import re
import time
import tracemalloc
from itertools import cycle, zip_longest

import pytest
from oom_messages import (
    ALL,
    COMPILED,
    GPU,
    KERNELS,
    LIST,
    OLD_LIST,
    RUNTIME,
    SCRATCH,
    SHORT,
    TPU,
    WHOLE,
    WITHOUT_SIZES,
)
from second_messages import read_message

from bufdb.read.amount import Amount, amount_of
from bufdb.read.message import size_of
from bufdb.read.oom_text import MAX_FOREIGN, read

GIB, MIB = 1 << 30, 1 << 20


def only(text):
    (report,) = read(text)
    return report.message


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
def test_sizes_are_rounded_except_bytes(text, expected):
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
        "scoped": 4 * MIB,
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


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
def test_a_kernels_scratch_memory(text):
    message = only(text)
    assert (message.form, message.space, message.is_cut) == ("kernel", "vmem", False)
    assert message.needed == message.total == amount_of("36.25M")
    assert (message.limit, message.excess) == (amount_of("32.00M"), amount_of("4.25M"))
    (kernel,) = message.buffers
    assert (kernel.name, kernel.opcode, kernel.size) == (
        "heron_kernel.3", "custom-call", amount_of("36.25M"),
    )  # fmt: skip
    assert kernel.result == "f32[4096,512]{1,0:T(8,128)S(1)}"
    assert kernel.metadata["op_name"] == b"jit(step)/jit(heron)/pallas_call"
    assert (kernel.metadata["source_file"], kernel.metadata["source_line"]) == (
        b"/srv/heron.py",
        12,
    )


def test_a_kernel_that_is_cut_has_its_name():
    stack = "Ran out of memory in memory space vmem while allocating on stack for %splash_fwd...\n"
    message = only(
        f"{stack}Scoped allocation with size 19.85M and limit 16.00M exceeded scoped vmem limit by "
        "3.85M.\n"
    )
    assert (message.buffers[0].name, message.total) == ("splash_fwd", amount_of("19.85M"))
    assert only(stack).total is None


def test_a_label_without_a_shape_has_name_and_opcode():
    first, second = only(LIST).buffers
    assert (first.name, first.opcode, first.result) == ("fusion.31.remat2", "fusion", None)
    assert (second.name, second.opcode) == ("fusion.32", "fusion")


def test_a_buffer_without_a_shape_is_a_buffer():
    spilled, *others = only(SCRATCH).buffers
    assert (spilled.size, spilled.shape, spilled.is_whole) == (amount_of("16.08M"), None, True)
    assert spilled.name == "register allocator spill slots in HLO :: bittern_matmul.1"
    assert [(other.name, other.is_scoped) for other in others] == [("bittern_matmul.1", True)] * 2


def test_a_label_that_is_cut_within_its_shape_has_a_name():
    (buffer,) = only(OLD_LIST).buffers
    assert (buffer.name, buffer.opcode) == ("arg_tuple.1996.1402", None)


def test_buffers_without_a_size_are_read():
    first, second = only(WITHOUT_SIZES).buffers
    assert first.size is second.size is None
    assert (second.number, second.name) == (2, "fusion.177")


def test_how_well_arguments_are_used_is_no_hindrance():
    message = only(OLD_LIST)
    assert {name: message.amounts[name].size_bytes for name in ("argument", "output", "alias")} == {
        "argument": 240 * MIB, "output": 240 * MIB, "alias": 224 * MIB,
    }  # fmt: skip


FIGURES = {
    "temporaries": ("hbm", "64.01G", "15.75G", None),
    "early": ("hbm", "3.84T", "90.96G", None),
    "program": ("hbm", "9.62G", "7.14G", None),
    "program in lines": ("hbm", "1.82G", "1.54G", None),
    "array": ("hbm", "8.00M", "6.43M", None),
    "used": ("smem", "1.01M", "1.00M", "7.5K"),
}


@pytest.mark.parametrize("form", FIGURES)
def test_figures_without_a_list_are_figures(form):
    message = only(SHORT[form])
    space, *amounts = FIGURES[form]
    figures = [message.needed, message.limit, message.excess]
    assert (message.space, message.total) == (space, message.needed)
    assert figures == [None if text is None else amount_of(text) for text in amounts]
    assert message.is_program_alone
    assert not message.is_cut
    named = "jit_egret_step" if "egret" in SHORT[form] else None
    assert message.function == named


def test_both_kinds_of_core_need_memory():
    message = only(SHORT["cores"])
    assert message.needed.size_bytes == 100 * GIB
    assert message.limit == amount_of("95.74G")


def test_what_a_gpu_had_no_room_for():
    message = only(SHORT["gpu array"])
    assert (message.is_tpu, message.form, message.needed.size_bytes) == (False, "array", 16 * GIB)
    assert only(WHOLE["gpu"]).form == "list"
    for text in (
        "Resource exhausted: Out of memory allocating 17179869184 bytes.",
        "RESOURCE_EXHAUSTED: Failed to allocate request for 16.00GiB (17179869184B) on device 0",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16.00GiB.",
    ):
        assert only(text).needed.size_bytes == 16 * GIB


def test_numbers_of_any_length_are_read_or_left_out():
    (block,) = read("Shared memory size limit exceeded: requested 0x20, available: 0016\n")
    assert block.message.needed == Amount(32, 0)
    assert block.message.limit == Amount(16, 0)
    assert read(f"Out of memory allocating {'9' * 5000} bytes\n") == []


def test_what_other_arrays_hold_is_not_the_programs():
    message = only(RUNTIME)
    assert (message.form, message.total) == ("program", amount_of("4.25G"))
    assert message.amounts["held"] == amount_of("5.50G")


def test_one_line_messages_in_a_row_are_several():
    text = SHORT["temporaries"] + SHORT["cores"] + SHORT["used"] + LIST
    assert [report.message.form for report in read(text)] == [
        "temporaries",
        "cores",
        "list",
        "list",
    ]


def test_two_messages_in_a_row_are_two():
    assert [report.message for report in read(GPU)] == [read(GPU)[0].message] * 2
    assert [report.message.is_tpu for report in read(TPU + GPU)] == [True, False, False]


# -- text around a message -------------------------------------------------------------------------

PREFIXES = {
    "a time": "2026-03-02T10:14:07.551201Z ",
    "a process": "\x1b[2m\x1b[36m(MeshHostWorker pid=489)\x1b[0m ",
    "a worker": "[worker-3] ",
    "a quote": "> ",
    "blanks": "        ",
}


WITHOUT_BREAKS = {name: text for name, text in ALL.items() if name != "wrapped"}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("text", WITHOUT_BREAKS.values(), ids=WITHOUT_BREAKS)
def test_prefixes_change_nothing(text, prefix):
    lines = "".join(prefix + line for line in text.splitlines(keepends=True))
    assert only(lines) == only(text)


def numbered(text):
    return "".join(f"{n:5}\t{line}" for n, line in enumerate(text.splitlines(keepends=True), 98))


def as_a_page(text):
    return f"<pre><code>{html.escape(text)}</code></pre>\n"


def in_markdown(text):
    text = re.sub(r"^( *\d+)\. Size", r"\1\\. Size", text, flags=re.MULTILINE)
    text = re.sub(r"(Used \S+ of \S+ \w+\.)", r"**\1**", text).replace("_", "\\_")
    return re.sub(r"(Largest program allocations in \w+)", r"**\1**", text)


def in_records(text, record):
    return "".join(json.dumps(record(line)) + "\n" for line in text.splitlines(keepends=True))


def of_a_cluster(text):
    return "".join(
        f"(pid=, ip=10.68.6.4) I0320 03:59:34.7776{n:02} 888 backend.cc:{2150 + n}] {line}"
        for n, line in enumerate(text.splitlines(keepends=True))
    )


FORMS = {
    "another system": lambda text: text.replace("\n", "\r\n"),
    "blanks": lambda text: text.replace("\t", "    "),
    "hard blanks": lambda text: text.replace("  ", "\xa0 "),
    "json": lambda text: json.dumps({"severity": "ERROR", "message": text}) + "\n",
    "json twice": lambda text: json.dumps({"log": json.dumps({"message": text})}) + "\n",
    "repr": lambda text: f"XlaRuntimeError({text!r})\n",
    "numbers": numbered,
    "page": as_a_page,
    "page in one line": lambda text: as_a_page(text).replace("\n", "<br>") + "\n",
    "markdown": in_markdown,
    "cluster": of_a_cluster,
    "records": lambda text: in_records(text, lambda line: {"log": line, "stream": "stderr"}),
    "records of a cloud": lambda text: in_records(
        text,
        lambda line: {"jsonPayload": {"message": line.rstrip()}, "resource": {"pod_name": "a-1"}},
    ),
    "records in lines": lambda text: json.dumps({"msg": text}) + "\n",
    "escaped records": lambda text: json.dumps({"msg": text}).replace(">", "\\u003e") + "\n",
    "table": lambda text: re.sub(r"^(.*)\n", r"| \1 |\n", text, flags=re.MULTILINE),
    "commas": lambda text: "".join(
        f'2026-03-02T10:14:07Z,ERROR,"{line}"\n'
        for line in text.replace('"', '""').removesuffix("\n").split("\n")
    ),
    "patch": lambda text: re.sub(r"^", "+", text, flags=re.MULTILINE),
    "each line twice": lambda text: re.sub(r"^(.*\n)", r"\1\1", text, flags=re.MULTILINE),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("text", WITHOUT_BREAKS.values(), ids=WITHOUT_BREAKS)
def test_a_message_is_the_same_in_whatever_form_it_is_found(text, form):
    (report,) = read(form(text))
    assert report.message == only(text)
    assert report.unread == []


@pytest.mark.parametrize("prefix", ["[worker-3] ", "> ", "I0302 10:14:07.1 12 a.cc:3] "])
def test_lines_that_are_broken_may_have_prefixes(prefix):
    text = KERNELS["wrapped"] + TPU.replace("/jvp(Model)/", "/jvp(\nModel)/")
    lines = "".join(prefix + line for line in text.splitlines(keepends=True))
    assert [one.message for one in read(lines)] == [only(KERNELS["2023"]), only(TPU)]


def test_lines_that_a_page_has_joined_are_lines():
    joined = OLD_LIST.replace("with arguments.\n\nProgram", "with arguments.Program")
    joined = joined.replace("==\n", "== ").replace("by 1.00G.\n\nTotal", "by 1.00G. Total")
    assert only(joined) == only(OLD_LIST)
    message = only(
        "Ran out of memory in memory space hbm. Used 49.34G of 32.00G hbm. Exceeded hbm capacity "
        "by 17.34G. Total hbm usage >= 49.34G: reserved 3.12M program unknown size arguments 49.34G"
    )
    assert (message.total, message.amounts["argument"]) == (amount_of("49.34G"),) * 2


# -- several processes -----------------------------------------------------------------------------

TAGS = {
    "srun": "{}: ",
    "mpirun": "[1,{}]<stdout>:",
    "kubectl": "[pod/trainer-{}/main] ",
    "pods": "pod-{} ",
    "compose": "worker-{}  | ",
    "ray": "(Worker pid={}, ip=10.0.0.7) ",
    "times": "2026-03-02T10:14:07.551201Z stdout F {}: ",
}


def in_turn(texts, tag):
    """The lines of several processes, one of each at a time."""
    lines = [text.splitlines(keepends=True) for text in texts]
    return "".join(
        tag.format(rank) + line
        for turn in zip_longest(*lines)
        for rank, line in enumerate(turn)
        if line is not None
    )


@pytest.mark.slow
@pytest.mark.parametrize(("tag", "count"), [*zip(TAGS.values(), cycle((80, 2, 3)))], ids=TAGS)
def test_lines_of_several_processes_are_distinguished(tag, count):
    texts = [LIST.replace("41.25G of", f"41.{number:02}G of") for number in range(count)]
    reports = read(in_turn(texts, tag))
    assert [one.message for one in reports] == [only(text) for text in texts]
    assert not any(one.unread for one in reports)


def test_processes_may_fail_differently():
    texts = [LIST, SCRATCH, TPU, WHOLE["gpu"]]
    reports = read(in_turn(texts, "{}: "))
    assert sorted(one.message.form for one in reports) == ["list"] * 4
    for text in texts:
        assert only(text) in [one.message for one in reports]


def test_a_broken_line_belongs_to_the_process_before():
    broken = in_turn([LIST, LIST], "{}: ").replace("bqhd,bkhd", "bqhd,\nbkhd")
    assert [one.message for one in read(broken)] == [only(LIST)] * 2


@pytest.mark.slow
def test_of_an_endless_line_the_beginning_is_looked_at():
    begun = time.perf_counter()
    assert read("Total hbm usage >= 5.00G: " + "Size: " * 2_000_000 + "\n" + LIST)
    assert time.perf_counter() - begun < 20


@pytest.mark.slow
def test_a_message_within_an_endless_line_is_found():
    words = "some text of a line " * 20_000
    assert only(words + SHORT["used"].rstrip() + " " + words) == only(SHORT["used"])


def test_an_operator_may_be_broken_over_lines():
    broken = GPU[: GPU.index("Traceback")].replace("/attention/", "/atten\ntion/")
    assert only(broken) == only(GPU[: GPU.index("Traceback")])


def test_lines_of_others_in_between_are_separated():
    others = "2026-03-02 10:14:07.7: W allocator.cc:494] ****__***\nstray words\n"
    text = GPU[: GPU.index("Traceback")].replace("\tBuffer 2:", others + "\tBuffer 2:")
    (report,) = read(text)
    assert report.message == only(GPU[: GPU.index("Traceback")])
    assert [text.split("\n")[line] for line in report.unread] == ["stray words"]


def test_what_comes_long_after_a_message_is_none_of_it():
    text = GPU[: GPU.index("Traceback")]
    *above, last = text.rstrip("\n").rpartition("\tBuffer 4:")
    assert above
    for count in (MAX_FOREIGN, MAX_FOREIGN + 1):
        others = "a line of the program\n" * (count - 1)  # and an empty one
        message = only("".join(above[:-1]) + others + above[-1] + last)
        assert len(message.buffers) == (4 if count == MAX_FOREIGN else 3)


def test_numbers_of_buffers_go_up():
    text = GPU[: GPU.index("Traceback")]
    message = only(text.replace("\tBuffer 3:", "\tBuffer 1:"))
    assert [buffer.number for buffer in message.buffers] == [1, 2, 4]


def test_an_unclosed_operator_ends_at_the_next_field():
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
def test_a_cut_message_keeps_what_is_above_the_cut(text):
    whole = only(text)
    lines = text.splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if "=====" in line)
    for stop in range(len(lines)):
        for report in read("".join(lines[:stop])):
            message = report.message
            assert message.amounts.items() <= whole.amounts.items()
            complete = [buffer for buffer in message.buffers if buffer.is_whole]
            assert complete == whole.buffers[: len(complete)]
            if message.buffers and stop <= last:
                # At the end of a buffer it is unknown whether more followed.
                assert message.is_cut == (not message.buffers[-1].is_whole)


# -- the second reader -----------------------------------------------------------------------------


SECOND = [n for n in ALL if n not in ("wrapped", "without sizes", "cores", *COMPILED)]


@pytest.mark.parametrize("name", SECOND)
def test_a_second_reader_agrees(name):
    first, second = only(ALL[name]), read_message(ALL[name])
    for figure in ("needed", "limit"):
        if figure in second:
            assert getattr(first, figure).size_bytes == second[figure]
    if "total" in second and "held" not in second["amounts"]:
        assert first.total.size_bytes == second["total"]
    amounts = {key: amount.size_bytes for key, amount in first.amounts.items()}
    assert amounts | second["amounts"] == amounts
    listed = [] if first.form in ("kernel", "operand", "tile", "block") else first.buffers
    assert len(listed) == len(second["buffers"])
    for buffer, other in zip(listed, second["buffers"], strict=True):
        cells = {**vars(buffer), **buffer.metadata, "size": buffer.size.size_bytes}
        assert {key: cells[key] for key in other} == other


@pytest.mark.slow
def test_of_a_line_without_end_a_piece_is_looked_at():
    """Once for each title in it, and with little memory."""
    title = b"Ran out of memory in memory space hbm. Used 3.00G of 2.00G hbm. "
    filler = b'{"a": [1, 2]} &gt; ** <b>x</b> ' * 300_000
    text = filler + title + filler + filler + title.replace(b"3.00G", b"4.00G")
    tracemalloc.start()
    reports = read(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [one.message.needed.size_bytes >> 30 for one in reports] == [3, 4]
    assert [(one.first, one.last) for one in reports] == [(0, 0)] * 2
    assert peak < 60 << 20
