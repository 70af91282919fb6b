"""Every figure of the page is that of `bufdb summary`, or of the query that the page names."""

import subprocess
import sys

import page_figures
import pytest
from page_figures import KINDS, UNIT, holds_most
from report_making import report
from shared_dumps import DUMPS, needs_dumps
from small_db import Module, in_bulk, insert

from bufdb.database import store
from bufdb.ingest.ingest import ingest


@pytest.fixture
def modules(con):
    """One module for each kind of allocation, and a second compilation of one function."""
    with in_bulk(con):
        for number, kind in enumerate(KINDS):
            holds_most(con, number + 1, kind)
        other = Module(con, 9, run_name="temp", function_name="of_temp", schedule_length=3)
        other.allocation(0, "parameter", 5 * UNIT)
        other.value(0, 0, 0, 5 * UNIT, live=(0, 3), name="p.0", opcode="parameter")
        other.close()
        insert(con, "run_labels", run_name="output", label="device", label_value="TPU v5 lite")
    return con


@pytest.mark.slow
def test_figures_are_the_same_whatever_holds_most(modules):
    page = report(modules, names=("peak", "peaks"), has_sections=True)
    compared = page_figures.compare(modules, page)
    assert compared.differences == []
    assert compared.count > 300
    # A difference would be found.
    page.modules = page.modules[:2]
    page.modules[0]["peak_bytes"] += 1
    page.slots[page.modules[1]["slot"]][0]["sections"][0]["figures"][0]["size"] = "1 B"
    assert len(page_figures.compare(modules, page).differences) >= 2


@pytest.mark.slow
def test_what_holds_most_comes_first(modules):
    page = report(modules, has_sections=True)

    def lines(**which):
        sections = page.picture(**which).head["sections"]
        figures = next(each for each in sections if each["name"] == "lines")["figures"]
        return [(figure["name"], figure["size_bytes"] / UNIT) for figure in figures]

    for kind, line, size in (
        ("parameter", "(parameter)", 48),
        ("constant", "(constant)", 48),
        ("output", "m.py:7", 52),  # the line holds an output and a temporary value
        ("temp", "m.py:7", 51),
    ):
        assert lines(run=kind, module_key=f"m{KINDS.index(kind) + 1}")[0] == (line, size)
    # Another compilation has a summary of its own.
    assert [name for name, _ in lines(module_key="m9")] == ["(parameter)"]


@pytest.mark.slow
def test_a_limit_has_the_words_of_the_summary(modules):
    limit = 50 * UNIT, None
    page = report(modules, has_sections=True, limit=limit)
    assert page_figures.compare(modules, page, limit).differences == []
    texts = {one["text"] for row in page.modules for one in row["sentences"]}
    assert "limit: 112.0% of 3.12 KiB: it does not fit" in texts


@pytest.mark.sample(0, 3)
@pytest.mark.parametrize("run", ["gpu_b8", "cpu_b8", "tpu_b8"])
def test_figures_of_the_sample_dumps(demo_db, run):
    with store.open_readable(str(demo_db)) as con:
        page = report(con, {"run": run}, names=("peak", "peaks", "advice"), has_sections=True)
        compared = page_figures.compare(con, page)
    assert compared.differences == []
    assert compared.count > 300


@pytest.mark.by_hand
def test_figures_of_all_tables_of_the_sample_dumps(demo_db):
    with store.open_readable(str(demo_db)) as con:
        compared = page_figures.compare(con, report(con, names=None))
    assert compared.differences == []
    assert compared.count > 10_000


@needs_dumps
@pytest.mark.sample(0, 4)
@pytest.mark.parametrize("folder", ["tf-2.4", "gpu-0.10.2", "seeds", "cpu-0.4.13"])
def test_figures_of_other_dumps(folder, tmp_path):
    path = str(tmp_path / "dumps.duckdb")
    ingest(path, [DUMPS / folder], run=folder)
    with store.open_readable(path) as con:
        compared = page_figures.compare(con, report(con, names=("peaks",), has_sections=True))
    assert compared.differences == []


CASES = DUMPS.parent / "cases" / "page-and-summary"
MOST = {"dom": "(donated_parameter)", "unroll": "unroll.py:5"}


@pytest.mark.slow
@pytest.mark.skipif(not CASES.is_dir(), reason="no shared/cases here")
@pytest.mark.parametrize(("name", "size"), [("dom", "48.0 MiB"), ("unroll", "90.0 MiB")])
def test_programs_whose_page_and_summary_disagreed(tmp_path, name, size):
    pytest.importorskip("jax")
    path = tmp_path / "case.duckdb"
    program = [sys.executable, CASES / f"{name}.py"]
    captured = [sys.executable, "-m", "bufdb", "capture", "--db", path, "--run", name, "--"]
    subprocess.run([*captured, *program], check=True, capture_output=True)
    with store.open_readable(str(path)) as con:
        page = report(con, names=("peaks",), has_sections=True)
        assert page_figures.compare(con, page).differences == []
    head = page.slots[page.modules[0]["slot"]][0]
    lines = next(each for each in head["sections"] if each["name"] == "lines")
    first = lines["figures"][0]
    assert first["name"].endswith(MOST[name]) and first["size"] == size
