"""The line that a loop's carried bytes are attributed to, in every query that names lines."""

import pytest
from small_db import Module, answer, insert
from tables import holds

OWN = {"source_file": "layer.py", "source_line": 12, "op_name": "jit(step)/while/body/Layer/tanh"}
LIBRARY = "/lib/python3.11/site-packages/jax/scan.py"
SCAN = {
    "opcode": "while",
    "source_file": "train.py",
    "source_line": 40,
    "op_name": "jit(step)/while",
}


def origin(con, value_id, kind, **cells):
    insert(con, "value_origins", module_id=1, value_id=value_id, origin_kind=kind,
           instruction_name="x", is_exact=True, **cells)  # fmt: skip


@pytest.fixture
def scanned(con):
    """A loop that carries two stacks, an accumulator, a copied argument and what leads nowhere."""
    module = Module(con, 1, function_name="step", has_hlo_text=True)
    module.allocation(0, "temp", 200)
    for value_id, (offset, size) in enumerate([(0, 60), (60, 60), (120, 20), (140, 30), (170, 30)]):
        module.value(value_id, 0, offset, size, name=f"while.{value_id}", shape="f32[6]", **SCAN)
    origin(con, 0, "stacked", slice_bytes=10, slice_count=6, opcode="tanh", **OWN)
    origin(con, 1, "stacked", slice_bytes=10, slice_count=6, opcode="tanh", **OWN)
    origin(con, 2, "carry", opcode="add", **OWN)
    origin(con, 3, "parameter", opcode="parameter", op_name="w['up']")
    origin(con, 4, "stacked", source_file=LIBRARY, source_line=9, opcode="exp")
    module.close()


@pytest.mark.slow
@pytest.mark.usefixtures("scanned")
def test_a_line_has_what_it_makes_and_the_sum_stays(con):
    rows = [(row["held_bytes"], *row[9:]) for row in answer(con, "peak-by-source-line")]
    holds(con, "peak-by-source-line", """
        held_bytes | slice_count | slice_bytes | source
        120        | 6           | 20          | saved layer.py:12
        30         | NULL        | NULL        | copy of w['up']
        30         | NULL        | NULL        | train.py:40
        20         | NULL        | NULL        | layer.py:12
    """)  # fmt: skip
    assert sum(row[0] for row in rows) == 200
    holds(con, "peak-by-source-line", """
        held_bytes | source
        200        | train.py:40
    """, loops="carrier")  # fmt: skip
    leaves = [row["source"] for row in answer(con, "peak-by-source-line", frame="leaf")]
    assert f"saved {LIBRARY}:9" in leaves


@pytest.mark.usefixtures("scanned")
@pytest.mark.parametrize(
    ("name", "column", "texts"),
    [
        ("peak-by-op", 9, {"saved Layer/tanh", "Layer/tanh", "copy of w/up", "while"}),
        ("peak-by-stack", 7, {"saved layer.py:12", "layer.py:12", "train.py:40"}),
        ("peak-by-function", 7, {"saved layer.py", "layer.py", "copy of w['up']", None}),
        ("top-temps", 9, {"saved layer.py:12", "layer.py:12", "copy of w['up']", "train.py:40"}),
        ("top-values", 10, {"saved layer.py:12", "layer.py:12", "copy of w['up']", "train.py:40"}),
    ],
)
def test_each_query_names_who_made_the_data(con, name, column, texts):
    assert {row[column] for row in answer(con, name)} == texts
    carriers = {row[column] for row in answer(con, name, loops="carrier")}
    assert not any("saved" in (text or "") for text in carriers)


@pytest.mark.usefixtures("scanned")
def test_the_phase_is_that_of_the_operation_in_the_loop(con):
    con.execute("DELETE FROM op_categories")
    con.execute(
        "INSERT INTO op_categories BY NAME "
        "SELECT 1 AS rule_order, '*tanh' AS op_glob, 'forward' AS category"
    )
    holds(con, "peak-by-category", """
        held_bytes | category
        140        | forward
        60         | NULL
    """)  # fmt: skip
    holds(con, "peak-by-category", """
        category
        NULL
    """, loops="carrier")  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("scanned")
def test_a_comparison_names_it_too(con):
    other = Module(con, 2, "new", function_name="step", has_hlo_text=True)
    other.allocation(0, "temp", 20)
    other.value(0, 0, 0, 20, **OWN)
    other.close()
    parts = con.execute("SELECT part, base_bytes FROM diff_peak('r', 'new', 'source')").fetchall()
    assert ("saved layer.py:12", 120) in parts
    assert ("copy of w['up']", 30) in parts
    con.execute("UPDATE modules SET has_hlo_text = FALSE WHERE module_id = 2")
    parts = con.execute("SELECT part, base_bytes FROM diff_peak('r', 'new', 'source')").fetchall()
    assert ("train.py:40", 200) in parts
