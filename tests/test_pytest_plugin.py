"""The fixture bufdb_limit, in pytest sessions of its own."""

import importlib.metadata
import shutil
import subprocess
import sys

import pytest
from places import DEMO, ROOT

from bufdb import pytest_plugin

pytest_plugins = ["pytester"]

FAKE_JAX = f"""
import shutil, sys, types

events = []
config = types.SimpleNamespace(jax_enable_compilation_cache=True)
config.update = lambda name, value: (events.append(value), setattr(config, name, value))
cache = types.ModuleType("jax.experimental.compilation_cache.compilation_cache")
cache.reset_cache = lambda: events.append("reset")
jax = types.ModuleType("jax")
jax.config = config
sys.modules["jax"] = jax
sys.modules[cache.__name__] = cache

class Lowered:
    def compile(self, compiler_options):
        events.append(compiler_options.pop("mine"))
        assert config.jax_enable_compilation_cache is False
        shutil.copytree({str(DEMO / "cpu_b8")!r}, compiler_options["xla_dump_to"],
                        dirs_exist_ok=True)
"""


@pytest.fixture
def session(pytester, monkeypatch):
    """Run a test file with the plugin, whether or not its entry point is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(body, apart=False):
        """In a process of its own (`apart`) it takes five times as long."""
        pytester.makepyfile(f"DEMO = {str(DEMO)!r}\n{body}")
        run_it = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return run_it("-p", "bufdb.pytest_plugin", "-p", "no:cacheprovider")

    return run


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({}, "bufdb_limit wants a limit: one or more of need, peak"),
        ({"peek": 1}, "bufdb_limit has no limit 'peek'; there are need, peak"),
        ({"peak": "+5%"}, "peak='[+]5%': there is no base run here; give a size"),
        ({"peak": "5 apples"}, "5 apples"),
    ],
)
def test_what_is_no_limit_is_refused(limits, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pytest_plugin._limits(limits)


@pytest.mark.slow
def test_within(session):
    result = session(
        """
def test_step(bufdb_limit):
    figures = bufdb_limit.dumps(DEMO + "/cpu_b8", peak="9 MiB", temp=8_000_000, total="1 GB")
    assert figures["peak"] == 8905504
    assert figures["arguments"] == 927908
    assert bufdb_limit.dumps(DEMO + "/cpu_b8", function="init", peak="1 MiB")["peak"] == 924792
""",
        apart=True,
    )
    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_over_names_the_largest_contributors(session):
    result = session(
        """
