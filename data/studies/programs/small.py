"""The programs of tests/support/jax_changes.py, one for each kind of advice."""

import sys
from pathlib import Path

from programs.program import Change, Program, on

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import jax_changes

FILE = Path(jax_changes.__file__)


def line(text):
    """The one line with a text, as FILE:LINE."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    (line_number,) = (number for number, one in enumerate(lines, 1) if text in one)
    return f"{FILE.name}:{line_number}"


def make(devices, name, is_changed=False):
    title = f"{name}_changed" if is_changed else name
    programs = jax_changes.programs() | jax_changes.tpu_programs()
    function, arguments, donated = programs[title]
    return function, on(devices[0], arguments), donated


def change(kind, text="", **others):
    return Change(kind, line(text) if text else "", {"is_changed": True}, **others)


DROPPED = 'name(jnp.sin(a), "dropped")'
CHANGES = {
    "donate": change("donate"),
    "donate_copied": change("donate"),
    "residual": change("residual", DROPPED),
    "recompute": change("recompute", DROPPED),
    "offload": change("offload", DROPPED),
    "dtype": change("dtype", "first = jnp.sin(x).astype(kind)"),
    "copy": change("copy"),
    "late": change("late_free", "early = jnp.tanh(x @ w)"),
    "constant": change("constant"),
    "factor": change("donate", targets=("tpu",)),
    "no_factor": change("donate", targets=("tpu",)),
    "arguments": change("padding", targets=("tpu",)),
    "merged": change("padding", targets=("tpu",)),
    "exchanged": change("padding", targets=("tpu",)),
    "rounded_up": change("least_size", targets=("tpu",)),
    "temps": change("padding", targets=("tpu",)),
    "stacks": change("padding", targets=("tpu",)),
}
PROGRAMS = {
    f"small_{name}": Program(make, {"changed": one}, {"name": name}, one.targets)
    for name, one in CHANGES.items()
}
