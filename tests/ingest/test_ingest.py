"""Ingest: what is stored does not depend on how, and what fails leaves whole modules."""

import gc
import re
import shutil
import sys
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, opened, rows
from places import DEMO

from bufdb.database import store
from bufdb.dumps.files import BLOCK_BYTES
from bufdb.dumps.load import load
from bufdb.errors import UsageError
from bufdb.ingest import group as group_module
from bufdb.ingest import storing
from bufdb.ingest.ingest import ingest
from bufdb.ingest.plan import plan
from bufdb.ingest.rows import MODULE_TABLES
from bufdb.ingest.writer import TableWriter
from bufdb.query import check
from bufdb.read.hlo import HloHeader
from bufdb.rows.context import Context

INIT = "module_0000.jit_init.cpu_after_optimizations"
EVAL = "module_0004.jit_eval_step.cpu_after_optimizations"


def content(db, *left_out):
    """All rows of all tables, in one order; columns left out of the comparison are named."""
    with opened(db) as con:
        tables = {}
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            cursor = con.execute(f'SELECT * FROM "{table}"')
            keep = [n for n, column in enumerate(cursor.description) if column[0] not in left_out]
            tables[table] = sorted(repr([row[n] for n in keep]) for row in cursor.fetchall())
    return tables


def same(one, other):
    """Tables whose rows differ, with their counts."""
    return {t: (len(one[t]), len(other[t])) for t in one if one[t] != other[t]} == {}


def keys(db):
    return [key for (key,) in rows(db, "SELECT module_key FROM modules ORDER BY ALL")]


@pytest.fixture
def db(empty_db, tmp_path):
    return Path(shutil.copy(empty_db, tmp_path / "t.duckdb"))


@pytest.fixture
def dumps(tmp_path):
    """A copy of a demo run, to be changed."""
    return Path(shutil.copytree(DEMO / "cpu_b8", tmp_path / "dumps" / "run"))


# -- memory -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_batch_is_gone_when_it_is_stored(db):
    """The collector is off in an ingest: what refers to itself would stay for all modules to come.

    It was 10 MB for each module of 26 MB: frames of its HLO text, names and arrays of its values.
    """
    gc.collect()
    gc.disable()
    try:
        ingest(str(db), [DEMO / "cpu_b8"], jobs=1)
        left = {type(x).__name__ for x in gc.get_objects() if isinstance(x, (Context, HloHeader))}
    finally:
        gc.enable()
    assert left == set()


