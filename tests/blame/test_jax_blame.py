"""`bufdb blame` of a function: flags in child processes, on the CPU."""

import ast
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("jax", reason="this Python has no jax")

from bufdb.blame import report as reporting
from bufdb.blame import script
from bufdb.blame.comparison import Blaming
from bufdb.blame.runs import Compilation, Job, Variant
from bufdb.blame.series import Jump, Series
from bufdb.capture import call, worker
from bufdb.errors import BufdbError

PROGRAM = """from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@partial(jax.jit, donate_argnums=0)
def donated(x):
    n = x.shape[0]
    y = jnp.exp(x)
    s = lax.fori_loop(0, 8, lambda i, s: s + y[i * (n // 8)], jnp.float32(0))
    return y * 2 + s


def sorts(x):
    a = jnp.sort(x + 1.0, axis=0)
    b = jnp.sort(x + 1.0, axis=0)
    return a @ b


def ranks(x):
    return jnp.argsort(x)


def args(n=64):
    return (jax.ShapeDtypeStruct((n, n), jnp.float32),)


def fails(x):
    raise ValueError("no such layer")
"""
FLAG = "xla_disable_hlo_passes=cse"


@pytest.fixture
def blame(tmp_path, call, monkeypatch):
    (tmp_path / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda *words: call("blame", *words, "--db", "d.duckdb")


def test_a_flag_is_named_with_what_it_grew_and_reported(blame, call, tmp_path, monkeypatch):
    """One compilation of each kind for the answer and two reports: each is a process."""
    text = (tmp_path / "train.py").read_text()
    for word, own in (("sorts", "zebra_lens"), ("(x", "(giraffe"), ("x + 1", "giraffe + 1")):
        text = text.replace(word, own)
    (tmp_path / "crow.py").write_text(text)
    written = reporting.report

    def twice(work, compared, folder, *, is_anonymous):
        written(work, compared, folder, is_anonymous=is_anonymous)
        assert not is_anonymous
        written(work, compared, tmp_path / "hidden", is_anonymous=True)

    monkeypatch.setattr(reporting, "report", twice)
    options = ("crow.py:zebra_lens", "--args", "args(66)", "--flag", FLAG, "--report", "bug")
    code, out, err = blame(*options)
    assert code == 1, err
    first, *lines = out.splitlines()
    assert first == (
        "zebra_lens: need 51.1 KiB at xla_disable_hlo_passes=default, "
        "68.1 KiB at xla_disable_hlo_passes=cse"
    )
    assert lines[0].startswith("xla_disable_hlo_passes=cse: +17.1 KiB over ")  # aligned
    assert lines[1] == "  +17.0 KiB add crow.py:18 f32[66,66], a temp of its own"
    query = "SELECT run_name, label_value FROM run_labels WHERE label = 'xla_disable_hlo_passes'"
    _, out, _ = call("sql", f"{query} ORDER BY ALL", "--db", "d.duckdb", "--format", "csv")
    assert out.splitlines()[1:] == [
        "zebra_lens@xla_disable_hlo_passes=cse,cse",
        "zebra_lens@xla_disable_hlo_passes=default,default",
    ]
    check_report(tmp_path / "bug")
    check_anonymous_report(tmp_path / "hidden", tmp_path.name)
    assert blame(*options)[0] == 2  # it is there


def check_report(folder):
    """It has smaller arguments and both dumps."""
    text = (folder / "README.md").read_text()
    assert "stayed: 66 → 33." in text and "f32[33,33]" in text
    assert "zebra_lens(args(66))` of `crow.py:zebra_lens`" in text
    for side in reporting.SIDES:
        assert "tensor<33x33xf32>" in (folder / side / "stablehlo.mlir").read_text()
        assert len(list((folder / side).glob("*-buffer-assignment.txt"))) == 1
        assert list((folder / side / "passes").glob("*.after_fusion.*"))


def check_anonymous_report(folder, name):
    """It has no word of the user, nor the name of the folder that the file is in."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        text = f"{path.relative_to(folder)} {path.read_text()}"
        for word in ("zebra", "crow", "giraffe", name):
            assert word not in text, path
    assert any(".after_cse" in path.name or "algsimp" in path.name for path in files)
    assert "sort" in (folder / "new" / "stablehlo.mlir").read_text()


def test_a_report_is_anonymous_as_the_option_says(blame, monkeypatch):
    jump = Jump("old", "new", "old", "new", 64, 128, 64, 128)
    answer, reports = [Series("sorts", (), (jump,))], []
    monkeypatch.setattr(Blaming, "answer", lambda work, *, bisect: answer)
    monkeypatch.setattr(reporting, "report", lambda *words, **how: reports.append((words[2:], how)))
    options = ("train.py:sorts", "--args", "args(4)", "--flag", FLAG, "--report", "bug")
    for words in ((), ("--anonymize",)):
        blame(*options, *words)
    assert reports == [((Path("bug"),), {"is_anonymous": one}) for one in (False, True)]


@pytest.mark.slow
def test_a_flag_without_a_jump_says_so(blame):
    flag = "xla_cpu_enable_fast_math=false,true"
    code, out, err = blame("train.py:sorts", "--args", "f32[64,64]", "--flag", flag)
    assert (code, out) == (
        0,
        "sorts: no jump: 48.0 KiB from xla_cpu_enable_fast_math=false to "
        "xla_cpu_enable_fast_math=true\n",
    ), err


@pytest.mark.slow
def test_what_fails_is_a_line_and_others_go_on(blame, tmp_path):
    (tmp_path / "without").write_text("#!/bin/sh\necho no such interpreter >&2\nexit 3\n")
    (tmp_path / "without").chmod(0o755)
    pythons = [
        item for path in (sys.executable, "./without", "./absent") for item in ("--python", path)
    ]
    code, _, err = blame("train.py:sorts", "--args", "args(8)", *pythons)
    assert code == 1
    assert "python ./without: its process ended with code 3: no such interpreter" in err
    assert "python ./absent: cannot start ./absent: No such file or directory" in err
    assert err.splitlines()[-1].startswith("bufdb: error: 1 of 3 could be compiled: ")


@pytest.mark.slow
def test_an_exception_of_the_user_is_in_one_line(blame):
    code, _, err = blame("train.py:fails", "--args", "f32[8]", "--flag", FLAG)
    assert code == 1
    assert "tracing train.py:fails failed: ValueError: no such layer" in err


@pytest.mark.parametrize("file", [script.__file__, call.__file__, worker.__file__])
def test_what_an_environment_runs_needs_nothing_of_bufdb(file):
    tree = ast.parse(Path(file).read_text(), feature_version=(3, 9))
    names = [item.module for item in ast.walk(tree) if isinstance(item, ast.ImportFrom)]
    names += [
        name.name for item in ast.walk(tree) if isinstance(item, ast.Import) for name in item.names
    ]
    own = sys.stdlib_module_names | {"jax", "numpy"}
    assert all(str(name).split(".")[0] in own for name in names), names


@dataclass(frozen=True)
class Sized(Job):
    """Two ways to compile: the new one needs a third more while a size is at least `least`."""

    least: int = 1

    def compile(self, variant, **how):
        sizes = [size // self.divisors.get(size, 1) for size in (48, 12)]
        if sizes[1] % 2:
            raise BufdbError("no equal parts")
        need = sizes[0] * (4 if variant.value == "new" and sizes[0] >= self.least else 3)
        (self.folder / "sizes.json").write_text("[48, 12]")
        return Compilation(self.folder, {}, "cpu", None, need)


@pytest.mark.parametrize(("least", "divisors"), [(1, 16), (5, 8), (9, 4), (20, 2), (40, 1)])
def test_arguments_are_as_small_as_the_jump_stays(tmp_path, least, divisors):
    """A size whose program is not compiled is too small, too."""
    ways = [Variant("xla_flag", value, "python") for value in ("old", "new")]
    job = Sized("train.py:f", "", tmp_path, least=least)
    wanted = {48: divisors, 12: 2}
    assert reporting.smallest(job, *ways, 1) == {size: by for size, by in wanted.items() if by > 1}


@pytest.mark.slow
def test_what_jax_traces_is_its_own_doing(blame):
    """With 64 bits the indices are twice as large; the old StableHLO has 32."""
    pytest.importorskip("flatbuffers", reason="jax exports nothing without flatbuffers")
    options = ("train.py:ranks", "--args", "f32[4096]", "--flag", "jax_enable_x64=false,true")
    code, out, err = blame(*options)
    assert code == 1, err
    assert "\n  jax's tracing: jax_enable_x64=true needs " in out
    assert "for the StableHLO of jax_enable_x64=false" in out


@pytest.mark.slow
def test_a_quick_answer_compiles_nothing_for_the_cause(blame):
    options = ("train.py:sorts", "--args", "args(64)", "--flag", FLAG)
    code, out, _ = blame(*options, "--quick", "--format", "json")
    (jump,) = json.loads(out)["series"][0]["jumps"]
    assert code == 1 and (jump["passes"], jump["culprit"]) == ([], None)


@pytest.mark.slow
def test_a_target_need_not_be_there(blame):
    pytest.importorskip("libtpu", reason="no compiler for TPUs")
    options = ("train.py:sorts", "--args", "args(64)", "--target", "v5e-4", "--flag")
    code, out, err = blame(*options, "xla_tpu_scoped_vmem_limit_kib=16384,16000", "--quick")
    assert out.startswith("sorts: "), err
    assert (code, " need " in out) in ((0, False), (1, True))
    code, _, err = blame(*options, "xla_tpu_no_such_flag=1", "--quick")
    assert code == 1 and "Unknown command line flag 'xla_tpu_no_such_flag'" in err


def test_a_flag_of_a_tpu_is_refused_without_one(blame):
    code, _, err = blame("train.py:sorts", "--args", "args(8)", "--flag", "xla_tpu_x=1")
    assert code == 1 and "flags of a TPU are not for cpu" in err
