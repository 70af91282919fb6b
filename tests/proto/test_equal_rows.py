"""A proto gives the rows that the texts of its module give, alone or with some of them."""

import gzip
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from places import ROOT
from proto_rows import OF_TEXT_ALONE, PROTOS, TEXTS, differences, needs_protobuf, put
from shared_dumps import DUMPS, needs_dumps

from bufdb import resources
from bufdb.ingest import second_opinion
from bufdb.proto.reader import hlo_proto

pytestmark = needs_protobuf
PARTS = {
    "allocations": "-buffer-assignment.txt",
    "used_values": "-buffer-assignment-values.txt",
    "live_ranges": "-live-range.txt",
    "hlo_text": ".txt",
}
"""Suffix of a text file by its name in modules.derived_from_proto."""


def diagnosed(con: duckdb.DuckDBPyConnection) -> list[tuple[str, ...]]:
    return rows(con, "SELECT code, message FROM diagnostics WHERE severity <> 'info'")


@pytest.mark.sample(4)
@pytest.mark.parametrize("platform", sorted(TEXTS))
def test_a_proto_gives_the_rows_of_its_texts(con: duckdb.DuckDBPyConnection, platform: str) -> None:
    ingest_into(con, ROOT / "data" / TEXTS[platform], "texts")
    ingest_into(con, PROTOS / platform, "protos")
    assert differences(con, "texts", "protos") == []
    assert diagnosed(con) == []
    derived = "SELECT DISTINCT derived_from_proto, format_era, has_hlo_text FROM modules "
    assert rows(con, f"{derived} WHERE run_name = 'protos'") == [(" ".join(PARTS), "P", True)]
    assert rows(con, f"{derived} WHERE run_name = 'texts'") == [(None, "C", True)]


SHARED = ROOT.parent / "shared"
SAMPLES = [
    *(
        pytest.param(ROOT / "data" / texts, PROTOS / name, id=name)
        for name, texts in sorted(TEXTS.items())
    ),
    *(
        pytest.param(folder, folder, id=folder.name)
        for folder in [
            ROOT / "data" / "elements" / "cpu",
            *sorted({file.parent for file in (SHARED / "cases").glob("*/*optimizations.hlo.pb")}),
        ]
    ),
    *(
        pytest.param(folder, folder, id=folder.name, marks=pytest.mark.slow)
        for folder in sorted({file.parent for file in (SHARED / "dumps").glob("*/*/*.hlo.pb")})
    ),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("texts", "protos"), SAMPLES)
def test_text_proto_and_both_give_the_same_rows(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, texts: Path, protos: Path
) -> None:
    after = [file for file in protos.glob("*after_optimizations.hlo.pb")]
    stems = tuple(file.name.removesuffix(".hlo.pb") for file in after)
    lines = [f for f in texts.iterdir() if f.name.startswith(stems) and f.suffix != ".pb"]
    for run, files in {"text": lines, "proto": after, "both": [*lines, *after]}.items():
        ingest_into(con, put(tmp_path / run, files), run)
    named = rows(con, "SELECT 1 FROM modules WHERE derived_from_proto = 'instructions'")
    for other in ("proto", "both"):
        differing = differences(con, "text", other)
        # Where operands name elements of tuples the text describes no get-tuple-element.
        assert [d for d in differing if not (named and d.startswith("instructions"))] == []
    assert differences(con, "both", "proto") == []
    assert diagnosed(con) == []
    for check in ("overlap", "occupancy", "recompute_costs", "value_origins"):
        sql = (resources.check_folder() / f"{check}.sql").read_text("utf-8")
        assert rows(con, sql) == []
    opinion = second_opinion.ask(con, protos)
    assert (opinion.disagreements, opinion.asked_count) == ([], len(after))