# -- the same rows ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_ingest_changes_no_row(db):
    first = ingest(str(db), [DEMO / "cpu_b8"])
    before = content(db)
    second = ingest(str(db), [DEMO / "cpu_b8"])
    assert content(db) == before
    assert (first.module_count, first.unchanged_count) == (3, 0)
    assert (second.module_count, second.unchanged_count, second.row_count) == (0, 3, 0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("suffix", ["-live-range.txt", ".txt"])
def test_a_changed_file_replaces_its_module_only(con, fresh, dumps, suffix):
    ingest_into(con, dumps)
    path = dumps / f"{INIT}{suffix}"
    path.write_text(path.read_text() + "\n")
    summary = ingest_into(con, dumps)
    assert (summary.module_count, summary.replaced_count, summary.unchanged_count) == (1, 1, 2)
    with fresh() as new:
        ingest_into(new, dumps)
        varying = "ingested_at", "dumped_at"
        assert same(content(con, *varying), content(new, *varying))


def test_a_file_that_came_later_replaces_its_module(con, dumps):
    path = dumps / f"{INIT}-live-range.txt"
    text = path.read_bytes()
    path.unlink()
    ingest_into(con, dumps)
    assert rows(con, "SELECT code FROM diagnostics") == [("missing_file",)]
    path.write_bytes(text)
    assert ingest_into(con, dumps).replaced_count == 1
    assert rows(con, "SELECT code FROM diagnostics") == []


@pytest.mark.slow
def test_the_order_of_paths_changes_no_row(con, fresh):
    paths = [DEMO / "cpu_b8", DEMO / "gpu_b8", DEMO / "cpu_b8_old"]
    ingest_into(con, paths)
    with fresh() as other:
        for path in reversed(paths):
            ingest_into(other, path)
        assert same(content(con, "ingested_at"), content(other, "ingested_at"))


@pytest.mark.slow
def test_the_order_of_paths_of_one_run_changes_no_row(con, fresh):
    paths = [DEMO / "cpu_b8", DEMO / "gpu_b8"]
    ingest_into(con, paths, "r")
    left_out = "ingested_at", "source_path"
    with fresh() as other:
        for path in reversed(paths):
            ingest_into(other, path, "r")
        assert same(content(con, *left_out), content(other, *left_out))
    assert len(rows(con, "SELECT * FROM runs")) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("run", ["tpu_b8", "cpu_b8", "cpu_b8_old"])
@pytest.mark.slow
def test_the_block_size_changes_no_row(fresh, run):
    contents = []
    for block_bytes in (BLOCK_BYTES, 2000):
        with fresh() as con:
            ingest_into(con, DEMO / run, block_bytes=block_bytes)
            contents.append(content(con, "ingested_at"))
    assert same(*contents)


@pytest.mark.slow
def test_labels_are_kept_and_added(db):
    ingest(str(db), [DEMO / "cpu_b8"], labels={"a": "1", "b": "1"})
    ingest(str(db), [DEMO / "cpu_b8"], labels={"b": "2"}, labels_by_run={"cpu_b8": {"c": "3"}})
    labels = rows(db, "SELECT label, label_value FROM run_labels ORDER BY ALL")
    assert labels == [("a", "1"), ("b", "2"), ("c", "3")]


def test_names_with_blanks_and_other_letters(con, tmp_path):
    folder = tmp_path / "my dümps" / "größe 8"
    shutil.copytree(DEMO / "cpu_b8_old", folder)
    ingest_into(con, folder.parent)
    assert rows(con, "SELECT run_name FROM runs") == [("my dümps",)]
    assert [key.rpartition("/")[0] for key in keys(con)] == ["größe 8"] * 3
    assert ingest_into(con, folder.parent).unchanged_count == 3


@pytest.mark.sample(2)
@pytest.mark.parametrize("block_bytes", [1000, BLOCK_BYTES])
def test_progress_ends_at_the_total(tmp_path, block_bytes):
    """In rounds of a large module too, and where nothing has changed."""
    size = sum(path.stat().st_size for path in (DEMO / "cpu_b8").iterdir())
    db = str(tmp_path / "new.duckdb")
    for _ in range(2):
        steps = []
        watch = lambda done, total: steps.append((done, total))  # noqa: B023, E731
        ingest(db, [DEMO / "cpu_b8"], progress=watch, block_bytes=block_bytes)
        assert steps == sorted(steps)
        assert steps[-1] == (size, size)
        assert [done for done, _ in steps].count(size) == 1


# -- refused ----------------------------------------------------------------------------------


def test_one_module_in_two_paths_of_a_run_is_refused(tmp_path):
    db = tmp_path / "none.duckdb"
    with pytest.raises(UsageError) as error:
        ingest(str(db), [DEMO / "cpu_b8", DEMO / "cpu_b16"], run="r")
    message = str(error.value)
    assert message.startswith(f"run r: {INIT} is in ")
    assert "cpu_b8 and in " in message
    assert "cpu_b16; give the directories different --run names" in message
    assert not db.exists()


@pytest.mark.slow
def test_a_path_given_twice_is_one(db):
    path = DEMO / "cpu_b8"
    assert ingest(str(db), [path, path, path / f"{INIT}-live-range.txt"]).module_count == 3


def test_a_directory_without_dumps_is_refused(tmp_path):
    db = tmp_path / "none.duckdb"
    with pytest.raises(UsageError, match=r"^no buffer assignment in .*; dumps are made with"):
        ingest(str(db), [tmp_path])
    assert not db.exists()


# -- failures ---------------------------------------------------------------------------------


def whole_modules(db):
    """The modules stored; fails if a table holds rows of any other."""
    for table in MODULE_TABLES:
        strays = rows(
            db,
            f'SELECT DISTINCT module_id FROM "{table}" '
            "WHERE module_id NOT IN (SELECT module_id FROM modules)",
        )
        assert strays == [], table
    return [key.rpartition(".")[0] for key in keys(db)]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "is_packed"), [(0, [False, True]), (1 << 40, [False, False])])
