"""`bufdb doctor`: from an error, a file or a folder to the command to type next."""

import io
import json
import re
import shlex
import tarfile
from pathlib import Path

import duckdb
import oom_messages
import pytest
import zstandard
from places import DEMO, ROOT

from bufdb.database import store
from bufdb.recording import diagnosis

OOM = ROOT / "data" / "oom"
VERSIONS = ROOT / "data" / "versions"
LOST = """\
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/jax/_src/api.py", line 30, in <module>
    pass
  File "src/train it.py", line 120, in <module>
    main()
  File "src/model.py", line 12, in main
    step(x)
"""
TEXTS = {
    "ValueError: shapes\n": ("a traceback that says nothing of memory", "explain"),
    "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: no\n": ("without its figures", "capture --watch"),
    "MemoryError\n": ("the host gave no more memory", "capture --watch"),
    "Killed\n": ("signal 9", "capture --watch"),
    "x Ran out of memory in memory space smem. Used 1.00M\n": ("a memory of the chip", "explain"),
}


@pytest.fixture
def doctor(call, empty_folder):
    return lambda *words: call("doctor", *words)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_known_by_a_line_of_it(text):
    what, command = TEXTS[text]
    answer = diagnosis.of_text(LOST + text, lambda: None)
    assert what in answer.what
    assert answer.known[0] == text.strip()
    assert answer.next == f"bufdb {command} -- python 'src/train it.py'"


def test_the_command_is_of_the_outermost_own_frame():
    assert diagnosis.command_of(LOST) == "python 'src/train it.py'"
    assert diagnosis.command_of("RESOURCE_EXHAUSTED") is None
    frozen = 'File "<frozen runpy>", line 198, in <module>\n'
    assert diagnosis.command_of(frozen) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "known", "command"),
    [
        ("gpu.log", "train_step needs 11.6 GiB", "explain -- python /home/user/model/train.py"),
        ("tpu.log", "18.02 GiB needed", "explain --limit 15.75GiB -- python train.py"),
    ],
)
def test_a_log_has_the_figures_of_its_message(doctor, name, known, command):
    code, out, err = doctor(OOM / name)
    assert (code, err) == (0, "")
    assert known in out and f"\ntype next  bufdb {command}\n" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "known", "command"),
    [
        ("2025", "36.25 MiB needed by %heron_kernel.3", "fit --also vmem"),
        ("triton", "176.00 KiB needed, 99.00 KiB of shared memory available", "explain"),
        ("tile", "585.94 KiB needed by %egret_gather.4, 512.00 KiB of tile spmem", "explain"),
    ],
)
def test_a_kernels_message_has_its_figures(doctor, empty_folder, name, known, command):
    log = empty_folder / "a.log"
    log.write_text(oom_messages.ALL[name])
    code, out, err = doctor(log)
    assert (code, err) == (0, "")
    assert "a memory of the chip is too small" in out and known in out
    assert f"\ntype next  bufdb {command} -- python train.py\n" in out


@pytest.mark.slow
def test_a_request_for_one_array_is_no_need_of_a_program(doctor, empty_folder):
    log = empty_folder / "a.log"
    log.write_text(
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 50688204800 bytes.\n"
    )
    code, out, _ = doctor(log)
    assert code == 0 and "type next  bufdb capture --watch -- python train.py\n" in out
    assert "47.2 GiB" in re.sub(r"47\.2\d GiB", "47.2 GiB", out)


@pytest.mark.slow
def test_dumps_are_summarized(doctor):
    code, out, err = doctor(DEMO / "gpu_b8", "--format", "json")
    answer = json.loads(out)
    assert (code, err, answer["next"]) == (0, "", f"bufdb summary {DEMO / 'gpu_b8'}")
    assert answer["known"] == ["2 modules of 2 functions", "train_step needs most: 8.29 MiB"]


def test_a_command_is_not_run(doctor, empty_folder):
    code, out, _ = doctor("--", "touch", "it is run")
    assert code == 0 and "bufdb capture --watch -- touch 'it is run'\n" in out
    assert [*empty_folder.iterdir()] == []


def test_a_folder_is_about_what_is_in_it(empty_folder):
    def command():
        return shlex.split(diagnosis.of_folder(empty_folder, "bufdb.duckdb").next)[1:]

    assert command() == ["capture", "--watch", "--", "python", "train.py"]
    (empty_folder / "own.py").write_text("import jax.numpy as jnp\n")
    assert command() == ["explain", "--", "python", "own.py"]
    (empty_folder / "out").mkdir()
    (empty_folder / "out" / "module_0001.f.cpu_after_optimizations.txt").touch()
    assert command() == ["summary", "out/"]
    (empty_folder / "job 1.log").write_text("RESOURCE_EXHAUSTED: x\n")
    assert command() == ["doctor", "job 1.log"]
    store.open_writable("bufdb.duckdb").close()
    assert command() == ["summary"]


def test_standard_input_is_asked_about_if_it_is_a_pipe(doctor, empty_folder, monkeypatch):
    (empty_folder / "text").write_text("Killed\n")
    with (empty_folder / "text").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert "signal 9" in doctor()[1]
    monkeypatch.setattr("sys.stdin", io.StringIO("Killed\n"))
    assert "this is    a folder" in doctor()[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [(("nowhere",), "no file or directory"), (("text.txt",), "no error about memory that bufdb")],
)
def test_what_is_nothing_known_is_an_error(doctor, empty_folder, words, message):
    (empty_folder / "text.txt").write_text("hello\n")
    code, out, err = doctor(*words)
    assert (code, out) == (2, "") and message in err


def unpacked(name):
    """A kept database or dataset of an earlier version, in the working directory."""
    data = zstandard.ZstdDecompressor().decompress((VERSIONS / f"{name}.zst").read_bytes())
    if name.endswith(".tar"):
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall("old", filter="data")
        return "old"
    Path(name).write_bytes(data)
    return name


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("schema_7.duckdb", "bufdb upgrade schema_7.duckdb"),
        ("schema_9.duckdb", "bufdb summary --db schema_9.duckdb"),
        pytest.param("dataset_7.tar", "bufdb upgrade old", marks=pytest.mark.slow),
    ],
)
def test_what_is_stored_is_upgraded_before_it_is_asked(doctor, call, name, command):
    code, out, err = doctor(unpacked(name))
    assert (code, err) == (0, "") and f"type next  {command}\n" in out
    assert call(*shlex.split(command)[1:])[0] == 0


def test_a_folder_with_an_older_database_names_its_upgrade(doctor):
    Path(unpacked("schema_7.duckdb")).rename("bufdb.duckdb")
    assert "type next  bufdb upgrade bufdb.duckdb\n" in doctor()[1]


def test_a_file_that_is_no_database_is_refused(doctor):
    Path("a.duckdb").write_text("nothing of the kind")
    assert doctor("a.duckdb")[0] == 3


def test_a_database_of_a_later_version_is_left_alone(doctor):
    with duckdb.connect(unpacked("schema_9.duckdb")) as con:
        con.execute("UPDATE schema_info SET schema_version = 99")
    assert "type next  pip install -U bufdb\n" in doctor("schema_9.duckdb")[1]
