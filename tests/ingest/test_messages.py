"""Out-of-memory messages as modules: what is known is stored, the rest is NULL with a reason."""

import io
import random
from pathlib import Path

import pytest
from ingesting import ingest_into, rows
from oom_messages import ALL, GPU, KERNELS, LIST, OLD_LIST, RUNTIME, SCRATCH, SHORT, TPU, WARNED

from bufdb.query import check
from bufdb.read import oom_text

GIB, MIB = 1 << 30, 1 << 20


@pytest.fixture
def ingested(fresh, tmp_path):
    """Ingests one log, and gives the connection."""

    def ingest(text, name="error.log"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        con = fresh()
        ingest_into(con, path, "run")
        return con

    return ingest


@pytest.mark.slow
def test_a_log_may_come_on_standard_input(call, empty_folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TPU.encode())))
    code, _, err = call("ingest", "-", "--db", "t.duckdb", "--run", "job7")
    assert (code, "ingested 1 modules" in err) == (0, True)
    code, out, _ = call("query", "peak", "--db", "t.duckdb", "--format", "csv", "-p", "top_n=1")
    assert (code, out.splitlines()[1].split(",")[:2]) == (0, ["job7", "train_step"])
    code, out, _ = call("summary", "--db", "t.duckdb", "--limit", "15.75GiB")
    assert "it does not fit" in out
    assert "an out-of-memory message has no live ranges" in out
    for instant in ("peak=2", "step=5"):
        code, out, _ = call("query", "peak", "--db", "t.duckdb", "-p", instant)
        assert (code, "an out-of-memory message has only the peak" in out) == (0, True)
    for form in ("perfetto", "torch-snapshot"):
        code, _, err = call("export", "--format", form, "-o", "x", "--db", "t.duckdb")
        assert (code, "has only the peak" in err) == (1, True)
    code, _, _ = call("export", "--format", "collapsed", "-o", "x", "--db", "t.duckdb")
    assert (code, "(None)" in Path("x").read_text()) == (0, False)
    code, _, err = call("query", "timeline", "--db", "t.duckdb")
    assert "1 known only from an out-of-memory message" in err
    code, _, err = call("query", "savings", "--db", "t.duckdb")
    assert "; 1 known only from an out-of-memory message" in err
    code, _, err = call("what-if", "train_step", "--without", "x.py:1", "--db", "t.duckdb")
    assert (code, "which has no live ranges" in err) == (1, True)


def codes(con):
    return {code for (code,) in rows(con, "SELECT code FROM diagnostics")}


def test_a_log_has_a_message_once(ingested):
    con = ingested("first line\n" + GPU)
    assert rows(
        con,
        "SELECT module_key, function_name, platform, format_era, reported_total_bytes, "
        "has_live_ranges, peak_unknown_reason FROM modules",
    ) == [("error.log/message_1", "train_step", None, "M", None, False, None)]
    assert rows(con, "SELECT file_kind, unread_line_count FROM files") == [("oom_message", 0)]
    assert codes(con) == {"memory_limit", "out_of_memory", "rounded_sizes", "savings_unknown"}


def test_stray_lines_are_reported_by_number(ingested):
    con = ingested("first line\n" + GPU.replace("\tBuffer 2:", "stray words\n\tBuffer 2:", 1))
    begin, stop = GPU.index("E0302"), GPU.index("\tBuffer 2:")
    line = 1 + GPU[begin:stop].count("\n")  # of the message, by which it is named
    reported = (
        "SELECT severity, line_number, message FROM diagnostics WHERE code = 'unreadable_line'"
    )
    assert rows(con, reported) == [
        ("info", line, "expected a line of an out-of-memory message, found 'stray words'")
    ]
    assert rows(con, "SELECT unread_line_count FROM files") == [(1,)]