def test_much_is_packed_with_the_last_commit(tmp_path, monkeypatch, limit, is_packed):
    real, packed = TableWriter.commit, []

    def commit(self, **named):
        packed.append(named["is_packed"])
        real(self, **named)

    monkeypatch.setattr(TableWriter, "commit", commit)
    monkeypatch.setattr(storing, "LOGGED_BYTES", limit)
    ingest(str(tmp_path / "t.duckdb"), [DEMO / "cpu_b8", DEMO / "gpu_b8"])
    assert packed == is_packed


@pytest.mark.slow
def test_a_failed_insert_leaves_the_transactions_before(con, fresh, monkeypatch):
    ingest_into(con, DEMO / "gpu_b8")
    before = content(con)
    real = TableWriter._insert

    def fail(self, waiting):
        has_modules = "modules" in waiting
        real(self, waiting)
        if has_modules:
            raise duckdb.Error("no space left")

    monkeypatch.setattr(TableWriter, "_insert", fail)
    with pytest.raises(duckdb.Error, match="no space left"):
        ingest_into(con, DEMO / "cpu_b8")
    assert content(con) == before
    monkeypatch.undo()
    ingest_into(con, DEMO / "cpu_b8")
    with fresh() as new:
        ingest_into(new, [DEMO / "gpu_b8", DEMO / "cpu_b8"])
        assert same(content(con, "ingested_at"), content(new, "ingested_at"))


@pytest.mark.slow
def test_an_interrupt_leaves_whole_modules(con, monkeypatch):
    monkeypatch.setattr(storing, "TRANSACTION_BYTES", 1)
    first = sum(path.stat().st_size for path in (DEMO / "cpu_b8").glob("module_0000.*"))

    def interrupt(done, total):
        if done > first:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest_into(con, DEMO / "cpu_b8", None, 1000, progress=interrupt)
    assert whole_modules(con) == ["module_0000.jit_init"]
    monkeypatch.undo()
    summary = ingest_into(con, DEMO / "cpu_b8")
    assert (summary.module_count, summary.unchanged_count) == (2, 1)


@pytest.mark.slow
def test_a_vanished_file_is_reported(con, dumps):
    gone = dumps / f"{EVAL}-live-range.txt"

    def vanish(done, total):
        gone.unlink(missing_ok=True)

    summary = ingest_into(con, dumps, None, 1000, progress=vanish)
    assert (summary.module_count, summary.skipped_count, summary.exit_code) == (2, 1, 4)
    diagnostics = rows(con, "SELECT severity, code, path, message FROM diagnostics")
    message = "cannot be read: No such file or directory"
    assert [(*row[:2], row[3]) for row in diagnostics] == [("error", "unreadable_file", message)]
    assert diagnostics[0][2].startswith(EVAL)
    assert EVAL not in keys(con)
    ingest_into(con, dumps)
    assert rows(con, "SELECT code FROM diagnostics") == [("missing_file",)]


@pytest.mark.slow
def test_shapes_first_met_in_a_module_that_is_lost_are_stored(con, dumps):
    """All modules of a run share shapes, and the first to have them may not be read to its end."""
    first = dumps / f"{INIT}-live-range.txt"

    def vanish(done, total):
        first.unlink(missing_ok=True)

    ingest_into(con, dumps, None, 1000, progress=vanish)
    assert len(keys(con)) == 2
    missing = "SELECT DISTINCT shape FROM values ANTI JOIN shapes USING (shape)"
    assert rows(con, missing) == []


def test_all_files_may_vanish(con, dumps, monkeypatch):
    planned = plan([dumps], None)
    monkeypatch.setattr("bufdb.ingest.plan.plan", lambda paths, run: planned)
    shutil.rmtree(dumps)
    summary = ingest_into(con, dumps)
    assert (summary.module_count, summary.skipped_count, summary.exit_code) == (0, 3, 4)
    assert rows(con, "SELECT run_name, dumped_at FROM runs") == [("run", None)]


