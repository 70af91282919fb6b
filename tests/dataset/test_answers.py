"""A dataset gives the answers of the database file, whatever it went through."""

import contextlib
import shlex
from pathlib import Path

import duckdb
import pytest
from datasets import all_rows, objects, stored

import bufdb
from bufdb import cli, resources
from bufdb.database import memory, store
from bufdb.dataset import layout, snapshot
from bufdb.dataset.snapshot import open_readable
from bufdb.errors import UsageError
from bufdb.query import catalogue, execute

QUERIES = catalogue.Catalogue([resources.query_folder()]).load_all()
VARYING = {"ingested_at"}
WAYS = [
    {"run": "cpu_b16"},
    {"run": "batch=8", "platform": "gpu"},
    {"base": "cpu_b8", "new": "cpu_b16"},
]
DATASETS = ("mixed", "loose", "compacted", "delta")
"""States of `demo_dataset`, all with the same rows; each gets some of the queries in turn: those
of `sample` are the turns of the first."""
each_query = pytest.mark.parametrize(
    ("demo_dataset", "query"),
    [
        pytest.param(DATASETS[number % len(DATASETS)], query, id=query.name)
        for number, query in enumerate(QUERIES)
    ],
    indirect=["demo_dataset"],
)


def answer(con, query, params):
    """Rows and columns, without what no two ingests agree on."""
    result = execute.execute_query(con, query, execute.bind(query, params))
    kept = [place for place, (name, _) in enumerate(result.columns) if name not in VARYING]
    return result.columns, [tuple(row[place] for place in kept) for row in result.rows]


@pytest.fixture(scope="module")
def _connections():
    with contextlib.ExitStack() as stack:
        yield stack, {}


@pytest.fixture
def opened(demo_dataset, _connections):
    """A connection to the dataset, opened once."""
    stack, opened = _connections
    if demo_dataset not in opened:
        opened[demo_dataset] = stack.enter_context(open_readable(str(demo_dataset)))
    return opened[demo_dataset]


def test_all_rows_are_those_of_the_database(opened, demo_file):
    assert all_rows(opened) == all_rows(demo_file)


@pytest.mark.sample(16)
@each_query
def test_every_query_answers_as_on_the_database(opened, demo_file, query):
    assert answer(opened, query, {}) == answer(demo_file, query, {})


@pytest.mark.sample(0, 3)
def test_what_is_too_large_to_be_copied_is_read_where_it_lies(demo_dataset, demo_file, monkeypatch):
    monkeypatch.setattr(snapshot, "COPIED_BYTES", 0)
    with open_readable(str(demo_dataset)) as con:
        ((views,),) = con.execute(
            "SELECT count(*) FROM duckdb_views() WHERE database_name = 'bufdb' AND NOT internal"
        ).fetchall()
        assert views > 20
        assert all_rows(con) == all_rows(demo_file)
        peaks = next(query for query in QUERIES if query.name == "peaks")
        assert answer(con, peaks, {}) == answer(demo_file, peaks, {})


@pytest.mark.sample(0, 6)
@pytest.mark.parametrize(
    ("size", "rows"), [(0, 1 << 40), (1 << 40, 0), (1 << 40, 1 << 40)], ids=["size", "rows", "no"]
)
def test_large_objects_named_a_few_times_stay_where_they_are(
    demo_dataset, demo_file, monkeypatch, size, rows
):
    monkeypatch.setattr(snapshot, "LARGE_OBJECT", size)
    monkeypatch.setattr(snapshot, "MANY_ROWS", rows)
    query = next(query for query in QUERIES if query.name == "process-growth")
    with open_readable(str(demo_dataset), query.sql) as con:
        views = con.execute(
            "SELECT view_name FROM duckdb_views() WHERE database_name = 'bufdb' AND NOT internal "
            "AND view_name IN ('live_arrays', 'live_profiles', 'modules') ORDER BY ALL"
        ).fetchall()
        names = ["live_profiles"] if size and rows else ["live_arrays", "live_profiles", "modules"]
        assert [name for (name,) in views] == names
        assert answer(con, query, {}) == answer(demo_file, query, {})


