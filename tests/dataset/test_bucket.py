"""A dataset in a bucket: against an S3-compatible server of this machine, no network."""

import pytest
from buckets import lenient, needs_s3, s3_bucket
from datasets import TODAY, all_rows, rows_on, stored

from bufdb.dataset.compact import compact
from bufdb.dataset.snapshot import open_readable
from bufdb.dataset.storage import storage_of
from bufdb.errors import DatabaseError, UsageError


@pytest.fixture
def bucket(monkeypatch):
    """A client for a server with an empty bucket."""
    with s3_bucket(monkeypatch, "shared") as client:
        yield client


@needs_s3
@lenient
def test_a_bucket_holds_what_a_folder_does(bucket, tmp_path):
    url = "s3://shared/job/set"
    stored(tmp_path)
    assert stored(url).module_count == 3
    assert stored(url).unchanged_count == 3
    expected = rows_on(tmp_path)
    # Other objects and files cannot be read or written.
    bucket.put_object(Bucket="shared", Key="other/x.csv", Body=b"secret\n1\n")
    (tmp_path / "x.csv").write_text("secret\n1\n")
    places = [f"{tmp_path}/x.csv", "s3://shared/other/x.csv", f"{url}/../../other/x.csv"]
    with open_readable(url) as con:
        assert all_rows(con) == expected
        for place in places:
            with pytest.raises(Exception, match="disabled by configuration"):
                con.execute(f"FROM read_csv('{place}')")
        with pytest.raises(Exception, match="disabled by configuration"):
            con.execute(f"COPY (SELECT 1) TO '{url}/x.csv'")
    small = compact(url, grace_s=0)
    assert small.day_count == 1 and small.removed_count > 60
    assert rows_on(url) == expected
    kept = bucket.list_objects(Bucket="shared", Prefix="job/")["Contents"]
    keys = [item["Key"] for item in kept]
    assert len(keys) == small.written_count
    assert all(f"/dt={TODAY}/part-" in key for key in keys)


@needs_s3
@lenient
def test_what_is_not_there_is_one_line(bucket):
    for url in ("s3://shared/nothing", "s3://no-such-bucket/x"):
        with pytest.raises(DatabaseError) as error:
            open_readable(url)
        assert url in str(error.value) and "\n" not in str(error.value)


def test_without_fsspec_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"pip install 'bufdb\[remote\]'"):
        storage_of("s3://bucket/set")


@pytest.mark.slow
def test_a_file_url_is_a_folder(tmp_path):
    stored(f"file://{tmp_path}/set")
    assert rows_on(f"file://{tmp_path}/set") == rows_on(tmp_path / "set")
