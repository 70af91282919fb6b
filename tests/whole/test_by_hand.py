"""Answers worked out with pencil and paper from the dumps, with the arithmetic.

One seed (a TPU dump of 2025) and, of data/demo, one module each of CPU, GPU and TPU.
"""

import duckdb
import pytest
from shared_dumps import DUMPS, needs_dumps
from small_db import answer

SEED = DUMPS / "seeds" / "002_609704118d861766.txt"


@pytest.fixture(scope="module")
def seed(tmp_path_factory):
    from bufdb.ingest.ingest import ingest

    path = tmp_path_factory.mktemp("seed") / "seed.duckdb"
    ingest(str(path), [SEED], run="seed")
    with duckdb.connect(str(path), read_only=True) as con:
        yield con


def rows(con, query, columns, **params):
    """The named columns of an answer about all memory spaces."""
    names = columns.split()
    return [tuple(row[name] for name in names) for row in answer(con, query, color="all", **params)]


FIGURES = (
    "color peak_bytes peak_time printed_peak_bytes printed_peak_time naive_live_bytes fixed_bytes "
    "occupied_temp_bytes fragmentation_bytes argument_bytes output_bytes alias_bytes temp_bytes "
    "constant_bytes thread_local_bytes total_bytes reported_total_bytes"
)
CPU = {"run": "cpu_b8", "function": "eval_step"}
GPU = {"run": "gpu_b8", "function": "init"}
TPU = {"run": "tpu_b8", "function": "init"}

PADDING = (
    "color shape layout peak_padding_bytes peak_value_count size_bytes logical_bytes "
    "padding_bytes value_count"
)
TEMPS = "color temp_bytes size_bytes instruction_name"
PEAK = "color held_bytes cumulative_ratio allocation_kind instruction_name"


@needs_dumps
class TestSeed:
    """Allocations, those of memory space 0 first:

        0 constant 512, 1 output 16384, 2 parameter 512,      4 temp 66048
        3 temp 8704 (space 1), 5 temp 4 (space 2), 6 temp 512 (space 6)

    Live ranges of the temps:

        4: copy-start{} 32 bytes 2-4, fusion.23{} 32 5-7, fusion.23{0} and {1} 512 each 5-15,
           fusion.21{} 32 12-14
        3: copy-start{0} 512 at 0 2-5, broadcast_add_fusion 512 at 8192 3-15,
           fusion.21{0} 512 at 0 and fusion.21{1} 512 at 4096 12-15
        5: copy-start{2} 4 2-4
        6: xor.49 512 at 0 10-11, xor.50 512 at 0 11-15
    """

    def test_peak_figures(self, seed):
        # The printed lines at 15: 8192 + 256 + 256 + 256 + 8 + 4 + 4 + 4 = 8980.
        printed, total = (8980, 15), 92676
        # All allocations: 512 + 16384 + 512 + 8704 + 66048 + 4 + 512 = 92676.
        assert rows(seed, "peak-figures", FIGURES) == [
            # Fixed 512 + 16384 + 512 = 17408. Temps: most at 5, 32 + 512 + 512 = 1056 (again at
            # 12); 17408 + 1056 = 18464; 66048 - 1056 = 64992. All live values: most at 15,
            # 16384 + 512 + 512 + 512 = 17920. Total 17408 + 66048 = 83456.
            (0, 18464, 5, *printed, 17920, 17408, 1056, 64992, 512, 16384, 0, 66048, 512, 0,
             83456, total),
            # Most at 12: 3 * 512 = 1536; 8704 - 1536 = 7168.
            (1, 1536, 12, *printed, 1536, 0, 1536, 7168, 0, 0, 0, 8704, 0, 0, 8704, total),
            # xor.49 and xor.50 have the same bytes: 512 at 10. Both are live at 11: 1024.
            (6, 512, 10, *printed, 1024, 0, 512, 0, 0, 0, 0, 512, 0, 0, 512, total),
            (2, 4, 2, *printed, 4, 0, 4, 0, 0, 0, 0, 4, 0, 0, 4, total),
        ]  # fmt: skip

    def test_padding(self, seed):
        # f32[64,32]{0,1:T(8,128)}: the minor 64 becomes 128, 32 * 128 * 4 = 16384; 64 * 32 * 4.
        # Vectors and scalars of 4-byte elements take one row of 128: 512.
        assert rows(seed, "padding", PADDING) == [
            (0, "f32[64,32]", "{0,1:T(8,128)}", 8192, 1, 16384, 8192, 8192, 1),
            (0, "u32[1]", "{0:T(128)}", 1016, 2, 512, 4, 508, 2),
            (1, "u32[64]", "{0:T(128)S(1)}", 768, 3, 512, 256, 256, 3),
            # Of xor.49 and xor.50 one at a time.
            (6, "u32[]", "{:T(128)S(6)}", 508, 1, 512, 4, 508, 2),
            (0, "u32[]", "{:T(128)}", 508, 1, 512, 4, 508, 1),
            (0, "u32[2]", "{0:T(128)}", 504, 1, 512, 8, 504, 1),
            # copy-start{0}, live 2-5: not at 12.
            (1, "u32[2]", "{0:T(128)S(1)}", 0, 0, 512, 8, 504, 1),
        ]

    def test_top_temps(self, seed):
        # Of equal sizes the lower value id; in order of it: 320, 324, 327, 328, 329.
        assert rows(seed, "top-temps", TEMPS) == [
            (0, 66048, 512, "fusion.23"),
            (0, 66048, 512, "fusion.23"),
            (0, 66048, 32, "fusion.21"),
            (0, 66048, 32, "copy-start"),
            (0, 66048, 32, "fusion.23"),
            (1, 8704, 512, "broadcast_add_fusion"),
            (1, 8704, 512, "fusion.21"),
            (1, 8704, 512, "fusion.21"),
            (1, 8704, 512, "copy-start"),
            (6, 512, 512, "xor.49"),  # xor.50 has the same bytes, and both are live at 11
            (2, 4, 4, "copy-start"),
        ]

    def test_peak(self, seed):
        assert rows(seed, "peak", PEAK) == [
            (0, 16384, 16384 / 18464, "output", "select_multiply_fusion"),
            (0, 512, 16896 / 18464, "constant", "constant.74"),
            (0, 512, 17408 / 18464, "parameter", "Arg_0.1"),
            (0, 512, 17920 / 18464, "temp", "fusion.23"),
            (0, 512, 18432 / 18464, "temp", "fusion.23"),
            (0, 32, 1.0, "temp", "fusion.23"),
        ]


