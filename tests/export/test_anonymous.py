"""Exports without a user's words: none remains, and everything else is unchanged."""

import json
import re
import shutil

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_db import Module, insert

from bufdb import resources
from bufdb.database import definitions, store
from bufdb.export import tables as writer
from bufdb.export.anonymous import Words, known_words
from bufdb.export.tables import KEPT, Selection

SECRET = "acmecorp"


@pytest.fixture(scope="module")
def bundle(demo_db, tmp_path_factory):
    """An anonymous database with all of the demo."""
    return anonymous(demo_db, tmp_path_factory.mktemp("anonymous") / "demo.duckdb")


def anonymous(db, path):
    with store.open_readable(str(db), allow_files=True) as con:
        writer.write_bundle(Selection(con, {}, anonymous=True), path, str(db))
    return path


# -- words -----------------------------------------------------------------------------------------


def test_words_of_the_user_are_replaced_and_no_others():
    words = Words()
    assert words.text("jit(main)/Decoder_3/bqd,bkd->bqk/dot_general") == (
        "jit(main)/xa_3/xb,xc->xd/dot_general"
    )
    assert words.text("%Decoder.7 = f32[8,100]{1,0:T(8,128)S(1)} fusion(%multiply_add_fusion)") == (
        "%xa.7 = f32[8,100]{1,0:T(8,128)S(1)} fusion(%multiply_add_fusion)"
    )
    assert words.text("/home/Anna/decoder.py") == "/xe/xf/xg.py"


def test_functions_and_files_of_the_user_are_replaced_whole():
    """Made of words of XLA's and of numbers as they may be."""
    words = Words(["update_step", "update", "Loss.__call__", "<lambda>"])
    text = (
        "jit(update_step)/jit(main)/transpose(jvp(loss_scale_2))/dot_general "
        "module_0001.jit_update.cpu_after_optimizations update_step jit(copy_slice)/update"
    )
    replaced = words.text(text)
    assert not re.search("update_step|jit_update|copy_slice|loss", replaced)
    assert replaced.endswith("/update") and "/jit(main)/transpose(jvp(" in replaced
    assert words.function("update") == re.search(r"jit_(\w+)", replaced)[1]
    for path in (
        "/data/2024_10/update/train_step3.py",
        "--xla_dump_to=/data/2024_10/update",
        "model2024/update/module_0001.jit_f.cpu_after_optimizations.txt",
        "update/train_step3.py:7",
        "10.20.30.40",
    ):
        assert not re.search("2024|update|step|data/|30", words.text(path)), words.text(path)
    assert words.text("/home/copy9/lib/python3.11/site-packages/jax/_src/numpy/update.py").endswith(
        "/lib/python3.11/site-packages/jax/_src/numpy/update.py"
    ) is ("src" in known_words())
    assert words.text("bqd,bkd->bqk/dot_general f32[8,3]{1,0}").endswith(
        "/dot_general f32[8,3]{1,0}"
    )


def test_an_instruction_may_share_a_functions_name():
    """The text of the instruction has it with a percent sign."""
    words = Words(["copy", "copy_batch"])
    assert words.text("%copy = f32[8] copy(%x)") == "%copy = f32[8] copy(%x)"
    assert words.text("copy") == "copy" and words.function("copy") != "copy"
    assert words.text("module_0001.jit_copy") == f"module_0001.jit_{words.function('copy')}"
    assert words.text("copy_batch") == words.function("copy_batch") != "copy_batch"


@pytest.mark.slow
def test_how_a_run_was_made_is_omitted_unless_kept(secret_db, tmp_path, call):
    with duckdb.connect(str(secret_db)) as con:
        for label in ("command", "host", "jaxlib_version"):
            insert(con, "run_labels", run_name=f"run_{SECRET}", label=label,
                   label_value="python 10.1.2.3 acme 7", is_metadata=True)  # fmt: skip
    path = tmp_path / "kept.duckdb"
    options = ("--anonymize", "--keep", "jaxlib_version", "-o", path)
    code, _, err = call("export", "--format", "bundle", "--db", secret_db, *options)
    assert (code, err) == (0, "")
    with duckdb.connect(str(path), read_only=True) as con:
        labels = con.execute("SELECT label, label_value FROM run_labels WHERE is_metadata")
        assert labels.fetchall() == [("jaxlib_version", "python 10.1.2.3 acme 7")]