def test_a_buffer_with_fewer_facts_leaves_the_rest_known(ingested):
    text = GPU[: GPU.index("Traceback")].replace("jit(train_step)/jit(main)/", "", 1)
    con = ingested(text.replace("Shape: f32[16384,12288]", "Shape: f32[16384,12289]"))
    assert rows(con, "SELECT function_name FROM modules") == [("train_step",)]
    reported = "SELECT message FROM diagnostics WHERE code = 'rounded_sizes'"
    assert rows(con, reported) == [
        ("sums are rounded as the message prints them, and so are 1 of 4 buffers",)
    ]


def test_peak_values_of_a_message_add_up_to_its_peak(ingested):
    con = ingested(GPU)
    peak = round(11.63 * GIB) - (64 << 20)
    assert rows(con, "SELECT peak_bytes, peak_time FROM memory_figures") == [(peak, None)]
    assert rows(
        con,
        "SELECT value_id, allocation_kind, held_bytes FROM peak_values "
        "ORDER BY value_id NULLS LAST, allocation_kind",
    ) == [
        (1, "temp", 32 * 16 * 1448 * 1448 * 4),
        (2, "temp", 3 * GIB),
        (3, "parameter", 3 * GIB // 2),
        # 768 MiB fit into the temporaries and into the outputs.
        (4, None, 3 << 28),
        (None, "constant", 1536),
        (None, "parameter", 3 << 28),
        (None, None, peak - 32 * 16 * 1448 * 1448 * 4 - 3 * GIB - 9 * GIB // 4 - (3 << 28) - 1536),
    ]


def test_a_message_of_a_tpu_knows_names_kinds_and_padding(ingested):
    con = ingested(TPU)
    assert rows(
        con,
        "SELECT value_id, instruction_name, shape_index, size_bytes, padding_bytes, opcode, "
        "own_source, memory_space_name, allocation_index, offset_bytes FROM value_details "
        "ORDER BY value_id",
    ) == [
        (1, "convolution.77", "{}", 2 * GIB, 0, "convolution", "/home/user/model/layers.py:131",
         "hbm", None, None),
        (2, "fusion.1668", "{0}", 1 << 28, 1 << 27, "fusion", "/home/user/model/layers.py:88",
         "hbm", None, None),
    ]  # fmt: skip
    (peak,) = rows(con, "SELECT peak_bytes FROM memory_figures")[0]
    assert rows(con, "SELECT sum(held_bytes) FROM peak_values") == [(peak,)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (GPU[: GPU.index("     preallocated temp allocation")], "has no total"),
        (KERNELS["2025"].split("\nScoped")[0] + "\n", "has no total"),
        (TPU.replace("hbm", "warp"), "an unknown memory space warp"),
        (TPU.replace("18.28G", "8.28G"), "a part is more than the whole"),
        (TPU.replace("(204.80M)", "(204.80G)"), "a part is more than the whole"),
    ],
    ids=["no total", "kernel alone", "unknown space", "small total", "large fragmentation"],
)
def test_a_peak_that_the_message_lacks_is_unknown(ingested, text, reason):
    con = ingested(text)
    ((stored_reason,),) = rows(con, "SELECT peak_unknown_reason FROM modules")
    assert reason in stored_reason
    assert rows(con, "SELECT count(*) FROM peak_values") == [(0,)]
    assert rows(con, "SELECT count(*) FROM occupied_peaks") == [(0,)]


def test_without_arguments_the_peak_is_a_lower_bound(ingested):
    assert "peak_at_least" in codes(
        ingested(TPU.replace("arguments         4.00G", "arguments       unknown size"))
    )


def test_a_cut_message_says_so(ingested):
    con = ingested(TPU[: TPU.rindex("     Allocation type")])
    assert "truncated_message" in codes(con)
    assert rows(con, "SELECT count(*) FROM values") == [(2,)]


def test_buffers_that_share_bytes_hold_no_more_than_the_peak(ingested):
    con = ingested(GPU.replace("9.38GiB\n  pre", "4.38GiB\n  pre").replace("11.63GiB", "6.63GiB"))
    assert "shared_buffers" in codes(con)
    assert rows(
        con, "SELECT sum(held_bytes) = any_value(peak_bytes) FROM peak_values, memory_figures"
    ) == [(True,)]


def test_outputs_of_an_instruction_are_tuple_elements(ingested):
    second = TPU[TPU.index("  2. Size") :]
    third = second.replace("2. Size", "3. Size").replace("1. Size", "3. Size")
    con = ingested(TPU + third)
    assert rows(
        con, "SELECT instruction_name, shape_index FROM values WHERE value_id > 1 ORDER BY value_id"
    ) == [("fusion.1668", "{0}"), ("Buffer 3", "{}")]


# -- what each form says ---------------------------------------------------------------------------


def test_lines_that_say_something_are_a_loss(ingested):
    con = ingested(LIST.replace("Unpadded size: 2.00G", "Unpaded size: 2.00G"))
    reported = "SELECT severity, message FROM diagnostics WHERE code = 'unreadable_line'"
    ((severity, message),) = rows(con, reported)
    assert severity == "data_loss"
    assert "Unpaded size: 2.00G" in message


def test_labels_without_shapes_name_instructions(ingested):
    con = ingested(LIST)
    assert rows(
        con,
        "SELECT instruction_name, opcode, shape, own_source FROM value_details ORDER BY value_id",
    ) == [
        (
            "fusion.31.remat2",
            "fusion",
            "f32[64,4096,4096]{2,1,0:T(8,128)}",
            "/srv/egret/a.py:71",
        ),
        ("fusion.32", "fusion", "f32[32,4096,4096]{2,1,0:T(8,128)}", "/srv/egret/a.py:80"),
    ]
    assert rows(con, "SELECT function_name FROM modules") == [("egret_step",)]


def test_scratch_memory_has_a_peak_and_its_buffers(ingested):
    con = ingested(SCRATCH)
    peak = round(24.08 * MIB)
    assert rows(con, "SELECT color, peak_bytes, temp_bytes FROM memory_figures") == [
        (1, peak, peak)
    ]
    assert rows(
        con,
        "SELECT value_id, allocation_kind, held_bytes FROM peak_values ORDER BY value_id",
    ) == [
        (1, "temp", round(16.08 * MIB)), (2, "temp", 4 * MIB), (3, "temp", 2 * MIB),
        (None, "temp", peak - round(16.08 * MIB) - 6 * MIB),
    ]  # fmt: skip
    assert rows(con, "SELECT instruction_name, shape FROM values ORDER BY value_id") == [
        ("register allocator spill slots in HLO :: bittern_matmul.1", "unknown"),
        ("bittern_matmul.1", "u8[4194304]{0}"),
        ("bittern_matmul.1", "u8[2097152]{0}"),
    ]
    assert "peak_at_least" not in codes(con)


@pytest.mark.parametrize("text", KERNELS.values(), ids=KERNELS)
def test_a_kernel_is_a_module_with_a_peak(ingested, text):
    con = ingested(text)
    assert rows(
        con,
        "SELECT memory_space_name, peak_bytes, function_name FROM memory_figures",
    ) == [("vmem", round(36.25 * MIB), "step")]
    assert rows(
        con,
        "SELECT instruction_name, opcode, shape, op_name, own_source, size_bytes "
        "FROM value_details",
    ) == [
        ("heron_kernel.3", "custom-call", "f32[4096,512]{1,0:T(8,128)S(1)}",
         "jit(step)/jit(heron)/pallas_call", "/srv/heron.py:12", round(36.25 * MIB)),
    ]  # fmt: skip
    ((figures,),) = rows(con, "SELECT message FROM diagnostics WHERE code = 'memory_limit'")
    assert figures == (
        "36.25 MiB needed by %heron_kernel.3 (custom-call, f32[4096,512], "
        "jit(step)/jit(heron)/pallas_call, /srv/heron.py:12), 32.00 MiB of vmem available: "
        "4.25 MiB too much"
    )
    # The compiler stops at the first array that does not fit: there may be more of them.
    assert "peak_at_least" in codes(con)


FIGURES = {
    "temporaries": "64.01 GiB needed, 15.75 GiB of hbm available: 48.26 GiB too much",
    "cores": "100.00 GiB needed, 95.74 GiB of hbm available: 4.26 GiB too much "
    "(20.00 GiB of the TensorCore, 80.00 GiB of the SparseCores)",
    "early": "3.84 TiB needed, 90.96 GiB of hbm available: 3.75 TiB too much",
    "program": "9.62 GiB needed, 7.14 GiB free: 2.48 GiB too much "
    "(other arrays and programs hold the rest)",
    "array": "8.00 MiB needed, 6.43 MiB free: 1.57 MiB too much "
    "(other arrays and programs hold the rest)",
    "used": "1.01 MiB needed, 1.00 MiB of smem available: 7.50 KiB too much",
    "gpu array": "an allocation of 16.00 GiB failed",
    "tile": "585.94 KiB needed by %egret_gather.4, 512.00 KiB of tile spmem available: "
    "73.94 KiB too much",
    "tile 2026": "585.94 KiB needed, 512.00 KiB of spmem available: 73.94 KiB too much",
}
BLOCKS = {
    "block": ("shared", "244.14 KiB needed, 227.00 KiB of shared memory available: 17.14 KiB"),
    "triton": ("shared", "176.00 KiB needed, 99.00 KiB of shared memory available: 77.00 KiB"),
    "mosaic": ("shared", "258.00 KiB needed, 227.00 KiB of shared memory available: 31.00 KiB"),
    "tensor": ("tensor", "512.00 KiB needed, 256.00 KiB of tensor memory available: 256.00 KiB"),
    "ptxas": (
        "shared",
        "49.00 KiB needed by %loop_egret_3, 48.00 KiB of shared memory available: 1.00 KiB",
    ),
}


@pytest.mark.parametrize("form", FIGURES)
def test_figures_without_a_list_are_a_peak_at_least(ingested, form):
    con = ingested(SHORT[form])
    ((peak,),) = rows(con, "SELECT peak_bytes FROM memory_figures")
    assert peak == only(SHORT[form]).needed.size_bytes
    assert {"peak_at_least", "memory_limit", "out_of_memory"} <= codes(con)
    assert rows(con, "SELECT message FROM diagnostics WHERE code = 'memory_limit'") == [
        (FIGURES[form],)
    ]
    assert rows(con, "SELECT sum(held_bytes) FROM peak_values") == [(peak,)]
    assert rows(con, "SELECT count(*) FROM values") == [(form == "tile",)]


def test_an_operand_of_a_kernel_is_a_peak_of_its_memory(ingested):
    con = ingested(SHORT["operand"])
    spaces = "SELECT platform, memory_space_name, peak_bytes, temp_bytes FROM memory_figures"
    assert rows(con, spaces) == [("tpu", "vmem", 204800000, 204800000)]
    values = "SELECT instruction_name, shape, size_bytes FROM value_details"
    assert rows(con, values) == [("egret.1", "f32[400000,128]{1,0:T(8,128)}", 204800000)]
    ((text,),) = rows(con, "SELECT message FROM diagnostics WHERE code = 'memory_limit'")
    assert text.startswith("195.31 MiB needed by %egret.1")
    assert text.endswith("128.00 MiB of vmem available: 67.31 MiB too much")


@pytest.mark.parametrize("form", BLOCKS)
def test_a_block_of_a_gpu_kernel_has_what_it_needs(ingested, form):
    con = ingested(SHORT[form])
    space, figures = BLOCKS[form]
    peak = only(SHORT[form]).needed.size_bytes
    spaces = "SELECT platform, memory_space_name, peak_bytes, temp_bytes FROM memory_figures"
    assert rows(con, spaces) == [("gpu", space, peak, peak)]
    assert rows(con, "SELECT message FROM diagnostics WHERE code = 'memory_limit'") == [
        (f"{figures} too much",)
    ]
    assert codes(con) == {"memory_limit", "out_of_memory", "savings_unknown"}


def only(text):
    (report,) = oom_text.read(text)
    return report.message


def test_what_a_message_does_not_say_is_null(ingested):
    con = ingested(SHORT["used"])
    names = "argument_bytes, output_bytes, alias_bytes, temp_bytes, constant_bytes"
    assert rows(con, f"SELECT {names} FROM memory_sums") == [(None,) * 5]


def test_what_outputs_share_is_read_or_null(ingested):
    columns = "SELECT output_bytes, alias_bytes FROM memory_sums"
    assert rows(ingested(OLD_LIST), columns) == [(240 * MIB, 224 * MIB)]
    assert rows(ingested(OLD_LIST.replace("; shares 224.00M with arguments", "")), columns) == [
        (240 * MIB, None)
    ]


def test_what_other_arrays_hold_is_not_of_the_peak(ingested):
    con = ingested(RUNTIME)
    peak = round(4.25 * GIB) - 16 * MIB
    assert rows(con, "SELECT peak_bytes FROM memory_figures") == [(peak,)]
    ((figures,),) = rows(con, "SELECT message FROM diagnostics WHERE code = 'memory_limit'")
    assert figures.endswith("; other arrays hold 5.50 GiB")


@pytest.mark.slow
def test_processes_that_fail_alike_are_one_module(ingested):
    lines = LIST.splitlines(keepends=True)
    con = ingested("".join(f"{rank}: {line}" for line in lines for rank in range(2)))
    assert rows(con, "SELECT function_name FROM modules") == [("egret_step",)]
    assert rows(con, "SELECT unread_line_count FROM files") == [(0,)]
    con = ingested(
        "".join(
            f"{rank}: {line.replace('41.25G', f'41.2{rank}G')}"
            for line in lines
            for rank in range(2)
        )
    )
    assert rows(con, "SELECT module_key FROM modules ORDER BY module_key") == [
        ("error.log/message_1",),
        ("error.log/message_2",),
    ]
    assert rows(con, "SELECT count(*), count(DISTINCT module_id) FROM values") == [(4, 2)]


@pytest.mark.slow
def test_a_message_that_is_printed_again_in_part_is_one(ingested):
    cut = LIST[: LIST.index("  2. Size")]
    for text in (LIST + "\n" + cut, cut + "\n" + LIST, LIST.split("\n\n")[0] + "\n\n\n" + LIST):
        con = ingested(text)
        assert rows(con, "SELECT count(*) FROM modules") == [(1,)]
        assert rows(con, "SELECT count(*) FROM values") == [(2,)]


# -- damage ----------------------------------------------------------------------------------------


def damaged(text, seed):
    chance = random.Random(seed)
    lines = text.splitlines(keepends=True)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(lines))
        what = chance.randrange(5)
        if what == 0:
            del lines[at : at + chance.randint(1, 4)]
        elif what == 1:
            lines.insert(at, lines[chance.randrange(len(lines))])
        elif what == 2:
            cut = chance.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:cut] + chance.choice(['"', "{", "9" * 30, "\xff", ""]) + "\n"
        elif what == 3:
            lines[at] = lines[at].replace(".", chance.choice(["", "..", "0"]))
        else:
            lines[at] = "stray " + lines[at]
        lines = lines or ["\n"]
    return "".join(lines)