class TestCpu:
    """eval_step of cpu_b8.

    Parameters: 128000 + 65536 + 65536 + 49152 + 3232 = 311456 (0-34). Output 4, two constants of 4.
    Thread-local: seven of 1 byte, one of 16, 21 of 4: 7 + 16 + 84 = 107.
    One temp allocation of 1804816. Its largest values, with their offsets and live ranges:

        ynn_fusion               1600000 at       0  28-29
        multiply_bitcast_fusion   204800 at 1600000  27-28
        ynn_fusion.3              819200 at       0  21-22
        broadcast_maximum_fusion  819200 at       0  22-23
        bitcast_add_fusion.1      204800 at 1024000  19-24
    """

    def test_peak_figures(self, demo):
        # Most at 28: 1600000 + 204800 = 1804800; 1804816 - 1804800 = 16.
        # Fixed 311456 + 4 + 4 + 4 = 311468; peak 311468 + 1804800 = 2116268.
        # Total 311468 + 107 + 1804816 = 2116391.
        # Naive, most at 22, where ynn_fusion.3 and broadcast_maximum_fusion share their bytes:
        # 819200 + 819200 + 204800 + 311456 + constant.20 (5-32) 4 = 2154660.
        # Printed at 23: 819200 + 204800 + 204800 + 311456 + 4 = 1540260.
        assert rows(demo, "peak-figures", FIGURES, **CPU) == [
            (0, 2116268, 28, 1540260, 23, 2154660, 311468, 1804800, 16, 311456, 4, 0, 1804816, 8,
             107, 2116391, 2116391),
        ]  # fmt: skip

    def test_padding(self, demo):
        assert rows(demo, "padding", PADDING, **CPU) == []

    def test_top_temps(self, demo):
        # broadcast_maximum_fusion is computed in the bytes of ynn_fusion.3, as is what follows
        # ynn_fusion.6; of the values of 204800 copy_gather_fusion has the lowest id.
        assert rows(demo, "top-temps", TEMPS, **CPU) == [
            (0, 1804816, 1600000, "ynn_fusion"),
            (0, 1804816, 819200, "ynn_fusion.3"),
            (0, 1804816, 614400, "ynn_fusion.7"),
            (0, 1804816, 320000, "ynn_fusion.6"),
            (0, 1804816, 204800, "copy_gather_fusion"),
        ]

    def test_peak(self, demo):
        assert rows(demo, "peak", PEAK, **CPU, top_n=5) == [
            (0, 1600000, 1600000 / 2116268, "temp", "ynn_fusion"),
            (0, 204800, 1804800 / 2116268, "temp", "multiply_bitcast_fusion"),
            (0, 128000, 1932800 / 2116268, "parameter", "params__embed__.1"),
            (0, 65536, 1998336 / 2116268, "parameter", "params__up__.1"),
            (0, 65536, 2063872 / 2116268, "parameter", "params__down__.1"),
        ]


