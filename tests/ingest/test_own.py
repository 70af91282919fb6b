"""The user's own files: globs, how a run keeps them, and that every reader uses them alike."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingesting import ingest_into, rows
from places import DEMO, PACKAGED, ROOT

from bufdb.capture.environment import script_folder
from bufdb.commands import common
from bufdb.read import own
from bufdb.read.own import CHECKED_OUT, NOTHING_MORE

PATHS = [
    "/venv/lib/python3.11/site-packages/MaxText/layers/x.py",
    "/usr/lib/python3/dist-packages/max_text/x.py",
    "/venv/lib/python3.11/site-packages/max-text.py",
    "/venv/lib/python3.11/site-packages/maxtext_extra/x.py",
    "/opt/app/lib/python3.11/site-packages/odd(name)+/x y.py",
    "site-packages/a/site-packages/b.py",
    "/usr/lib/python3.11/functools.py",
    "/home/me/train.py",
    "<frozen runpy>",
    "/lib/python3.11/site-packages/é\n/x.py",
    "",
]

PARTS = ["site-packages/", "/", "ab", "lib/python3.1/", "-_", "\n", "é", "+(", "flax/", "linen/",
         "<string>", "<", "__init__.py", "keras/src/"]  # fmt: skip

LIBRARIES = {
    "/venv/lib/python3.11/site-packages/keras/src/layers/layer.py": "keras/src/layers/layer.py",
    "/usr/lib/python3/dist-packages/numpy/ma/core.py": "numpy/ma/core.py",
    "/home/me/.pyenv/versions/3.13.1t/lib/python3.13t/contextlib.py": "contextlib.py",
    "/opt/conda/envs/a/lib/python3.12/functools.py": "functools.py",
    "/usr/lib64/python3.12/functools.py": "functools.py",
    "/home/me/src/flax/flax/linen/linear.py": "flax/linen/linear.py",
    "/home/me/libs/flax/nnx/transforms/autodiff.py": "flax/nnx/transforms/autodiff.py",
    "/src/jax-main/jax/_src/nn/functions.py": "jax/_src/nn/functions.py",
    "/src/keras/keras/src/trainers/trainer.py": "keras/src/trainers/trainer.py",
    "third_party/py/optax/_src/alias.py": "optax/_src/alias.py",
    "optax/losses/_classification.py": "optax/losses/_classification.py",
    "/src/equinox/equinox/nn/_mlp.py": "equinox/nn/_mlp.py",
    "/src/equinox/_jit.py": "equinox/_jit.py",
    "/src/diffrax/diffrax/_solver/tsit5.py": "diffrax/_solver/tsit5.py",
    "/src/dm-haiku/haiku/_src/basic.py": "haiku/_src/basic.py",
    "/home/me/maxtext/src/maxtext/layers/attentions.py": "maxtext/layers/attentions.py",
    "/home/me/maxtext/MaxText/train.py": "MaxText/train.py",
    "/src/bufdb/bufdb/capture/worker.py": "bufdb/capture/worker.py",
    "<frozen runpy>": "<frozen runpy>",
    "<@beartype(model.f) at 0x7f>": "<@beartype(model.f) at 0x7f>",
}
"""Files of libraries, and what is shown of them."""
USERS = [
    "/home/me/train.py",
    "/home/me/flax/examples/lm1b/train.py",
    "/home/me/flax/train.py",
    "/home/me/jax/experiments/model.py",
    "/home/me/keras/model.py",
    "/home/me/maxtext/my_config.py",
    "/home/me/diffrax/run.py",
    "/home/me/myflax/linen/x.py",
    "/home/me/site-packages.py",
    "/home/me/lib/python/model.py",
    "/tmp/ipykernel_12/3456.py",
    "<stdin>-1",
    "<string>",
    "<ipython-input-3-0123456789ab>",
    "",
]


@pytest.mark.parametrize(
    ("glob", "places"),
    [
        ("maxtext", [0]),
        ("Max_Text", [1, 2]),
        ("maxtext*", [0, 3]),
        ("max?text", [1, 2]),
        ("/opt/app/*", [4]),
        ("*/functools.py", [6]),
        ("odd(name)+", [4]),
        ("b", [5]),
        ("axtext", []),
        ("MAXTEXT/", []),  # with a slash it is a whole path
        ("", []),
    ],
)
def test_a_glob_takes_packages_by_name_and_files_by_path(glob, places):
    of_user = own.parse_own([glob])
    installed = {path for path in PATHS if NOTHING_MORE.is_library(path)}
    taken = [place for place, path in enumerate(PATHS) if not of_user.is_library(path)]
    assert [place for place in taken if PATHS[place] in installed] == places


def test_one_table_of_files_for_python_and_sql(con_of_macros):
    for path in (*LIBRARIES, *USERS):
        shown = None if path in USERS else f"library {LIBRARIES[path]}:7"
        assert NOTHING_MORE.library_source(path, 7) == shown, path
        assert NOTHING_MORE.is_library(path) == (shown is not None), path
        select = "SELECT is_library_path($path), library_source($path, 7)"
        assert con_of_macros.execute(select, {"path": path}).fetchone() == (bool(shown), shown)
    assert con_of_macros.execute("SELECT checkout_pattern()").fetchone() == (CHECKED_OUT,)


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("keras", ["keras/src/layers/layer.py", "keras/src/trainers/trainer.py"]),
        ("MaxText", ["maxtext/layers/attentions.py", "MaxText/train.py"]),
        ("/home/me/src/flax", ["flax/linen/linear.py"]),
        ("/home/me/src/", ["flax/linen/linear.py"]),
        ("/src/d*", ["diffrax/_solver/tsit5.py", "haiku/_src/basic.py"]),
        ("/home/me/src/fla", []),
        ("jax", ["jax/_src/nn/functions.py"]),
    ],
)
def test_a_folder_or_a_checkout_by_its_name(con_of_macros, glob, names):
    of_user = own.parse_own([glob])
    assert [LIBRARIES[path] for path in LIBRARIES if not of_user.is_library(path)] == names
    select = "SELECT list(path) FROM unnest($paths) AS t(path) WHERE NOT is_library_path(path, $o)"
    params = {"paths": list(LIBRARIES), "o": of_user.pattern}
    (paths,) = con_of_macros.execute(select, params).fetchone()
    assert [LIBRARIES[path] for path in paths or ()] == names


def test_a_name_of_a_folder_around_packages_is_none():
    of_user = own.parse_own(["keras"])
    for folder in ("keras/.venv", "keras/venv", "keras"):
        assert of_user.is_library(f"/me/{folder}/lib/python3.12/site-packages/jax/_src/x.py")
        assert of_user.is_library(f"/me/{folder}/lib/python3.12/contextlib.py")


def test_a_script_in_a_checkout_is_the_users():
    path = "/src/maxtext/MaxText/trainers/x/train.py"
    of_user = own.parse_own(own.script_globs(path.rpartition("/")[0]))
    assert not of_user.is_library(path)
    assert of_user.is_library("/src/maxtext/MaxText/layers/a.py")
    assert own.script_globs("/home/me") == own.script_globs("/home/me/flax") == []
    assert own.script_globs("/me/maxtext", is_package=True) == ["/me/maxtext"]
    assert own.script_globs("/v/lib/python3.12/site-packages/keras/src") == []


@pytest.mark.parametrize(
    ("program", "folder"),
    [
        (["python", "MaxText/trainers/train.py", "--steps", "1"], "MaxText/trainers"),
        (["MaxText/trainers/train.py:step"], "MaxText/trainers"),
        (["python", "-m", "MaxText.trainers.train"], "MaxText"),
        (["MaxText.trainers.train:step"], "MaxText"),
        (["python", "-m", "elsewhere.train"], None),
        (["python", "-c", "pass"], None),
        ([], None),
    ],
)
def test_the_folder_of_a_script(empty_folder, program, folder):
    (empty_folder / "MaxText" / "trainers").mkdir(parents=True)
    (empty_folder / "MaxText" / "trainers" / "train.py").touch()
    (empty_folder / "MaxText" / "__init__.py").touch()
    expected = None if folder is None else empty_folder / folder
    assert script_folder(program) == expected
    globs = common.own_globs(("flax", "./MaxText"), program)
    more = [] if folder is None else [str(expected)]
    assert globs == ["flax", str(empty_folder / "MaxText"), *more]
    assert common.own_globs((), ()) is None and common.own_globs(("",), ()) == [""]


def test_globs_add_up_in_any_order():
    assert own.parse_own(["b", "a/*", "b", ""]).pattern == own.parse_own(["a/*", "b"]).pattern
    assert own.parse_own([""]).pattern is own.parse_own([]).pattern is None


@given(
    st.lists(st.text("ab-_.*?/+([\\ \né", max_size=6), max_size=3),
    st.lists(st.sampled_from(PARTS), max_size=7).map("".join),
    st.sampled_from([None, 0, 12]),
)  # fmt: skip
def test_the_macros_say_what_ingest_says(con_of_macros, globs, path, line):
    of_user = own.parse_own(globs)
    row = con_of_macros.execute(
        "SELECT is_library_path($path, $own), library_source($path, $line, $own)",
        {"path": path, "line": line, "own": of_user.pattern},
    ).fetchone()
    assert row == (of_user.is_library(path), of_user.library_source(path, line))


@pytest.fixture(scope="module")
def con_of_macros():

    with duckdb.connect() as con:
        for name in ("checkout_pattern", "is_library_path", "library_name", "library_source"):
            con.execute((ROOT / "schema" / "macros" / f"{name}.sql").read_text("utf-8"))
        yield con


def state(con):
    """The globs of the run in its metadata, and how many of its modules have which pattern."""
    labels = rows(con, "SELECT label_value FROM run_labels WHERE label = 'own' AND is_metadata")
    return labels, rows(con, "SELECT own_pattern, count(*) FROM modules GROUP BY 1 ORDER BY 1")


@pytest.mark.slow
def test_a_run_keeps_what_was_given_until_something_else_is(con):
    assert ingest_into(con, PACKAGED, own_globs=["tiny_net", "/opt/*"]).module_count == 1
    kept = state(con)
    assert kept[0] == [("tiny_net /opt/*",)]
    assert ingest_into(con, PACKAGED).unchanged_count == 1
    assert ingest_into(con, PACKAGED, own_globs=["/opt/*", "tiny_net"]).unchanged_count == 1
    assert state(con)[1] == kept[1]
    assert ingest_into(con, PACKAGED, own_globs=["tiny_train"]).replaced_count == 1
    assert state(con)[0] == [("tiny_train",)]
    assert ingest_into(con, PACKAGED, own_globs=[""]).replaced_count == 1
    assert state(con) == ([], [(None, 1)])


@pytest.mark.slow
def test_what_is_not_read_again_is_said(con):
    ingest_into(con, DEMO / "cpu_b8", "r")
    done = ingest_into(con, PACKAGED, "r", own_globs=["tiny_net"])
    assert done.notes == [
        "run r: 3 modules outside these paths keep their previous --own; ingest their dumps again "
        "to change it"
    ]
    # An ingest without globs keeps those of the run.
    assert ingest_into(con, DEMO / "cpu_b8", "r").notes == []
    assert [count for _, count in state(con)[1]] == [4]


def test_a_label_of_the_user_stays(con):
    ingest_into(con, PACKAGED, labels={"own": "mine"}, own_globs=["tiny_net"])
    assert rows(con, "SELECT label_value, is_metadata FROM run_labels") == [("mine", False)]


@pytest.mark.slow
def test_the_option_and_the_variable(call, tmp_path, monkeypatch):
    db = tmp_path / "a.duckdb"
    monkeypatch.setenv("BUFDB_OWN", "x tiny_net")
    assert call("ingest", PACKAGED, "--db", db)[0] == 0
    out = call("query", "peak-by-source-line", "--db", db, "--format", "csv")[1]
    assert "saved /home/user/model/site-packages/tiny_net/__init__.py:9" in out
    assert "own=x tiny_net" in call("runs", "--db", db, "--format", "csv")[1]
    assert call("ingest", PACKAGED, "--db", db, "--own", "")[0] == 0
    options = ("what-if", "packaged_step", "--db", db, "--without")
    assert "to 830 KiB (" in call(*options, "line:saved library tiny_net/*:9")[1]
    assert "to 830 KiB (" not in call(*options, "line:library tiny_net/*:9")[1]
