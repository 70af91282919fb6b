"""Sums of programs that compiled, as logs have them: one module each, nothing failed."""

import re

import pytest
from ingesting import ingest_into, rows
from oom_messages import SIZES, STATISTICS, SUMMARY

from bufdb.answers import diff, diff_text, summary, summary_text
from bufdb.read.oom_text import read

GIB, MIB = 1 << 30, 1 << 20
SPACES = "SELECT memory_space_name, need_bytes, peak_bytes FROM memory_figures ORDER BY color"


@pytest.fixture
def ingested(con, tmp_path):
    def ingest(text, run="run", name="run.log"):
        (tmp_path / name).write_text(text)
        ingest_into(con, tmp_path / name, run)
        return con

    return ingest


def codes(con):
    return {code for (code,) in rows(con, "SELECT code FROM diagnostics")}


def figures(con):
    ((text,),) = rows(con, "SELECT message FROM diagnostics WHERE code = 'memory_limit'")
    return text


def test_a_summary_is_one_module_with_all_memory_spaces(ingested):
    con = ingested(SUMMARY)
    columns = "function_name, platform, format_era, peak_unknown_reason"
    assert rows(con, f"SELECT {columns} FROM modules") == [("egret_step", "tpu", "L", None)]
    # 768 MiB of the output are in no argument's memory, and not in "Total hbm usage".
    assert rows(con, SPACES) == [
        ("hbm", 7 * GIB + 768 * MIB, 7 * GIB + 768 * MIB),
        ("vmem", 20 * MIB, 4 * MIB),
        ("sync_flag", 256, 256),
        ("smem", 2458, 2458),
    ]
    assert figures(con) == (
        "7.75 GiB needed (256.00 MiB of it the runtime's, outside what is available), 15.75 GiB of "
        "hbm available: it fits; vmem 20.00 MiB of 128.00 MiB; sflag 256 B; smem 2.40 KiB of "
        "1.00 MiB"
    )
    assert codes(con) == {"compiled", "memory_limit", "rounded_sizes", "savings_unknown"}
    assert rows(con, "SELECT unread_line_count FROM files") == [(0,)]
    text = summary_text.text(summary.overview(con, {}, {}))
    assert "nothing ran out of memory" in text and "out-of-memory" not in text


FRONTS = [
    "(pid=, ip=10.68.3.4) ",
    "(TrainWorker pid=1234) ",
    "\x1b[36m(MeshHostWorker pid=489)\x1b[0m ",
    "[pod/trainer-0/main] ",
    "3: ",
    "[1,0]<stdout>:",
    "worker-1  | ",
    "2026-03-02T10:14:07.551201Z stdout F ",
]


@pytest.mark.parametrize("front", FRONTS)
def test_a_summary_is_the_same_through_a_launcher(front):
    text = "a line of the program\n" + SUMMARY + "another\n"
    (report,) = read("".join(front + line for line in text.splitlines(keepends=True)))
    assert report.message == read(SUMMARY)[0].message
    assert report.unread == []


def test_summaries_of_several_programs_are_several():
    text = SUMMARY + SUMMARY.replace("egret", "heron").replace("6.50G", "6.40G")
    assert [one.message.function for one in read(text)] == ["jit_egret_step", "jit_heron_step"]


def test_a_summary_that_exceeds_the_limit_says_so(ingested):
    text = SUMMARY.replace("6.50G", "15.50G").replace("7.00G", "16.00G").replace("6.49G", "15.49G")
    assert "15.75 GiB of hbm available: 768.00 MiB too much" in figures(ingested(text))


def test_sums_without_their_title_are_reported_not_mixed(ingested):
    con = ingested(SUMMARY.replace("Total host usage >= 0B:\n", ""))
    sums = "SELECT argument_bytes, output_bytes FROM memory_sums WHERE color = 0"
    assert rows(con, sums) == [(256 * MIB, GIB)]
    lost = "SELECT severity, count(*) FROM diagnostics WHERE code = 'unreadable_line' GROUP BY ALL"
    assert rows(con, lost) == [("data_loss", 4)]


SUMS = (
    "SELECT color, argument_bytes, output_bytes, alias_bytes, temp_bytes, total_bytes "
    "FROM memory_sums"
)


def test_statistics_are_sums_in_bytes(ingested):
    con = ingested(STATISTICS)
    assert rows(con, f"{SUMS} ORDER BY color") == [
        (0, 3 * MIB, 2 * MIB, MIB, 8 * MIB, 12 * MIB),
        (5, 0, 0, 0, 4 * MIB, 4 * MIB),
    ]
    assert rows(con, "SELECT need_bytes FROM memory_figures WHERE color = 0") == [(12 * MIB,)]
    assert codes(con) == {"compiled", "memory_limit", "savings_unknown"}
    assert figures(con) == (
        "12.00 MiB needed: arguments 3.00 MiB, outputs 2.00 MiB, temporaries 8.00 MiB, less "
        "1.00 MiB of outputs in the memory of arguments; host 4.00 MiB"
    )


@pytest.mark.parametrize("unknown", ["-1", "None"])
def test_a_statistic_of_unknown_size_is_null_not_a_sum(ingested, unknown):
    con = ingested(
        STATISTICS.replace("output_size_in_bytes=2097152", f"output_size_in_bytes={unknown}")
    )
    assert rows(con, f"{SUMS} WHERE color = 0") == [(0, 3 * MIB, None, MIB, 8 * MIB, None)]
    assert rows(con, "SELECT peak_unknown_reason FROM modules") == [("the log has no total",)]
    assert rows(con, "SELECT count(*) FROM peak_values") == [(0,)]


def test_statistics_may_be_on_several_lines():
    lines = STATISTICS.replace(", ", ",\n    ").replace("(", "(\n    ", 1)
    (report,) = read(lines)
    assert report.message == read(STATISTICS)[0].message
    assert report.unread == []


def test_sizes_are_rounded_and_what_is_donated_follows(ingested):
    con = ingested("I1102 09:12:41.000001 136112 max_utils.py:700] " + SIZES)
    ((_, *sums),) = rows(con, f"{SUMS} WHERE color = 0")
    assert [round(size / GIB, 1) for size in sums] == [12.3, 12.1, 12.1, 25.1, 37.4]
    assert rows(con, f"{SUMS} WHERE color = 5") == [(5, None, None, None, 8 * GIB, None)]
    kinds = "SELECT allocation_kind FROM peak_values WHERE held_bytes > 0 ORDER BY ALL"
    assert rows(con, kinds) == [("parameter",), ("temp",)]
    assert "rounded_sizes" in codes(con)


def test_figures_that_do_not_add_up_leave_donation_unknown():
    (report,) = read(SIZES.replace("37.4", "97.4"))
    assert "alias" not in report.message.amounts
    assert report.message.total.size_bytes == round(97.4 * GIB)


@pytest.mark.slow
@pytest.mark.parametrize("texts", [(STATISTICS, STATISTICS.replace("8388608", "9437184")),
                                   (SIZES, SIZES.replace("37.4", "38.4").replace("25.1", "26.1")),
                                   (SUMMARY, SUMMARY.replace("7.00G", "8.00G"))])  # fmt: skip
def test_two_are_compared(ingested, texts):
    for run, text in zip(("base", "new"), texts, strict=True):
        con = ingested(text, run, f"{run}.log")
    values = {"base": "base", "new": "new", "key_name": "op"}
    text = diff_text.text(diff.compare_top(con, values, 5), 5).text
    assert re.match(r"\w+: peak [\d.]+ [GM]iB → [\d.]+ [GM]iB \(\+[\d.]+%\)", text), text