def test_a_file_that_may_not_be_read_is_reported(con, monkeypatch):
    def refuse(files, block_bytes):
        if files.key == INIT:
            raise PermissionError(13, "Permission denied")
        return load(files, block_bytes)

    monkeypatch.setattr(group_module, "load", refuse)
    assert ingest_into(con, DEMO / "cpu_b8").skipped_count == 1
    assert rows(con, "SELECT module_id, message FROM diagnostics") == [
        (None, "cannot be read: Permission denied")
    ]
    assert len(keys(con)) == 2
    monkeypatch.undo()
    ingest_into(con, DEMO / "cpu_b8")
    assert (len(keys(con)), rows(con, "SELECT * FROM diagnostics")) == (3, [])


# -- findings ---------------------------------------------------------------------------------

FINDINGS = "SELECT severity, code, message FROM diagnostics"


def test_a_total_that_is_not_the_sum_is_reported(con, tmp_path):
    text = "BufferAssignment:\nallocation 0: size 4, constant:\nallocation 1: size 8, constant:\n"
    (tmp_path / "a.txt").write_text(f"{text}\nTotal bytes used: 13 (14B)\n\nUsed values:\n")
    assert ingest_into(con, tmp_path).exit_code == 4
    cut_off = "the live ranges are missing; the file may have been cut off"
    assert rows(con, f"{FINDINGS} ORDER BY ALL") == [
        ("data_loss", "missing_section", cut_off),
        ("error", "total_mismatch", "the allocations sum to 12, the dump says 13"),
        ("notice", "human_total_mismatch", "13 bytes print as 13B, the dump says 14B"),
    ]


SIZES = "SELECT DISTINCT temp_bytes, total_bytes, peak_unknown_reason FROM memory_figures"
GAP = "the allocations are not numbered 0, 1, 2, …; the file may be truncated"


@pytest.mark.parametrize(
    ("lines", "total", "sums"),
    [
        ("0124", 99, (None, None, GAP)),
        ("0123", 99, (None, None, "the allocations sum to 32, the dump says 99")),
        ("0012", None, (None, None, GAP)),  # two dumps, one after the other
        ("0123", 32, (32, 32, "the dump has no live ranges")),
        ("0123", None, (32, 32, "the dump has no live ranges")),
    ],
)
def test_a_sum_of_other_allocations_is_unknown(con, tmp_path, lines, total, sums):
    text = "".join(f"allocation {index}: size 8, preallocated-temp:\n" for index in lines)
    tail = "" if total is None else f"\nTotal bytes used: {total} ({total}B)\n\nUsed values:\n"
    (tmp_path / "a.txt").write_text(f"BufferAssignment:\n{text}{tail}")
    ingest_into(con, tmp_path)
    assert rows(con, SIZES) == [sums]
    (memory_sums,) = [each for each in check.checks() if each.name == "memory-sums"]
    assert rows(con, memory_sums.sql) == []


@pytest.mark.parametrize(
    ("suffix", "what"),
    [
        ("-buffer-assignment.txt", "sizes and offsets"),
        ("-buffer-assignment-values.txt", "positions, uses and opcodes"),
        ("-live-range.txt", "live ranges and the peak"),
    ],
)
def test_a_missing_sibling_is_reported(con, dumps, suffix, what):
    (dumps / f"{INIT}{suffix}").unlink()
    assert ingest_into(con, dumps).exit_code == 0
    message = f"{what} are unknown: {INIT}{suffix} is not there"
    assert rows(con, FINDINGS) == [("notice", "missing_file", message)]


def test_a_missing_hlo_text_is_reported_where_frames_need_it(con, dumps):
    (dumps / f"{INIT}.txt").unlink()
    ingest_into(con, dumps)
    ((severity, code, message),) = rows(con, FINDINGS)
    assert (severity, code) == ("notice", "missing_hlo_text")
    assert f"the HLO text {INIT}.txt, which is missing" in message


