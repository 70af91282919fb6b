"""The limit of a TPU kernel's vector memory: `vmem_limit_bytes` of its compiler parameters.

find     the user's expressions that call a Pallas kernel
trace    nothing: products are the same; a plan is compiled from the patched files
edit     `compiler_params` of `pl.pallas_call` gets `vmem_limit_bytes`
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from typing import Any

from bufdb.fitting.counting import inner_jaxprs
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.jax_inside import Files, site_of
from bufdb.fitting.lever import Lever
from bufdb.fitting.places import place
from bufdb.fitting.plans import Change, Site
from bufdb.fitting.source import Source
from bufdb.fitting.transforms import whole

MOST = 1 << 30
"""More than any TPU has: the compiler takes what there is."""
_PALLAS = "jax.experimental.pallas"
_CALLS = (f"{_PALLAS}.pallas_call",)
_CLASSES = ("CompilerParams", "TPUCompilerParams")
"""Of compiler parameters for TPU, the newer name first."""
LIMIT = "vmem_limit_bytes"


class Vmem(Lever):
    """Another limit of vector memory for kernels that need more."""

    name = "vmem"

    def edit(self, editing: Editing) -> None:
        """Set the limit at each call."""
        done: set[ast.Call] = set()
        for change in editing.program.changes_of(editing.plan):
            if change.key.partition("=")[0] == self.name:
                for site in change.sites:
                    how = site, change.count, change.spelling, done
                    editing.attempt(site, change.step, _edit, *how)


def changes_of(step: Any, files: Files, platform: str) -> list[Change]:
    """Return the change that gives all kernels of a function all vector memory there is.

    Args:
        step: the function's jaxpr.
        files: of the user.
        platform: that is compiled for.

    Raises:
        Refused: there is no kernel for TPU in the user's files.
    """
    if platform != "tpu":
        raise Refused("only a TPU has a limit of vector memory")
    sites = tuple(dict.fromkeys(_sites(step, files)))
    if not sites:
        raise Refused("no line of the user's files calls a Pallas kernel")
    module = importlib.import_module(f"{_PALLAS}.tpu")
    spelling = next((name for name in _CLASSES if hasattr(module, name)), _CLASSES[-1])
    return [limited(sites, MOST, spelling)]


def limited(sites: tuple[Site, ...], limit: int, spelling: str) -> Change:
    """Return the change that gives kernels at some expressions a limit [bytes]."""
    places = dict.fromkeys(place(site) for site in sites)
    where = ", ".join(places)
    return Change(
        f"{Vmem.name}={limit}",
        f"{LIMIT}={limit} of the {'kernel' if len(sites) == 1 else 'kernels'} at {where}",
        f"set {LIMIT}={limit} in compiler_params of",
        where,
        "the kernel computes as before",
        sites,
        limit,
        spelling=spelling,
    )


def _sites(jaxpr: Any, files: Files) -> Iterator[Site]:
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "pallas_call":
            site = site_of(eqn, files)
            if site is not None:
                yield site
            continue
        for inner in inner_jaxprs(eqn):
            yield from _sites(inner, files)


def _edit(source: Source, site: Site, limit: int, spelling: str, done: set[ast.Call]) -> None:
    """Set the limit of vector memory of a kernel.

    Args:
        source: that is edited.
        site: which runs the kernel.
        limit: what to set [bytes].
        spelling: name of the class of compiler parameters, if there are none yet.
        done: calls that have it; kernels may share their call of `pallas_call`, or the parameters.

    Raises:
        Refused: the kernel's compiler parameters are not in sight.
    """
    call = _pallas_call(source, source.find(site))
    if call in done:
        return
    if any(one.arg is None for one in call.keywords):
        raise Refused("its options come from two stars")
    options = next((one.value for one in call.keywords if one.arg == "compiler_params"), None)
    if options is None:
        tpu = source.imported(_PALLAS, "tpu", [call])
        _add(source, call, f"compiler_params={tpu}.{spelling}({LIMIT}={limit})")
        done.add(call)
        return
    if isinstance(options, ast.Name):
        bound = source.binding(options.id, options)
        options = bound.value if isinstance(bound, ast.Assign) else options
    if not isinstance(options, ast.Call):
        raise Refused("its compiler_params are not made in sight of the call")
    if options in done:
        return
    of_tpu = [f"{_PALLAS}.tpu.{name}" for name in _CLASSES]
    has_stars = any(one.arg is None for one in options.keywords)
    if has_stars or source.dotted(options.func) not in of_tpu:
        raise Refused("its compiler_params are none of pltpu.CompilerParams(…) in sight")
    present = next((one.value for one in options.keywords if one.arg == LIMIT), None)
    if present is None:
        _add(source, options, f"{LIMIT}={limit}")
    else:
        source.replace(source.span(present), lambda render: str(limit))
    done.add(options)


def _add(source: Source, call: ast.Call, text: str) -> None:
    """Add an argument by name to a call."""
    parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    if parts:
        last = max(whole(source, one)[1] for one in parts)
        source.replace((last, last), lambda render: f", {text}")
    else:
        end = source.span(call)[1] - 1
        source.replace((end, end), lambda render: text)


def _pallas_call(source: Source, node: ast.AST) -> ast.Call:
    """Return the call of `pallas_call` that makes what an expression runs, or is it."""
    made = node.func if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call) and source.dotted(node.func) in _CALLS:
        return node
    if isinstance(made, ast.Name):
        bound = source.binding(made.id, made)
        made = bound.value if isinstance(bound, ast.Assign) else None
    if not isinstance(made, ast.Call) or source.dotted(made.func) not in _CALLS:
        raise Refused("what is called is not pl.pallas_call(…) in sight")
    return made
