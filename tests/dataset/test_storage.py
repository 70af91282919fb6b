"""An object appears whole, once: a name says what rows are in it, not their bytes."""

import importlib.util
import os
import time
from datetime import timedelta

import pytest

from bufdb.dataset import compact, storage

NAME = "values/dt=2026-01-01/0-0.parquet"


@pytest.fixture(params=["folder", "without links", "bucket"])
def place(request, tmp_path, monkeypatch):
    """A place, what it holds under NAME, and what makes that old."""
    if request.param == "bucket":
        if importlib.util.find_spec("fsspec") is None:
            pytest.skip("this Python has no fsspec: pip install 'bufdb[remote]'")
        place = storage.storage_of(f"memory://{tmp_path.name}/set")
        path = f"{place.path}/{NAME}"

        def age():
            place.system.store[path].created -= timedelta(seconds=2 * storage.RECENT_S)

        return place, lambda: place.system.cat_file(path), age
    place = storage.storage_of(str(tmp_path / "set"))
    if request.param == "without links":

        def no_links(made, target):
            if target.exists():
                raise FileExistsError(17, "File exists")
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(os, "link", no_links)
    path = tmp_path / "set" / NAME
    return place, path.read_bytes, lambda: os.utime(path, (0, time.time() - 2 * storage.RECENT_S))


def test_an_object_stays_as_it_was_just_written(place):
    where, read, age = place
    bring(where, b"first")
    bring(where, b"the same rows in another order")
    assert read() == b"first"
    age()  # of a writer that was stopped: by then it may be on its way out
    bring(where, b"again")
    assert read() == b"again"


def test_what_is_kept_is_not_about_to_be_removed():
    assert storage.RECENT_S <= compact.GRACE_S / 2


def bring(place, content):
    with place.staging() as folder:
        made = folder / "made.parquet"
        made.write_bytes(content)
        place.put(made, NAME)


def test_a_link_is_no_object_that_stays(tmp_path):
    """Otherwise users believe that its rows are in the dataset, where no reader finds them."""
    folder, made = storage.Folder(tmp_path / "set"), tmp_path / "made"
    made.write_bytes(b"rows")
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "set" / NAME).parent.mkdir(parents=True)
    (tmp_path / "set" / NAME).symlink_to(tmp_path / "other")
    folder.put(made, NAME)
    assert (tmp_path / "other").read_bytes() == b"other"
    assert not (tmp_path / "set" / NAME).is_symlink()
    assert (tmp_path / "set" / NAME).read_bytes() == b"rows"
