"""Exported traces, read by Perfetto's own trace processor and queried in its SQL.

It runs in Node, as WebAssembly (trace_processor.mjs); BUFDB_TEST_TRACE_PROCESSOR names the folder
that holds it, which `.ci/run` fetches. Perfetto's Python package asks it the questions.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENGINE = os.environ.get("BUFDB_TEST_TRACE_PROCESSOR")
if not ENGINE:
    pytest.skip("BUFDB_TEST_TRACE_PROCESSOR names no trace processor", allow_module_level=True)
perfetto = pytest.importorskip("perfetto.trace_processor", reason="needs Perfetto's package")

from perfetto.trace_processor.platform import PlatformDelegate  # noqa: E402
from perfetto.trace_processor.protos import ProtoFactory  # noqa: E402
from perfetto.trace_processor.rpc import TraceProcessorRpc  # noqa: E402
from perfetto.trace_processor.unix import UnixTransport  # noqa: E402

SERVER = Path(__file__).with_name("trace_processor.mjs")


class Loader(TraceProcessorRpc):
    """Gives a trace to a trace processor, which its package does by a program of its own."""

    def __init__(self, socket):
        self.protos = ProtoFactory(PlatformDelegate())
        super().__init__(UnixTransport(socket), self.protos)

    def load(self, trace):
        methods = self.protos.TraceProcessorRpc
        result = self._ask(methods.TPM_APPEND_TRACE_DATA, append_trace_data=trace)
        assert result.append_result.error == ""
        result = self._ask(methods.TPM_FINALIZE_TRACE_DATA)
        assert result.finalize_data_result.error == ""

    def _ask(self, method, **fields):
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=method, **fields)
        self.transport.send(stream.SerializeToString())
        return self.protos.TraceProcessorRpc.FromString(self._read_payload())


@pytest.fixture
def trace_of(call, demo_db, tmp_path):
    """Export a trace of the demo dumps, load it, and run queries in Perfetto's SQL."""
    socket = str(tmp_path / "trace.sock")
    with subprocess.Popen(
        ["node", SERVER, ENGINE, socket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
    ) as server:
        assert server.stdout.readline() == "ready\n"

        def ask(*options):
            trace = tmp_path / "trace"
            words = ("--format", "perfetto", "--db", demo_db, "-o", trace, *options)
            code, _, err = call("export", *words)
            assert code == 0, err
            loader = Loader(socket)
            loader.load(trace.read_bytes())
            loader.close()
            processor = perfetto.TraceProcessor(remote=socket)
            return lambda sql: [tuple(vars(row).values()) for row in processor.query(sql)]

        yield ask
        server.stdin.close()


OCCUPIED = """
    SELECT process.name AS module, counter_track.name AS track, ts, CAST(value AS INT) AS bytes
    FROM counter JOIN process_counter_track AS counter_track ON track_id = counter_track.id
        JOIN process USING (upid)
    ORDER BY module, track, ts
"""


@pytest.mark.parametrize("run", ["cpu_b8", "gpu_b8", "tpu_b8"])
def test_the_trace_processor_reads_the_timeline(trace_of, demo, run):
    ask = trace_of("--run", run)
    assert ask("SELECT name, value FROM stats WHERE severity = 'error' AND value > 0") == []
    expected = demo.execute(
        "SELECT function_name || ' (' || run_name || ')', "
        "'occupied bytes, ' || memory_space_name, start_time * 1000, occupied_bytes "
        "FROM asked_functions JOIN memory_steps USING (module_id, color) "
        "WHERE run_name = ? ORDER BY ALL",
        [run],
    ).fetchall()
    rows = ask(OCCUPIED)
    # The last step is drawn to the end of the program: one point more for each curve.
    assert len(expected) > 50
    assert set(expected) <= set(rows)
    curves = {(module, track) for module, track, *_ in expected}
    assert len(rows) == len(expected) + len(curves)


def test_the_trace_processor_reads_values_as_slices(trace_of, demo):
    ask = trace_of("--run", "cpu_b8", "--function", "train_step")
    rows = ask("""
        SELECT ts, ts + dur AS ended, extract_arg(arg_set_id, 'debug.value_id') AS value_id,
            extract_arg(arg_set_id, 'debug.size_bytes') AS size_bytes
        FROM slice ORDER BY value_id
    """)
    expected = demo.execute(
        "SELECT start_time * 1000, (end_time + 1) * 1000, value_id, size_bytes "
        "FROM value_details WHERE run_name = 'cpu_b8' AND function_name = 'train_step' "
        "AND size_bytes > 0 AND allocation_kind <> 'thread_local' AND start_time IS NOT NULL "
        "ORDER BY value_id"
    ).fetchall()
    assert rows == expected != []
