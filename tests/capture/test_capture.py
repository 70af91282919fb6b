"""bufdb capture: a command's environment, streams, signals and exit code, and its dumps."""

import contextlib
import fcntl
import io
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from datetime import datetime
from pathlib import Path

import duckdb
import oom_messages
import pytest
from places import DEMO
from small_db import Module

from bufdb import cli
from bufdb.capture.environment import (
    _script_python,
    _versions,
    environment,
    pool_labels,
    program_labels,
    run_name,
)
from bufdb.commands.capture import show_result
from bufdb.dumps.discover import discover
from bufdb.errors import UsageError
from bufdb.query.result import Result


class Terminal(io.StringIO):
    def isatty(self):
        return True


BUFDB = [sys.executable, "-c", "from bufdb.cli import main; main()"]
WAIT_SECONDS = 60
FAKE = f"""
import os, re, shutil, signal, sys, time

def dump(run="cpu_b8"):
    folder = re.findall("--xla_dump_to=(\\\\S+)", os.environ["XLA_FLAGS"])[-1]
    shutil.copytree({str(DEMO)!r} + "/" + run, folder, dirs_exist_ok=True)
    return folder
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path, empty_folder):
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def left_behind(tmp_path):
    """Dump directories that were not removed."""
    return lambda: list((tmp_path / "tmp").glob("bufdb-*"))


def fake(body, name="train.py"):
    """A command that dumps without a compiler."""
    Path(name).write_text(FAKE + body)
    return [sys.executable, name]


@pytest.fixture
def run(capfd, empty_db):
    """Run capture in this process, into an existing but empty database."""
    shutil.copy(empty_db, "bufdb.duckdb")

    def captured(*arguments, command):
        code = cli.run(["capture", *arguments, "--", *command])
        return code, *capfd.readouterr()

    return captured


def run_apart(*arguments, command, **options):
    """Run capture in its own process; return exit code, standard output and standard error."""
    done = subprocess.run(
        [*BUFDB, "capture", *arguments, "--", *command],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
        **options,
    )
    return done.returncode, done.stdout, done.stderr


def rows(sql, db="bufdb.duckdb"):
    with duckdb.connect(db, read_only=True) as con:
        return con.execute(sql).fetchall()


def labels(name):
    return dict(rows(f"SELECT label, label_value FROM run_labels WHERE run_name = '{name}'"))


# -- the environment --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "kept"),
    [
        (None, ""),
        ("--a=1", "--a=1"),
        ("  --a=1   --b ", "--a=1 --b"),
        ("--xla_dump_to=/x --a=1 --xla_dump_to='/y z'", "--a=1"),
        ('--a="x --xla_dump_to=q \\" r" --b=\'1 2\'', '--a="x --xla_dump_to=q \\" r" --b=\'1 2\''),
        ("--xla_dump_to_other=1", "--xla_dump_to_other=1"),
    ],
)
def test_xla_flags_are_added_to(flags, kept):
    variables = {"HOME": "h"} if flags is None else {"HOME": "h", "XLA_FLAGS": flags}
    result = environment(variables, Path("/d"))
    assert result.flags == kept
    assert result.variables == {
        "HOME": "h",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "XLA_FLAGS": f"{kept} --xla_dump_to=/d --xla_dump_hlo_as_text".strip(),
    }
    assert sum("is overridden" in note for note in result.notes) == (flags or "").count(
        "_to=/x"
    ) + (flags or "").count("_to='/y")


def test_a_dump_directory_is_quoted_as_xla_reads_it():
    result = environment({}, Path('/my "d"\\x'))
    assert '--xla_dump_to="/my \\"d\\"\\\\x"' in result.variables["XLA_FLAGS"]


def test_flags_in_a_file():
    Path("flags").write_text("--a=1\n--b=2\n")
    assert environment({"XLA_FLAGS": "flags"}, Path("/d")).flags == "--a=1 --b=2"
    with pytest.raises(UsageError, match="XLA_FLAGS names a file of flags, none, that cannot be"):
        environment({"XLA_FLAGS": "none"}, Path("/d"))


def test_flags_that_hide_modules_are_named():
    result = environment({"XLA_FLAGS": "--xla_dump_hlo_module_re=f --a=1"}, Path("/d"))
    assert result.hiding_flags == ("--xla_dump_hlo_module_re=f",)
    assert "not every module may be dumped: XLA_FLAGS have --xla_dump_hlo_m" in result.notes[0]


def test_a_cache_directory_of_the_user_is_left_out():
    result = environment({"JAX_COMPILATION_CACHE_DIR": "c"}, Path("/d"))
    assert "JAX_COMPILATION_CACHE_DIR" not in result.variables


# -- what it runs with ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py", "--x"], "train"),
        (["/opt/python3.12", "-O", "a/b/train.py"], "train"),
        (["python", "-m", "my.train", "x.txt"], "my.train"),
        (["python"], "python"),
        (["/usr/bin/pytest", "tests/test_a.py"], "pytest"),
        (["./run.py"], "run"),
    ],
)
def test_name_of_a_run_without_one(command, name):
    now = datetime(2026, 1, 31, 23, 59, 58)
    assert run_name(command, now) == f"{name}-20260131-235958"


def fake_packages(folder):
    for name, version in (("jax", "9.8.7"), ("jaxlib", "9.8.6")):
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.slow
def test_versions_come_from_the_commands_own_python(tmp_path):
    fake_packages(tmp_path / "site")
    link = tmp_path / "bin" / "python3"
    link.parent.mkdir()
    link.symlink_to(sys.executable)
    script = tmp_path / "bin" / "tool"
    script.write_text(f"#!{link} -O\n")
    script.chmod(0o755)
    env_script = tmp_path / "bin" / "other"
    env_script.write_text("#!/usr/bin/env python3\n")
    env_script.chmod(0o755)
    variables = {"PATH": str(link.parent), "PYTHONPATH": str(tmp_path / "site")}
    expected = {"jax": "9.8.7", "jaxlib": "9.8.6"}
    for program in ("python3", str(link), "tool", "other", "/bin/sh", "missing"):
        assert _versions([program], variables) == expected
    assert _versions(["/bin/sh"], {"PATH": str(tmp_path)}) == {}


def test_a_program_that_is_not_there_has_no_python():
    assert _script_python("nowhere", None) is None
    Path("tool").write_text("#!/usr/bin/env python3-none -u\n")
    assert _script_python("tool", os.defpath) is None
    Path("tool").write_bytes(b"\x7fELF")
    assert _script_python("tool", os.defpath) is None


def test_a_table_fits_the_terminal_and_is_whole_in_a_pipe(monkeypatch, capfd):
    result = Result([("run_name", "VARCHAR"), ("n", "BIGINT")], [("r" * 90, 1), ("\x1bs", 2)])
    show_result(result, "more elsewhere", "table", None)
    err = capfd.readouterr().err
    assert "r" * 90 in err and err.endswith("bufdb: more elsewhere\n")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    show_result(result, None, "csv", None)
    assert "\x1b" not in terminal.getvalue()
    terminal.truncate(terminal.seek(0))
    show_result(result, None, "table", None)
    assert max(map(len, terminal.getvalue().splitlines())) <= 40


def test_labels_show_how_the_pool_is_sized():
    variables = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".93", "XLA_PYTHON_CLIENT_PREALLOCATE": " "}
    assert pool_labels(variables) == {"memory_fraction": ".93"}
    variables |= {"XLA_CLIENT_MEM_FRACTION": "0.5", "XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}
    assert pool_labels(variables) == {"memory_fraction": "0.5", "allocator": "cuda_async"}


@pytest.mark.slow
def test_labels_show_commit_and_changes(monkeypatch):
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not there")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    variables = environment(dict(os.environ), Path("/d"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(Path.cwd().parent))
    assert "git_commit" not in program_labels(["true"], variables)
    author = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run([git, "init", "-q"], check=True)
    Path("a").write_text("1")
    subprocess.run([git, "add", "a"], check=True)
    subprocess.run([git, *author, "commit", "-qm", "m"], check=True)
    head = subprocess.run([git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    commit = head.stdout.strip()
    assert program_labels(["true"], variables)["git_commit"] == commit
    Path("a").write_text("2")
    assert program_labels(["true"], variables)["git_commit"] == f"{commit}+dirty"


# -- a command --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_kernel_that_is_refused_is_stored_with_the_run():
    text = oom_messages.KERNELS["2025"]
    command = fake(f"dump(); sys.stderr.write({text!r}); sys.exit(1)")
    code, _, err = run_apart("--run", "r", command=command)
    assert code == 1
    assert text in err
    assert "36.25 MiB needed by %heron_kernel.3" in err
    assert rows("SELECT module_key, peak_unknown_reason FROM modules WHERE format_era = 'M'") == [
        ("compiler.log/message_1", None)
    ]


@pytest.mark.slow
def test_a_command_has_the_terminal():
    text = oom_messages.KERNELS["2026"]
    size = "print(sys.stderr.isatty(), os.get_terminal_size(2).columns, file=sys.stderr)"
    command = fake(f"import os\n{size}\nsys.stderr.write({text!r}); sys.exit(1)")
    leader, follower = pty.openpty()
    termios.tcsetwinsize(leader, (30, 123))
    process = subprocess.Popen([*BUFDB, "capture", "--run", "r", "--", *command], stderr=follower)
    os.close(follower)
    output = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(leader, 1 << 16):
            output += part
    os.close(leader)
    assert process.wait(WAIT_SECONDS) == 1
    assert b"True 123\r\n" in output and text.splitlines()[1].encode() + b"\r\n" in output
    assert rows("SELECT module_key FROM modules") == [("compiler.log/message_1",)]


@pytest.mark.slow
def test_what_a_command_says_passes_whole_and_in_order():
    command = fake("dump()\nfor n in range(40000): print('line', n, file=sys.stderr)")
    code, _, err = run_apart(command=command)
    assert code == 0
    lines = [line for line in err.splitlines() if line.startswith("line ")]
    assert lines == [f"line {n}" for n in range(40000)]


@pytest.mark.slow
def test_what_a_command_leaves_running_holds_nothing_up():
    sleeping = [sys.executable, "-c", "import time; time.sleep(30)"]
    body = f"dump()\nimport subprocess\nsubprocess.Popen({sleeping}, stdout=subprocess.DEVNULL)"
    begun = time.monotonic()
    code, _, _ = run_apart(command=fake(body))
    assert (code, time.monotonic() - begun < 25) == (0, True)


@pytest.mark.slow
def test_a_run_with_summary_and_labels(left_behind, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--a=1")
    command = fake(
        "dump(); print('out', sys.stdin.read(), sys.argv[1:]); print('err', file=sys.stderr)"
    )
    code, out, err = run_apart(
        "--run", "r", "--label", "batch=8", command=[*command, "--db", "--", "x y"], input="in"
    )
    assert (code, out) == (0, "out in ['--db', '--', 'x y']\n")
    lines = err.splitlines()
    assert lines[:2] == [
        "bufdb: JAX's persistent compilation cache is off for the command: a hit dumps nothing",
        "err",
    ]
    assert lines[2].startswith("bufdb: run r in bufdb.duckdb: ingested 3 modules (0 replaced), ")
    assert lines[3:5] == [
        "3 modules of 3 functions for cpu in 1 run",
        "highest peak: 8.49 MiB of host memory, train_step of run r",
    ]
    assert any("train.py:53" in line for line in lines)
    assert lines[-1] == "bufdb summary --run r shows what holds it"
    assert rows("SELECT run_name FROM runs") == [("r",)]
    run_labels = labels("r")
    assert run_labels.pop("command") == shlex.join([*command, "--db", "--", "x y"])
    run_labels = {
        label: value for label, value in run_labels.items() if not label.startswith(("jax", "git"))
    }
    assert run_labels == {"batch": "8", "exit_code": "0", "xla_flags": "--a=1"}
    assert rows("SELECT label FROM run_labels WHERE NOT is_metadata") == [("batch",)]
    assert left_behind() == []


@pytest.mark.slow
def test_two_dashes_are_optional_and_user_labels_win(empty_db):
    shutil.copy(empty_db, "bufdb.duckdb")
    command = fake("dump()")
    options = ["capture", "--run", "r", "--label", "command=mine", *command, "--run", "x"]
    assert cli.run(options) == 0
    assert labels("r")["command"] == "mine"
    assert rows("SELECT label FROM run_labels WHERE NOT is_metadata") == [("command",)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "label", "column"),
    [("scaling", "batch", "point_count"), ("ranks -p figure peak", "rank", "rank_count")],
)
def test_runs_whose_commands_differ_are_compared(run, capfd, query, label, column):
    for number in ("8", "16"):
        name = ("--run", f"r{number}", "--label", f"{label}={number}")
        assert run(*name, command=[*fake(f"dump('cpu_b{number}')"), "--size", number])[0] == 0
    words = ["query", *query.split(), "-p", "function", "train_step", "--format", "jsonl"]
    cli.run(words)
    row = json.loads(capfd.readouterr().out)
    assert (row["other_labels"], row[column]) == ("", 2)
    # Named, metadata keeps runs apart as any label does.
    for fixed, count in (("command", 2), ("exit_code, command", 2), ("exit_code", 1)):
        cli.run([*words, "-p", "fixed", fixed])
        assert capfd.readouterr().out.count("\n") == count


@pytest.mark.slow  # four captures
def test_diff_pairs_captured_runs_by_the_labels_of_their_user(run, capfd):
    for number in ("8", "16"):
        for part in ("a", "b"):
            name = ("--run", f"{part}{number}", "--label", f"part={part}", "--label", f"b={number}")
            command = [*fake(f"dump('cpu_b{number}')"), f"--batch={number}", part]
            assert run(*name, command=command)[0] == 0
    options = ["diff", "b=8", "b=16", "--function", "init", "--format", "jsonl"]
    assert cli.run(options) == 0
    json_rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert {(row["base_run_name"], row["new_run_name"]) for row in json_rows} == {
        ("a8", "a16"),
        ("b8", "b16"),
    }
    assert cli.run(["query", "modules", "--run", "command=*16 b", "--format", "csv"]) == 0
    assert capfd.readouterr().out.count("\nb16,") == 3


@pytest.mark.slow
def test_a_failing_command_is_ingested_with_its_code(run, left_behind):
    code, out, err = run("--run", "r", command=fake("dump(); print(1); sys.exit(7)"))
    assert (code, out) == (7, "1\n")
    assert "ingested 3 modules" in err
    assert labels("r")["exit_code"] == "7"
    assert left_behind() == []


@pytest.mark.slow
def test_a_part_of_a_dump_is_ingested_with_diagnostics(run):
    body = """
