"""`value_origins` of real dumps: every buffer of a loop has the line marked as its own."""

import re
import shutil

import duckdb
import pytest
from marked_lines import MADE_IN, UNMARKED, judge, marks, rows
from places import ROOT
from shared_dumps import LOOPS as SHARED
from shared_dumps import needs_loops

from bufdb.ingest.ingest import ingest

LOOPS = ROOT / "data" / "loops"
RUNS = ("cpu", "gpu", "tpu")


@pytest.fixture(scope="module")
def loops_db(tmp_path_factory):
    path = tmp_path_factory.mktemp("loops") / "loops.duckdb"
    ingest(str(path), [LOOPS / name for name in RUNS])
    return path


@pytest.mark.slow
def test_every_buffer_has_its_marked_line(loops_db):
    origins = rows(loops_db)
    right, wrong = judge(origins, marks(ROOT / "data" / "model" / "loops.py"), MADE_IN.__getitem__)
    assert wrong == set()
    assert right > 330
    programs = {row["run_name"]: set() for row in origins}
    for row in origins:
        programs[row["run_name"]].add(row["function_name"])
    assert programs == {"cpu": {*MADE_IN} - {"layers"}, "gpu": {*MADE_IN}, "tpu": {*MADE_IN}}


@pytest.mark.slow
def test_elements_are_followed_where_uses_name_them(tmp_path):
    ingest(str(tmp_path / "a.duckdb"), [ROOT / "data" / "elements"])
    origins = rows(tmp_path / "a.duckdb")
    right, wrong = judge(origins, marks(ROOT / "data" / "model" / "loops.py"), MADE_IN.__getitem__)
    assert (wrong, right, len(origins)) == (set(), 19, 21)


@pytest.mark.slow
def test_later_scans_of_a_process_have_their_own_lines(tmp_path):
    """JAX keeps what the first one inserts, with its line, for all scans of its shapes."""
    ingest(str(tmp_path / "a.duckdb"), [ROOT / "data" / "scans"])
    origins = rows(tmp_path / "a.duckdb")
    lines = marks(ROOT / "data" / "model" / "two_scans.py")
    right, wrong = judge(origins, lines, lambda name: [name])
    assert wrong == set()
    assert right > 40
    assert one(tmp_path / "a.duckdb", "SELECT code FROM diagnostics") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [("eval_jaxpr", "some_step"), ("dynamic_update_index_in_dim", "put_slice")]
)
def test_a_name_that_jax_changes_is_reported(change, tmp_path):
    folder = shutil.copytree(ROOT / "data" / "scans", tmp_path / "scans")
    for file in folder.rglob("*.txt"):
        file.write_text(file.read_text("utf-8").replace(*change), "utf-8")
    ingest(str(tmp_path / "a.duckdb"), [folder])
    lines = marks(ROOT / "data" / "model" / "two_scans.py")
    right, wrong = judge(rows(tmp_path / "a.duckdb"), lines, lambda name: [name])
    assert (wrong, right > 40) == (set(), True)
    diagnostics = one(tmp_path / "a.duckdb", "SELECT severity, code, message FROM diagnostics")
    assert {row[:2] for row in diagnostics} == {("notice", "unknown_jax_name")}
    assert all(change[1] in row[2] for row in diagnostics)


@needs_loops
@pytest.mark.slow
def test_every_buffer_of_the_shared_programs_does(tmp_path):
    db = tmp_path / "shared.duckdb"
    for backend in ("cpu", "cuda", "tpu"):
        paths = sorted((SHARED / "dumps").glob(f"{backend}_*"))
        ingest(str(db), paths)
    origins = rows(db)
    lines = marks(SHARED / "generate" / "models.py")
    right, wrong = judge(origins, lines, lambda name: [name, f"_{name.partition('_')[0]}"])
    assert wrong <= UNMARKED
    assert right > 2700


def one(db, sql, *cells):
    with duckdb.connect(str(db), read_only=True) as con:
        return con.execute(sql, cells).fetchall()


def test_what_a_policy_keeps_and_what_a_scan_saves_anyway(loops_db):
    """The policy keeps the product of the named layers; their input is saved with any policy.

    The TPU compiler notes no trip counts, and keeps the input as bf16.
    """
    slices = one(
        loops_db,
        """
        SELECT DISTINCT run_name, split_part(slice_shape, '{', 1), slice_count, trip_count,
          slice_bytes, is_layer_input, is_exact, op_name
        FROM value_origins
        JOIN modules ON modules.module_id = value_origins.module_id
        WHERE function_name = 'layers_named' AND origin_kind = 'stacked'
          AND op_name LIKE '%/jvp()/%'
        ORDER BY ALL
    """,
    )
    scope = "jit(layers_named)/jvp()/while/body/closed_call/"
    assert slices == [
        row
        for run, trips, kept in (("cpu", 6, 4), ("gpu", 6, 4), ("tpu", None, 2))
        for row in (
            (run, "f32[1,32,24]", 6, trips, 32 * 24 * 4, False, True, f"{scope}dot_general"),
            (run, "f32[1,32,40]", 6, trips, 32 * 40 * kept, True, True, f"{scope}add"),
        )
    ]


