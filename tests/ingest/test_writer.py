"""Rows on their way into an open database: when they are inserted, and how they are hashed."""

import shutil
import weakref
from pathlib import Path

import numpy as np
from ingesting import rows

from bufdb.columnar.rows import rows_of
from bufdb.database import store
from bufdb.ingest.writer import IDLE_INSERT_ROWS, MANY_ROWS, TableSchema, TableWriter

LABEL = {"run_name": "a", "label": "b", "label_value": "c", "is_metadata": False}


def test_tables_with_many_rows_do_not_wait(con):
    types = {"module_id": "BIGINT", "at_time": "BIGINT"}
    numbers = np.arange(MANY_ROWS // 2)
    part, _ = rows_of({"module_id": numbers, "at_time": numbers}, types)
    writer = TableWriter(con)
    writer.schemas["few"] = writer.schemas["many"] = TableSchema.of(types)
    con.execute("CREATE TABLE few (module_id BIGINT, at_time BIGINT)")
    con.execute("CREATE TABLE many AS FROM few")
    writer.insert_rows = 4 * len(numbers)
    writer.begin()
    writer.add("few", part)
    for _ in range(3):
        writer.add("many", part)
    assert list(writer.batches) == ["few"]
    assert rows(con, "SELECT count(*) FROM many") == [(3 * len(numbers),)]
    writer.settle()
    assert rows(con, "SELECT count(*) FROM few") == [(len(numbers),)]
    writer.close()


def test_waiting_rows_are_inserted_when_worth_it(con):
    types = {"module_id": "BIGINT", "color": "BIGINT"}
    numbers = np.arange(IDLE_INSERT_ROWS - 1)
    writer = TableWriter(con)
    writer.schemas["memory_sums"] = TableSchema.of(types)
    writer.begin()
    writer.add("memory_sums", rows_of({"module_id": numbers, "color": numbers}, types)[0])
    writer.idle()
    assert list(writer.batches) == ["memory_sums"]
    writer.add_rows("run_labels", [LABEL])
    writer.idle()
    assert list(writer.batches) == ["run_labels"]
    writer.close()


def test_what_is_packed_when_it_is_committed_is_in_no_log(empty_db, tmp_path):
    path = shutil.copy(empty_db, tmp_path / "t.duckdb")
    for is_packed in (False, True):
        with store.open_writable(str(path)) as con:
            (before,) = con.execute("SELECT current_setting('checkpoint_threshold')").fetchone()
            writer = TableWriter(con)
            writer.begin()
            writer.add_rows("run_labels", [LABEL])
            writer.commit(is_packed=is_packed)
            assert Path(f"{path}.wal").exists() is not is_packed
            assert con.execute("SELECT current_setting('checkpoint_threshold')").fetchone() == (
                before,
            )


SUMS = {"module_id": "BIGINT", "color": "BIGINT", "total_bytes": "HUGEINT"}


def numbered(count, types):
    numbers = np.arange(count)
    return rows_of(dict.fromkeys(types, numbers), types)[0]


def test_rows_are_given_up_with_their_insert(con):
    """Or a worker whose memory they are in would wait for it, and this process for the worker."""
    writer = TableWriter(con)
    writer.schemas["reported_sums"] = TableSchema.of(SUMS)
    writer.begin()
    some = numbered(100, SUMS)
    held = weakref.ref(some)
    writer.add("reported_sums", some)
    del some
    writer.settle()
    assert held() is None
    writer.close()
