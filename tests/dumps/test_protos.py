"""Protos in a directory: which are read, and that none is passed over in silence."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from proto_rows import PROTOS, needs_protobuf, put

from bufdb.dumps.discover import discover
from bufdb.dumps.files import Problem
from bufdb.errors import UsageError
from bufdb.proto import reader
from bufdb.proto.reader import hlo_proto

STEM = "module_0060.jit_decode.cl_1003875606.after_optimizations"
PROTO = PROTOS / "tpu" / f"{STEM}.hlo.pb"
Call = Callable[..., tuple[int, str, str]]


def kinds_of(path: Path) -> tuple[dict[str, list[str]], list[Problem]]:
    """Kinds of files by module, and what is odd."""
    odd: list[Problem] = []
    return {m.key: sorted(m.files) for m in discover(path, odd)}, odd


@needs_protobuf
@pytest.mark.parametrize(
    ("name", "key"),
    [
        (f"{STEM}.hlo.pb", STEM),
        (f"{STEM}.hlo.pb.gz", STEM),
        ("from_a_colleague.pb", "from_a_colleague"),
        ("snapshot.pb", "snapshot"),
    ],
)
def test_a_proto_is_a_module(tmp_path: Path, name: str, key: str) -> None:
    data = PROTO.read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert kinds_of(tmp_path) == ({key: ["proto"]}, [])
    assert kinds_of(tmp_path / name) == ({key: ["proto"]}, [])


@needs_protobuf
def test_other_stages_and_reports_are_no_modules(tmp_path: Path) -> None:
    put(tmp_path, [PROTO])
    bare = hlo_proto(PROTO.read_bytes()[:9], b"")
    for name in (
        "module_0060.jit_decode.before_optimizations.hlo.pb",
        "module_0060.jit_decode.cl_1003875606.after_codegen.hlo.pb",
        f"{STEM}-memory-usage-report.pb",
        # One for each time that a program runs.
        "module_0060.jit_decode.snapshot.145755802.pb",
        "module_0060.jit_decode.snapshot.-7.pb",
        "module_0060.jit_decode.execution_0003.hlo_snapshot.pb",
        "module_0060.jit_decode.execution_0003.hlo_unoptimized_snapshot.pb",
        # In a directory for each module, whatever was asked for: jaxlib 0.8.1 to 0.10.0, and later.
        "jit_decode_1795364023392/compile_options.pb",
        "module_0060.jit_decode/topology.pb",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bare)
    assert kinds_of(tmp_path) == ({STEM: ["proto"]}, [])


def test_what_is_no_module_is_reported(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01\x12\x04abcd")
    (tmp_path / f"{STEM}.hlo.pb").write_bytes(PROTO.read_bytes()[:5000])
    modules, odd = kinds_of(tmp_path)
    assert modules == {}
    assert [(o.name, o.severity, o.code) for o in odd] == [
        (f"{STEM}.hlo.pb", "error", "unreadable_proto"),
        ("saved_model.pb", "error", "unreadable_proto"),
    ]


def test_what_is_damaged_inside_is_reported(tmp_path: Path) -> None:
    packed = gzip.compress(PROTO.read_bytes())
    (tmp_path / f"{STEM}.hlo.pb.gz").write_bytes(packed[: len(packed) // 2])
    # Compressed by hand, under the name of what is not.
    (tmp_path / "a.pb").write_bytes(packed[:20] + b"\xff" * 20 + packed[40:])
    modules, odd = kinds_of(tmp_path)
    assert modules == {}
    assert [(o.name, o.severity, o.code) for o in odd] == [
        ("a.pb", "error", "unreadable_proto"),
        (f"{STEM}.hlo.pb.gz", "error", "unreadable_proto"),
    ]


def test_a_proto_that_may_not_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{STEM}.hlo.pb").touch()

    def closed(path: Path, *args: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.open", closed)
    modules, odd = kinds_of(tmp_path)
    assert modules == {}
    assert [(o.code, o.message) for o in odd if o.name == f"{STEM}.hlo.pb"] == [
        ("unreadable_file", "cannot be read: Permission denied")
    ]


def test_text_with_a_proto_says_more(tmp_path: Path) -> None:
    (tmp_path / f"{STEM}.hlo.pb").write_bytes(hlo_proto(b"\x0a\x05jit_f", b""))
    (tmp_path / f"{STEM}.txt").write_text("HloModule jit_decode\n")
    modules, odd = kinds_of(tmp_path)
    (message,) = (o.message for o in odd if o.code == "no_buffer_assignment")
    assert modules == {}
    assert "1 without their *-buffer-assignment.txt files" in message


def test_a_module_without_assignment_is_reported(tmp_path: Path) -> None:
    (tmp_path / f"{STEM}.hlo.pb").write_bytes(hlo_proto(b"\x0a\x05jit_f", b""))
    with pytest.raises(UsageError, match=r"without its buffer assignment: add --xla_dump_hlo_as"):
        ingest_into(duckdb.connect(), tmp_path)


class TestWithoutThePackage:
    @pytest.fixture(autouse=True)
    def missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "is_readable", lambda: False)

    def test_protos_alone_name_the_extra(self, call: Call, empty_folder: Path) -> None:
        code, _, err = call("ingest", "--db", "a.duckdb", PROTOS / "tpu")
        assert code == 2
        assert "5 dumped only as protobuf" in err
        assert "pip install 'bufdb[proto]'" in err

    def test_protos_with_other_modules_count(
        self, con: duckdb.DuckDBPyConnection, tmp_path: Path
    ) -> None:
        texts = PROTOS.parent / "loops" / "tpu"
        put(tmp_path, [PROTO, *texts.glob("*jit_nested*")])
        put(tmp_path, (PROTOS / "tpu").glob("*jit_nested*"))
        assert ingest_into(con, tmp_path).module_count == 1
        reported = rows(con, "SELECT severity, code, message FROM diagnostics ORDER BY ALL")
        assert [row[:2] for row in reported] == [
            ("info", "proto_not_read"),
            ("notice", "no_buffer_assignment"),
        ]
        assert all("pip install 'bufdb[proto]'" in message for _, _, message in reported)

    def test_with_it_they_are_read(
        self, con: duckdb.DuckDBPyConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path, [*(PROTOS.parent / "loops" / "tpu").glob("*jit_nested*")])
        shutil.copyfile(PROTO, tmp_path / PROTO.name)
        ingest_into(con, tmp_path, "run")
        monkeypatch.undo()
        if reader.is_readable():
            assert ingest_into(con, tmp_path, "run").module_count == 1
            assert rows(con, "SELECT count(*) FROM modules") == [(2,)]
