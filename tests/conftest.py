"""Options, databases and other things that several tests share."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import duckdb
import hypothesis
import pytest
import touched
from kept import Kept
from once import made_once
from places import DEMO, GOLDEN, LABELS, MEMORY, PROFILES
from small_db import open_copy

from bufdb import cli
from bufdb.database import store
from bufdb.dumps import profiles
from bufdb.ingest.ingest import ingest_into
from bufdb.user_cache import OFF, VARIABLE

FIRST_DUMP_TIME = 1_750_000_000
"""Time given to the files of the first demo run [s since 1970]; each next run is an hour later."""

SETTINGS = (
    "BUFDB_DB",
    "BUFDB_MEMORY_LIMIT",
    "BUFDB_QUERIES",
    "XLA_FLAGS",
    "JAX_COMPILATION_CACHE_DIR",
)
"""Variables by which a user's environment could change an answer."""


_NOT_SLOW = "not slow and not by_hand"
"""What pyproject.toml chooses."""
_ALONE = ("slow", "by_hand")
"""Marks that few tests have: with one as the expression most files have none."""

_NEW_OBJECTS = 50_000
"""Objects that tests make before the collector looks at them; Python has 700 [count]."""

# How long an example takes says more of the machine than of bufdb.
hypothesis.settings.register_profile("bufdb", deadline=None)
hypothesis.settings.load_profile("bufdb")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write tests/golden, and the generated parts and examples of the pages",
    )
    parser.addoption(
        "--touched",
        metavar="COMMIT",
        nargs="?",
        const="HEAD",
        help="run the tests that the change since a commit (HEAD) touches, slow ones too",
    )
    parser.addoption(
        "--once",
        metavar="FILE",
        type=Path,
        help="leave out the tests that FILE names, and add those that pass to it: the next Python, "
        "with more packages, runs what was skipped for lack of them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose slow tests, too, with an option that is about every touched or golden file.

    Before any test module imports JAX, it and children are set to compile with few of LLVM's
    passes: the same buffers in four fifths of the time, results equal to rounding.
    """
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    is_all = config.getoption("--touched") or config.getoption("--update-golden")
    if is_all and config.option.markexpr == _NOT_SLOW:
        config.option.markexpr = "not by_hand"
    once = config.getoption("--once")
    is_worker = hasattr(config, "workerinput")  # one of xdist, which reports to its controller
    if once is not None and not is_worker:
        config.pluginmanager.register(_Passed(once))
    if is_worker and config.workerinput["workerid"] == "gw1" and len(config.args) == 1:
        config.pluginmanager.register(_Backwards())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.name.startswith("test_"):
        return None
    mark = config.option.markexpr
    if mark in _ALONE and not _may_have(mark, collection_path):
        return True
    once = config.getoption("--once")
    if once is not None and str(collection_path.relative_to(config.rootpath)) in _finished(once):
        return True
    base = config.getoption("--touched")
    return None if base is None or collection_path in touched.choose(base) else True


def _may_have(mark: str, path: Path) -> bool:
    """Return whether a file, its folder's fixtures or shared code that it names has the mark."""
    texts = [
        one.read_text("utf-8") for one in (path, path.with_name("conftest.py")) if one.exists()
    ]
    words = (f"mark.{mark}", "mark.sample(", *_shared_with(mark))
    return any(word in text for text in texts for word in words)


@functools.cache
def _shared_with(mark: str) -> list[str]:
    support = Path(__file__).with_name("support").glob("*.py")
    return [one.stem for one in support if f"mark.{mark}" in one.read_text("utf-8")]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark cases of tests marked `sample(n)` or `sample(0, n)`, and leave out those of --once.

    Every n-th runs always, or is slow; the others run by hand.
    """
    seen: Counter[str] = Counter()
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample is not None:
            name = item.nodeid.partition("[")[0]
            is_chosen = seen[name] % (sample.args[0] or sample.args[1]) == 0
            if not is_chosen:
                item.add_marker(pytest.mark.by_hand)
            elif not sample.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[name] += 1
        if item.get_closest_marker("by_hand") is not None:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
    once = config.getoption("--once")
    if once is None:
        return
    if not _all_of(once).exists() and os.environ.get("PYTEST_XDIST_WORKER") in (None, "gw0"):
        ids = [item.nodeid for item in items if item.get_closest_marker("by_hand") is None]
        _all_of(once).write_text("\n".join(ids), "utf-8")
    if once.exists():
        passed = set(once.read_text("utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


def _all_of(once: Path) -> Path:
    """Where the first run with --once writes the tests that run on every commit."""
    return once.with_name(f"{once.name}.all")


@functools.cache
def _finished(once: Path) -> set[str]:
    """Files whose tests have all passed, slow ones too: those need not be imported again."""
    if not (_all_of(once).exists() and once.exists()):
        return set()
    every = _all_of(once).read_text("utf-8").splitlines()
    left = {*every}.difference(once.read_text("utf-8").splitlines())
    return {one.partition("::")[0] for one in every} - {one.partition("::")[0] for one in left}


class _Passed:
    """Writes the ids of tests that pass to the file of --once."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")


