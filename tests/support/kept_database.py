"""Make a file of data/versions: what the bufdb that runs this stores of a run, small.

From a checkout of the version, in the root of this one (data/README.md):

    PYTHONPATH=OTHER python -P tests/support/kept_database.py data/versions/schema_N.duckdb.zst
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import zstandard

RUN, RULE = "cpu_b8", (-1, "parameter", "*my*", "my role")


def bufdb(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-m", "bufdb", *arguments], check=False)
    assert done.returncode == 0, arguments


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
    main(Path(sys.argv[1]))
