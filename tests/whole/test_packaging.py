"""Packages built from the checkout contain everything bufdb needs and work once installed."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from places import DEMO, ROOT

DUMPS = DEMO / "cpu_b8_old"


def build(source, target, kind):
    """The file that hatchling builds; it needs no network."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (built,) = target.iterdir()
    return built


def files_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run a command in a fresh environment with the wheel, in another directory."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", with_pip=False)
    scripts = folder / "venv" / "bin"
    python = scripts / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True)
    # Packages that bufdb needs come from this environment: a path in a .pth file has its own .pth
    # files ignored, so a bufdb that is installed there as editable is not found.
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    needed = sysconfig.get_paths()
    lines = dict.fromkeys((needed["purelib"], needed["platlib"]))
    (packages / "needed.pth").write_text("".join(f"{line}\n" for line in lines))
    (folder / "work").mkdir()
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder)}

    def run(*command):
        return subprocess.run(
            [str(scripts / command[0]), *command[1:]],
            cwd=folder / "work",
            env=clean,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    where = run("python", "-c", "import bufdb; print(bufdb.__file__)")
    assert Path(where).is_relative_to(packages)
    return run


def test_the_wheel_has_the_sql_and_the_code_of_the_checkout(wheel):
    files = files_of(wheel)
    expected = {
        f"bufdb/{path.relative_to(ROOT).as_posix()}": path.read_bytes()
        for folder in ("schema", "queries")
        for path in (ROOT / folder).rglob("*.sql")
    }
    assert any(name.startswith("bufdb/queries/checks/") for name in expected)
    assert {name: files[name] for name in files if name.endswith(".sql")} == expected
    code = {path.relative_to(ROOT).as_posix() for path in (ROOT / "bufdb").rglob("*.py")}
    assert {name for name in files if name.endswith(".py")} == code


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(wheel, tmp_path):
    sdist = build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    for name in ("README.md", "LICENSE", "data/README.md", "tests/conftest.py", ".ci/run"):
        assert (source / name).is_file(), name
    assert list((source / "data" / "demo").iterdir())
    assert files_of(build(source, tmp_path / "again", "wheel")) == files_of(wheel)


@pytest.mark.slow  # a virtual environment of its own
def test_an_installed_wheel_works_in_another_directory(installed):
    assert "\n  top-temps " in installed("bufdb", "queries")
    assert installed("bufdb", "ingest", str(DUMPS)) == ""
    rows = installed("bufdb", "query", "modules", "--format", "csv").splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [
        ["cpu_b8_old", "train_step"],
        ["cpu_b8_old", "eval_step"],
        ["cpu_b8_old", "init"],
    ]
    assert installed("bufdb", "check").count("\n") == 2  # a header and no finding
    where = installed("python", "-c", "from bufdb import resources as r; print(r.query_folder())")
    assert installed("bufdb", "lint", f"{where.strip()}/peak.sql") == ""


@pytest.mark.slow
def test_pytest_finds_the_fixture_of_an_installed_wheel(installed):
    listed = installed("python", "-m", "pytest", "--fixtures", "-q", "-p", "no:cacheprovider")
    assert "bufdb_limit" in listed


def test_what_the_project_says_of_itself():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]  # only in bufdb/__init__.py
    assert settings["tool"]["hatch"]["version"]["path"] == "bufdb/__init__.py"


def test_the_top_level_holds_nothing_else():
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    top = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {name for name in top if not name.startswith(".")} == {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "bufdb",
        "schema",
        "queries",
        "tests",
        "data",
    }
