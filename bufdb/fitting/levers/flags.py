"""Options of the compiler, which finds by itself what to compute again.

trace    nothing: what XLA computes again is in no jaxpr
price    `last_resort` compiles with values of them; products are those of the optimized program
edit     a line of environment, and the same for one `jax.jit`
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from bufdb.fitting.editing import Editing
from bufdb.fitting.lever import Lever
from bufdb.fitting.plans import PlanResult


class Flags(Lever):
    """Options of the compiler."""

    name = "flags"

    def edit(self, editing: Editing) -> None:
        """Say how the options are set."""
        options = editing.plan.options
        if options:
            pairs = json.dumps(dict(one.split("=", 1) for one in options))
            editing.steps.append(
                f"in the environment, {variables(options)}; or for the function alone, "
                f"compiler_options={pairs} of jax.jit"
            )

    def words(self, row: PlanResult) -> Sequence[str]:
        """Return the options."""
        return (f"with {variables(row.options)}",) if row.options else ()


def variables(options: Sequence[str]) -> str:
    """Return the assignment of XLA_FLAGS that sets options."""
    flags = " ".join(f"--{one}" for one in options)
    return f'XLA_FLAGS="{flags}"' if " " in flags else f"XLA_FLAGS={flags}"
