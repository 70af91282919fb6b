"""Grouping of a run's dumps for reading."""

from ingesting import ingest_into
from places import DEMO

from bufdb.dumps.files import ModuleFiles
from bufdb.ingest.plan import Job, Request, module_id_of
from bufdb.ingest.stored import ToRead

REQUEST = Request(block_bytes=1000)


def jobs_of(sizes: list[int]) -> list[Job]:
    jobs = []
    for number, size in enumerate(sizes):
        key = f"module_{number:04}.jit_f"
        job = Job("a", module_id_of("a", key), ModuleFiles(key))
        job.sizes = {"buffer_assignment": size}
        jobs.append(job)
    return jobs


def groups(con, sizes: list[int], reader_count: int) -> list[list[int]]:
    """The sizes of the modules of each group."""
    to_read = ToRead(con, "a", jobs_of(sizes), REQUEST, reader_count)
    return [[job.sizes["buffer_assignment"] for job in group.jobs] for group in to_read.groups]


def test_one_reader_gets_whole_blocks(con):
    assert [sum(group) for group in groups(con, [10] * 501, 1)] == [1000] * 5 + [10]


def test_several_readers_get_as_many_groups_of_about_one_size(con):
    for count in (2, 3, 4):
        group_sizes = groups(con, [10] * 501, count)
        assert len(group_sizes) == -(-5010 // (1000 * count)) * count
        assert max(map(sum, group_sizes)) - min(map(sum, group_sizes)) <= 10 * len(group_sizes)


def test_a_large_module_is_alone_and_sizes_no_group_of_others(con):
    group_sizes = groups(con, [100] * 6 + [90_000] + [100] * 6, 2)
    assert group_sizes == [[100] * 6, [90_000], [100] * 6]


def test_a_module_that_nearly_fills_a_block_is_in_a_group(con):
    assert groups(con, [10, 1000, 10], 2) == [[10], [1000], [10]]
    assert groups(con, [], 2) == []


def test_what_is_stored_costs_its_hash_alone(con):
    ingest_into(con, [DEMO], run="a")
    stored = con.execute("SELECT module_id FROM modules").fetchall()
    jobs = jobs_of([800] * len(stored))
    for job, (module_id,) in zip(jobs, stored, strict=True):
        job.module_id = module_id
    to_read = ToRead(con, "a", jobs, REQUEST)
    assert max(len(group.jobs) for group in to_read.groups) == min(10, len(stored))
