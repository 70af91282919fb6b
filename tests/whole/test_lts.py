"""The file and the saved queries, for DuckDB 1.4: the release with long-term support.

Needs a Python that has it (1.4.4 or later: before, macros with several CTEs fail), named by
BUFDB_TEST_LTS_PYTHON; `.ci/run` makes one.
"""

import json
import os
import subprocess

import duckdb
import pytest

from bufdb import resources
from bufdb.query import catalogue, execute

PYTHON = os.environ.get("BUFDB_TEST_LTS_PYTHON")
if PYTHON is None:
    pytest.skip("BUFDB_TEST_LTS_PYTHON names no Python with DuckDB 1.4", allow_module_level=True)
SCRIPT = """
import json, sys
import duckdb
con = duckdb.connect(sys.argv[1], read_only=True)
con.execute("SET enable_progress_bar = false")  # in `python -c` it is on, and goes to stdout
rows = {text: repr(con.execute(text).fetchall()) for text in json.load(sys.stdin)}
print(json.dumps({"version": duckdb.__version__, "rows": rows}))
"""


def test_every_table_view_and_saved_query_answers_as_here(demo_db):
    with duckdb.connect(str(demo_db), read_only=True) as con:
        names = con.execute(
            "SELECT table_name FROM duckdb_tables() UNION ALL "
            "SELECT view_name FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        # Order is not part of a view.
        texts = [f'SELECT count(*), bit_xor(hash(t)) FROM "{name}" AS t' for (name,) in names]
        keys = ("op", "source", "shape", "dtype", "opcode", "category", "stack", "all")
        sides = "'cpu_b8', 'cpu_b16'"
        texts += [f"FROM diff_peak({sides}, '{key}')" for key in keys]
        texts += [f"FROM diff_temps({sides})", "FROM diff_peak('cpu_b8', 'cpu_b8', 'op')"]
        here = {text: repr(con.execute(text).fetchall()) for text in texts}
        # The text alone there, here as bufdb runs it: advice in a quarter of the time.
        for query in catalogue.Catalogue([resources.query_folder()]).load_all():
            rows = execute.execute_query(con, query, {}).rows
            here[query.path.read_text(encoding="utf-8")] = repr(rows)
    done = subprocess.run(
        [PYTHON, "-c", SCRIPT, str(demo_db)],
        input=json.dumps(list(here)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    there = json.loads(done.stdout)
    assert there["version"].startswith("1.4.")
    assert there["rows"] == here
