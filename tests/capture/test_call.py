"""Arguments as text: as in a call, or as a tuple of all; and messages about wrong ones."""

import ast
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from bufdb.capture import call, callbacks, simulation, worker
from bufdb.capture.call import WrongCallError, arguments

PAIR = (1, 2)
NAMES = {"pair": PAIR, "both": lambda n: (n, n + 1), "named": lambda n: {"b": n}, "x": 5}


def two(a, b, *, c=3):
    pass


def one(a):
    pass


def none():
    pass


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        (two, "*both(16)", ((16, 17), {})),
        (two, "both(16)", ((16, 17), {})),
        (two, "(x, x)", ((5, 5), {})),
        (two, "x,\n  x", ((5, 5), {})),
        (two, "x, b=2", ((5,), {"b": 2})),
        (two, "a=1, **named(3), c=x", ((), {"a": 1, "b": 3, "c": 5})),
        (two, "*pair, c=4", ((1, 2), {"c": 4})),
        (two, "*[x], x", ((5, 5), {})),
        (one, "x", ((5,), {})),
        (one, "pair", ((PAIR,), {})),
        (one, "pair,", ((PAIR,), {})),
        (one, "*[pair]", ((PAIR,), {})),
        (one, "[x, x]", (([5, 5],), {})),
        (none, "", ((), {})),
        (max, "x, x", ((5, 5), {})),  # may have no signature
    ],
)
def test_what_is_called(function, text, expected):
    assert arguments(text, NAMES).of(function, "f") == expected


@pytest.mark.parametrize(
    ("function", "text", "message"),
    [
        (two, "", r"f takes \(a, b, \*, c=3\); --args gives none$"),
        (two, "x", r"--args gives 1: missing a required argument: 'b'"),
        (two, "x, x, d=1", r"--args gives 2, d=: got an unexpected keyword argument 'd'"),
        (none, "x", r"f takes no arguments; --args gives 1: too many positional arguments"),
        (lambda a, b=list(range(99)): a, "", r"f takes \(a, b=\.\.\.\);"),
        (two, "y", r"--args 'y': name 'y' is not defined"),
        (two, "x,(", r"--args 'x,\(' is not Python: '\(' was never closed"),
        (two, "1) + (2", r"is not Python: unmatched '\)'"),
        (two, "x)(x", r"is not Python: unmatched '\)'"),
        (two, "*", r"is not Python"),
        (two, "x[], x", r"is not Python: invalid syntax"),
        (
            one,
            "f32[8,4]{1,0}",
            r"is not Python: .*; write a shape without its layout, as f32\[8,4\]$",
        ),
    ],
)
def test_what_is_refused(function, text, message):
    with pytest.raises(WrongCallError, match=message):
        arguments(text, NAMES).of(function, "f")


def test_annotations_are_left_out():
    def f(a: inspect.Signature, b: "int" = 1):
        pass

    with pytest.raises(WrongCallError, match=r"f takes \(a, b=1\);"):
        arguments("", {}).of(f, "f")


