"""The first code of bufdb in a process of a command whose jitted calls are traced.

It runs when Python starts, in any Python: it imports nothing that Python has not imported by then,
so that a file of the user's of any name is imported as without it. `bufdb.capture.catching` begins
once JAX is imported.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PLAN = "BUFDB_CALLS"
"""Variable of the environment of a command: the file that has the plan."""
ROOT = "BUFDB_ROOT"
"""Variable that has the folder from which bufdb is imported if it is not installed."""
TEXTS = "texts"
"""Key of the plan with the texts that replace those of files, by path."""
_JITTED = "jax._src.pjit"
_OLDEST = (3, 11)
_WITH_VALUE = "WX"


class Finder:
    """Wraps the module with JAX's jit when it is imported."""

    def __init__(self, plan: str) -> None:
        self.plan = plan

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> Any:
        """Find the module as the other finders do, and wrap it once it is executed."""
        if name != _JITTED:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        execute = loader.exec_module

        def exec_module(module: object) -> None:
            execute(module)
            if importlib.util.find_spec("bufdb") is None:
                sys.path.append(os.environ[ROOT])
            importlib.import_module("bufdb.capture.catching").install(module, self.plan)

        loader.exec_module = exec_module
        return spec


def replace_sources(texts: dict[str, str]) -> None:
    """Make Python import these texts in place of the files of these names."""
    if not texts:
        return
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, name: str) -> object:
        path = self.get_filename(name)
        text = texts.get(os.path.abspath(path))  # noqa: PTH100 - links are not followed
        return original(self, name) if text is None else compile(text, path, "exec")

    loader.get_code = get_code


def options(words: list[str]) -> tuple[str, int]:
    """Return the letters of Python's options in its command, and the place of what follows them.

    The last letter is c or m where Python runs a text or a module.
    """
    letters, at = "", 1
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        at += 1
        if word.startswith("--"):
            continue
        for number, letter in enumerate(word[1:], 2):
            letters += letter
            if letter in "cm":
                return letters, at
            if letter in _WITH_VALUE:
                at += number == len(word)
                break
    return letters, at


def script(words: list[str]) -> int | None:
    """Return the place in the words of a command of Python that names its script; None if none."""
    letters, at = options(words)
    if letters[-1:] in ("c", "m"):
        return None
    return at if at < len(words) and words[at] != "-" else None


def _run(path: str, text: str) -> None:
    """Run a text as the script of a file, as Python would run the file; end this process."""
    main = sys.modules["__main__"]
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    code = 0
    try:
        exec(compile(text, path, "exec"), main.__dict__)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def install() -> None:
    """Wait for JAX; run a script whose text is replaced."""
    if sys.version_info < _OLDEST:
        version = ".".join(map(str, sys.version_info[:2]))
        sys.stderr.write(
            f"bufdb: error: {sys.executable} is Python {version}; the calls of a command need "
            f"Python {'.'.join(map(str, _OLDEST))} or later\n"
        )
        sys.stderr.flush()
        os._exit(2)
    plan = os.environ[PLAN]
    sys.meta_path.insert(0, Finder(plan))
    with open(plan, encoding="utf-8") as file:  # noqa: PTH123 - pathlib is not imported yet
        text = file.read()
    if f'"{TEXTS}": {{}}' in text:
        return
    texts = importlib.import_module("json").loads(text)[TEXTS]
    replace_sources(texts)
    at = script(sys.orig_argv)
    path = None if at is None else os.path.abspath(sys.orig_argv[at])  # noqa: PTH100
    if path is not None and path in texts:
        sys.argv = sys.orig_argv[at:]
        _run(path, texts[path])
