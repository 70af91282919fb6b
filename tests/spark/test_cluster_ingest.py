"""Workers of a cluster store the rows that one machine stores, whatever becomes of some of them."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from datasets import RUN, TODAY, change, copied, objects, prepared, rows_on, stored
from places import DEMO, ROOT

from bufdb.dataset.compact import compact
from bufdb.dataset.storage import STAGING
from bufdb.dumps.remote import Url
from bufdb.errors import BufdbError
from bufdb.ingest.plan import Summary
from bufdb.spark.cluster_ingest import ingest
from bufdb.spark.part import Part, SparkScatter, Target, reason, store_pickled, unseen

SCRIPT = ROOT / "tests" / "support" / "cluster.py"


@dataclass
class Here:
    """A cluster whose workers are this process."""

    before: Callable[[], object] = lambda: None
    """Called when parts are to be stored."""
    after: Callable[[], object] = lambda: None
    parts: list[Part] = field(default_factory=list)
    slots = 2

    def pickled(self, part: Part) -> bytes:
        return pickle.dumps(part)

    def check(self, target: Target, paths: Sequence[str]) -> list[str]:
        target.require()
        return unseen(list(paths))

    def store(self, parts: Sequence[bytes], watch: Callable[[], None] | None) -> list[bytes]:
        self.before()
        self.parts += map(pickle.loads, parts)
        results = []
        for part in parts:
            results.append(store_pickled(part))
            if watch is not None:
                watch()
        self.after()
        return results


def figures(summary: Summary) -> dict[str, object]:
    return {**vars(summary), "seconds": 0}


def by_workers(url: object, *paths: object, cluster: object = None, **more: object) -> Summary:
    more = {"metadata": {"dt": TODAY}, **more}
    return ingest(cluster or Here(), str(url), list(paths or (RUN,)), **more)


def alone(url: Path, *paths: object, **more: object) -> Summary:
    from bufdb.dataset.dump_ingest import ingest as ingest_here

    return ingest_here(str(url), list(paths or (RUN,)), **{"metadata": {"dt": TODAY}, **more})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return copied(tmp_path / "cpu_b8")


# -- without Spark ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_workers_give_the_rows_and_summary_of_one_machine(tmp_path):
    paths = [DEMO / "cpu_b8", DEMO / "gpu_b8", ROOT / "data/oom/gpu.log"]
    more = {"labels": {"batch": "8"}, "own_globs": ["jax"]}
    expected = alone(tmp_path / "a", *paths, **more)
    assert figures(by_workers(tmp_path / "b", *paths, **more)) == figures(expected)
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")
    assert objects(tmp_path / "a", "values") == objects(tmp_path / "b", "values")


@pytest.mark.slow
def test_only_what_has_changed_is_replaced(tmp_path, run):
    stored(tmp_path / "a", run)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert by_workers(tmp_path / "b", run).line().endswith("unchanged 3, skipped 0")
    change(run)
    expected, actual = alone(tmp_path / "a", run), by_workers(tmp_path / "b", run)
    assert figures(actual) == figures(expected)
    assert actual.replaced_count == 1
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


@pytest.mark.slow
def test_the_workers_mark_outlives_a_compaction(tmp_path):
    def hours_pass():
        (mark,) = (tmp_path / STAGING).glob("*/mark")
        for path in (mark, mark.parent):
            os.utime(path, (0, 0))

    compacted = []
    cluster = Here(hours_pass, lambda: compacted.append(compact(str(tmp_path), [TODAY])))
    assert by_workers(tmp_path, cluster=cluster).exit_code == 0
    assert [done.stopped_count for done in compacted] == [0]


@pytest.mark.slow
def test_what_is_gone_from_the_paths_is_pruned(tmp_path, run):
    stored(tmp_path / "a", run)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for file in run.glob("module_0000*"):
        file.unlink()
    assert figures(by_workers(tmp_path / "b", run, prune=True)) == figures(
        alone(tmp_path / "a", run, prune=True)
    )
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_a_diagnostic(tmp_path, run):
    gone = sorted(run.glob("*-values.txt"))[0]
    summary = by_workers(tmp_path / "b", run, cluster=Here(before=gone.unlink))
    assert (summary.module_count, summary.skipped_count, summary.exit_code) == (2, 1, 4)
    messages = [row for row in rows_on(tmp_path / "b")["diagnostics"] if "unreadable_file" in row]
    assert len(messages) == 1


@pytest.mark.slow
def test_text_that_is_no_dump_disturbs_no_other_module(tmp_path, run):
    bad = next(run.glob("*live-range.txt"))
    bad.write_bytes(os.urandom(5000))
    summary = by_workers(tmp_path / "b", run)
    assert summary.module_count == 3
    alone(tmp_path / "a", run)
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


def test_dumps_that_workers_do_not_see_are_reported_at_first(tmp_path, monkeypatch):
    cluster = Here()
    monkeypatch.setattr(cluster, "check", lambda target, paths: list(paths), raising=False)
    with pytest.raises(
        BufdbError, match=r"a worker does not see .*cpu_b8.*on a disk that all share"
    ):
        by_workers(tmp_path / "b", cluster=cluster)
    assert not objects(tmp_path / "b")


@pytest.mark.slow
def test_a_worker_that_does_not_see_a_file_is_no_quiet_loss(tmp_path, run):
    file, away = next(run.glob("*-values.txt")), tmp_path / "away"
    cluster = Here(before=lambda: file.rename(away), after=lambda: away.rename(file))
    with pytest.raises(BufdbError, match=r"1 modules were not read: worker .* does not see"):
        by_workers(tmp_path / "b", run, cluster=cluster)
    by_workers(tmp_path / "b", run)
    alone(tmp_path / "a", run)
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


def test_workers_of_another_version_store_nothing(tmp_path):
    target = Target(str(tmp_path), str(tmp_path), "512MB")
    target.require()
    with pytest.raises(BufdbError, match=r"has bufdb .*, this is 0.0; install the same"):
        replace(target, bufdb_version="0.0").require()
    with pytest.raises(BufdbError, match=r"does not see the folder"):
        replace(target, mark=str(tmp_path / "none")).require()


@pytest.mark.slow
def test_archives_are_read_here_and_urls_by_workers(tmp_path):
    archive = tmp_path / "cpu.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for dump in RUN.iterdir():
            file.write(dump, dump.name)
    cluster = Here()
    summary = by_workers(tmp_path / "b", archive, cluster=cluster)
    assert (summary.module_count, cluster.parts) == (3, [])
    alone(tmp_path / "a", archive)
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


def test_urls_are_read_by_workers(tmp_path):
    pytest.importorskip("fsspec")
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    url, cluster = Url(RUN.as_uri()), Here()
    cluster.pickled = cloudpickle.dumps
    by_workers(tmp_path / "b", url, cluster=cluster)
    assert cluster.parts
    alone(tmp_path / "a", url)
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


@pytest.mark.slow
def test_a_dataset_may_be_at_a_url(tmp_path):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    url = f"memory://{tmp_path.name}"
    try:
        by_workers(url)
        prepared(tmp_path / "a")
        assert rows_on(tmp_path / "a") == rows_on(url)
    finally:
        memory.store.clear()


@pytest.mark.slow
def test_a_part_stored_twice_is_there_once(tmp_path):
    seen = []

    def look() -> None:
        seen.append({name.partition("/")[0] for name in objects(tmp_path / "b")})

    cluster = Here(before=look)
    by_workers(tmp_path / "b", cluster=cluster)
    assert seen == [{"runs", "run_labels"}]
    before = objects(tmp_path / "b")
    (tmp_path / "b/mark").touch()
    target = replace(cluster.parts[0].target, mark=str(tmp_path / "b/mark"))
    for part in cluster.parts:
        store_pickled(pickle.dumps(replace(part, target=target)))
    assert objects(tmp_path / "b") == before


@pytest.mark.slow
def test_an_unfinished_ingest_is_completed_by_the_next(tmp_path):
    def end() -> None:
        raise BufdbError("lost")

    with pytest.raises(BufdbError, match="lost"):
        by_workers(tmp_path / "b", cluster=Here(after=end))
    assert rows_on(tmp_path / "b")["modules"]
    summary = by_workers(tmp_path / "b")
    assert summary.unchanged_count == 3
    prepared(tmp_path / "a")
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


@pytest.mark.slow
def test_the_largest_groups_come_first(tmp_path, monkeypatch):
    parts = []

    def note(pickled: Sequence[bytes], watch: object) -> None:
        parts.extend(map(pickle.loads, pickled))
        raise BufdbError("seen")  # what is stored is asked elsewhere

    cluster = Here()
    monkeypatch.setattr(cluster, "store", note)
    paths = [DEMO / name for name in ("cpu_b8", "gpu_b8", "tpu_b8", "cpu_b16")]
    with pytest.raises(BufdbError, match="seen"):
        by_workers(tmp_path / "b", *paths, cluster=cluster)
    sizes = [
        sum(file.size() for job in part.group.jobs for file in job.files.files.values())
        for part in parts
    ]
    assert len(sizes) > 3
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.slow
def test_progress_shows_the_bytes_of_modules_that_have_appeared(tmp_path, monkeypatch):
    monkeypatch.setattr("bufdb.spark.cluster_ingest._WATCH_S", 0.0)
    monkeypatch.setattr("bufdb.spark.cluster_ingest._WATCH_RATIO", 0)
    seen = []
    paths = [DEMO / name for name in ("cpu_b8", "gpu_b8")]
    by_workers(tmp_path / "b", *paths, progress=lambda done, total: seen.append((done, total)))
    done = [one for one, _ in seen]
    assert len({total for _, total in seen}) == 1
    assert done == sorted(done)
    assert done[-1] == seen[-1][1] - 1


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (
            "x\nbufdb.errors.BufdbError: worker a: no space left\n\n\tat org",
            "worker a: no space left",
        ),
        ("ModuleNotFoundError: No module named 'bufdb'\n", "bufdb is not installed where Spark's"),
        ("Job aborted\nModuleNotFoundError: No module named 's3fs'", "Spark: .*named 's3fs'"),
        ("Job aborted: all is lost\nmore", "Spark: Job aborted: all is lost"),
    ],
)
def test_a_failed_job_is_one_line_of_the_worker(text, pattern):
    import re

    assert re.match(pattern, reason(text))
    assert "\n" not in reason(text)


def test_the_command_says_what_is_missing(call, tmp_path):
    assert "name one with --out" in call("ingest", str(RUN), "--engine", "spark")[2]
    out = ("ingest", str(RUN), "--out", str(tmp_path / "o"))
    assert "are for --engine spark" in call(*out, "--master", "local[2]")[2]
    assert "wants --remote sc://HOST, or --master" in call(*out, "--engine", "spark")[2]


# -- with it ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sail", "spark"])
def test_the_workers_of_an_engine_store_the_same_rows(name, opened, tmp_path, run):
    next(run.glob("*live-range.txt")).write_bytes(b"\x00 no dump\n" * 100)
    paths = [run, DEMO / "gpu_b8"]
    cluster = SparkScatter(opened(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        summary = by_workers(tmp_path / "b", *paths, cluster=cluster)
        again = by_workers(tmp_path / "b", *paths, cluster=cluster)
    assert figures(summary) == figures(alone(tmp_path / "a", *paths))
    assert again.unchanged_count == len(rows_on(tmp_path / "b")["modules"])
    assert rows_on(tmp_path / "a") == rows_on(tmp_path / "b")


@pytest.mark.parametrize("name", ["sail", "spark"])
def test_errors_of_a_worker_keep_their_words(name, opened, tmp_path):
    cluster = SparkScatter(opened(name))
    target = Target(str(tmp_path), str(tmp_path / "none"), "512MB")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(BufdbError, match=r"^worker .* does not see the folder"):
            cluster.check(target, [])


def test_a_master_that_does_not_answer_is_reported_at_once(opened):
    from bufdb.spark import session

    opened("spark")
    with pytest.raises(BufdbError, match=r"no Spark master answers at spark://127[.]0[.]0[.]1:1"):
        session.start("spark://127.0.0.1:1")


@pytest.mark.by_hand
def test_an_ingest_is_complete_after_a_worker_is_killed(tmp_path):
    if importlib.util.find_spec("py4j") is None or not shutil.which("java"):
        pytest.skip("needs Java 17 and pip install 'bufdb[spark]'")
    command = [sys.executable, str(SCRIPT), "--copies", "4", "--no-queries"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed a worker" in done.stdout
    assert not list(tmp_path.iterdir())