class Shape:
    """A shape, as `jax.ShapeDtypeStruct`."""

    def __init__(self, shape, dtype):
        self.value = (dtype, shape)


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("f32[]", [("float32", ())]),
        ("f32[()]", [("float32", ())]),
        ("s32[], bf16[8], pred[ ]", [("int32", ()), ("bfloat16", (8,)), ("bool", ())]),
        ("u8 [\n], # a scalar\n f32[8,4]", [("uint8", ()), ("float32", (8, 4))]),
        ("*[f32[]] * 2", [("float32", ())] * 2),
        ("(f32[], c64[2]),", [(("float32", ()), ("complex64", (2,)))]),
        (
            "i32[], i64[2], i8[3], i4[]",
            [("int32", ()), ("int64", (2,)), ("int8", (3,)), ("int4", ())],
        ),
        ("bool[], int32[4], float16[8,2]", [("bool", ()), ("int32", (4,)), ("float16", (8, 2))]),
        ("f8_e4m3fn[2], f8e5m2[]", [("float8_e4m3fn", (2,)), ("float8_e5m2", ())]),
        ("key<fry>[], key < rbg > [4]", [("key of threefry2x32", ()), ("key of rbg", (4,))]),
        ("{'a': key<fry>[]}['a']", [("key of threefry2x32", ())]),
    ],
)
def test_a_scalar_has_an_empty_shape(monkeypatch, text, shapes):
    fake = type(sys)("jax")
    fake.ShapeDtypeStruct = Shape
    fake.random = SimpleNamespace(key=lambda seed, impl: SimpleNamespace(dtype=f"key of {impl}"))
    fake.eval_shape = lambda function: function()
    monkeypatch.setitem(sys.modules, "jax", fake)
    args, _ = arguments(text, {}).of(max, "max")
    assert [
        tuple(x.value for x in one) if isinstance(one, tuple) else one.value for one in args
    ] == shapes


def test_names_of_the_file_stay_its_own():
    names = {"f32": "theirs", "key": 3, "fry": 2, "int32": {"a": 1}}
    text = "f32, key < fry, bool(1), [i32 for i32 in 'ab'], 'key<fry>[]'"
    expected = ("theirs", False, True, ["a", "b"], "key<fry>[]")
    assert arguments(text, names).args == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f31[8]", "name 'f31' is not defined; element types are f64 f32 f16 bf16 f8_e4m3fn"),
        ("float[8], x", "type 'float' is not subscriptable; element types are f64 f32"),
        ("key<md5>[]", "name 'key' is not defined; element types are .*, key<fry>$"),
        ("f32", r"f32 needs a shape, such as f32\[8,128\] or f32\[\]$"),
    ],
)
def test_a_wrong_element_type_is_refused_with_the_list(text, message):
    with pytest.raises(WrongCallError, match=message):
        arguments(text, {"x": 1})


def test_a_text_with_brackets_is_unchanged():
    assert arguments("'f32[]', \"s32[]\"", {}).of(max, "max") == (("f32[]", "s32[]"), {})


@pytest.mark.parametrize("module", [call, callbacks, simulation, worker])
def test_the_module_needs_nothing_but_python(module):
    """Environments of `bufdb blame` have neither bufdb nor a newer Python than 3.9."""
    tree = ast.parse(Path(module.__file__).read_text(), feature_version=(3, 9))
    names = [item.module for item in ast.walk(tree) if isinstance(item, ast.ImportFrom)]
    names += [
        name.name for item in ast.walk(tree) if isinstance(item, ast.Import) for name in item.names
    ]
    own = sys.stdlib_module_names | {"numpy"}
    assert all(str(name).split(".")[0] in own for name in names), names


# -- Files in packages -----------------------------------------------------------------------------

FILES = {
    "mypkg/__init__.py": "",
    "mypkg/layers.py": "def act(x):\n    return x\n",
    "mypkg/types.py": "raise AssertionError('the neighbor of a package hides no module')\n",
    "mypkg/sub/__init__.py": "from ..layers import act\n",
    "mypkg/sub/train.py": "from .. import layers\nfrom . import act\nstep = act\n",
    "mypkg/sub/near.py": "import side\nfrom mypkg.layers import act as step\n",
    "mypkg/sub/side.py": "",
    "bare/train.py": "from .layers import act\n",
    "bare/layers.py": "act = None\n",
    "flat/train.py": "import layers_of_flat\nstep = layers_of_flat.act\n",
    "flat/layers_of_flat.py": "act = 5\n",
    "token.py": "step = 7\n",
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("mypkg/sub/train.py", "mypkg.sub.train"),
        ("mypkg/sub/near.py", "mypkg.sub.near"),
        ("mypkg/sub/__init__.py", "mypkg.sub"),
        ("mypkg.sub.train", "mypkg.sub.train"),
        ("flat/train.py", "train"),
    ],
)
def test_a_file_of_a_package_has_its_dotted_name(files, place, name):
    loaded = call.module(place)
    assert loaded.__name__ == name and sys.modules[name] is loaded