def test_step(bufdb_limit):
    bufdb_limit.dumps(DEMO + "/cpu_b8", function="train_*", peak="1 MiB", arguments=1000)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "bufdb: peak of train_step is over its limit",
            "  peak          8.49 MiB (8905504 bytes)",
            "  limit         1.00 MiB (1048576 bytes)",
            "  too much      7.49 MiB (7856928 bytes)",
            "  memory space  host (color 0) of cpu",
            "  module        module_0002.jit_train_step.cpu_after_optimizations",
            "  largest of * values held at the peak:",
            "*800 KiB  temp  f32[[]800,256] *train.py:53 *",
            "bufdb: arguments of train_step is over its limit",
            "  limit         1000 B",
            "  largest of * values held at the peak among arguments:",
            "    *iB  donated_parameter  f32[[]*]*",
        ]
    )
    # The failure is only the message, without a line of the plugin's own code.
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('DEMO, function="stop", peak=1', "*peak (stop) cannot be judged: fits no module*"),
        (
            'DEMO + "/cpu_b8", color=3, peak=1',
            "*no memory space color 3 in the modules that match; there is ho*",
        ),
        ('DEMO + "/cpu_b8"', "*bufdb_limit wants a limit: one or more of need, peak, temp, *"),
        ('DEMO + "/cpu_b8", peek=1', "*bufdb_limit has no limit 'peek'; there are need, peak, *"),
        ('DEMO + "/cpu_b8", peak="1"', "*expected bytes such as 123456 or '16 GiB'*"),
        ('DEMO + "/cpu_b8", peak="+1%"', "*peak='+1%': there is no base run here; give a size"),
        ('".", peak=1', "*no buffer assignment in .: what was compiled came from a cache, or*"),
    ],
)
def test_what_cannot_be_judged_fails(session, call, message):
    result = session(f"def test_step(bufdb_limit):\n    bufdb_limit.dumps({call})\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])


@pytest.mark.slow
@pytest.mark.parametrize(("own", "source"), [("", "library tiny_"), ("tiny_*  other", "/tiny_")])
def test_lines_of_installed_packages_may_be_ones_own(session, monkeypatch, own, source):
    monkeypatch.setenv("BUFDB_OWN", own)
    result = session(
        """
def test_step(bufdb_limit):
    bufdb_limit.dumps(DEMO + "/../packaged/cpu", peak="1 KiB")
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{source}*.py:*"])
    assert ("library tiny_" in result.stdout.str()) == (not own)


@pytest.mark.slow
def test_a_dump_without_live_ranges_has_no_peak(session, tmp_path):
    folder = tmp_path / "dumps"
    folder.mkdir()
    for path in (DEMO / "cpu_b8").glob("*jit_init*-buffer-assignment.txt"):
        shutil.copy(path, folder)
    result = session(
        f"""
def test_temp(bufdb_limit):
    assert bufdb_limit.dumps({str(folder)!r}, temp="1 MiB")["peak"] is None
def test_peak(bufdb_limit):
    bufdb_limit.dumps({str(folder)!r}, peak="1 GiB")
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*peak of init cannot be judged: *the dump has no live ranges"])


@pytest.mark.slow
def test_a_lowered_function_is_compiled_past_the_cache(session):
    result = session(
        FAKE_JAX
        + """
def test_step(bufdb_limit):
    bufdb_limit(Lowered(), compiler_options={"mine": 1}, function="eval*", peak="3 MiB")
    assert events == [False, "reset", 1, True, "reset"]
    assert config.jax_enable_compilation_cache is True

def test_compiled(bufdb_limit):
    bufdb_limit(object(), peak="3 MiB")
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*wants what can still be compiled, jax.jit(f).lower(...)*"])


@pytest.mark.slow
def test_the_plugin_imports_nothing_heavy():
    text = (
        "import sys; before = set(sys.modules); import pytest; import bufdb.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    assert not modules & {"duckdb", "numpy", "nanoarrow", "sqlglot", "click", "jax"}
    own = {name for name in done.stdout.split() if name.startswith("bufdb")}
    assert own == {"bufdb", "bufdb.pytest_plugin"}


def test_the_entry_point_is_declared():
    import tomllib

    text = (ROOT / "pyproject.toml").read_text()
    declared = tomllib.loads(text)["project"]["entry-points"]["pytest11"]
    assert declared == {"bufdb": "bufdb.pytest_plugin"}
    installed = importlib.metadata.entry_points(group="pytest11", name="bufdb")
    assert {point.value for point in installed} <= {"bufdb.pytest_plugin"}


def test_a_real_compilation(session):
    """In this interpreter if it has jax, as BUFDB_TEST_PYTHON may not have pytest."""
    pytest.importorskip("jax", reason="this Python has no jax")
    result = session(
        """
import jax
import jax.numpy as jnp

jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

def step(x):
    return (jnp.sin(x) @ x.T).sum()

def test_step(bufdb_limit):
    x = jnp.ones((256, 256))
    jax.jit(step)(x)  # fills the cache
    lowered = jax.jit(step).lower(x)
    for _ in range(2):
        figures = bufdb_limit(lowered, function="step", peak="16 MiB")
        assert figures["arguments"] == 256 * 256 * 4
    bufdb_limit(lowered, peak=1000)
""",
        apart=True,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*bufdb: peak of step is over its limit", "* parameter *"])


LOWERED = """
import shutil

class Lowered:
    def compile(self, compiler_options):
        shutil.copytree(DEMO + "/cpu_b8", compiler_options["xla_dump_to"], dirs_exist_ok=True)
"""


@pytest.mark.slow
def test_assert_peak_gives_the_peak_or_shows_what_holds_it(session):
    result = session(
        f"""{LOWERED}
def test_within(assert_peak):
    assert assert_peak(Lowered(), max="9 MiB") == 8905504
    assert assert_peak(Lowered(), max="TPU v5e") == 8905504

def test_over(assert_peak):
    assert_peak(Lowered(), max=1048576)
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "bufdb: train_step needs more than its limit",
            "  needs         8.49 MiB (8905868 bytes)",
            "  peak          8.49 MiB (8905504 bytes)",
            "  limit         1.00 MiB (1048576 bytes)",
            "  too much      7.49 MiB (7857292 bytes)",
            "limit: 849.3% of 1.00 MiB: it does not fit",
            "lines that hold most of it",
            "* /home/user/model/train.py:*",
            "what would lower it most*",
        ]
    )


@pytest.mark.slow
def test_assert_peak_judges_no_unknown_peak(session):
    result = session(
        """
import shutil
from pathlib import Path

class Cut:
    def compile(self, compiler_options):
        folder = Path(compiler_options["xla_dump_to"])
        shutil.copytree(DEMO + "/cpu_b8", folder, dirs_exist_ok=True)
        for path in folder.glob("*-live-range.txt"):
            path.unlink()

def test_step(assert_peak):
    assert_peak(Cut(), max="1 GiB")
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["bufdb: the peak cannot be judged: *"])
