"""`--categories FILE`: rules of the user's own at question time, none of them in the database."""

import csv
import shutil

import duckdb
import pytest
from ingesting import ingest_into
from places import ROOT
from small_db import answer

RULES = """
[parameters]
"state?'mean'*" = "optimizer state"   # Adam's, by names of this program
"state?'square'*" = "optimizer state"

[operations]
"*dot_general*" = "products"

[phases]
"*/jvp()/*" = "ahead"
"""


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(RULES)
    return path


@pytest.fixture
def ask(call, demo_db):
    def run(name, *words):
        arguments = ("--run", "cpu_b8", "--function", "train_step", "--format", "csv")
        code, out, err = call("query", name, "--db", demo_db, *arguments, *words)
        assert (code, err) == (0, "")
        return list(csv.DictReader(out.splitlines()))

    return run


def roles(rows):
    sizes = {}
    for row in rows:
        key = row["role"], row["sureness"]
        sizes[key] = sizes.get(key, 0) + int(row["held_bytes"])
    return sizes


@pytest.mark.slow
def test_rules_of_a_file_come_first_and_the_sum_stays(ask, rules):
    plain, ruled = roles(ask("peak-by-role")), roles(ask("peak-by-role", "--categories", rules))
    assert sum(plain.values()) == sum(ruled.values())
    # The mean and the square of all four weights, as many bytes as these twice.
    assert ruled["optimizer state", "stated"] == 2 * ruled["weights", "likely"]
    assert ruled["products", "stated"] > 0
    assert ("optimizer state", "stated") not in plain
    # What the phase is called now has no role.
    assert ("activations", "possible") not in ruled


@pytest.mark.slow
def test_phases_of_a_file_are_those_of_peak_by_category(ask, rules):
    phases = {row["category"] for row in ask("peak-by-category", "--categories", rules)}
    assert "ahead" in phases
    assert "ahead" not in {row["category"] for row in ask("peak-by-category")}


@pytest.mark.slow
def test_the_file_can_be_named_by_the_environment(ask, rules, monkeypatch):
    with_rules = ask("peak-by-role", "--categories", rules)
    monkeypatch.setenv("BUFDB_CATEGORIES", str(rules))
    assert ask("peak-by-role") == with_rules


@pytest.mark.slow
def test_own_sql_sees_the_rules(call, demo_db, rules, tmp_path):
    path = shutil.copy(demo_db, tmp_path / "t.duckdb")
    query = "SELECT count(*) AS n FROM role_rules WHERE rule_order < 0"
    options = ("sql", query, "--db", path, "--format", "csv", "--categories", rules)
    assert call(*options) == (0, "n\n3\n", "")
    with duckdb.connect(str(path)) as con:
        assert con.execute(query).fetchall() == [(0,)]
        con.execute("INSERT INTO role_rules VALUES (1, 'operation', '*', 'all')")
    # Rules edited in the database file apply after those of --categories.
    query = "SELECT count(*) AS n FROM role_rules WHERE rule_order <= 1"
    assert call(*options[:1], query, *options[2:]) == (0, "n\n4\n", "")


def test_a_view_in_place_of_the_table_is_refused(call, rules, demo_db, tmp_path):
    path = shutil.copy(demo_db, tmp_path / "t.duckdb")
    with duckdb.connect(str(path)) as con:
        con.execute("DROP VIEW op_name_roles; DROP TABLE role_rules")
        con.execute("CREATE VIEW role_rules AS SELECT error('it was read') AS rule_order")
    code, out, err = call("query", "peak-by-role", "--db", path, "--categories", rules)
    assert (code, out) == (3, "")
    assert "has a view in place of the table role_rules" in err


def test_a_file_that_is_wrong_is_reported(call, demo_db, tmp_path):
    path = tmp_path / "none.toml"
    code, out, err = call("query", "peak-by-role", "--db", demo_db, "--categories", path)
    assert (code, out) == (2, "")
    assert f"cannot read {path}: No such file" in err


def test_the_sharded_program_has_weights_and_momentum(con):
    ingest_into(con, ROOT / "data/sharded/gpu")
    rows = answer(con, "peak-by-role", color=0)
    held = {(row[7], row[8]): row[4] for row in rows}
    # An eighth of the divided weights, the table and the norms: 64 + 128 + 1 KiB.
    whole = (64 + 128 + 1) * 1024
    assert held["weights", "donated_parameter"] == whole
    assert held["optimizer state", "donated_parameter"] == whole
    assert sum(row[4] for row in rows) == rows[0][3]