@pytest.mark.sample(60)
@each_query
def test_a_query_of_some_runs_opens_those_alone(demo_dataset, demo_file, query):
    ways = [names for names in WAYS if all(query.param(name) is not None for name in names)]
    values = ways[QUERIES.index(query) // len(DATASETS) % len(ways)]
    runs = execute.runs_asked(execute.bind(query, values))
    with open_readable(str(demo_dataset), query.sql, runs=runs) as con:
        assert answer(con, query, values) == answer(demo_file, query, values)


@pytest.mark.sample(0, 5)
@pytest.mark.parametrize(
    "words",
    [
        ["summary", "--format", "json"],
        ["summary", "--run", "gpu_b8"],
        ["diff", "cpu_b8", "cpu_b16", "--format", "csv"],
        ["diff", "batch=8", "batch=16"],
        ["show", "--run", "cpu_b8", "--function", "train_step"],
        ["sql", "SELECT run_name, count(*) FROM value_details GROUP BY ALL ORDER BY ALL"],
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_commands_say_the_same(call, demo_dataset, demo_db, words):
    on = call(*words, "--on", demo_dataset)
    assert on == call(*words, "--db", demo_db)
    assert on[0] == 0


COMMANDS = [
    name
    for name in cli.COMMANDS
    if any("--on" in param.opts for param in cli.bufdb.get_command(None, name).params)
]


@pytest.mark.sample(0, 3)
@pytest.mark.parametrize(
    ("demo_dataset", "name"),
    [(DATASETS[3 if at % 3 else 0], name) for at, name in enumerate(COMMANDS)],
    ids=COMMANDS,
    indirect=["demo_dataset"],
)
def test_every_command_answers_its_examples(call, demo_dataset, demo_db, empty_folder, name):
    """Of each command with --on, as `bufdb.cli` lists them; those of `schema` are without it."""
    Path("budget.toml").write_text(
        '[[budget]]\nfunction = "*"\nmetric = "peak"\nlimit = "1 GiB"\n', "utf-8"
    )
    for at, line in enumerate(["bufdb schema"] if name == "schema" else cli.EXAMPLES[name]):
        words = shlex.split(line)[1:]
        output = Path(words[words.index("-o") + 1]) if "-o" in words else None
        code, text, notes = call(*words, "--on", demo_dataset)
        assert code == 0, line
        assert (text == "") == (output is not None), line
        if output is not None:
            output.rename(f"{output}-{at}")
        code, expected, expected_notes = call(*words, "--db", demo_db)
        assert (code, notes) == (0, expected_notes), line
        if name == "schema":  # of a dataset it is the text for a DuckDB shell
            assert "CREATE" in text, line
        else:
            assert sorted(text.splitlines()) == sorted(expected.splitlines()), line


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [
        ["--without", "value:*", "--donate", "1", "--keep", "1/8"],
        ["--until", "5MiB", "--by", "op", "--order", "cost", "--color", "all"],
    ],
    ids=["without", "until"],
)
def test_what_if_of_any_kind_is_the_same(call, demo_dataset, demo_db, words):
    question = ["what-if", "train_step", "--run", "cpu_b8", *words]
    on = call(*question, "--on", demo_dataset)
    assert on == call(*question, "--db", demo_db)
    assert on[0] == 0


@pytest.mark.sample(0, 3)
def test_the_report_is_the_same(call, demo_dataset, demo_db, tmp_path):
    pages = []
    for option in (("--on", demo_dataset), ("--db", demo_db)):
        file = tmp_path / f"{option[0]}.html"
        assert call("report", *option, "-o", file)[0] == 0
        pages.append(file.read_text(encoding="utf-8"))
    assert len(pages[0]) == len(pages[1]) > 10_000


@pytest.fixture
def unlimited():
    """A plain shell has four fifths of the machine; query advice reserves 0.8 GB of it."""
    token = memory.MEMORY_LIMIT.set(4 << 30)
    yield
    memory.MEMORY_LIMIT.reset(token)


@pytest.mark.sample(0, 12)  # of the states the mixed one
@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize("part", range(3))
def test_a_plain_duckdb_shell_answers_the_same(call, demo_dataset, demo_db, part):
    code, text, err = call("schema", "--on", demo_dataset)
    assert (code, err) == (0, "")
    with duckdb.connect(config={"autoload_known_extensions": "false"}) as con:
        con.execute(text)
        with contextlib.closing(store.open_readable(str(demo_db))) as file:
            expected = all_rows(file)
            del expected["schema_info"]
            for table, rows in expected.items():
                if table not in ("runs",):  # the time of ingest is in both
                    assert con.execute(f'FROM "{table}" ORDER BY ALL').fetchall() == rows, table
            first = DATASETS.index(demo_dataset.name) + part * len(DATASETS)
            for query in QUERIES[first :: 3 * len(DATASETS)]:
                if not VARYING & {column.name for column in query.columns}:
                    assert con.execute(query.sql).fetchall() == file.execute(query.sql).fetchall()


@pytest.mark.slow
def test_a_table_without_files_is_empty_and_has_its_types(tmp_path, demo_file):
    stored(tmp_path / "set")
    table = next(name for name in layout.tables() if not objects(tmp_path / "set", name))
    sql = f"FROM bufdb.main.{table}"
    with open_readable(str(tmp_path / "set")) as con:
        assert con.execute(sql).fetchall() == []
        types = [str(column[1]) for column in con.description]
    demo_file.execute(f"{sql} LIMIT 0")
    assert types == [str(column[1]) for column in demo_file.description]
    assert f"/{table}/" not in snapshot.shell_text(str(tmp_path / "set"))


@pytest.mark.slow
def test_summary_of_a_run_that_is_not_there_says_what_there_is(call, demo_dataset, demo_db):
    words = ["query", "modules", "--run", "cpu_b9"]
    assert call(*words, "--on", demo_dataset) == call(*words, "--db", demo_db)


def test_one_of_the_two_is_asked(call, tmp_path):
    code, _, err = call("query", "modules", "--db", "x.duckdb", "--on", tmp_path)
    assert code == 2 and "give one of them" in err


def test_where_no_dataset_is_it_says_how_to_make_one(call, tmp_path):
    code, _, err = call("query", "modules", "--on", tmp_path / "none")
    assert code == 3 and "bufdb ingest DUMPS --out" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.sample(0, 3)
def test_check_finds_the_same(call, demo_dataset, demo_db):
    assert call("check", "--on", demo_dataset) == call("check", "--db", demo_db)


@pytest.mark.by_hand
def test_check_of_tables_that_are_views_finds_the_same(call, demo_dataset, demo_db, monkeypatch):
    monkeypatch.setattr(snapshot, "COPIED_BYTES", 0)
    assert call("check", "--on", demo_dataset) == call("check", "--db", demo_db)


@pytest.mark.sample(6)
@pytest.mark.parametrize("form", ["speedscope", "csv", "bundle"])
def test_export_writes_the_same(call, demo_dataset, demo_db, tmp_path, form):
    for option, url in (("--on", demo_dataset), ("--db", demo_db)):
        output = tmp_path / option
        words = ["export", "--format", form, "--run", "cpu_b8", option, url, "-o", output]
        assert call(*words)[0] == 0
    on, file = tmp_path / "--on", tmp_path / "--db"
    if form == "bundle":
        with store.open_readable(str(on)) as one, store.open_readable(str(file)) as other:
            assert all_rows(one) == all_rows(other)
    elif form == "csv":
        for table in file.iterdir():
            if table.stem not in ("runs",):  # the time of ingest is in both
                text = table.read_text(encoding="utf-8").splitlines()
                assert sorted((on / table.name).read_text("utf-8").splitlines()) == sorted(text)
    else:
        assert on.read_bytes() == file.read_bytes()


@pytest.mark.sample(0, 3)
def test_python_reads_a_dataset(demo_dataset, demo_db):
    with bufdb.connect(on=demo_dataset) as one, bufdb.connect(demo_db) as other:
        assert one.query("peaks").fetchall() == other.query("peaks").fetchall()
        assert str(one.summary(run="cpu_b8")) == str(other.summary(run="cpu_b8"))
        with pytest.raises(UsageError, match="--out"):
            one.ingest(demo_dataset)
    with pytest.raises(UsageError, match="not both"):
        bufdb.connect(demo_db, on=demo_dataset)
