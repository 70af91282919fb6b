"""What rows of modules come to, summed here and by DuckDB."""

import numpy as np
from ingesting import rows

from bufdb.database.checksums import MODULUS
from bufdb.ingest.rows.sums import NO_MODULE, Sums


def test_sums_of_several_parts_are_those_of_whole_numbers(con):
    rng = np.random.default_rng(1)
    given = {"values": [], "uses": []}
    sums = Sums()
    for table, modules in [
        ("values", [7, 7, 7, 2**63 - 1]),
        ("uses", [7, NO_MODULE, NO_MODULE, 3, 3]),
        ("values", []),
        ("values", [5, 2**63 - 1, 7]),
        ("uses", [NO_MODULE]),
    ]:
        hashes = rng.integers(2**63, 2**64, len(modules), np.uint64)  # a few are more than 2**64
        sums.add(table, np.array(modules, np.int64), hashes)
        given[table] += zip(modules, hashes.tolist(), strict=True)
    sums.store(con)
    expected = [
        (module, table, len(found), sum(found) % MODULUS)
        for table, both in given.items()
        for module in {module for module, _ in both if module != NO_MODULE}
        for found in [[number for other, number in both if other == module]]
    ]
    stored = rows(con, "SELECT module_id, table_name, row_count, checksum FROM row_checksums")
    assert stored == sorted(expected)


def test_without_rows_there_is_nothing_to_store(con):
    Sums().store(con)
    assert rows(con, "SELECT * FROM row_checksums") == []