def test_slices_are_said_of_what_they_fill_and_no_other(loops_db):
    """On the TPU stacks are padded, some are kept as bf16, and copies have tables and a word."""
    slices = one(
        loops_db,
        """
        SELECT run_name, slice_count IS NULL, slice_count * slice_bytes = "values".logical_bytes,
          shapes.is_tuple OR shapes.shape LIKE 'u32[]%', count(*)
        FROM value_origins
        JOIN "values" USING (module_id, value_id)
        JOIN shapes ON shapes.shape = "values".shape
        JOIN modules ON modules.module_id = value_origins.module_id
        WHERE origin_kind = 'stacked'
        GROUP BY ALL ORDER BY ALL
    """,
    )
    assert [row[:4] for row in slices] == [
        ("cpu", False, True, False),
        ("gpu", False, True, False),
        ("tpu", False, True, False),
        ("tpu", True, None, True),
    ]
    assert [row[4] for row in slices] == [40, 55, 57, 4]


def test_at_the_peak_the_loops_hold_no_byte_without_a_name(loops_db):
    """Bytes that a while or what its body is given holds at the peak, by what they are called."""
    unnamed = one(
        loops_db,
        """
        SELECT modules.run_name, modules.function_name, sum(peak_values.held_bytes)
        FROM peak_values
        JOIN modules ON modules.module_id = peak_values.module_id
        JOIN "values" ON "values".module_id = peak_values.module_id
          AND "values".value_id = peak_values.value_id
        JOIN instructions ON instructions.module_id = "values".module_id
          AND instructions.instruction_name = "values".instruction_name
        ANTI JOIN value_origins ON value_origins.module_id = peak_values.module_id
          AND value_origins.value_id = peak_values.value_id
        JOIN shapes ON shapes.shape = "values".shape
        WHERE peak_values.allocation_kind IN ('temp', 'output')
          AND (instructions.opcode = 'while' OR "values".is_phi)
          AND NOT shapes.is_tuple
          AND "values".logical_bytes > 8
        GROUP BY ALL
    """,
    )
    assert unnamed == []


def copied(path, name, change=None, keep=lambda name: True):
    """One run of data/loops under a path, with its HLO texts changed."""
    for file in (LOOPS / name).iterdir():
        if keep(file.name):
            shutil.copyfile(file, path / file.name)
            if change and file.name.endswith("optimizations.txt"):
                (path / file.name).write_text(change(file.read_text("utf-8")), "utf-8")
    db = path / "copied.duckdb"
    ingest(str(db), [path])
    return db


@pytest.mark.slow
def test_without_its_text_a_module_has_no_origins(tmp_path):
    db = copied(tmp_path, "cpu", keep=lambda name: not name.endswith("optimizations.txt"))
    assert one(db, "SELECT count(*) FROM value_origins") == [(0,)]


@pytest.mark.slow
def test_without_metadata_no_line_is_guessed(tmp_path):
    db = copied(tmp_path, "cpu", lambda text: re.sub(r", metadata=\{[^}]*\}", "", text))
    assert one(
        db,
        """
        SELECT DISTINCT origin_kind, op_name, source_line, stack_frame_id FROM value_origins
    """,
    ) == [("stacked", None, None, None)]
    assert {row["line"] for row in rows(db)} == {None}


@pytest.mark.sample(3)
@pytest.mark.parametrize("run", RUNS)
def test_jaxlib_0_11_prints_elements_with_the_operand(run, tmp_path, loops_db):
    """`%gte = get-tuple-element(%while.5), index=1` is omitted, `%while.5#1` replaces it."""

    def rewritten(text):
        elements = re.findall(
            r"^  %?(\S+) = \S+ get-tuple-element\(%([^)]+)\), index=(\d+)", text, re.M
        )
        for name, operand, index in elements:
            text = re.sub(rf"(?<=[(, /])%{re.escape(name)}(?=[,)])", f"%{operand}#{index}", text)
        return text

    def origins_of(db, name):
        return one(db, """
            SELECT modules.function_name, value_id, origin_kind, instruction_name, slice_count
            FROM value_origins JOIN modules ON modules.module_id = value_origins.module_id
            WHERE run_name = ? ORDER BY ALL
        """, name)  # fmt: skip

    assert (
        origins_of(copied(tmp_path, run, rewritten), tmp_path.name)
        == origins_of(loops_db, run)
        != []
    )


@pytest.mark.slow
def test_the_size_of_blocks_changes_nothing(tmp_path, loops_db):
    db = tmp_path / "small.duckdb"
    ingest(str(db), [LOOPS / name for name in RUNS], block_bytes=1 << 12)
    query = "SELECT COLUMNS(* EXCLUDE (module_id)) FROM value_origins ORDER BY ALL"
    assert one(db, query) == one(loops_db, query)


@pytest.mark.slow
def test_the_invariants_hold(loops_db):
    from bufdb.query import check

    with duckdb.connect(str(loops_db), read_only=True) as con:
        assert check.violations(con, check.checks()) == []
