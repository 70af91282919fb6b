"""Each kind of change is one module, and its methods are those that the others run."""

from pathlib import Path

from bufdb.fitting import levers
from bufdb.fitting.also import Rewrite
from bufdb.fitting.lever import Lever

SHARED = {"policy"}
"""Modules of the folder that several levers use."""


def test_each_module_is_a_lever_that_is_listed_once():
    modules = {path.stem for path in Path(levers.__file__).parent.glob("[!_]*.py")}
    names = [lever.name for lever in levers.EVERY]
    assert sorted(modules - SHARED) == sorted(names)


def test_a_lever_has_no_method_that_nothing_runs():
    for lever in levers.EVERY:
        base = Rewrite if isinstance(lever, Rewrite) else Lever
        own = {name for name in vars(type(lever)) if not name.startswith("_")}
        assert own <= set(dir(base)) | set(base.__annotations__), lever.name


def test_every_method_of_the_record_belongs_to_some_lever():
    methods = {name for name in vars(Lever) if not name.startswith("_")} - {"name"}
    used = {name for lever in levers.EVERY for kind in type(lever).__mro__ for name in vars(kind)
            if kind is not Lever}  # fmt: skip
    assert methods <= used
