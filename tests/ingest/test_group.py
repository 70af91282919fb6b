"""A group of modules as rows: without a database, and the same as what is stored."""

import pickle
import subprocess
import sys

import pytest
from ingesting import ingest_into, rows
from places import DEMO, ROOT

from bufdb.database.runs import LIVE_TABLES
from bufdb.dumps.load import load
from bufdb.ingest.group import Group, collect, content_of
from bufdb.ingest.plan import plan
from bufdb.ingest.rows import column_types
from bufdb.ingest.writer import Batches, TableSchema
from bufdb.read.own import NOTHING_MORE, Own


def jobs_of(run):
    ((_, planned),) = plan([DEMO / run], None).items()
    return planned.jobs


def test_types_of_columns_are_those_that_duckdb_has(con):
    stored_types = {}
    for table, column, kind in rows(
        con,
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE NOT internal AND table_name IN (SELECT table_name FROM duckdb_tables()) "
        "ORDER BY table_name, column_index",
    ):
        stored_types.setdefault(table, {})[column] = kind
    types = column_types()
    assert types == {table: stored_types[table] for table in types}
    with_modules = {table for table, columns in stored_types.items() if "module_id" in columns}
    assert with_modules | {"shapes"} <= types.keys()


@pytest.mark.slow
def test_a_group_is_read_without_a_database():
    script = (
        "import sys; from bufdb.ingest import group; "
        "print(*sorted({'duckdb', 'click', 'sqlglot'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


@pytest.mark.slow
@pytest.mark.parametrize("block_bytes", [1000, 10 << 20], ids=["large", "small"])
def test_what_is_collected_is_what_is_stored(con, fresh, block_bytes):
    """Also when group and rows went through another process."""
    jobs = jobs_of("cpu_b8")
    ingest_into(con, DEMO / "cpu_b8")
    group = pickle.loads(pickle.dumps(Group(jobs, block_bytes=block_bytes, keeps_sources=True)))
    collected = pickle.loads(pickle.dumps(collect(group)))
    assert [i for done in collected.done for i in done.ids] == [job.module_id for job in jobs]
    parts = {}
    for table, some in collected.rows:
        parts.setdefault(table, []).append(some)
    with fresh() as other:
        for table, some in parts.items():
            schema = TableSchema.of(column_types()[table])
            batches = Batches([schema.batch(part) for part in some])  # noqa: F841
            other.execute(f'INSERT INTO "{table}" BY NAME FROM batches')
        apart = {"shapes", "file_contents", "run_labels", *LIVE_TABLES}
        for table in column_types().keys() - apart:
            query = f'SELECT * FROM "{table}"'
            stored = sorted(map(repr, rows(con, query)))
            assert sorted(map(repr, rows(other, query))) == stored, table
    stored = "SELECT content_hash, part_ordinal, size_bytes FROM file_contents"
    sent = [part.row() for part in collected.parts]
    names = ("content_hash", "part_ordinal", "size_bytes")
    assert {tuple(row[name] for name in names) for row in sent} == set(rows(con, stored))
    shapes = {shape.text for done in collected.done for shape in done.shapes}
    assert shapes == {shape for (shape,) in rows(con, "SELECT shape FROM shapes")}


def test_modules_made_of_the_same_are_left_alone():
    jobs = jobs_of("cpu_b8")
    first = collect(Group(jobs))
    content = {job.module_id: content_of(job, load(job.files), NOTHING_MORE) for job in jobs[:2]}
    again = collect(Group(jobs, stored=content))
    assert again.unchanged == [job.module_id for job in jobs[:2]]
    assert [i for done in again.done for i in done.ids] == [jobs[2].module_id]
    with_own = collect(Group(jobs, Own("x"), stored=content))
    assert (with_own.unchanged, len(with_own.done[0].ids)) == ([], len(first.done[0].ids))


def test_a_file_that_is_gone_is_reported(tmp_path):
    jobs = jobs_of("cpu_b8")
    file = jobs[0].files.files["values"]
    jobs[0].files.files["values"] = type(file)(tmp_path / "gone", file.name, file.kind)
    collected = pickle.loads(pickle.dumps(collect(Group(jobs))))
    assert list(collected.errors) == [jobs[0].module_id]
    assert collected.errors[jobs[0].module_id].strerror == "No such file or directory"
    assert collected.done[0].ids == [job.module_id for job in jobs[1:]]
