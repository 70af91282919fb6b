"""No answer and no patch replaces a source, which is seen before anything is computed."""

import os

import pytest

SPECS = ("train.py:step", "train:step")


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A program of two files; importing either leaves a trace."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    for name in ("train.py", "inner/model.py"):
        (tmp_path / name).write_text("open('imported', 'w')\n")
    return tmp_path


def linked(sources, how):
    """Return the name of a source, or of a link to it."""
    if how in ("train.py", "inner/model.py"):
        return how
    link = sources / ("out.txt" if "txt" in how else "out.py")
    target = sources / ("inner/model.py" if "model" in how else "train.py")
    (link.symlink_to if "symbolic" in how else lambda one: os.link(one, link))(target)
    return str(link)


LINKS = ("train.py", "inner/model.py", "symbolic txt", "hard txt", "hard txt model", "symbolic py")


@pytest.mark.parametrize("how", LINKS)
@pytest.mark.parametrize(
    "words",
    [
        ("fit", *SPECS[:1], "--patch"), ("fit", *SPECS[:1], "-o"), ("fit", *SPECS[1:], "--patch"),
        ("explain", *SPECS[:1], "-o"), ("blame", *SPECS[:1], "--jax", "0.1", "-o"),
        ("what-if", "step", "--verify", "python train.py", "-o"),
    ],
)  # fmt: skip
def test_a_source_is_not_replaced(call, sources, words, how):
    name = linked(sources, how)
    code, out, err = call(*words, name)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{words[-1]} {name}: this file is Python source, which is not replaced" in err
    assert (sources / "train.py").read_text() == "open('imported', 'w')\n"
    assert not (sources / "imported").exists()


def test_an_export_replaces_no_source(call, sources):
    code, _, err = call("export", "speedscope", "-o", "train.py")
    assert code == 2 and "this file is Python source" in err


@pytest.mark.parametrize("how", LINKS)
def test_a_source_of_a_captured_program_is_not_replaced(call, sources, how):
    name = linked(sources, how)
    code, _, err = call("capture", "-o", name, "--", "python", "train.py")
    assert code == 2 and "this file is Python source" in err
    assert not (sources / "imported").exists()