class _Backwards:
    """Lets the second worker import files from the last on, and puts the tests in order again.

    Where nothing is compiled yet, each worker compiles half of the files: in the same order both
    would compile the same ones at the same time.
    """

    def __init__(self) -> None:
        self.places: dict[pytest.Collector | pytest.Item, int] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if isinstance(collector, pytest.Directory) and report.result:
            self.places |= {child: place for place, child in enumerate(report.result)}
            report.result.reverse()
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: [self.places.get(node, 0) for node in item.listchain()])


def pytest_collection_finish() -> None:
    """Freeze collected tests, which live to the end: the collector can skip them.

    What a test makes is seldom in a cycle, and much of it: JAX's traces are a million objects.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_compiled_before() -> None:
    """Keep what tests compile out of the user's cache, and what that has out of tests."""
    os.environ[VARIABLE] = OFF


@pytest.fixture(scope="session", autouse=True)
def _signals_are_not_ignored() -> None:
    """Give commands that tests start the signals that they have at a terminal.

    A process inherits ignored signals from its parent, such as nohup or a shell that starts it in
    the background, but not handlers.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


# -- commands and files ----------------------------------------------------------------------------

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Run a command in this process; return exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode(errors="backslashreplace")

    return run


@pytest.fixture
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run in an empty working directory, without the settings of the user who runs the tests."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a file of tests/golden/, or write it there with `--update-golden`."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.write_text(text, encoding="utf-8", newline="\n")
        assert path.is_file(), "no golden file; 'pytest --update-golden' writes it"
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines()

    return check


# -- databases -------------------------------------------------------------------------------------


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Replace the user's cache folder for the tests and every process that they start."""
    folder = made_once(tmp_path_factory, "cache", lambda folder: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        if sys.dont_write_bytecode:
            # Otherwise each process that a test starts compiles bufdb again, a fifth of its time.
            patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
            patch.setenv("PYTHONPYCACHEPREFIX", str(folder / "bytecode"))
        yield folder


@pytest.fixture(scope="session")
def empty_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with the schema and no rows, to be copied."""

    def make(folder: Path) -> None:
        store.open_writable(str(folder / "empty.duckdb")).close()

    return made_once(tmp_path_factory, "empty", make) / "empty.duckdb"


Fresh = Callable[[], duckdb.DuckDBPyConnection]


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """Open an empty in-memory database with the schema, as a copy of one."""

    def make(folder: Path) -> None:
        # Older forms of a file leave parts of macros out.
        newest = {"storage_compatibility_version": "latest"}
        store.open_writable(str(folder / "fresh.duckdb"), newest).close()

    path = made_once(tmp_path_factory, "fresh", make) / "fresh.duckdb"
    return lambda: open_copy(path)


@pytest.fixture(scope="session")
def _kept(fresh: Fresh) -> Iterator[Kept]:
    kept = Kept(fresh)
    yield kept
    kept.close()


@pytest.fixture
def con(_kept: Kept) -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database in memory with the schema; rows alone may be changed, else see `fresh`."""
    with _kept.lent() as connection:
        yield connection


@pytest.fixture(scope="session")
def demo_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one run for each directory of data/demo, the same on every machine."""

    def make(folder: Path) -> None:
        shutil.copytree(DEMO, folder / "demo")
        runs = sorted(path for path in (folder / "demo").iterdir() if path.is_dir())
        with (
            contextlib.chdir(folder),  # for a runs.source_path that does not depend on the machine
            contextlib.closing(store.open_writable("demo.duckdb")) as con,
        ):
            for number, run in enumerate(runs):
                time = FIRST_DUMP_TIME + 3600 * number
                for path in run.rglob("*"):
                    os.utime(path, (time, time))
                profile = PROFILES.get(run.name)
                ingest_into(
                    con,
                    [run.relative_to(folder), *MEMORY.get(run.name, [])],
                    run=run.name,
                    labels=LABELS[run.name],
                    profile=None if profile is None else profiles.load(profile, print),
                )

    return made_once(tmp_path_factory, "demo", make) / "demo.duckdb"


@pytest.fixture(scope="session")
def _demo_con(demo_db: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(demo_db), read_only=True) as connection:
        # The rule takes most of the plan of advice, as schema/README.md says.
        connection.execute("SET disabled_optimizers = 'projection_pullup'")
        yield connection


@pytest.fixture
def demo(_demo_con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A connection to `demo_db` with variables of its own."""
    return _demo_con.cursor()
