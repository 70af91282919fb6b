"""Lines of library code, where a stack has no line of the user's own."""

import pytest
from ingesting import ingest_into
from places import PACKAGED
from small_db import Module, answer, insert

from bufdb import resources
from bufdb.query import figures

INSTALLED = "/venv/lib/python3.11/site-packages/flax/linen/linear.py"
LIBRARY = {"source_file": INSTALLED, "source_line": 271}
OWN = {"source_file": "/u/model.py", "source_line": 7}


def broken(con):
    """Run checks of names and sums; return those with findings."""
    folder = resources.check_folder()
    names = ("peak_savings", "ordinals", "value_origins", "value_users", "peak_values")
    texts = {name: (folder / f"{name}.sql").read_text("utf-8") for name in names}
    return {name: found for name, text in texts.items() if (found := con.execute(text).fetchall())}


def lines(con, **given):
    return {row["source"]: row["held_bytes"] for row in answer(con, "peak-by-source-line", **given)}


def one_module(con, **cells):
    """Values of a library's line, of the user's, of both by a stack, and for a library's."""
    insert(con, "stack_frames", module_id=1, stack_frame_id=1, own_frame_id=2, parent_frame_id=2,
           **LIBRARY)  # fmt: skip
    insert(con, "stack_frames", module_id=1, stack_frame_id=2, own_frame_id=2, **OWN)
    insert(con, "stack_frames", module_id=1, stack_frame_id=3, function_name="Dense", **LIBRARY)
    module = Module(con, 1, function_name="step", **cells)
    module.allocation(0, "temp", 200)
    module.value(1, 0, 0, 10, op_name="dot", stack_frame_id=3, **LIBRARY)
    module.value(2, 0, 10, 20, op_name="dot", stack_frame_id=1, **LIBRARY)
    module.value(3, 0, 30, 40, op_name="dot", program_order=5, name="dot", **LIBRARY)
    module.value(4, 0, 70, 80)
    module.value(5, 0, 150, 7, op_name="dot", **OWN)
    module.use(4, "dot")
    module.close()
    return module


def test_a_line_of_a_library_stands_where_the_user_has_none(con):
    one_module(con)
    found = lines(con)
    assert found == {
        "for library flax/linen/linear.py:271": 80,
        "library flax/linen/linear.py:271": 50,
        "/u/model.py:7": 27,
    }
    assert sum(found.values()) == 157
    assert lines(con, frame="leaf")[f"{INSTALLED}:271"] == 70


def test_what_counts_as_the_users_own_is_named_as_that(con):
    one_module(con, own_pattern="[\\s\\S]*/(?i:FLAX)/[\\s\\S]*")
    # A frame's stack is computed when a dump is read; these rows were not read from one.
    assert lines(con) == {
        f"for {INSTALLED}:271": 80,
        f"{INSTALLED}:271": 40,
        "/u/model.py:7": 27,
        "(temp)": 10,
    }


def test_a_users_line_goes_before_a_more_exact_one_of_a_library(con):
    module = Module(con, 1, function_name="step", has_hlo_text=True)
    module.allocation(0, "temp", 100)
    module.value(1, 0, 0, 60, name="while.0", op_name="while", **OWN)
    module.value(2, 0, 60, 40, name="while.1", op_name="while", **LIBRARY)
    for value_id in (1, 2):
        insert(con, "value_origins", module_id=1, value_id=value_id, origin_kind="stacked",
               instruction_name="x", is_exact=True, opcode="dot",
               source_file="/l/dist-packages/a.py", source_line=9)  # fmt: skip
    module.close()
    assert lines(con) == {"/u/model.py:7": 60, "saved library a.py:9": 40}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("peak", {}),
        ("top-temps", {}),
        ("top-values", {}),
        ("peak-by-stack", {}),
        ("at-step", {"step": 5}),
        ("at-offset", {"allocation": 0, "first_byte": 0}),
        ("long-lived", {}),
    ],
)
def test_every_query_names_it_alike(con, name, given):
    one_module(con)
    cells = [cell for row in answer(con, name, **given) for cell in row]
    assert "library flax/linen/linear.py:271" in cells


def test_a_function_of_a_library_is_its_file(con):
    one_module(con)
    found = {row["source_function"]: row["held_bytes"] for row in answer(con, "peak-by-function")}
    assert found["library flax/linen/linear.py"] == 50
    assert found["for library flax/linen/linear.py"] == 80


def test_a_library_line_of_python_itself_is_short_too(con):
    (found,) = con.execute(
        "SELECT [library_source(path, 3) FOR path IN [?, ?, ?, ?, NULL]]",
        ["/usr/lib/python3.12/functools.py", "<frozen runpy>", "site-packages/x.py", "/u/x.py"],
    ).fetchone()
    assert found == [
        "library functools.py:3", "library <frozen runpy>:3", "library x.py:3", None, None
    ]  # fmt: skip


# -- a program that is installed ---------------------------------------------------------------


@pytest.mark.slow
def test_a_program_without_a_line_of_the_users(con):
    ingest_into(con, PACKAGED)
    found = lines(con)
    # The loop's stacks are its library's, not what it was given: the walk ends at such lines too.
    assert found["saved library tiny_net/__init__.py:9"] == 849920
    assert found["library tiny_net/__init__.py:19"] == 240000
    ((peak,),) = con.execute("SELECT peak_bytes FROM memory_figures WHERE color = 0").fetchall()
    assert sum(lines(con, top_n=100).values()) == peak
    assert broken(con) == {}
    (figure,) = figures.of_run(con, "cpu")
    held, _ = figures.contributors(con, figure, "peak", 3)
    assert {value.source for value in held} == {"saved library tiny_net/__init__.py:9"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("globs", "line"),
    [
        (["Tiny-Net"], "/home/user/model/site-packages/tiny_net/__init__.py:9"),
        (["tiny_*"], "/home/user/model/site-packages/tiny_net/__init__.py:9"),
        (["*/tiny_net/*", "flax"], "/home/user/model/site-packages/tiny_net/__init__.py:9"),
        (["tiny_train"], "/home/user/model/site-packages/tiny_train/__main__.py:11"),
        (["tiny"], "library tiny_net/__init__.py:9"),
        ([], "library tiny_net/__init__.py:9"),
    ],
)
def test_own_globs_decide(con, globs, line):
    ingest_into(con, PACKAGED, own_globs=globs)
    assert lines(con)[f"saved {line}"] == 849920
    assert broken(con) == {}
