"""The ingest command, apart from the ingest itself."""

import os
import subprocess
import sys

import pytest

from bufdb.commands.ingest import _without_threads

THREADS = (
    "import os\n"
    "from bufdb.commands.ingest import _without_threads\n"
    "with _without_threads():\n"
    "    import numpy\n"
    "print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
)


@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_numpy_begins_no_threads_and_no_other_process_sees_why():
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    process = subprocess.run(
        [sys.executable, "-c", THREADS], env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout == "1 None\n"


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    with _without_threads():
        assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"


def test_what_was_not_understood_is_said_where_to_look_up(call, tmp_path):
    (tmp_path / "bad.zip").write_bytes(b"PK\3\4")
    code, _, err = call("ingest", tmp_path / "bad.zip", "--db", tmp_path / "a.duckdb")
    assert (code, err.endswith("diagnostics: 1 error; 'bufdb query diagnostics' lists them\n")) == (
        4,
        True,
    )
