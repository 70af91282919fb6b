"""XLA's warnings about memory in logs, next to a message or alone."""

import pytest
from ingesting import ingest_into, rows
from oom_messages import GPU_ARRAY, LIST, REDUCED, WHOLE
from oom_messages import REPLICATED as OLD
from oom_messages import REPLICATED_2025 as NEW

from bufdb.answers import summary, summary_text
from bufdb.read.oom_text import read

NEGATIVE = REDUCED.replace("18.88GiB (20266891105", "-2.50GiB (-2684354560")
OLDEST = OLD[: OLD.index(" for HLO operation")] + ". You probably want to enrich the sharding.\n"
EXCEEDED = (
    "E0000 00:00:1773083054.653585   70889 gpu_hlo_schedule.cc:868] The byte size of input/output "
    "arguments (86973087744) exceeds the base limit (81174881894). This indicates an error in the "
    "calculation!\n"
)
LIMITS = (
    "SELECT limit_bytes, slack_bytes, least_bytes, first_bytes, base_bytes FROM scheduled_limits"
)
TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/fold/run.py", line 690, in <module>
    app.run(main)
    ~~~~~~~^^^^^^
  File "/srv/fold/run.py", line 444, in run_inference
    result = self._model(rng_key, example)  # f32[8,8] op_name="x"

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
"""
ESTIMATE = (
    "XLA's estimate of the program is 41.43 GiB (44490724824 bytes) after rematerialization, "
    "45.92 GiB (49309847144 bytes) before"
)
WHOLE_TENSOR = "each device gets the whole of {} to change its sharding from {}"
TEXTS = {
    REDUCED: f"{ESTIMATE}; it may use 18.88 GiB: rematerialization does not make it fit",
    NEGATIVE: f"{ESTIMATE}: arguments and outputs alone are 2.50 GiB more than it may use",
    OLD: WHOLE_TENSOR.format(
        "%egret.3 (copy, f32[3,8,128]{2,1,0}, jit(egret)/reshape, /srv/egret.py:88)",
        "{devices=[1,16,1,4]<=[64] last_tile_dim_replicate} to "
        "{devices=[1,1,4,16]<=[16,4]T(1,0) last_tile_dim_replicate}",
    ),
    NEW: WHOLE_TENSOR.format(
        "%param (parameter, f32[1024,64]{1,0}, x)",
        "{devices=[2,32,4]<=[2,8,4,4]T(0,2,1,3) last_tile_dim_replicate} to "
        "{devices=[1,256]<=[256]}",
    ),
    OLDEST: WHOLE_TENSOR.format(
        "a tensor",
        "{devices=[1,16,1,4]<=[64] last_tile_dim_replicate} to "
        "{devices=[1,1,4,16]<=[16,4]T(1,0) last_tile_dim_replicate}",
    ),
}
WARNINGS = (
    "SELECT message FROM diagnostics WHERE severity = 'notice' "
    "AND code IN ('memory_not_reduced', 'involuntary_rematerialization', 'autotuned') ORDER BY ALL"
)


@pytest.fixture
def ingested(fresh, tmp_path):
    def ingest(text):
        (tmp_path / "run.log").write_text(text)
        con = fresh()
        ingest_into(con, tmp_path / "run.log", "run")
        return con

    return ingest


@pytest.mark.parametrize("warning", TEXTS, ids=["reduced", "negative", "old", "new", "oldest"])
@pytest.mark.parametrize("front", ["", "(TrainWorker pid=1234) ", "3: "])
def test_a_warning_alone_is_a_row_and_a_sentence(ingested, warning, front):
    text = "".join(f"{front}{line}\n" for line in f"a line\n{warning}another".split("\n"))
    con = ingested(text * 2)
    assert rows(con, WARNINGS) == [(TEXTS[warning],)]
    columns = "format_era, peak_unknown_reason"
    assert rows(con, f"SELECT {columns} FROM modules") == [
        ("L", "XLA's warnings do not have the program's total")
    ]
    assert rows(con, "SELECT count(*) FROM diagnostics WHERE code = 'out_of_memory'") == [(0,)]
    shown = " ".join(summary_text.text(summary.overview(con, {}, {})).split())
    assert TEXTS[warning] in shown


@pytest.mark.slow
@pytest.mark.parametrize("message", [GPU_ARRAY, LIST, WHOLE["gpu"]], ids=["array", "tpu", "gpu"])
def test_warnings_belong_to_the_message_after_them(ingested, message):
    text = REDUCED + "a line\n" * 5000 + OLD + OLD + message + TRACEBACK + message
    con = ingested(text)
    assert rows(con, "SELECT format_era FROM modules") == [("M",)]
    assert rows(con, WARNINGS) == sorted([(TEXTS[REDUCED],), (TEXTS[OLD],)])
    assert rows(con, "SELECT unread_line_count FROM files") == [(0,)]
    (alone,) = read(message)
    warned_message = read(text)[0].message
    assert (warned_message.total, warned_message.amounts, warned_message.buffers) == (
        alone.message.total, alone.message.amounts, alone.message.buffers,
    )  # fmt: skip


def test_a_warning_within_a_message_does_not_end_it():
    lines = LIST.splitlines(keepends=True)
    (report,) = read("".join([*lines[:20], NEW, *lines[20:]]))
    assert len(report.message.buffers) == 2
    assert [warned.text for warned in report.message.warnings] == [TEXTS[NEW]]
    assert report.unread == []


def test_warnings_of_one_program_are_not_those_of_the_next():
    first, second = read(REDUCED + GPU_ARRAY + "x\n" * 100 + NEW + LIST)
    assert [warned.text for warned in first.message.warnings] == [TEXTS[REDUCED]]
    assert [warned.text for warned in second.message.warnings] == [TEXTS[NEW]]


CONVOLUTION = (
    "%cudnn-conv.7 = (f32[32,64,64,32]{2,1,3,0}, u8[0]{0}) custom-call(f32[32,64,64,10]{2,1,3,0} "
    "%copy.3, f32[3,3,10,32]{1,0,2,3} %copy.4), window={size=3x3}, dim_labels=b01f_01io->b01f, "
    'custom_call_target="__cudnn$convForward", metadata={op_name="jit(step)/conv_general_dilated" '
    'source_file="/srv/conv.py" source_line=26}, backend_config={"a":1}'
)


@pytest.mark.parametrize(
    "text",
    [
        f"UNKNOWN: Failed to determine best cudnn convolution algorithm for:\n{CONVOLUTION}\n\n"
        f"Original error: {GPU_ARRAY}",
        f"INTERNAL: Autotuning failed for HLO: {CONVOLUTION} with error: {GPU_ARRAY}",
        f"INTERNAL: All algorithms tried for {CONVOLUTION} failed. Falling back.\n{GPU_ARRAY}",
    ],
    ids=["lines", "line", "fallback"],
)
def test_the_convolution_that_autotuning_names_is_named(ingested, text):
    assert rows(ingested("a line\n" + text), WARNINGS) == [
        (
            "it failed while XLA tuned %cudnn-conv.7 (custom-call, "
            "(f32[32,64,64,32]{2,1,3,0}, u8[0]{0}), jit(step)/conv_general_dilated, "
            "/srv/conv.py:26)",
        )
    ]


@pytest.mark.slow
def test_a_message_names_program_and_memory(ingested):
    con = ingested(GPU_ARRAY.replace("bytes.", "bytes. [executable_name='jit__likelihood']"))
    assert rows(con, "SELECT function_name FROM modules") == [("_likelihood",)]
    con = ingested(GPU_ARRAY.replace("bytes.", "bytes of collective memory."))
    spaces = "SELECT platform, memory_space_name FROM memory_figures"
    assert rows(con, spaces) == [("gpu", "collective")]


@pytest.mark.parametrize("front", ["", "(EngineCore pid=7) ERROR 06-03 07:41:11 [core.py:1184] "])
def test_a_traceback_between_two_copies_is_no_unread_line(front):
    text = f"E1 RESOURCE_EXHAUSTED: {GPU_ARRAY}{TRACEBACK}jax.errors.JaxRuntimeError: {GPU_ARRAY}"
    (report,) = read("".join(f"{front}{line}\n" for line in text.split("\n")))
    assert report.unread == []


def test_what_follows_a_traceback_is_not_part_of_it():
    text = GPU_ARRAY + TRACEBACK + "KeyError: 'x'\nstray words of 5.00GiB\n  more\n" + GPU_ARRAY
    (report,) = read(text)
    assert [text.split("\n")[line] for line in report.unread] == [
        "stray words of 5.00GiB",
        "  more",
    ]


@pytest.mark.parametrize(
    ("warning", "limits"),
    [
        (REDUCED, (20266891105, 0, 44490724824, 49309847144, None)),
        (NEGATIVE, (-2684354560, 0, 44490724824, 49309847144, None)),
        (EXCEEDED, (0, 0, None, None, 81174881894)),
        (EXCEEDED + REDUCED, (20266891105, 0, 44490724824, 49309847144, None)),
        (
            "Can't reduce memory use below 1.50GiB by rematerialization; only reduced to 2.00GiB, "
            "down from 3.00GiB originally\n",
            (3 << 29, 5368710, 2 << 30, 3 << 30, None),
        ),
    ],
)
def test_what_xla_planned_for_is_a_row(ingested, warning, limits):
    for message in ("", GPU_ARRAY):
        con = ingested(warning + message)
        assert rows(con, LIMITS) == [limits]


def test_arguments_beyond_the_limit_are_said(ingested):
    con = ingested(EXCEEDED)
    assert rows(con, "SELECT code FROM diagnostics") == [("arguments_exceed_limit",)]
