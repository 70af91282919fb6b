"""Records of serialized executables, as far as bufdb reads them."""

import importlib.util
import struct

import pytest

from bufdb.capture import dump
from bufdb.capture.dump import records
from bufdb.errors import BufdbError

needs_cramjam = pytest.mark.skipif(
    importlib.util.find_spec("cramjam") is None, reason="the package cramjam is not installed"
)
BEGIN = bytes.fromhex("83af70d10d884a3f")
BLOCK, HEADER = 1 << 16, 24


def varint(number):
    return bytes([number & 127 | 128]) + varint(number >> 7) if number > 127 else bytes([number])


def snappy(data):
    import cramjam

    return varint(len(data)) + bytes(cramjam.snappy.compress_raw(data))


def chunk(how, pack, *chunk_records):
    sizes = pack(b"".join(varint(len(record)) for record in chunk_records))
    return how + varint(len(sizes)) + sizes + pack(b"".join(chunk_records))


def file(*chunks, kind=b"r"):
    """Return chunks, given without their headers, in blocks after some other bytes."""
    head = struct.Struct("<QQQQQ")
    whole = head.pack(0, 0, 0, ord("s"), 0)
    whole += b"".join(head.pack(0, len(c), 0, kind[0] | 1 << 8, 0) + c for c in chunks)
    size = BLOCK - HEADER
    blocks = [whole[at : at + size] for at in range(0, len(whole), size)]
    begin = BEGIN + bytes(HEADER - len(BEGIN))
    return b"before" + b"".join((bytes(HEADER) if n else begin) + b for n, b in enumerate(blocks))


LARGE = b"large " * 30_000
PLAIN = chunk(b"\x00", bytes, b"one", b"", LARGE)


def test_records_are_the_bytes_between_the_headers():
    assert [*records(file(PLAIN, PLAIN))][1:] == [b"one", b"", LARGE] * 2


@needs_cramjam
def test_compressed_records_are_unpacked():
    packed = chunk(b"s", snappy, b"one", b"", LARGE)
    assert len(packed) < len(LARGE) / 4
    assert [*records(file(PLAIN, packed))][1:] == [b"one", b"", LARGE] * 2


def test_a_record_that_is_a_file_is_its_records():
    inner = file(PLAIN).removeprefix(b"before")
    all_records = [*records(file(chunk(b"\x00", bytes, b"outer", inner)))]
    assert [record for record in all_records if len(record) != 40] == [b"outer", b"one", b"", LARGE]


def test_what_is_no_file_of_records_is_one():
    assert [*records(b"something else")] == [b"something else"]


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"b" + PLAIN[1:],
        PLAIN[:-1],
        PLAIN + b"more",
        b"\x00\xff",
        b"\x00\x01\xff",
        pytest.param(b"s\x02\x03\x03\x04\x05", marks=needs_cramjam),
        pytest.param(b"s\x02\x01\x01abc", marks=needs_cramjam),
    ],
)
def test_a_chunk_that_is_not_understood_is_given_as_it_is(odd):
    *_, last = records(file(PLAIN, odd))
    assert last.endswith(odd)
    assert len(last) == 40 + len(odd)


def test_other_kinds_of_chunks_are_given_as_they_are():
    (_, last) = records(file(PLAIN, kind=b"t"))
    assert last.endswith(PLAIN)


def test_a_file_that_was_cut_off_ends_with_what_is_left():
    *_, last = records(file(PLAIN, PLAIN)[:-10])
    assert last.endswith(LARGE[-100:-10])


def test_without_the_package_it_is_named(monkeypatch):
    monkeypatch.setattr(dump.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BufdbError, match=r"cramjam: pip install 'bufdb\[jax\]'"):
        list(records(file(b"s\x02\x01\x01abc\x03\x03")))
