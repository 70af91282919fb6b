"""`bufdb query`: parameters in every form, options that are short for them, empty answers."""

import json
import sys

import pytest

from bufdb import resources
from bufdb.commands.query import OPTIONS
from bufdb.query.catalogue import Catalogue

QUERIES = Catalogue([resources.query_folder()]).load_all()


@pytest.fixture
def ask(call, demo_db):
    return lambda name, *words: call("query", name, "--db", demo_db, "--format", "csv", *words)


FORMS = [
    ("-p", "top-n = 2"),
    ("-p", "top_n", "2"),
    ("-p", "top_n=2"),
    ("-ptop_n", "2"),
    ("-ptop_n=2",),
    ("--param", "top_n=2"),
    ("--param=top_n", "2"),
    ("--top", "2"),
    ("--param=top_n=2",),
    ("--top=2",),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize("form", FORMS)
def test_a_parameter_is_given_in_any_form(ask, form):
    code, out, err = ask("modules", *form)
    assert (code, out.count("\n"), err) == (0, 3, "")


@pytest.mark.slow
def test_a_value_may_look_like_an_option(ask):
    assert ask("modules", "-p", "run", "batch=16") == ask("modules", "--run", "cpu_b16")
    assert ask("modules", "-p", "run=batch=16") == ask("modules", "--run", "batch=16")
    assert "no function '-p'" in ask("modules", "-p", "function", "-p")[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-p", "top_n"], "-p wants NAME VALUE or NAME=VALUE, got 'top_n' alone"),
        (["--top", "2", "-p", "top-n=3"], "modules: parameter top_n is set twice"),
        (["-p", "funktion=x"], "modules: no parameter 'funktion'; did you mean 'function'?"),
        (["--color", "hmb"], "modules: no memory space 'hmb'; did you mean 'hbm'?"),
        (["--color", "host"], "is 0 on cpu, 5 on gpu, 5 on tpu; say which with --platform"),
    ],
)
def test_what_cannot_be_meant_is_refused(ask, options, message):
    code, out, err = ask("modules", *options)
    assert (code, out) == (2, "")
    assert message in err


def test_nothing_is_a_parameter_after_two_dashes(ask):
    code, out, err = ask("modules", "--", "-ptop_n=2")
    assert (code, out) == (2, "")
    assert "no file or directory '-ptop_n=2'" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--explain"], "--explain and --categories work only with DuckDB"),
        ([], "--engine spark asks a dataset: name one with --on"),
        (["--on", "x", "--format", "arrow"], "--format arrow works only with DuckDB"),
    ],
)
def test_what_another_engine_cannot_do_is_refused(call, options, message):
    code, out, err = call("query", "modules", "--engine", "spark", *options)
    assert (code, out, err) == (2, "", f"bufdb: error: {message}\n")


@pytest.mark.parametrize("question", [("query", "modules", "--on"), ("ingest", ".", "--out")])
def test_without_spark_its_package_is_named(call, empty_folder, monkeypatch, question):
    for name in ("pyspark", "pysail"):
        monkeypatch.setitem(sys.modules, name, None)
    for engine, *more, message in (
        ("spark", "wants --remote sc://HOST, or --master local[2] with Java here"),
        ("spark", "--master", "local", "bufdb[spark]"),
        ("sail", "bufdb[sail]"),
    ):
        code, out, err = call(*question, "d", "--engine", engine, *more)
        assert (code, out, message in err) == (2, "", True), err
    assert not (empty_folder / "d").exists()


@pytest.mark.slow
def test_a_memory_space_has_a_name(ask):
    assert ask("peaks", "--color", "hbm") == ask("peaks", "--color=0", "--platform", "tpu")
    assert ask("peaks", "-p", "color=host", "--run", "cpu_b8") == ask("peaks", "--run", "cpu_b8")


