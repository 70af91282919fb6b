"""What --jax, --python and --flag name, without a command line."""

import sys

import pytest

from bufdb.blame import runs
from bufdb.blame.ways import Ways
from bufdb.errors import UsageError


def names(**options):
    return [(variant.name, dict(variant.options)) for variant in Ways(**options).variants()]


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        (["xla_f=1,2,1"], ["1", "2"]),
        (["--xla_f=1"], ["default", "1"]),
        (["xla_f=cse,dce", "xla_f=cse"], ["cse,dce", "cse"]),
        (["xla_f=cse,dce", "xla_f"], ["cse,dce", "default"]),
    ],
)
def test_values_with_commas_are_options_of_their_own(flags, values):
    variants = Ways(flags=flags).variants()
    assert [one.value for one in variants] == values
    assert [one.options for one in variants] == [
        {} if value == "default" else {"xla_f": value} for value in values
    ]


def test_a_single_python_is_compared_with_this_one():
    assert names(pythons=["old", "old"]) == [("python old", {}), (f"python {sys.executable}", {})]
    assert names(pythons=["old", "new"]) == [("python old", {}), ("python new", {})]


def test_a_single_way_is_compared_with_that_of_a_command(monkeypatch):
    command = ["env", "A=1", sys.executable, "train.py"]
    own = f"python {sys.executable}"
    assert names(pythons=["old"], command=command) == [("python old", {}), (own, {})]
    monkeypatch.setattr(runs, "version_of", lambda python: f"of {python}")
    old = names(versions="0.7.2", command=["other/python3", "train.py"])
    assert old == [("jax 0.7.2", {}), ("jax of other/python3", {})]
    assert names(flags=["xla_f=1,2"], command=["sh", "run.sh"])[0][0] == "xla_f=1"
    with pytest.raises(UsageError, match=r"into the command, and sh run\.sh names none"):
        names(pythons=["old"], command=["sh", "run.sh"])


def test_a_single_version_is_compared_with_that_of_this_python(monkeypatch):
    monkeypatch.setattr(runs, "version_of", lambda python: "0.10.2")
    assert names(versions="0.7.2") == [("jax 0.7.2", {}), ("jax 0.10.2", {})]
    with pytest.raises(UsageError, match=r"has jax 0\.10\.2 too; name another one"):
        names(versions="0.10.2")


@pytest.mark.parametrize(
    ("target", "packages", "first"),
    [
        (None, (), ("jax[cpu]==0.7.2", "flatbuffers", "absl-py")),
        ("v5e-4", (), ("jax[tpu]==0.7.2", "flatbuffers", "absl-py")),
        ("v5e-4", ("libtpu==0.0.20",), ("jax[cpu]==0.7.2", "flatbuffers", "absl-py")),
        ("gpu:h100", (), ("jax[cpu]==0.7.2", "jax-cuda12-plugin==0.7.2", "flatbuffers", "absl-py")),
    ],
)
def test_an_environment_has_the_compiler_of_the_target(target, packages, first):
    ways = Ways("0.7.2,0.8.0", packages, target=target)
    old, new = ways.variants()
    assert old.packages == (*first, *packages) and new.wants_jax == "0.8.0"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flags": ["a"]}, r"--flag wants NAME=V,V, got 'a'"),
        ({"flags": ["a=1,"]}, r"--flag wants NAME=V,V, got 'a=1,'"),
        ({"flags": ["a=1", "b=1"]}, "--flag: a and b: one at a time"),
        ({"pythons": ["p"], "packages": ["flax"]}, "--with is for the environments of --jax"),
    ],
)
def test_a_malformed_option_is_a_usage_error(options, message):
    with pytest.raises(UsageError, match=message):
        Ways(**options).variants()


def test_one_option_says_how_to_compile():
    assert (Ways().axis(), Ways(flags=["a=1"]).axis()) == (None, "--flag")
    with pytest.raises(UsageError, match="--jax and --flag: one at a time"):
        Ways("0.7.1", flags=["a=1"]).axis()