def test_a_word_after_escapes_is_the_same_word():
    words = Words()
    assert words.text(r"gr\303\266\303\237e") == words.text("größe") == "xa"


def test_a_hash_in_hexadecimal_is_one_word():
    assert Words().text("command at 3f2a9c1e77b0+dirty, 1000000") == "command at xa+dirty, 1000000"


@pytest.mark.slow
@given(st.lists(st.text(max_size=12), max_size=4))
def test_equal_texts_stay_equal_and_others_differ(texts):
    words = Words()
    replacements = [words.text(text) for text in texts]
    assert len(set(replacements)) == len(set(texts))
    for text, replaced in zip(texts, replacements, strict=True):
        if "/" not in text and "." not in text:  # neither a file nor an address
            assert re.findall("[0-9]", text) == re.findall("[0-9]", replaced)
        assert replaced.isascii()


def test_words_that_macros_look_for_stay():
    """Else a scope of JAX, or an installed package, would not be known for one any more."""
    known = known_words()
    files = ("checkout_pattern", "is_library_path", "jax_names", "jit_path", "op_path")
    for name in (*files, "strip_op_path"):
        (path,) = [file for file in resources.schema_files("macros") if file.stem == name]
        code = re.sub("--.*", "", path.read_text(encoding="utf-8").partition("COMMENT")[0])
        code = re.sub("jax_names[(]'[^']*'[)]|WHEN '[^']*'", "", code)  # kinds of names
        for text in re.findall("'([^']*)'", code):
            text_words = re.findall("[A-Za-z]{2,}", re.sub(r"\[[^]]*\]", " ", text))
            assert [word for word in text_words if word.lower() not in known] == [], name


def test_columns_that_are_kept_are_there():
    for table, columns in KEPT.items():
        text = definitions.tables()[table]
        for column in columns.split():
            assert f"\n  {column} VARCHAR" in text


# -- databases -------------------------------------------------------------------------------------


@pytest.fixture
def secret_db(empty_db, tmp_path):
    """One module in which every text that may be a user's holds one word."""
    path = tmp_path / "secret.duckdb"
    shutil.copy(empty_db, path)
    with duckdb.connect(str(path)) as con:
        run = f"run_{SECRET}"
        module = Module(con, 2**60 + 7, run_name=run, function_name=SECRET,
                        module_key=f"{SECRET}/module_0001.jit_{SECRET}", schedule_length=9,
                        module_name=f"jit_{SECRET}", hlo_module_name=f"jit_{SECRET}")  # fmt: skip
        module.allocation(0, "temp", 100)
        module.value(1, 0, 0, 64, (2, 5), op_name=f"jit({SECRET})/mul", text=f"%{SECRET} = x",
                     source_line=3, source_file=f"/{SECRET}/a.py")  # fmt: skip
        module.close()
        insert(con, "run_labels", run_name=run, label=SECRET, label_value=f"{SECRET}_8")
        insert(con, "diagnostics", run_name=run, severity="info", code="x", path=SECRET,
               message=f"expected {SECRET}, found 7")  # fmt: skip
        insert(con, "compiler_options", module_id=2**60 + 7, option_name="xla_dump_to",
               option_value=f"/{SECRET}")  # fmt: skip
        own = {"run_name": run, "profile_name": f"{SECRET}.prof"}
        insert(con, "live_profiles", **own, failed_program_name=f"jit_{SECRET}",
               failure_message=f"no memory for {SECRET}")  # fmt: skip
        insert(con, "live_arrays", **own, device="cpu:0", stack_frame_id=1, total_bytes=7,
               source=f"/{SECRET}/a.py:3", python_function_name=SECRET)  # fmt: skip
        insert(con, "live_frames", **own, stack_frame_id=1, source_file=f"/{SECRET}/a.py",
               function_name=SECRET)  # fmt: skip
        insert(con, "live_programs", **own, program_name=f"jit_{SECRET}")
        insert(con, "live_frames", **own, stack_frame_id=2, own_frame_id=2, depth=1,
               function_name="cache_params")  # fmt: skip
        insert(con, "live_programs", **own, program_ordinal=1, program_name="jit_batch_count")
        con.execute("UPDATE role_rules SET name_glob = ? WHERE rule_order = 100", [f"*{SECRET}*"])
    return path