@pytest.mark.slow
@needs_dumps
@pytest.mark.parametrize("program", ["cond_switch", "donate_momentum", "scan_layers_full"])
def test_so_do_the_sample_protos(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, program: str
) -> None:
    files = [f for f in (DUMPS / "proto-0.10.2" / program).iterdir() if "after_opt" in f.name]
    for run, suffix in (("texts", ".txt"), ("protos", ".hlo.pb")):
        for file in files:
            if file.name.endswith(suffix):
                # The number in front distinguishes modules of the same name.
                named = file.name.replace("module_", "", 1).replace(".", "_", 1)
                folder = put(tmp_path / run / named.partition(".cpu")[0], [file])
        for folder in sorted((tmp_path / run).iterdir()):
            ingest_into(con, folder, f"{run} {folder.name}")
    for folder in sorted((tmp_path / "protos").iterdir()):
        assert differences(con, f"texts {folder.name}", f"protos {folder.name}") == []
    assert diagnosed(con) == []


@pytest.mark.sample(6)
@pytest.mark.parametrize("lacking", [*PARTS, "allocations used_values", "live_ranges hlo_text"])
def test_a_proto_has_what_no_text_has(
    con: duckdb.DuckDBPyConnection, tmp_path: Path, lacking: str
) -> None:
    texts = ROOT / "data" / TEXTS["tpu"]
    ingest_into(con, texts, "texts")
    away = tuple(f"optimizations{PARTS[part]}" for part in lacking.split())
    some = [f for f in texts.iterdir() if not f.name.endswith(away)]
    both = put(tmp_path / "both", [*some, *(PROTOS / "tpu").iterdir()])
    ingest_into(con, both, "both")
    assert differences(con, "texts", "both") == []
    assert rows(con, "SELECT DISTINCT derived_from_proto FROM modules WHERE run_name = 'both'") == [
        (lacking,)
    ]
    lines = "SELECT count(*) FROM files WHERE file_kind = 'proto' AND line_count > 0"
    assert rows(con, lines) == [(5,)]
    assert diagnosed(con) == []


