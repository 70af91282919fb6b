"""Directories of runs, and labels from their names."""

import shutil
from pathlib import Path

import pytest
from places import DEMO

from bufdb.errors import UsageError
from bufdb.ingest.folders import find_run_folders, labels_by_folder, parse_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "labels"),
    [
        ("t_b{batch}_{dtype}_{remat}", "t_b8_f32_noremat", ("8", "f32", "noremat")),
        ("t_b{batch}_{dtype}_{remat}", "t_b8_f32_no_remat", ("8", "f32", "no_remat")),
        ("{model}.b{batch}", "a.b.b8", ("a", ".b8")),
        ("t_b{batch}", "t_b", None),
        ("t_b{batch}", "xt_b8", None),
        ("t.b{batch}", "txb8", None),
    ],
)
def test_labels_from_a_name(pattern, name, labels):
    parsed = parse_pattern(pattern)
    parsed_labels = parsed.labels_of(name)
    assert (parsed_labels and tuple(parsed_labels.values())) == labels


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("plain", "expected a placeholder"),
        ("b{}", "expected a label's name in braces, found ''"),
        ("b{1 2}", "found '1 2'"),
        ("{a}_{a}", "placeholder a appears twice"),
        ("{a}{b}", "some text between"),
        ("{a}_}", "braces in pairs"),
    ],
)
def test_bad_patterns(pattern, message):
    with pytest.raises(UsageError, match="--labels-from") as error:
        parse_pattern(pattern)
    assert message in str(error.value)


def test_a_directory_of_runs_that_cannot_be_listed_is_reported(monkeypatch, tmp_path):
    def closed(folder):
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(UsageError, match=r"--run-from-dir: cannot read .*: Permission denied$"):
        find_run_folders(tmp_path, print)


@pytest.fixture
def folder(tmp_path):
    """A directory of two runs, one without dumps, a link and a loose dump."""
    for name in ("t_b8", "t_b16"):
        (tmp_path / name).mkdir()
        shutil.copy(next((DEMO / "cpu_b8").glob("*init*-buffer-assignment.txt")), tmp_path / name)
    (tmp_path / "logs").mkdir()
    (tmp_path / "latest").symlink_to("t_b16")
    shutil.copy(next(tmp_path.glob("t_b8/*")), tmp_path)
    return tmp_path


def test_runs_are_the_folders_with_dumps(folder):
    notes = []
    folder_labels = labels_by_folder([folder], "t_b{batch}", (), notes.append)
    assert folder_labels == {folder / "t_b16": {"batch": "16"}, folder / "t_b8": {"batch": "8"}}
    assert notes == [
        f"skipped: {folder}/latest is a link to {folder}/t_b16",
        f"skipped: 1 dumps in {folder} outside its sub-directories",
        f"skipped: {folder}/logs has no buffer assignment",
    ]


def test_a_name_that_does_not_match_has_no_labels(folder):
    notes = []
    folder_labels = labels_by_folder([folder], "t_b1{batch}", (), notes.append)
    assert folder_labels[folder / "t_b8"] == {}
    assert "no labels for run t_b8: t_b1{batch} does not match its name" in notes


def test_what_is_ambiguous_is_a_usage_error(folder):
    with pytest.raises(UsageError, match="label batch is in --label and in --labels-from"):
        labels_by_folder([folder], "t_b{batch}", ["batch"], print)
    with pytest.raises(UsageError, match="would both be run logs"):
        labels_by_folder([folder, folder], None, (), print)
    shutil.rmtree(folder / "t_b8")
    shutil.rmtree(folder / "t_b16")
    with pytest.raises(UsageError, match="no buffer assignment in a sub-directory of"):
        labels_by_folder([folder], None, (), print)