def test_an_hlo_text_without_metadata_is_there(con, dumps):
    text = dumps / f"{INIT}.txt"
    bare = re.sub(r"\nFileNames\n.*?\n\n(?=\n(?:%|ENTRY))", "", text.read_text(), flags=re.DOTALL)
    text.write_text(re.sub(r", metadata=\{[^}]*\}", "", bare))
    assert "stack_frame_id" not in text.read_text()
    ingest_into(con, dumps)
    ((severity, code, message),) = rows(con, FINDINGS)
    assert (severity, code) == ("notice", "missing_stack_frames")
    assert "not in its HLO text, as --xla_dump_disable_metadata leaves it" in message
    assert rows(con, "SELECT DISTINCT has_hlo_text FROM modules") == [(True,)]


# -- replacing --------------------------------------------------------------------------------


@pytest.mark.slow
def test_replaced_modules_are_deleted_by_sets(db, dumps, monkeypatch):
    ingest(str(db), [dumps])
    for path in dumps.glob("*-live-range.txt"):
        path.write_text(path.read_text() + "\n")
    statements = []
    real = store.open_writable

    class Listening:
        def __init__(self, con):
            self.con = con
            self.close = con.close

        def execute(self, sql, *arguments):
            statements.append(sql)
            # DuckDB finds it by its name in the frame that calls.
            arrow_batches = sys._getframe(1).f_locals.get("arrow_batches")  # noqa: F841
            return self.con.execute(sql, *arguments)

    monkeypatch.setattr(store, "open_writable", lambda *words: Listening(real(*words)))
    assert ingest(str(db), [dumps]).replaced_count == 3
    deletes = [sql for sql in statements if sql.startswith("DELETE") and "unnest" in sql]
    assert len(deletes) == len(MODULE_TABLES)


def test_shapes_of_replaced_modules_go(con, tmp_path):
    text = (
        "BufferAssignment:\nallocation 0: size 4, preallocated-temp:\n"
        " value: <1 a @0> (size=4,offset=0): f32[]\n"
    )
    (tmp_path / "a.txt").write_text(text)
    ingest_into(con, tmp_path)
    (tmp_path / "a.txt").write_text(text.replace("f32", "s32"))
    ingest_into(con, tmp_path)
    assert rows(con, "SELECT shape FROM shapes") == [("s32[]",)]


@pytest.mark.slow
def test_a_run_can_be_replaced_as_a_whole(con, fresh):
    ingest_into(con, DEMO / "tpu_b8", "r", labels={"old": "1"})
    ingest_into(con, DEMO / "gpu_b8")
    summary = ingest_into(con, DEMO / "cpu_b8", "r", replace=True)
    assert (summary.removed_count, summary.module_count, summary.replaced_count) == (2, 3, 0)
    with fresh() as new:
        ingest_into(new, DEMO / "gpu_b8")
        ingest_into(new, DEMO / "cpu_b8", "r")
        assert same(content(con, "ingested_at"), content(new, "ingested_at"))


RESERVED = """BufferAssignment:
allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:
 value: <0 x @0> (size=8,offset=0): f32[2]{0}
allocation 1: size 67108864, color COLOR, preallocated-temp:

Total bytes used: 67108872 (64.00MiB)

Used values:
<0 x @0>
 positions:
  x
 uses:
 from instruction: %x = f32[2]{0} parameter(0)
"""


@pytest.mark.parametrize(("color", "lost"), [(0, 1), (1, 0)])
def test_fast_memory_may_be_reserved_whole(con, tmp_path, color, lost):
    path = tmp_path / "module_0001.jit_f.cl_1.after_optimizations-buffer-assignment.txt"
    path.write_text(RESERVED.replace("COLOR", str(color)).replace(", color 0", ""))
    ingest_into(con, path)
    codes = [code for (code,) in con.execute("SELECT code FROM diagnostics").fetchall()]
    assert codes.count("missing_values") == lost
    ((total,),) = con.execute(
        f"SELECT total_bytes FROM memory_figures WHERE color = {color}"
    ).fetchall()
    assert total >= 67108864