class TestGpu:
    """init of gpu_b8.

    Outputs: 3 * 128000 + 6 * 65536 + 3 * 49152 = 924672, the tuple's table 104, a counter 4;
    parameter 4, constant 4. One temp allocation of 1128 with tables of pointers: four of 16 bytes,
    live one after the other (8-10, 13-15, 16-18, 19-21), and one of 104, 22-35.
    """

    def test_peak_figures(self, demo):
        # Fixed 924672 + 104 + 4 + 4 + 4 = 924788; temps 104 at 22; 1128 - 104 = 1024.
        # Live at 22: 924672 + 104 + parameter 4 + constant (0-36) 4 = 924784, printed as well.
        assert rows(demo, "peak-figures", FIGURES, **GPU) == [
            (0, 924892, 22, 924784, 22, 924784, 924788, 104, 1024, 4, 924780, 0, 1128, 4, 0,
             925916, 925916),
        ]  # fmt: skip

    def test_padding(self, demo):
        assert rows(demo, "padding", PADDING, **GPU) == []

    def test_top_temps(self, demo):
        assert rows(demo, "top-temps", TEMPS, **GPU) == [
            (0, 1128, 104, "tuple"),
            (0, 1128, 16, "loop_broadcast_fusion.3"),
            (0, 1128, 16, "loop_broadcast_fusion.2"),
            (0, 1128, 16, "loop_broadcast_fusion.1"),
            (0, 1128, 16, "loop_broadcast_fusion"),
        ]

    def test_peak(self, demo):
        assert rows(demo, "peak", PEAK, **GPU, top_n=4) == [
            (0, 128000, 128000 / 924892, "output", "loop_broadcast_fusion.2"),
            (0, 128000, 256000 / 924892, "output", "loop_broadcast_fusion.2"),
            (0, 128000, 384000 / 924892, "output", "loop_multiply_fusion"),
            (0, 65536, 449536 / 924892, "output", "loop_broadcast_fusion.3"),
        ]


class TestTpu:
    """init of tpu_b8.

    Outputs: 3 * 131072 + 9 * 65536 = 983040, a counter 512, the tuple's table 512; parameter
    512, two constants 1024. Memory space 1: a temp allocation of 0 bytes. Memory space 6:
    512, copy.5 3-7.
    """

    def test_peak_figures(self, demo):
        # Fixed 983040 + 512 + 512 + 512 + 1024 = 985600; with space 6 986112 in all.
        # Live at 17: 983040 + counter 512 + table 512 + parameter 512 = 984576; in bare shapes
        # 3 * 128000 + 6 * 65536 + 3 * 49152 + 4 + 104 + 4 = 924784.
        printed = (924784, 17)
        assert rows(demo, "peak-figures", FIGURES, **TPU) == [
            (0, 985600, 0, *printed, 984576, 985600, 0, 0, 512, 984064, 0, 0, 1024, 0, 985600,
             986112),
            (6, 512, 3, *printed, 512, 0, 512, 0, 0, 0, 0, 512, 0, 0, 512, 986112),
            (1, 0, 0, *printed, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 986112),
        ]  # fmt: skip

    def test_padding(self, demo):
        # f32[64,192]: 192 becomes 256, 64 * 256 * 4 = 65536, not 49152.
        # f32[500,64]{0,1}: 500 is the minor one and becomes 512, 64 * 512 * 4 = 131072, not 128000.
        # f32[256,64] and f32[64,256] fit. Scalars take 512: counter and a constant, parameter and
        # a constant.
        assert rows(demo, "padding", PADDING, **TPU) == [
            (0, "f32[64,192]", "{1,0:T(8,128)}", 49152, 3, 65536, 49152, 16384, 3),
            (0, "f32[500,64]", "{0,1:T(8,128)}", 9216, 3, 131072, 128000, 3072, 3),
            (0, "f32[]", "{:T(128)}", 1016, 2, 512, 4, 508, 2),
            (0, "s32[]", "{:T(128)}", 1016, 2, 512, 4, 508, 2),
            (6, "f32[]", "{:T(128)S(6)}", 508, 1, 512, 4, 508, 1),
        ]

    def test_top_temps(self, demo):
        assert rows(demo, "top-temps", TEMPS, **TPU) == [(6, 512, 512, "copy.5")]

    def test_peak(self, demo):
        assert rows(demo, "peak", PEAK, **TPU, top_n=4) == [
            (0, 131072, 131072 / 985600, "output", "fusion.2"),
            (0, 131072, 262144 / 985600, "output", "broadcast_in_dim.6.clone"),
            (0, 131072, 393216 / 985600, "output", "broadcast_in_dim.6"),
            (0, 65536, 458752 / 985600, "output", "fusion.11"),
        ]
