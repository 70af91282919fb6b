"""The demo dumps as a dataset."""

import contextlib
import shutil
from pathlib import Path

import pytest
from datasets import change

from bufdb.database import store
from bufdb.dataset.compact import compact
from bufdb.dataset.ingest import ingest

LABELS = {
    "cpu_b8": {"batch": "8"},
    "cpu_b16": {"batch": "16"},
    "cpu_b8_remat": {"batch": "8", "remat": "full"},
    "cpu_b8_old": {"batch": "8", "jaxlib": "0.4.30"},
    "gpu_b8": {"batch": "8"},
    "tpu_b8": {"batch": "8"},
}
"""As those of `demo_db`."""


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("loose", marks=pytest.mark.slow),
        pytest.param("compacted", marks=pytest.mark.slow),
        "mixed",
    ],
)
def demo_dataset(request, demo_db, tmp_path_factory):
    """A dataset of the dumps of `demo_db`: whole, compacted, and some of it ingested since."""
    folder = tmp_path_factory.mktemp("dataset")
    root, is_mixed = folder / request.param, request.param == "mixed"
    shutil.copytree(demo_db.parent / "demo", folder / "demo")
    with contextlib.chdir(folder):
        for name, labels in LABELS.items():
            run = Path("demo") / name
            if is_mixed and name == "cpu_b8":
                change(run)
                ingest(str(root), [run], labels={"batch": "9"})
                shutil.copytree(demo_db.parent / run, run, dirs_exist_ok=True)
            if is_mixed and name in ("cpu_b8", "gpu_b8"):
                compact(str(root), grace_s=0)
            ingest(str(root), [run], labels=labels)
    if request.param == "compacted":
        compact(str(root), grace_s=0)
    return root


@pytest.fixture(scope="session")
def demo_file(demo_db):
    """The database file, as a command opens it."""
    with store.open_readable(str(demo_db)) as con:
        yield con
