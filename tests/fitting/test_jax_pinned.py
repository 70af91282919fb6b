"""What a custom_vjp saves, by line, before anything is compiled."""

from pathlib import Path

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_pinned as programs  # noqa: E402
from fit_pinned import B, D, N  # noqa: E402

from bufdb.fitting.function import Function  # noqa: E402
from bufdb.fitting.pinned import pinned  # noqa: E402

WIDE = 4 * B * D
"""Bytes of one f32[4, 8]."""


def notes(name):
    function = Function(getattr(programs, name), programs.args(), {}, name)
    return [one for one in function.program().notes if "custom_vjp of" in one]


def records(name):
    function = Function(getattr(programs, name), programs.args(), {}, name)
    return pinned(function._reader, [one.closed for one in function._gradients])


def by_text(record):
    text = Path(programs.__file__).read_text("utf-8").splitlines()
    return {text[site.line - 1].strip(): size for site, size in record.made.items() if site}


SIN, SHARED = "y = jnp.sin(x)", "y = jnp.cos(x)"
MAPPED = "return (jax.vmap(gated, (None, 0))(jnp.sin(x), ws) ** 2).sum()"
NEGATIVE = "return (gated(y, w) + gated(y, -w)).sum()"
H, GATE = "h = jnp.tanh(x @ w)", 'gate = checkpoint_name(jax.nn.sigmoid(x), "gate")'


@pytest.mark.parametrize(
    ("name", "calls", "arguments", "carry"),
    [
        (
            "step",
            N,
            {"for w in ws:": N * 4 * D * D, SIN: WIDE, "return gated(x, w)": (N - 1) * WIDE},
            0,
        ),
        ("step_scan", N, {}, N * WIDE),  # the part of ws is there anyway
        ("step_mapped", 1, {MAPPED: WIDE}, 0),
        ("step_shared", 2, {SHARED: WIDE, NEGATIVE: 4 * D * D}, 0),
    ],
)
def test_residuals_are_counted_by_the_line_that_makes_them(name, calls, arguments, carry):
    (record,) = records(name)
    assert (record.name, record.forward, record.count) == ("gated", "forward", calls)
    gate = WIDE if name == "step_mapped" else calls * WIDE  # it is of x alone
    hidden = N * WIDE if name == "step_mapped" else calls * WIDE
    assert by_text(record) == {H: hidden, GATE: gate, **arguments}
    assert record.argument_bytes == carry


@pytest.mark.parametrize("name", ["step_checkpointed", "step_of_a_constant"])
def test_what_no_call_saves_has_no_note(name):
    assert records(name) == []
    assert notes(name) == []


def test_a_custom_gradient_has_the_name_of_its_function():
    (record,) = records("step_turned")
    assert (record.name, record.count) == ("turned", 2)
    assert by_text(record) == {"slope = jnp.cos(x)": 2 * N * WIDE}


def test_the_note_says_which_lines_and_what_to_do():
    (note,) = notes("step")
    assert "are saved because the custom_vjp of gated pins its residuals in 3 calls" in note
    assert f"{N * WIDE} B of fit_pinned.py:" in note
    assert "a checkpoint_name in forward" in note


@pytest.mark.parametrize(("name", "kept"), [("call_checkpointed", []), ("call_kept", ["gate"])])
def test_a_checkpoint_of_the_call_keeps_what_is_named(name, kept, capsys):
    """What the note says to do is what JAX does."""
    ws, x = (jax.numpy.zeros(one.shape) for one in programs.args())
    jax.ad_checkpoint.print_saved_residuals(getattr(programs, name), x, ws[0])
    lines = [line for line in capsys.readouterr().out.splitlines() if "argument" not in line]
    assert [name for line in lines for name in ("gate", "tanh") if name in line] == kept


CASES = Path(__file__).parents[2].parent / "shared" / "cases"


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases are in another repository")
def test_attention_of_a_case_pins_its_operands(monkeypatch):
    monkeypatch.syspath_prepend(CASES / "fit-programs")
    import flash_layers

    function = Function(flash_layers.step, flash_layers.args(), {}, "step")
    (record,) = pinned(function._reader, [one.closed for one in function._gradients])
    heads = 4 * 4 * 256 * 32 * 4  # bytes of f32[4, 4, 256, 32]
    assert (record.name, record.count) == ("flash", 4)
    assert record.total_bytes == 4 * (4 * heads + heads // 32)