@pytest.mark.slow
def test_no_word_of_the_user_is_left_in_the_file(secret_db, tmp_path):
    assert SECRET.encode() in secret_db.read_bytes()
    path = anonymous(secret_db, tmp_path / "anonymous.duckdb")
    with duckdb.connect(str(path), read_only=True) as con:
        for table in definitions.tables():
            assert SECRET not in repr(con.execute(f'FROM "{table}"').fetchall()), table
        rows = con.execute("SELECT run_name, module_id, module_key FROM modules").fetchall()
        labels = con.execute("SELECT label, label_value FROM run_labels").fetchall()
        message = con.execute("SELECT message FROM diagnostics").fetchone()[0]
        details = con.execute("SELECT op_name, source_file FROM value_details").fetchall()
        joined = "FROM live_arrays NATURAL JOIN live_frames NATURAL JOIN live_profiles"
        (alive,) = con.execute(
            f"SELECT device, source_file, source, total_bytes {joined}"
        ).fetchall()
    (code,) = set(re.findall("x[a-z]+", labels[0][0]))
    assert rows == [("run_1", 1, f"{code}/module_0001.jit_{code}")]
    assert labels == [(code, f"{code}_8")]
    assert message == f"expected {code}, found 7"
    assert details == [(f"jit({code})/mul", f"/{code}/a.py")]
    assert alive == ("cpu:0", f"/{code}/a.py", f"/{code}/a.py:3", 7)
    assert SECRET.encode() not in path.read_bytes()
    # Functions that only a memory profile has are replaced whole, too.
    assert b"cache_params" not in path.read_bytes()
    assert b"batch_count" not in path.read_bytes()


@pytest.mark.slow
def test_checks_hold_except_for_the_order_of_names(bundle, call):
    """XLA's listing of the peak has values of one size in the order of their names."""
    code, out, _ = call("check", "--db", bundle, "--skip", "peak-listing")
    assert code == 0, out


KEPT_COLUMNS = {
    "peak": ["held_bytes", "shape", "opcode"],
    "peak-by-category": ["peak_bytes", "held_bytes", "category"],
    "peak-by-role": ["peak_bytes", "held_bytes", "role"],
    "peak-by-op": ["peak_bytes", "held_bytes"],
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("query", KEPT_COLUMNS)
def test_sizes_stay_and_what_the_rules_say(bundle, call, demo_db, query):
    columns = KEPT_COLUMNS[query]
    row_texts = []
    for db, run in ((demo_db, "cpu_b8"), (bundle, "run_2")):
        options = ("--db", db, "--run", run, "--format", "json", "-p", "top_n", 1000)
        rows = json.loads(call("query", query, *options)[1])
        row_texts.append(sorted([repr([row[column] for column in columns]) for row in rows]))
    assert row_texts[0] == row_texts[1] != []


@pytest.mark.slow
def test_the_same_is_written_each_time(bundle, demo_db, tmp_path):
    texts = []
    for path in (bundle, anonymous(demo_db, tmp_path / "again.duckdb")):
        with duckdb.connect(str(path), read_only=True) as con:
            texts.append(con.execute("SELECT * FROM instructions ORDER BY ALL").fetchall())
    assert texts[0] == texts[1] != []


@pytest.mark.slow
def test_a_picture_can_be_anonymous(call, demo_db, tmp_path):
    path = tmp_path / "stacks"
    options = ("--run", "cpu_b8", "--function", "train_step", "-o", path, "--anonymize")
    code, _, err = call("export", "--format", "collapsed", "--db", demo_db, *options)
    assert (code, err) == (0, "")
    text = path.read_text()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in text.splitlines()) == 8905504
    assert "cross_entropy" not in text
    assert "train" not in text