@pytest.mark.slow
def test_a_size_has_a_unit(ask):
    options = ["scaling", "--function", "train_step", "-p", "label", "batch", "--run", "cpu_b??"]
    assert ask(*options, "-p", "budget=32MiB") == ask(*options, "-p", "budget", 32 << 20)


@pytest.mark.sample(2)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_is_short_for_its_parameter(call, demo_db, option):
    for query in QUERIES:
        param = query.param(OPTIONS[option])
        assert (f"  --{option}, -p " in call("query", query.name, "--help")[1]) == bool(param)
        if param is None or param.type == "BIGINT":  # others take the word
            code, _, err = call("query", query.name, "--db", demo_db, f"--{option}", "!")
            what = (
                f"parameter {OPTIONS[option]} wants"
                if param
                else f"no parameter '{OPTIONS[option]}'"
            )
            assert (code, f"{query.name}: {what}" in err) == (2, True)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("option", "value"),
    [("run", "cpu_b8"), ("function", "init"), ("platform", "tpu"), ("color", "1"), ("top", "1")],
)
def test_an_option_does_what_its_parameter_does(ask, option, value):
    result = ask("peaks", f"--{option}", value)
    assert result == ask("peaks", "-p", OPTIONS[option], value) != ask("peaks")
    assert result[0] == 0
    assert result[1].count("\n") > 1


def test_an_empty_answer_is_a_success_and_says_why(ask):
    # Runs that the question has narrowed away are known all the same.
    code, out, err = ask("peaks", "--run", "gpu_b8", "--function", "eval_step")
    assert (code, out.count("\n")) == (0, 1)
    assert err.startswith("bufdb: no rows: run 'gpu_b8' has no function 'eval_step'; it is in cpu_")


@pytest.mark.slow
def test_unknown_labels_are_reported_with_the_answer(ask):
    code, out, err = ask("scaling", "-p", "fixed=remaat, batch")
    assert (code, out.count("\n") > 1) == (0, True)
    assert err == "bufdb: no run has a label 'remaat'; did you mean 'remat'?\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diff-peak", "diff-modules"])
def test_a_pair_is_reported_only_if_a_side_lacks_it(ask, name):
    sides = ("-p", "base=cpu_b8", "-p", "new=cpu_b16", "--format", "csv")
    whole = ask(name, *sides)[1]
    for pair in ("train_step=eval_step", "init=init, train_step=eval_step", "jit_init=eval_step"):
        code, out, err = ask(name, *sides, "-p", f"pair={pair}")
        assert (code, err) == (0, "") and out != whole
    for pair, message in (
        ("trainstep=init", "'trainstep' in BASE; did you mean 'train_step'?"),
        ("init=init, train_step=evalstep", "'evalstep' in NEW; did you mean 'eval_step'?"),
        ("zz=init", "'zz' in BASE; there is eval_step, init, train_step, jit_eval_step, "),
    ):
        code, out, err = ask(name, *sides, "-p", f"pair={pair}")
        assert (code, out) == (2, "")
        assert err.startswith(f"bufdb: error: {name}: pair: no function and no module {message}")
    code, out, err = ask(name, *sides, "-p", "pair=init")
    assert (code, err) == (2, f"bufdb: error: {name}: pair: expected OLD=NEW, found 'init'\n")


def test_help_says_what_forms_there_are(call):
    text = " ".join(call("query", "scaling", "--help")[1].split())
    assert "Upper limit of the figure [bytes]. A unit may follow, as in 32MiB." in text
    assert "Memory space: its number, or all;" in text
    assert "A name, such as hbm, works where only one platform has it." in text


@pytest.mark.slow
def test_runs_of_an_empty_database(call, empty_db):
    code, out, err = call("runs", "--db", empty_db, "--format", "jsonl")
    assert (code, out, err) == (0, "", "bufdb: no rows: no run is stored\n")
    assert json.loads(call("runs", "--db", empty_db, "--format", "json")[1]) == []
