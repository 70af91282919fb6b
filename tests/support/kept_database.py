"""Make a file of data/versions: what the bufdb that runs this stores of a run, small.

From a checkout of the version, in the root of this one (data/README.md):

    PYTHONPATH=OTHER python -P tests/support/kept_database.py data/versions/schema_N.duckdb.zst
    PYTHONPATH=OTHER python -P tests/support/kept_database.py data/versions/dataset_N.tar.zst
"""

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import duckdb
import zstandard

RUN, RULE = "cpu_b8", (-1, "parameter", "*my*", "my role")


def bufdb(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-m", "bufdb", *arguments], check=False)
    assert done.returncode == 0, arguments


def dataset(made: Path) -> None:
    """Pack a dataset of few objects: a run from two places, and one that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        root = f"{folder}/dataset"
        labels = ("--run", RUN, "--label", "batch=8", "--metadata", "commit=1f3a")
        out = ("--out", root, "-q", "--metadata", "dt=2026-01-31")
        profile = ("--profile", "data/profiles/cpu_b8.xplane.pb.gz")
        bufdb("ingest", "data/demo/cpu_b8", *labels, *profile, *out)
        bufdb("ingest", "data/profiles/cpu_b8.prof", *labels, *out)
        gone = f"{folder}/gone"
        shutil.copytree("data/demo/gpu_b8", gone)
        bufdb("ingest", gone, *out)
        for file in Path(gone).glob("module_0001*"):
            file.unlink()
        bufdb("ingest", gone, "--prune", *out)
        bufdb("compact", root, "--dt", "2026-01-31", "--grace", "0")
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(root, ".")
        made.write_bytes(zstandard.ZstdCompressor(19).compress(packed.getvalue()))


def main(made: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db, small = f"{folder}/all.duckdb", f"{folder}/small.duckdb"
        labels = ("--run", RUN, "--label", "batch=8", "--metadata", "commit=1f3a")
        bufdb("ingest", "data/demo/cpu_b8", *labels, "--db", db, "-q")
        with duckdb.connect(db) as con:
            con.execute("INSERT INTO role_rules VALUES (?, ?, ?, ?)", RULE)
            (version,) = con.execute("SELECT schema_version FROM schema_info").fetchone()
        if version >= 7:
            bufdb("profile", "data/profiles/cpu_b8.xplane.pb.gz", "--run", RUN, "--db", db, "-q")
            bufdb("ingest", "data/profiles/cpu_b8.prof", "--run", RUN, "--db", db, "-q")
        bufdb("export", "--format", "bundle", "-o", small, "--db", db)
        made.write_bytes(zstandard.ZstdCompressor(19).compress(Path(small).read_bytes()))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    (dataset if target.name.startswith("dataset") else main)(target)
