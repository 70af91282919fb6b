"""The demo dumps as a dataset."""

import contextlib
import shutil
from functools import partial
from pathlib import Path

import pytest
from datasets import change
from once import made_once
from places import LABELS, MEMORY, PROFILES

from bufdb.database import store
from bufdb.dataset.compact import compact
from bufdb.dataset.dump_ingest import ingest
from bufdb.dumps import profiles

OTHERS = [pytest.param(state, marks=pytest.mark.by_hand) for state in ("compacted", "loose")]
"""States whose files the mixed state contains."""


@pytest.fixture(scope="session", params=["mixed", "delta", *OTHERS])
def demo_dataset(request, demo_db, tmp_path_factory):
    """A dataset of the dumps of `demo_db`: whole, compacted, and partly newer, and Delta.

    Read only. Each is made once, for tests of one follow on those of another.
    """
    if request.param == "delta":
        pytest.importorskip("deltalake", reason="needs deltalake: pip install 'bufdb[delta]'")
    make = partial(make_dataset, demo_db, request.param)
    return made_once(tmp_path_factory, f"dataset-{request.param}", make) / request.param


def make_dataset(demo_db, name, folder):
    root, is_mixed = folder / name, name == "mixed"
    file_format = "delta" if name == "delta" else "parquet"
    shutil.copytree(demo_db.parent / "demo", folder / "demo")
    with contextlib.chdir(folder):
        for run_name, labels in LABELS.items():
            run = Path("demo") / run_name
            if (is_mixed or file_format == "delta") and run_name == "cpu_b8":
                change(run)
                ingest(str(root), [run], labels={"batch": "9"}, file_format=file_format)
                shutil.copytree(demo_db.parent / run, run, dirs_exist_ok=True)
            if is_mixed and run_name in ("cpu_b8", "gpu_b8"):
                compact(str(root), grace_s=0)
            profile = PROFILES.get(run_name)
            ingest(
                str(root),
                [run, *MEMORY.get(run_name, [])],
                run=run_name,
                labels=labels,
                profile=None if profile is None else profiles.load(profile, print),
                file_format=file_format,
            )
    if name == "compacted":
        compact(str(root), grace_s=0)


@pytest.fixture(scope="session")
def demo_file(demo_db):
    """The database file, as a command opens it."""
    with store.open_readable(str(demo_db)) as con:
        yield con
