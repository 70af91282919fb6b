"""The process in which `bufdb fit` runs a user's file.

What is wrapped in JAX is wrapped here, and nowhere else.
"""

from __future__ import annotations

import importlib.machinery
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bufdb.capture.child import asked, kind_of
from bufdb.capture.worker import serve, step
from bufdb.fitting.plans import Plan, as_json, from_json


class Server:
    """Answers requests about one function."""

    def __init__(self) -> None:
        self._function: Any = None
        self._name = ""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        do = {
            "start": self._start,
            "trace": self._trace,
            "lines": self._lines,
            "compile": self._compile,
            "changes": self._changes,
        }
        return do[request["do"]](request)

    def _start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from bufdb.fitting.function import Function

        replace_sources(request["sources"])
        spec, hardware = request["spec"], request["target"]
        self._name = spec if hardware is None else f"{spec} for {hardware}"
        question = asked(spec, request["args"], hardware)
        with step(f"tracing {self._name}"):
            self._function = Function(
                question.function,
                question.args,
                question.kwargs,
                spec,
                question.target,
                gradients_only=request["gradients_only"],
            )
            program = self._function.program() if request["has_program"] else None
        return {"device": kind_of(question.target), "program": as_json(program)}

    def _trace(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step(f"tracing a plan of {self._name}"):
            return {"traced": as_json(self._function.trace(from_json(Plan, request["plan"])))}

    def _lines(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"sites": as_json(self._function.recomputed(from_json(Plan, request["plan"])))}

    def _changes(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step(f"tracing {self._name} for parts of the batch"):
            return {"changes": as_json(self._function.changes(request["kinds"]))}

    def _compile(self, request: Mapping[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        with step(f"compiling {request['what']} of {self._name}"):
            refusal = self._function.compile(
                from_json(Plan, request["plan"]), Path(request["dumps"]), is_full=request["is_full"]
            )
        return {"refusal": refusal, "seconds": time.monotonic() - began}


def replace_sources(texts: Mapping[str, str]) -> None:
    """Make Python import these texts in place of the files of these names."""
    if not texts:
        return
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, name: str) -> Any:
        path = self.get_filename(name)
        text = texts.get(os.path.abspath(path))  # noqa: PTH100 - links are not followed
        return original(self, name) if text is None else compile(text, path, "exec")

    loader.get_code = get_code


def main(arguments: list[str]) -> int:
    """Answer the requests of `bufdb fit`; return the exit code."""
    return serve(Path(arguments[0]), Server().answer)
