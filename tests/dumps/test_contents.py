"""The bytes of dump files as a database keeps them."""

import random
from concurrent.futures import ThreadPoolExecutor

from bufdb.dumps import contents


def test_threads_compress_side_by_side():
    texts = [random.Random(number).randbytes(10_000) * 40 for number in range(8)]

    def is_kept(text):
        parts = (part for _ in range(20) for part in contents.parts("h", [text]))
        return all(contents.expanded(part.compressed, len(text)) == text for part in parts)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(is_kept, texts))
