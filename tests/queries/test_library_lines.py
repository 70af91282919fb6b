"""Lines of library code, where a stack has no line of the user's own."""

import pytest
from ingesting import ingest_into
from places import PACKAGED
from small_db import Module, answer, insert
from tables import holds

from bufdb import resources
from bufdb.answers import summary, summary_text
from bufdb.query import catalogue, figures

INSTALLED = "/venv/lib/python3.11/site-packages/flax/linen/linear.py"
LIBRARY = {"source_file": INSTALLED, "source_line": 271}
OWN = {"source_file": "/u/model.py", "source_line": 7}


def broken(con):
    """Run checks of names and sums; return those with findings."""
    folder = resources.check_folder()
    names = ("peak_savings", "ordinals", "value_origins", "value_users", "peak_values")
    texts = {name: (folder / f"{name}.sql").read_text("utf-8") for name in names}
    return {name: rows for name, text in texts.items() if (rows := con.execute(text).fetchall())}


def lines(con, **params):
    return {
        row["source"]: row["held_bytes"] for row in answer(con, "peak-by-source-line", **params)
    }


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
    sizes = lines(con)
    assert sizes == {
        "for library flax/linen/linear.py:271": 80,
        "library flax/linen/linear.py:271": 50,
        "/u/model.py:7": 27,
    }
    assert sum(sizes.values()) == 157
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
    ("name", "params"),
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
def test_every_query_names_it_alike(con, name, params):
    one_module(con)
    cells = [cell for row in answer(con, name, **params) for cell in row]
    assert "library flax/linen/linear.py:271" in cells


def test_a_function_of_a_library_is_its_file(con):
    one_module(con)
    sizes = {row["source_function"]: row["held_bytes"] for row in answer(con, "peak-by-function")}
    assert sizes["library flax/linen/linear.py"] == 50
    assert sizes["for library flax/linen/linear.py"] == 80


def test_a_library_line_of_python_itself_is_short_too(con):
    (sources,) = con.execute(
        "SELECT [library_source(path, 3) FOR path IN [?, ?, ?, ?, NULL]]",
        ["/usr/lib/python3.12/functools.py", "<frozen runpy>", "site-packages/x.py", "/u/x.py"],
    ).fetchone()
    assert sources == [
        "library functools.py:3", "library <frozen runpy>:3", "library x.py:3", None, None
    ]  # fmt: skip


# -- a program that is installed ---------------------------------------------------------------


@pytest.mark.slow
def test_a_program_without_a_line_of_the_users(con):
    ingest_into(con, PACKAGED)
    sizes = lines(con)
    # The loop's stacks are its library's, not what it was given: the walk ends at such lines too.
    assert sizes["saved library tiny_net/__init__.py:9"] == 849920
    assert sizes["library tiny_net/__init__.py:19"] == 240000
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


# -- the query: lines of a library under a line of the user's --------------------------------------

SITE = "/venv/lib/python3.11/site-packages"
STACK = [
    (1, None, "/me/run.py", 13),
    (2, 1, f"{SITE}/equinox/_jit.py", 55),
    (3, 2, f"{SITE}/diffrax/_integrate.py", 685),
    (4, 3, f"{SITE}/diffrax/_solver/tsit5.py", 30),
    (5, 4, f"{SITE}/equinox/internal/_loop.py", 7),
    (6, 4, "/me/run.py", 5),
    (7, 3, f"{SITE}/lineax/_solve.py", 9),
]


def solved(con, **cells):
    """A solver's program: most bytes are of lines below run.py:13, where that calls diffrax."""
    for number, parent, file, line in STACK:
        insert(con, "stack_frames", module_id=1, stack_frame_id=number, parent_frame_id=parent,
               own_frame_id=number if file.startswith("/me") else 1, source_file=file,
               source_line=line)  # fmt: skip
    module = Module(con, 1, function_name="step", has_hlo_text=True, **cells)
    module.allocation(0, "temp", 100)
    offset = 0
    for value_id, (frame, size) in enumerate(((5, 40), (4, 10), (7, 20), (6, 15), (1, 15))):
        cells = dict(zip(("source_file", "source_line"), STACK[frame - 1][2:], strict=True))
        module.value(value_id, 0, offset, size, op_name="dot", stack_frame_id=frame, **cells)
        offset += size
    insert(con, "value_origins", module_id=1, value_id=1, origin_kind="stacked",
           instruction_name="x", is_exact=True, opcode="dot", stack_frame_id=4,
           source_file=STACK[3][2], source_line=30)  # fmt: skip
    module.close()


def test_nothing_in_an_empty_database(con):
    holds(con, "library-lines", "run_name")


def test_lines_of_one_library_below_a_line(con):
    solved(con)
    holds(con, "library-lines", """
        source        | source_bytes | package | held_bytes | held_ratio | library_source
        /me/run.py:13 | 85           | diffrax | 40         | 0.4        | library diffrax/_solver/tsit5.py:30
        /me/run.py:13 | 85           | diffrax | 20         | 0.2        | library diffrax/_integrate.py:685
        /me/run.py:13 | 85           | diffrax | 10         | 0.1        | saved library diffrax/_solver/tsit5.py:30
    """)  # fmt: skip  # noqa: E501
    holds(con, "library-lines", "source\n/me/run.py:13", top_n=1)


def test_a_module_with_an_unknown_peak(con):
    Module(con, 1, function_name="step", peak_unknown_reason="why not").close()
    (row,) = answer(con, "library-lines")
    assert row["unknown_reason"].endswith("why not") and row["source"] is None


def shown_sections(con):
    catalog = catalogue.Catalogue([resources.query_folder()])
    parts = summary.queries(catalog, tuple(summary.QUERIES))
    one = summary.overview(con, parts, {})
    return one, {section.name: section for section in summary_text.sections(one)}


@pytest.mark.slow
def test_the_summary_shows_them_below_more_than_half(con):
    solved(con)
    one, sections = shown_sections(con)
    section = sections["library_lines"]
    assert section.heading == "lines of diffrax under run.py:13, which holds 85.0%"
    assert [figure.name for figure in section.figures] == [
        "diffrax/_solver/tsit5.py:30", "diffrax/_integrate.py:685",
        "saved diffrax/_solver/tsit5.py:30",
    ]  # fmt: skip
    assert "--own diffrax" in section.notes[0]
    assert summary_text.as_dict(one)["library_lines"][0]["package"] == "diffrax"
    (alone,) = summary.each(con, {}).values()
    catalog = catalogue.Catalogue([resources.query_folder()])
    parts = summary.queries(catalog, ("lines", "library_lines"))
    summary.add_parts(con, parts, [alone])
    assert alone.parts["library_lines"] == one.parts["library_lines"]


@pytest.mark.slow
def test_the_summary_shows_none_below_half_or_of_one_line(con):
    solved(con)
    con.execute("UPDATE stack_frames SET own_frame_id = 6 WHERE stack_frame_id = 7")
    assert "library_lines" in shown_sections(con)[1]
    con.execute("UPDATE stack_frames SET own_frame_id = NULL WHERE stack_frame_id = 5")
    assert "library_lines" not in shown_sections(con)[1]
