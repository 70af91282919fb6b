"""The HLO text before optimizations: when its module is read again, and what it does not report."""

import shutil
from pathlib import Path

import pytest
from ingesting import ingest_into
from places import ROOT

TPU = ROOT / "data/sharded/tpu"


@pytest.fixture
def dumps(tmp_path):
    """A copy of the sharded TPU run without the text, and where that belongs."""
    folder = Path(shutil.copytree(TPU, tmp_path / "tpu"))
    (path,) = folder.glob("*.before_optimizations.txt")
    path.unlink()
    return folder, path


def whole(path):
    return (TPU / path.name).read_text()


def sources(con):
    return con.execute("SELECT DISTINCT sharding_source FROM parameter_shardings").fetchall()


def reported(con):
    return con.execute("SELECT severity, code, line_number, message FROM diagnostics").fetchall()


@pytest.mark.slow
def test_its_module_is_read_again_when_it_comes_changes_or_goes(con, dumps):
    folder, path = dumps
    counts = []
    for text in (None, whole(path), whole(path) + "\n", None):
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        summaries = [ingest_into(con, folder) for _ in range(2)]
        assert [(s.module_count, s.unchanged_count) for s in summaries] == [(1, 0), (0, 1)]
        counts.append(con.execute("SELECT count(*) FROM entry_parameters").fetchone()[0])
    assert counts == [0, 9, 9, 0]
    assert reported(con) == []


def test_lines_are_read_or_known(con, dumps):
    folder, path = dumps
    path.write_text(whole(path))
    ingest_into(con, folder)
    (row,) = con.execute(
        "SELECT path, size_bytes, line_count, read_line_count, unread_line_count FROM files "
        "WHERE file_kind = 'before_optimizations'"
    ).fetchall()
    text = whole(path)
    assert row == (path.name, len(text), text.count("\n"), 1 + 9, 0)


def test_it_counts_devices_without_the_optimized_text(con, dumps):
    folder, path = dumps
    path.write_text(whole(path))
    for other in folder.glob("*.after_optimizations.txt"):
        other.unlink()
    ingest_into(con, folder)
    columns = "hlo_module_name, partition_count, replica_count, has_hlo_text"
    assert con.execute(f"SELECT {columns} FROM modules").fetchall() == [
        ("jit_train_step", 4, 1, False)
    ]
    assert sources(con) == [("before_optimizations",)]


@pytest.mark.parametrize(
    ("own_text", "others", "what"),
    [
        ("num_partitions=4", "num_partitions=8", "partition_count is 8, the optimized text's 4"),
        ("jit_train_step", "jit_f", "module_name is jit_f, the optimized text's jit_train_step"),
    ],
)
def test_the_text_of_another_compilation_is_left_out(con, dumps, own_text, others, what):
    folder, path = dumps
    path.write_text(whole(path).replace(own_text, others, 1))
    ingest_into(con, folder)
    assert reported(con) == [("notice", "other_hlo_text", None, f"its {what}; it is skipped")]
    assert sources(con) == [(None,)]


def test_a_text_that_ends_early_is_reported(con, dumps):
    folder, path = dumps
    text = whole(path)
    path.write_text(text[: text.index("  %params__norm__.1 = ")])
    ingest_into(con, folder)
    assert [code for _, code, _, _ in reported(con)] == ["truncated_hlo_text"]
    known = con.execute(
        "SELECT parameter_number FROM parameter_shardings WHERE sharding IS NOT NULL ORDER BY ALL"
    ).fetchall()
    assert known == [(0,), (8,)]


def test_a_line_that_is_not_understood_is_reported(con, dumps):
    folder, path = dumps
    text = whole(path)
    at = text.index("parameter(8)", text.index("ENTRY"))
    path.write_text(text[:at] + text[at:].replace("parameter(8)", "parameter(eight)"))
    ingest_into(con, folder)
    number = text[:at].count("\n") + 1
    assert [finding[:3] for finding in reported(con)] == [("data_loss", "unreadable_line", number)]


def test_an_empty_file_is_reported(con, dumps):
    folder, path = dumps
    path.write_text("")
    ingest_into(con, folder)
    assert reported(con) == [("data_loss", "empty_file", None, "it is empty")]