TEXTS = [*ALL.values(), WARNED]


@pytest.mark.parametrize("count", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_what_bufdb_makes_of_damaged_messages_holds(fresh, tmp_path, count):
    """No damage ends the ingest, and the invariants hold of every module that was made."""
    for seed in range(count):
        text = damaged(TEXTS[seed % len(TEXTS)], seed)
        (tmp_path / f"{seed}.log").write_bytes(text.encode("latin-1"))
    con = fresh()
    ingest_into(con, tmp_path, "run")
    assert rows(con, f"SELECT count(*) > {count} * 0.5 FROM modules") == [(True,)]
    held = """
      SELECT module_id FROM memory_figures JOIN peak_values USING (module_id, color)
      GROUP BY module_id, color HAVING sum(held_bytes) <> any_value(peak_bytes)
    """
    assert rows(con, held) == []
    uncounted = """
      SELECT path FROM files
      WHERE line_count <> read_line_count + known_line_count + unread_line_count
    """
    assert rows(con, uncounted) == []
    assert [violation.examples for violation in check.violations(con, check.chosen())] == []


@pytest.mark.parametrize("count", [400, pytest.param(4000, marks=pytest.mark.slow)])
def test_each_line_of_a_message_is_read_or_empty_or_reported(count):
    """Messages without a log around them, whatever happens to their lines."""
    for seed in range(count):
        text = damaged(TEXTS[seed % len(TEXTS)], seed)
        lines = text.split("\n")
        for report in oom_text.read(text):
            for number in report.lines or range(report.first, report.last + 1):
                assert (
                    number in report.read
                    or number in report.unread
                    or not lines[number].removeprefix("stray ").strip(" \t\r\xa0-|\"',")
                    or lines[number].startswith(("INFO:", "E0302", "I0302", "W1002", "2026-"))
                ), (seed, lines[number])


@pytest.mark.slow
def test_a_doubled_line_changes_nothing():
    for name, text in ALL.items():
        lines = text.splitlines(keepends=True)
        for number in range(len(lines)):
            if name == "wrapped":
                continue
            doubled = "".join([*lines[: number + 1], *lines[number:]])
            assert [report.message for report in oom_text.read(doubled)] == [only(text)], (
                name,
                number,
            )


@pytest.mark.slow
def test_a_line_that_is_gone_is_no_other_figure():
    """The remaining figures are the same or unknown."""
    for name, text in ALL.items():
        whole = only(text)
        lines = text.splitlines(keepends=True)
        for number in range(len(lines)):
            for report in oom_text.read("".join([*lines[:number], *lines[number + 1 :]])):
                message = report.message
                assert message.amounts.items() <= whole.amounts.items(), (name, number)
                assert message.needed in (None, whole.needed), (name, number)
                for one in message.more:
                    known = whole.of_space(one.space)
                    assert one.amounts.items() <= known.amounts.items(), (name, number)
                    assert one.limit in (None, known.limit), (name, number)
                assert message.limit in (None, whole.limit), (name, number)
                sizes = [(b.number, b.size) for b in whole.buffers]
                assert all((b.number, b.size) in sizes or b.size is None for b in message.buffers)


@pytest.mark.slow
def test_what_a_device_must_hold_is_what_the_message_says(ingested):
    need = "SELECT need_bytes FROM memory_figures"
    assert rows(ingested(SHORT["program"]), need) == [(only(SHORT["program"]).total.size_bytes,)]
    assert rows(ingested(TPU), need) == [(only(TPU).total.size_bytes,)]


def test_sums_in_a_log_are_no_error(ingested):
    text = RUNTIME[RUNTIME.index("Total hbm usage") :]
    con = ingested(text)
    ((hint,),) = rows(con, "SELECT message FROM diagnostics WHERE code = 'out_of_memory'")
    assert "not whether it ran out of memory" in hint


def test_a_kernel_is_one_module_whatever_the_order_of_its_lines(ingested):
    header, stack, scoped, *rest = KERNELS["2025"].splitlines(keepends=True)
    con = ingested("".join([header, scoped, stack, *rest]))
    columns = "function_name, peak_unknown_reason"
    assert rows(con, f"SELECT {columns} FROM modules") == [("step", None)]
    assert rows(con, "SELECT instruction_name, size_bytes FROM values") == [
        ("heron_kernel.3", round(36.25 * MIB))
    ]


def test_prose_that_quotes_a_title_is_no_message(ingested):
    prose = "Newer text has `Scoped allocation with size…` on the line of `Ran out of memory in "
    prose += "memory space vmem…`, above 'BufferAssignment stats:'.\n"
    assert rows(ingested(prose + KERNELS["2026"]), "SELECT count(*) FROM modules") == [(1,)]
    assert oom_text.read(prose) == []