@pytest.mark.slow
def test_text_wins_over_a_proto(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    texts = ROOT / "data" / TEXTS["gpu"]
    both = put(tmp_path / "both", [*texts.iterdir(), *(PROTOS / "gpu").iterdir()])
    for name in ("texts", "both"):
        ingest_into(con, texts if name == "texts" else both, name)
    for table in OF_TEXT_ALONE.keys() - {"modules"}:
        exact = (
            f"SELECT t.* EXCLUDE (module_id) FROM {table} t "
            "SEMI JOIN (FROM modules WHERE run_name = '{}') m USING (module_id) ORDER BY ALL"
        )
        assert rows(con, exact.format("texts")) == rows(con, exact.format("both"))
    about = "SELECT DISTINCT modules.derived_from_proto, files.line_count FROM files JOIN modules "
    assert rows(con, f"{about} USING (module_id) WHERE file_kind = 'proto'") == [(None, 0)]


@pytest.mark.slow
def test_a_proto_describes_what_the_text_only_names(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    dumps = ROOT / "data" / "elements" / "cpu"
    for name, files in {
        "texts": (file for file in dumps.iterdir() if file.suffix != ".pb"),
        "both": dumps.iterdir(),
        "protos": dumps.glob("*.pb"),
    }.items():
        ingest_into(con, put(tmp_path / name, files), name)
    about = (
        "SELECT derived_from_proto, count(*) FILTER (opcode IS NULL) FROM instructions "
        "JOIN modules USING (module_id) WHERE run_name = '{}' GROUP BY ALL"
    )
    assert rows(con, about.format("texts")) == [(None, 14)]
    assert rows(con, about.format("both")) == [("instructions", 0)]
    assert differences(con, "both", "protos") == []
    lines = "SELECT line_count, read_line_count FROM files JOIN modules USING (module_id) "
    assert rows(con, f"{lines} WHERE run_name = 'both' AND file_kind = 'proto'") == [(57, 14)]
    assert diagnosed(con) == []


def test_a_damaged_proto_next_to_such_text_is_reported(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    both = put(tmp_path / "both", (ROOT / "data" / "elements" / "cpu").iterdir())
    proto = next(both.glob("*.pb"))
    data = proto.read_bytes()
    assert data.count(b"get-tuple-element.39") == 1
    proto.write_bytes(data.replace(b"get-tuple-element.39", b"get-tuple-element\n39"))
    ingest_into(con, both, "both")
    assert rows(con, "SELECT severity, code FROM diagnostics") == [
        ("data_loss", "unreadable_proto")
    ]
    assert rows(con, "SELECT count(*) FROM instructions WHERE opcode IS NULL") == [(14,)]
    assert rows(con, "SELECT DISTINCT derived_from_proto FROM modules") == [(None,)]


def test_a_proto_that_was_refused_is_not_asked_again(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The proto is damaged; its used values come first, then what the text only names."""
    dumps = ROOT / "data" / "elements" / "cpu"
    both = put(tmp_path / "both", [f for f in dumps.iterdir() if "-values" not in f.name])
    proto = next(both.glob("*.pb"))
    data = proto.read_bytes()
    proto.write_bytes(data.replace(b"get-tuple-element.39", b"get-tuple-element\n39"))
    ingest_into(con, both, "both")
    severities = "SELECT severity FROM diagnostics WHERE code = 'unreadable_proto'"
    assert rows(con, severities) == [("error",)]


@pytest.mark.slow
def test_what_is_ingested_again_is_unchanged(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    both = put(tmp_path / "both", (PROTOS / "tpu").iterdir())
    assert ingest_into(con, both, "both").module_count == 5
    assert ingest_into(con, both, "both").unchanged_count == 5
    (both / "module_0060.jit_decode.cl_1003875606.after_optimizations.hlo.pb").unlink()
    put(both, (ROOT / "data" / TEXTS["tpu"]).glob("*jit_nested*"))
    again = ingest_into(con, both, "both")
    assert (again.unchanged_count, again.replaced_count) == (3, 1)


@pytest.mark.slow
def test_a_compressed_proto_and_one_in_a_snapshot_are_the_same(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    for file in (PROTOS / "gpu").iterdir():
        data = file.read_bytes()
        packed = put(tmp_path / "packed", []) / f"{file.name}.gz"
        packed.write_bytes(gzip.compress(data))
        # An HloSnapshot has the proto in its first field, followed by results.
        shot = put(tmp_path / "shot", []) / file.name
        shot.write_bytes(hlo_proto(data, b"\x08\x01"))
    for name, folder in {
        "plain": PROTOS / "gpu",
        "packed": tmp_path / "packed",
        "shot": tmp_path / "shot",
    }.items():
        ingest_into(con, folder, name)
    assert differences(con, "plain", "packed") == differences(con, "plain", "shot") == []


@pytest.mark.slow
@pytest.mark.parametrize("query", ["loop-residuals", "savings", "remat-candidates", "peak"])
def test_questions_have_the_answers_of_the_text(
    call: Callable[..., tuple[int, str, str]], empty_folder: Path, query: str
) -> None:
    answers = []
    for way, folder in (("text", ROOT / "data" / TEXTS["gpu"]), ("proto", PROTOS / "gpu")):
        assert call("ingest", "--db", f"{way}.duckdb", folder, "--run", "run")[0] == 0
        code, out, err = call("query", query, "--db", f"{way}.duckdb", "--format", "csv")
        assert (code, err) == (0, "")
        answers.append(out)
    assert answers[0] == answers[1]
    assert len(answers[0].splitlines()) > 2


@pytest.mark.slow
def test_protos_among_texts_give_the_rows_that_they_give_alone(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    # Stems of the protos sort before and after those of the texts.
    texts = list((ROOT / "data" / TEXTS["gpu"]).iterdir())
    protos = [f for name in ("cpu", "tpu") for f in (PROTOS / name).iterdir()]
    both = put(tmp_path / "both", [*texts, *protos])
    ingest_into(con, both, "together")
    ingest_into(con, both, "each", block_bytes=2000)
    assert differences(con, "together", "each") == []
    assert diagnosed(con) == []


@pytest.mark.slow
def test_a_large_proto_goes_through_in_rounds(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    ingest_into(con, PROTOS / "gpu", "whole")
    ingest_into(con, PROTOS / "gpu", "rounds", block_bytes=2000)
    assert differences(con, "whole", "rounds") == []


@pytest.mark.slow
def test_rows_of_a_proto_hold_what_rows_must(
    call: Callable[..., tuple[int, str, str]], empty_folder: Path
) -> None:
    assert call("ingest", "--db", "a.duckdb", *sorted(PROTOS.iterdir()))[0] == 0
    code, _, err = call("check", "--db", "a.duckdb")
    assert (code, "hold for 11 modules" in err) == (0, True)
