"""`bufdb check --protos`: a proto is compared with what was read from the text."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from proto_rows import PROTOS, needs_protobuf, put

from bufdb.proto import reader

pytestmark = needs_protobuf
TEXTS = PROTOS.parent / "loops" / "tpu"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def both(empty_folder: Path, call: Call) -> Path:
    """A database of two modules with text and proto, and the folder they are from."""
    parts = [*TEXTS.glob("*jit_nested*"), *TEXTS.glob("*jit_decode*")]
    protos = PROTOS / "tpu"
    put(Path("dumps"), [*parts, *protos.glob("*jit_nested*"), *protos.glob("*jit_decode*")])
    assert call("ingest", "--db", "a.duckdb", "dumps")[0] == 0
    return Path("a.duckdb")


@pytest.mark.slow
def test_text_and_proto_say_the_same(both: Path, call: Call) -> None:
    code, _, err = call("check", "--db", both, "--protos", "dumps")
    assert (code, err) == (0, "bufdb: text and proto of 2 modules agree\n")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("live_ranges", "UPDATE live_ranges SET end_time = end_time + 1 WHERE start_time = 7"),
        ("values", 'UPDATE "values" SET offset_bytes = offset_bytes + 64 WHERE color = 1'),
        ("positions", "DELETE FROM positions WHERE NOT is_defining"),
        ("instructions", "UPDATE instructions SET program_order = 0 WHERE program_order = 3"),
    ],
)
def test_what_differs_is_named(both: Path, call: Call, table: str, change: str) -> None:
    with duckdb.connect(str(both)) as con:
        con.execute(change)
    code, out, _ = call("check", "--db", both, "--protos", "dumps", "--format", "csv")
    assert code == 1
    assert {line.split(",")[1] for line in out.splitlines()[1:]} == {table}


@pytest.mark.slow
def test_a_proto_that_is_gone_is_reported(both: Path, call: Call) -> None:
    next(Path("dumps").glob("*jit_decode*.hlo.pb")).unlink()
    code, _, err = call("check", "--db", both, "--protos", "dumps")
    assert code == 0
    assert "protos of 1 modules that have text and a proto are not below dumps" in err
    assert "text and proto of 1 modules agree" in err


def test_without_the_package_there_is_no_second_opinion(
    both: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "is_readable", lambda: False)
    code, _, err = call("check", "--db", both, "--protos", "dumps")
    assert code == 2
    assert "pip install 'bufdb[proto]'" in err
