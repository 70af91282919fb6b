"""Make bufdb/proto/hlo_fields_pb2.py of hlo_fields.proto.

    pip install 'grpcio-tools==1.62.*' 'setuptools<81' && python tests/support/generate_proto.py

With that release (protoc 4.25) or an older one: what newer ones write asks for a protobuf of their
own version, and this runs with any from 4.25 on.
"""

from __future__ import annotations

from pathlib import Path

from places import ROOT

FOLDER = ROOT / "bufdb" / "proto"
WHERE_FROM = "# Made of hlo_fields.proto by tests/support/generate_proto.py; not to be edited.\n"


def generate(folder: Path) -> None:
    """Write the module into a folder."""
    from grpc_tools import protoc

    arguments = ["protoc", f"-I{FOLDER}", f"--python_out={folder}", "hlo_fields.proto"]
    if protoc.main(arguments):
        raise SystemExit("protoc failed")
    made = folder / "hlo_fields_pb2.py"
    made.write_text(WHERE_FROM + made.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    generate(FOLDER)
