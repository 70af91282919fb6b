"""Records of Riegeli's, in which XLA puts what it compiled for hardware that is not there.

A file is blocks of 64 KiB, each with a header, and across them chunks, each with a header too; a
chunk of simple records has their sizes and then their bytes, both as they are or compressed. That
is what libtpu and, with Snappy, XLA for GPUs write; of another chunk its bytes are given as they
are. A record may be a file itself (a GPU's from jaxlib 0.12 on). Hashes are not compared: what is
found is held against the module it should be.
https://github.com/google/riegeli: doc/riegeli_records_file_format.md
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator

from bufdb.errors import BufdbError
from bufdb.proto.reader import MAX_BYTES
from bufdb.proto.wire import varint

_BEGIN = bytes.fromhex("83af70d10d884a3f")
"""How a file begins: the hash of its first block header."""
_BLOCK_BYTES, _BLOCK_HEADER_BYTES = 1 << 16, 24
_CHUNK_HEADER = struct.Struct("<QQQQQ")
"""Hash of the rest, size, hash of the data, type and number of records, size of the records."""
_SIMPLE, _NONE, _SNAPPY = ord("r"), b"\x00", b"s"


def records(data: bytes) -> Iterator[bytes]:
    """The records in some bytes, behind whatever stands before them; those bytes if it has none.

    Raises:
        BufdbError: they are compressed, and the package that reads them is not installed.
    """
    start = data.find(_BEGIN)
    if start < 0:
        yield data
        return
    blocks = range(start, len(data), _BLOCK_BYTES)
    whole = b"".join(data[at + _BLOCK_HEADER_BYTES : at + _BLOCK_BYTES] for at in blocks)
    at = 0
    while at + _CHUNK_HEADER.size <= len(whole):
        _, size, _, kind, _ = _CHUNK_HEADER.unpack_from(whole, at)
        begin, stop = at + _CHUNK_HEADER.size, at + _CHUNK_HEADER.size + size
        found = _simple(whole[begin:stop]) if kind & 255 == _SIMPLE and stop <= len(whole) else None
        for record in [whole[at:stop]] if found is None else found:
            yield from records(record) if _BEGIN in record else [record]
        at = stop


def _simple(chunk: bytes) -> list[bytes] | None:
    """The records of a chunk of simple ones; None if it makes no sense, or no sense is known."""
    size, at = varint(chunk, 1)
    if at < 0:
        return None
    sizes = _plain(chunk[:1], chunk[at : at + size])
    values = _plain(chunk[:1], chunk[at + size :])
    if sizes is None or values is None:
        return None
    found, place, stop = [], 0, 0
    while place < len(sizes):
        size, place = varint(sizes, place)
        if place < 0:
            return None
        found.append(values[stop : stop + size])
        stop += size
    return found if stop == len(values) else None


def _plain(how: bytes, data: bytes) -> bytes | None:
    if how == _NONE:
        return data
    size, at = varint(data, 0)
    # Snappy's own text begins with the size, too.
    if how != _SNAPPY or at < 0 or size > MAX_BYTES or varint(data, at)[0] != size:
        return None
    if importlib.util.find_spec("cramjam") is None:
        raise BufdbError(
            "what was compiled for a GPU that is not there is compressed with Snappy; reading it "
            "takes the package cramjam: pip install 'bufdb[jax]'; or give what .lower(...) gave, "
            "which takes no package"
        )
    cramjam = importlib.import_module("cramjam")
    try:
        return bytes(cramjam.snappy.decompress_raw(data[at:]))
    except cramjam.DecompressionError:
        return None