def test_a_package_is_found_from_inside_its_folder(files, monkeypatch):
    monkeypatch.chdir(files / "mypkg" / "sub")
    assert call.module("train.py").step(3) == 3
    assert call.module(str(files / "mypkg" / "layers.py")).__name__ == "mypkg.layers"


def test_relative_imports_without_a_package_name_the_form(files):
    with pytest.raises(WrongCallError, match=r"name it as a module, bare\.train:FUNCTION, in the"):
        call.module("bare/train.py")
    os.chdir(files / "bare")
    with pytest.raises(WrongCallError, match=r"bare\.train:FUNCTION"):
        call.module("train.py")
    os.chdir(files)
    assert call.module("bare.train").act is None


def test_what_cannot_be_imported_is_named(files):
    with pytest.raises(WrongCallError, match=r"^no file none\.py$"):
        call.module("none.py")
    with pytest.raises(WrongCallError, match=r"^no module 'nowhere\.at\.all'; a file's name ends"):
        call.module("nowhere.at.all")


def test_a_file_named_as_a_module_in_use_hides_it_not(files):
    import token

    assert call.module("token.py").step == 7
    assert sys.modules["token"] is token


def test_a_name_that_another_module_has_is_refused(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "mypkg", type(sys)("mypkg"))
    monkeypatch.setitem(sys.modules, "mypkg.layers", ast)
    with pytest.raises(WrongCallError, match=r"but Python finds mypkg.layers in .*ast\.py"):
        call.module("mypkg/layers.py")


@pytest.mark.parametrize(
    ("name", "message"),
    [("steps", r"m\.py has no 'steps'; did you mean 'step'\?"), ("step.x", "has no 'step.x'")],
)
def test_a_function_that_is_not_there_is_named(name, message):
    where = type(sys)("m")
    where.step = one
    with pytest.raises(WrongCallError, match=message):
        call.function(where, "m.py", name)


@pytest.mark.parametrize(
    ("spec", "parts", "short"),
    [
        ("a/lm.py:step", ("a/lm.py", "step"), "step"),
        ("my.lm:Trainer.step", ("my.lm", "Trainer.step"), "Trainer.step"),
        ("a:b/lm.py:make({1: 2})", ("a:b/lm.py", "make({1: 2})"), "make"),
        ("lm.py", ("", "lm.py"), "lm.py"),
    ],
)
def test_the_parts_of_file_and_function(spec, parts, short):
    assert call.split(spec) == parts and call.short_name(spec) == short


def test_a_function_that_a_call_makes():
    where = ModuleType("lm")
    exec(
        "def make(size):\n    def step(x): return size * x\n    return step\nSIZE = 3", vars(where)
    )
    assert call.function(where, "lm.py", "make(SIZE + 1)")(2) == 8
    for name, message in (
        ("make(WIDTH)", "lm.py cannot evaluate 'make(WIDTH)': name 'WIDTH' is not defined"),
        ("make(1", "'make(1' is not Python: '(' was never closed"),
    ):
        with pytest.raises(WrongCallError) as caught:
            call.function(where, "lm.py", name)
        assert str(caught.value) == message


def test_a_file_finds_the_words_of_argv(files, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bufdb", "--other"])
    text = "import sys\nwords = sys.argv\nif len(words) < 2:\n    sys.exit(2)\n"
    Path("parses.py").write_text(text)
    with pytest.raises(WrongCallError, match=r"parses.py ends Python .*\(code 2\); --argv WORDS"):
        call.module("parses.py")
    monkeypatch.setenv(call.ARGV, "--config 'a b'")
    assert call.module("parses.py").words == ["parses.py", "--config", "a b"]