folder = dump()
for name in os.listdir(folder):
    if "train_step" in name and name.endswith("-buffer-assignment-values.txt"):
        size = os.path.getsize(folder + "/" + name)
        os.truncate(folder + "/" + name, size // 2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    code, _, err = run("--run", "r", command=fake(body))
    assert code == 128 + signal.SIGKILL
    assert "ingested 3 modules" in err
    assert rows("SELECT count(*) > 0 FROM diagnostics") == [(True,)]
    assert labels("r")["exit_code"] == "137"


@pytest.mark.slow
def test_a_run_of_the_same_name_is_replaced(run):
    assert run("--run", "r", "--label", "old=1", command=fake("dump()"))[0] == 0
    code, _, err = run("--run", "r", command=fake("dump('tpu_b8')"))
    assert (code, "replaced run r, which had 3 modules\n" in err) == (0, True)
    assert rows("SELECT DISTINCT platform FROM modules") == [("tpu",)]
    assert "old" not in labels("r")


@pytest.mark.slow
def test_a_run_without_a_name_is_named_after_the_program(run):
    assert run(command=fake("dump()", "my_train.py"))[0] == 0
    ((name,),) = rows("SELECT run_name FROM runs")
    assert name.startswith("my_train-2")


@pytest.mark.slow
def test_dumps_that_are_kept(run, left_behind):
    code, _, _ = run(
        "--keep-dumps", "new/dumps", "--run", "r", command=fake("os.chdir('/'); dump()")
    )
    assert code == 0
    assert len(discover(Path("new/dumps"))) == 3
    assert left_behind() == []
    code, out, err = run("--keep-dumps", "new/dumps", command=fake("print(1)"))
    assert (code, out) == (2, "")
    assert "--keep-dumps new/dumps has files already; name a new or an empty directory" in err


@pytest.mark.slow
def test_the_table_can_go_to_a_file(run):
    with duckdb.connect("bufdb.duckdb") as con:
        Module(con, 1, "r")
    code, _, err = run("-o", "t.json", "--format", "json", "--run", "r", command=fake("dump()"))
    assert (code, "train_step" in err) == (0, False)
    assert "bufdb: replaced run r, which had 1 modules\n" in err
    json_rows = json.loads(Path("t.json").read_text())
    assert [row["peak_bytes"] for row in json_rows] == [8905504, 2116268, 924792]


@pytest.mark.slow
def test_several_processes_in_one_directory_are_noted(run):
    body = """
folder = dump()
for name in os.listdir(folder):
    if "jit_init" in name:
        shutil.copy(folder + "/" + name, folder + "/" + name.replace("jit_init", "jit_start"))
"""
    code, _, err = run("-q", "--run", "r", command=fake(body))
    assert (code, "files of several processes: module " in err) == (0, True)
    assert "ingested" not in err and "highest peak" not in err


# -- nothing dumped ---------------------------------------------------------------------------


def test_a_command_that_compiles_nothing(run, left_behind):
    Path("bufdb.duckdb").unlink()
    code, out, err = run("--run", "r", command=fake("print(1)"))
    assert (code, out) == (4, "1\n")
    assert "bufdb: nothing was dumped. Usual reasons:\n  - nothing was jitted" in err
    assert "the program sets XLA_FLAGS itself" in err
    assert not Path("bufdb.duckdb").exists()
    assert left_behind() == []
    code, _, err = run("--run", "r", command=fake("sys.exit(3)"))
    assert (code, "the command failed (exit code 3) before it compiled" in err) == (3, True)


@pytest.mark.slow
def test_a_command_whose_modules_come_from_a_cache(run, left_behind):
    body = """
folder = dump()
for name in os.listdir(folder):
    path = folder + "/" + name
    if name.endswith(".cpu_after_optimizations.txt"):
        os.rename(path, path.replace(".cpu_after", ".after"))
    elif "buffer" in name or "live" in name:
        os.remove(path)
"""
    code, _, err = run("--run", "r", command=fake(body))
    assert code == 4
    assert "nothing was compiled: 3 modules came from a compilation cache, such as mo" in err
    assert left_behind() == []
    more = body + "dump('gpu_b8')"
    code, _, err = run("--run", "r", command=fake(more))
    assert code == 0
    assert "3 modules came from a compilation cache and are not in the run" in err


def test_only_other_files(run, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_hlo_module_re=x")
    body = "open(dump() + '/../x', 'w'); shutil.rmtree(f := dump()); os.mkdir(f); "
    code, _, err = run(command=fake(body + "open(f + '/module_0001.a.debug_options', 'w')"))
    assert code == 4
    assert "  - XLA_FLAGS have --xla_dump_hlo_module_re=x: try without\n" in err
    assert "  - XLA dumped other files only" in err


# -- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "which command? bufdb capture -- COMMAND..."),
        (("--label", "x", "--", "true"), 2, "--label wants K=V, got 'x'"),
        (("--db", "no/x.duckdb", "--", "true"), 3, "cannot make no/x.duckdb: no directory no"),
        (("--", "no-such-command"), 127, "no command no-such-command"),
        (("--", "./plain"), 126, "cannot start ./plain: Permission denied"),
    ],
)
def test_errors(arguments, code, message, capfd, left_behind):
    Path("plain").touch()
    assert cli.run(["capture", *arguments]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(f"bufdb: error: {message}")
    assert left_behind() == []


def test_another_schema_version_is_refused_early(run):
    with duckdb.connect("bufdb.duckdb") as con:
        con.execute("UPDATE schema_info SET schema_version = 0")
    code, out, err = run(command=fake("print(1)"))
    assert (code, out) == (3, "")
    assert "has schema version 0" in err


@pytest.mark.slow
def test_dumps_are_kept_if_they_cannot_be_stored(run, left_behind):
    body = "dump(); open('bufdb.duckdb', 'w').write('no database' * 1000)"
    code, _, err = run("--run", "r", "--label", "a=1", "--own", "my_net", command=fake(body))
    assert code == 3
    (folder,) = left_behind()
    assert " --own=my_net\n" in err
    note = f"the dumps are kept: bufdb ingest {folder} --db bufdb.duckdb --run r --label=a=1 "
    assert f"{note}'--metadata=command=" in err
    assert "--metadata=exit_code=0" in err
    assert len(discover(folder)) == 3


# -- signals ----------------------------------------------------------------------------------

TALKING = """
seen = []
def say(*words):  # not print: the next signal may come before it has returned, and enters it twice
    os.write(1, (" ".join(words) + "\\n").encode())
def handle(number, frame):
    seen.append(signal.Signals(number).name)
    say("got", seen[-1])
    if set(seen) == set(sys.argv[1:]):
        time.sleep(0.3)  # a second one would be seen
        say("end", *seen)
        sys.exit(5)
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), handle)
say("ready")
for _ in range(600):  # a signal just before a long sleep would be handled only after it
    time.sleep(0.1)
"""
LIVED_ON = "bufdb: nothing was dumped"
"""Message of capture after a command that dumps nothing."""


@pytest.fixture
def start(empty_db):
    """Start capture of a command that prints some signals as it gets them and ends at the last."""
    shutil.copy(empty_db, "bufdb.duckdb")
    started = []

    def starting(*names, body="", before=(), **options):
        process = subprocess.Popen(
            [*before, *BUFDB, "capture", "--run", "r", "--", *fake(body + TALKING), *names],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield starting
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_signal_to_bufdb_reaches_the_command_once(start):
    names = ["SIGUSR1", "SIGHUP", "SIGINT", "SIGTERM"]
    process = start(*names, body="dump()\n", start_new_session=True)  # no terminal
    for name in names:
        process.send_signal(getattr(signal, name))
        assert process.stdout.readline() == f"got {name}\n"
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert out == f"end {' '.join(names)}\n"
    assert process.returncode == 5
    assert "ingested 3 modules" in err


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_command_that_a_signal_ends(start, name):
    process = start("SIGUSR1", body="dump()\n", start_new_session=True)
    process.send_signal(getattr(signal, name))
    _, err = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 128 + getattr(signal, name)
    assert "ingested 3 modules" in err
    assert labels("r")["exit_code"] == str(process.returncode)


@pytest.mark.slow
def test_ctrl_c_at_a_terminal_reaches_the_command_once(start):
    leader, follower = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(follower, termios.TIOCSCTTY, 0)

    process = start("SIGINT", stdin=follower, preexec_fn=take_terminal)
    os.close(follower)
    try:
        os.write(leader, b"\x03")
        out, err = process.communicate(timeout=WAIT_SECONDS)
    finally:
        os.close(leader)
    assert out == "got SIGINT\nend SIGINT\n"
    assert process.returncode == 5
    assert LIVED_ON in err


@pytest.mark.slow
def test_an_ignored_signal_stays_ignored(start):
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    process = start("SIGTERM", before=ignoring, start_new_session=True)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert out == "got SIGTERM\nend SIGTERM\n"
    assert LIVED_ON in err


# -- with jax ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jax_python():
    """An interpreter that has jax: that of BUFDB_TEST_PYTHON, else this one."""
    python = os.environ.get("BUFDB_TEST_PYTHON", sys.executable)
    done = subprocess.run([python, "-c", "import jaxlib"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"{python} has no jax; BUFDB_TEST_PYTHON can name a Python that has")
    return python


JAX = """
import sys
import jax
import jax.numpy as jnp

if "forced" in sys.argv:
    jax.config.update("jax_enable_compilation_cache", True)
if "cached" in sys.argv:
    jax.config.update("jax_compilation_cache_dir", "cache")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

@jax.jit
def step(x):
    return jnp.sin(x) @ x.T

if "none" not in sys.argv:
    step(jnp.ones((64, 64))).block_until_ready()
if "fail" in sys.argv:
    raise SystemExit(9)
if "wait" in sys.argv:
    print("ready", flush=True)
    input()
"""


def test_jax(run, jax_python, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    Path("train.py").write_text(JAX)
    command = [jax_python, "train.py"]
    peak = "SELECT peak_bytes FROM memory_figures WHERE function_name = 'step' AND run_name = '{}'"

    assert run("--run", "plain", command=command)[0] == 0
    assert rows(peak.format("plain")) == [(3 * 64 * 64 * 4,)]
    assert set(labels("plain")) >= {"jax", "jaxlib", "command", "exit_code"}

    assert run("--run", "failed", command=[*command, "fail"])[0] == 9
    assert rows(peak.format("failed")) == rows(peak.format("plain"))

    code, _, err = run("--run", "none", command=[*command, "none"])
    assert (code, "nothing was jitted" in err) == (4, True)

    # The program sets the directory itself; a warm cache must not hide the compilation.
    subprocess.run([*command, "cached"], check=True)
    assert run("--run", "warm", command=[*command, "cached"])[0] == 0
    assert rows(peak.format("warm")) == rows(peak.format("plain"))

    code, _, err = run("--run", "forced", command=[*command, "cached", "forced"])
    assert (code, "modules came from a compilation cache" in err) == (4, True)


def test_jax_interrupted(jax_python, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    Path("train.py").write_text(JAX)
    process = subprocess.Popen(
        [*BUFDB, "capture", "--run", "r", "--", jax_python, "train.py", "wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)  # until it waits for input
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT_SECONDS) == 130  # not communicate: the end of its input ends it too
    err = process.communicate()[1]
    assert "KeyboardInterrupt" in err
    assert "run r in bufdb.duckdb: ingested" in err
    assert ("step",) in rows("SELECT function_name FROM modules")
