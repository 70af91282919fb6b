"""Environments of `bufdb blame --jax`, with a made-up uv; and the order of --bisect."""

import itertools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bufdb.answers.opening import open_readable
from bufdb.blame import comparison, environments
from bufdb.blame.series import Jump, Series, Step
from bufdb.errors import BufdbError, UsageError

UV = """#!/bin/sh
echo "$@" >> {calls}
case "$1 $*" in
  venv*) for last; do :; done; mkdir -p "$last/bin"; cp /bin/sh "$last/bin/python" ;;
  *"[tpu]"*) echo "  cause: Because there is no version of libtpu-nightly==1" >&2; exit 1 ;;
  *killed==*) kill -9 $$ ;;
  *slow==*) sleep 60 & echo $! > {calls}.pid; wait ;;
  *nope*) echo "  x No solution found" >&2; echo "error: no version of nope" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """A folder in which uv makes environments, and the list of its calls."""
    calls = tmp_path / "calls"
    calls.touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(UV.format(calls=calls))
    (tmp_path / "bin" / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


@pytest.mark.slow
def test_an_environment_is_made_once_for_each_set_of_packages(uv):
    notes = []
    first = environments.made(("jax==1", "flax"), note=notes.append)
    assert environments.made(("flax", "jax==1"), note=notes.append) == first
    assert Path(first).exists() and len(uv.read_text().splitlines()) == 2
    assert len(notes) == 1 and " MB in " in notes[0]
    assert environments.made(("jax==2",)) != first


@pytest.mark.slow
def test_one_that_is_being_made_is_awaited(uv):
    with ThreadPoolExecutor(2) as pool:
        first, other = pool.map(environments.made, [("jax==1",)] * 2)
    assert first == other and Path(first).exists()
    assert len(uv.read_text().splitlines()) == 2


@pytest.mark.slow
def test_one_that_was_interrupted_is_made_again(uv):
    python = Path(environments.made(("jax==1",)))
    (python.parent.parent / "bufdb-packages.txt").unlink()
    environments.made(("jax==1",))
    assert len(uv.read_text().splitlines()) == 4


@pytest.mark.slow
def test_a_failure_is_one_line_and_leaves_nothing(uv):
    with pytest.raises(BufdbError) as caught:
        environments.made(("nope==1",))
    assert str(caught.value) == (
        "making an environment with nope==1 failed: error: no version of nope"
    )
    assert list(environments.folder().iterdir()) == []


def test_an_installer_that_is_killed_leaves_nothing(uv):
    with pytest.raises(BufdbError, match=r"failed: its process was ended by SIGKILL: no message$"):
        environments.made(("killed==1",))
    assert list(environments.folder().iterdir()) == []


@pytest.mark.slow
def test_what_a_killed_start_left_is_removed_by_the_next(uv):
    code = "from bufdb.blame import environments; environments.made(('slow==1',))"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        while child.poll() is None and not Path(f"{uv}.pid").exists():
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
    assert len(list(environments.folder().iterdir())) == 2  # it, and its temporary files
    os.kill(int(Path(f"{uv}.pid").read_text()), signal.SIGKILL)
    python = environments.made(("jax==1",))
    assert list(environments.folder().iterdir()) == [Path(python).parents[1]]


@pytest.mark.slow
def test_an_environment_is_the_users_alone(uv):
    os.umask(before := os.umask(0))
    os.umask(0)
    try:
        python = Path(environments.made(("jax==1",)))
    finally:
        os.umask(before)
    for place in (environments.folder(), python.parents[1], python.parent):
        assert place.stat().st_mode & 0o077 == 0, place


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
def test_an_environment_that_others_may_write_is_not_believed(uv, depth):
    place = Path(environments.made(("jax==1",))).parents[depth]
    place.chmod(0o775)
    with pytest.raises(BufdbError) as caught:
        environments.made(("jax==1",))
    assert str(caught.value) == (
        f"environments in {place} are not used: others may write there; if no one has, "
        "chmod go-w makes it yours. XDG_CACHE_HOME names another folder"
    )


@pytest.mark.slow
@pytest.mark.parametrize("is_all", [True, False])
def test_an_environment_of_another_owner_is_not_believed(uv, monkeypatch, is_all):
    place = Path(environments.made(("jax==1",))).parents[1]
    real, other = os.geteuid(), os.geteuid() + 1
    owners = iter([other] if is_all else [real, other])
    monkeypatch.setattr(os, "geteuid", lambda: next(owners))
    with pytest.raises(BufdbError, match=f"are not used: it belongs to user {real}"):
        environments.made(("jax==1",))
    assert place.exists()


@pytest.mark.slow
def test_a_link_is_not_believed(uv, tmp_path):
    place = Path(environments.made(("jax==1",))).parents[1]
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BufdbError, match="are not used: it is no folder"):
        environments.made(("jax==1",))


@pytest.mark.parametrize(
    "text",
    [
        "flax",
        "flax==0.12.8",
        "jax[cpu,k8s]>=0.7,<0.9",
        "a.b_c-d~=1.0",
        "libtpu===0.0.8+x",
        "x!=1.*",
    ],
)
def test_a_package_with_versions_is_accepted(text):
    environments.require_requirements([text])


@pytest.mark.parametrize(
    "text",
    [
        "", "-r", "--index-url=https://x", "-e.", "-rx.txt", "flax --pre", "flax\n--pre", " flax",
        "flax @ file:///x", "flax@https://x/y.whl", "git+https://x/y", "file:x", "./flax",
        "/tmp/flax", "a/b", "flax==1 ; python_version>'3'", "evil.whl", "evil.tar.gz", "x[]",
        "flax==", "flax=1", "flax==1,", "$(x)", "~/x", "..", "flax.",
    ],
)  # fmt: skip
def test_what_is_no_package_with_versions_is_refused(call, text):
    with pytest.raises(UsageError, match=r"--with wants PACKAGE or PACKAGE==VERSION, got "):
        environments.require_requirements([text])
    code, _, err = call("blame", "t.py:f", "--jax", "0.7.1,0.7.2", f"--with={text}", "--db", "d")
    assert code == 2 and "--with wants PACKAGE" in err


@pytest.mark.parametrize(
    "text",
    ["", "0.7.1,", "-r", "0.7.1 --pre", "0.7.1 @ file:x", "file:x", "0.7.*", "0.7.1;x", "v1"],
)
def test_what_is_no_version_is_refused(call, text):
    code, _, err = call("blame", "t.py:f", f"--jax=0.7.2,{text}", "--db", "d")
    assert code == 2 and "--jax wants versions with commas, such as 0.7.2, got " in err


def test_a_libtpu_that_cannot_be_had_is_named_with_the_option(uv):
    with pytest.raises(BufdbError) as caught:
        environments.made(("jax[tpu]==0.5.0",))
    assert str(caught.value).endswith(
        "no version of libtpu-nightly==1; '--with libtpu==VERSION' takes another one"
    )


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "error: No solution found when resolving dependencies\n  cause: Because there is no "
            "version of a==1, we can conclude that a cannot be used.\n         And …",
            "Because there is no version of a==1",
        ),
        ("  × No solution found:\n  ╰─▶ Because a needs b.\n      And …", "Because a needs b"),
        ("ERROR: No version of a\nERROR: No match for a==1\n", "ERROR: No match for a==1"),
        (
            "ERROR: Cannot install a and b because these versions have conflicting dependencies.\n"
            "ERROR: ResolutionImpossible: for help visit https://…\n",
            "ERROR: Cannot install a and b because these versions have conflicting dependencies.",
        ),
        ("", "no message"),
    ],
)
def test_the_reason_is_what_uv_or_pip_says_of_it(output, reason):
    assert environments._reason(output.splitlines()) == reason


@pytest.mark.slow
def test_clean_removes_all_and_says_how_much(uv, call):
    environments.made(("jax==1",))
    environments.made(("jax==2",))
    code, out, _ = call("blame", "--clean")
    assert code == 0 and out.startswith("removed 2 environments, ")
    assert call("blame", "--clean")[1] == "removed 0 environments, 0 B\n"


def test_clean_leaves_what_a_link_names(call, tmp_path):
    (tmp_path / "other" / "kept").mkdir(parents=True)
    place = environments.folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "other")
    try:
        code, _, err = call("blame", "--clean")
    finally:
        place.unlink()
    assert code == 1 and f"cannot remove {place}: Cannot call rmtree on a symbolic link" in err
    assert (tmp_path / "other" / "kept").is_dir()


@pytest.mark.parametrize(
    ("needs", "tried"),
    [
        ([1, 1, 1, 1, 1, 2, 2, 2, 2], [0, 4, 8, 6, 5]),
        ([1, 2, 2, 2, 2, 2, 2, 2, 2], [0, 4, 8, 2, 1]),
        ([1, 1, 1, 1, 1, 1, 1, 1, 1], [0, 4, 8]),
        ([1, 1, 1, 1, None, 2, 2, 2, 2], [0, 4, 8, 3, 5]),
        ([1, 2], [0, 1]),
    ],
)
def test_bisect_compiles_what_it_takes(needs, tried, monkeypatch):
    """The series is made of needs, without a compiler; None cannot be compiled."""

    def series(_opened, steps, _percent):
        known = [step for step in steps if step.run is not None]
        pairs = [(a, b) for a, b in itertools.pairwise(known) if a.need_bytes != b.need_bytes]
        jumps = tuple(
            Jump(a.name, b.name, a.name, b.name, a.need_bytes, b.need_bytes, 1, 1) for a, b in pairs
        )
        return [Series("f", tuple(steps), jumps)]

    order = []

    class Counted(comparison.Blaming):
        def _try(self, at):
            order.append(at)
            need = needs[at]
            run = None if need is None else f"r{at}"
            self._steps[at] = Step(f"v{at}", run, need, reason=None if run else "no")

    monkeypatch.setattr(comparison, "series", series)
    work = Counted(None, [None] * len(needs), open_readable, "", "f", is_quick=True)
    (function_series,) = work.answer(bisect=True)
    assert order == tried
    before, after = (needs.index(2) - 1, needs.index(2)) if 2 in needs else (None, None)
    if before is not None:
        (jump,) = function_series.jumps
        assert jump.new == f"v{after}"
