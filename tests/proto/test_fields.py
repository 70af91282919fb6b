"""The generated module is that of the schema, and reads with any protobuf from the lowest on."""

import re

from places import ROOT
from proto_rows import needs_protobuf

pytestmark = needs_protobuf
SCHEMA = ROOT / "bufdb" / "proto" / "hlo_fields.proto"
FIELD = re.compile(r"^\s*(optional |repeated )?([\w.]+) (\w+) = (\d+);", re.MULTILINE)


def test_the_generated_module_is_that_of_the_schema() -> None:
    from bufdb.proto import hlo_fields_pb2

    written = {(name, int(number)) for _, _, name, number in FIELD.findall(SCHEMA.read_text())}
    generated = set()
    left = list(hlo_fields_pb2.DESCRIPTOR.message_types_by_name.values())
    while left:
        message = left.pop()
        left += message.nested_types
        generated |= {(field.name, field.number) for field in message.fields}
    assert generated == written
    assert len(FIELD.findall(SCHEMA.read_text())) > 130


def test_it_asks_for_no_version_of_its_own() -> None:
    text = SCHEMA.with_name("hlo_fields_pb2.py").read_text()
    assert "ValidateProtobufRuntimeVersion" not in text
