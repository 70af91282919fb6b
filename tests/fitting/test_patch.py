"""Patches: by the text of small files, what is edited, what is refused, and that git takes it."""

import ast
import sys
from dataclasses import replace

import pytest
from patched import PATH, calls, git_apply, named, program, scan, site, switch

from bufdb.fitting.edits import Refused
from bufdb.fitting.patch import patch
from bufdb.fitting.plans import Change, Plan, Site
from bufdb.fitting.source import Source

HEAD = "import jax\nimport jax.numpy as jnp\n"
IMPORT = "from jax.ad_checkpoint import checkpoint_name\n"
ONLY = "jax.checkpoint_policies.save_only_these_names"


def body_of(text: str) -> str:
    return text.removeprefix(HEAD).removeprefix(IMPORT)


@pytest.mark.parametrize(
    ("line", "expression", "after"),
    [
        ("h = x @ w", "x @ w", 'h = checkpoint_name(x @ w, "fit_0")'),
        ("h = (x @ w) * 2", "x @ w", 'h = (checkpoint_name(x @ w, "fit_0")) * 2'),
        ("h = a + b + c", "a + b", 'h = checkpoint_name(a + b, "fit_0") + c'),
        ("return f(x), None", "f(x)", 'return checkpoint_name(f(x), "fit_0"), None'),
        ("h = x.reshape(2, -1).T", "x.reshape(2, -1)",
         'h = checkpoint_name(x.reshape(2, -1), "fit_0").T'),
        ("h = lambda y: f(y)", "f(y)", 'h = lambda y: checkpoint_name(f(y), "fit_0")'),
        ("h = [f(y) for y in x]", "f(y)", 'h = [checkpoint_name(f(y), "fit_0") for y in x]'),
        ("h = g(f(y) for y in x)", "f(y)", 'h = g(checkpoint_name(f(y), "fit_0") for y in x)'),
        ("h = {k: f(v) for k, v in x}", "f(v)",
         'h = {k: checkpoint_name(f(v), "fit_0") for k, v in x}'),
        ("h = g(*f(x))", "f(x)", 'h = g(*checkpoint_name(f(x), "fit_0"))'),
        ("h = g(**f(x))", "f(x)", 'h = g(**checkpoint_name(f(x), "fit_0"))'),
        ("h = g(k=f(x))", "f(x)", 'h = g(k=checkpoint_name(f(x), "fit_0"))'),
        ("g(h := f(x))", "f(x)", 'g(h := checkpoint_name(f(x), "fit_0"))'),
        ("if (h := f(x)) is None: pass", "f(x)",
         'if (h := checkpoint_name(f(x), "fit_0")) is None: pass'),
        ("h = -f(x)", "-f(x)", 'h = checkpoint_name(-f(x), "fit_0")'),
        ("h = x[1:, None]", "x[1:, None]", 'h = checkpoint_name(x[1:, None], "fit_0")'),
        ("h = x[f(y)]", "f(y)", 'h = x[checkpoint_name(f(y), "fit_0")]'),
        ("x[0] = f(y)", "f(y)", 'x[0] = checkpoint_name(f(y), "fit_0")'),
        ("a, b = f(x)", "f(x)", 'a, b = checkpoint_name(f(x), "fit_0")'),
        ("a = b = f(x)", "f(x)", 'a = b = checkpoint_name(f(x), "fit_0")'),
        ("a: int = f(x)", "f(x)", 'a: int = checkpoint_name(f(x), "fit_0")'),
        ("h = f(x) if c else y", "f(x)", 'h = checkpoint_name(f(x), "fit_0") if c else y'),
        ("h = self.w", "self.w", 'h = checkpoint_name(self.w, "fit_0")'),
        ("a = 1; h = f(x); b = 2", "f(x)", 'a = 1; h = checkpoint_name(f(x), "fit_0"); b = 2'),
        ("h += f(x)", "h += f(x)", 'h = checkpoint_name(h + (f(x)), "fit_0")'),
        ("h -= a - b", "h -= a - b", 'h = checkpoint_name(h - (a - b), "fit_0")'),
        ("h  **=x", "h  **=x", 'h = checkpoint_name(h ** (x), "fit_0")'),
        ("h @= w if c else v", "h @= w if c else v",
         'h = checkpoint_name(h @ (w if c else v), "fit_0")'),
        ("h //= (a)", "h //= (a)", 'h = checkpoint_name(h // ((a)), "fit_0")'),
        ("h *= f(h)", "f(h)", 'h *= checkpoint_name(f(h), "fit_0")'),
        ("ä = 'ö' and f(ü)", "f(ü)", "ä = 'ö' and checkpoint_name(f(ü), \"fit_0\")"),
        ("h = f('→') @ w  # ∑", "f('→') @ w", "h = checkpoint_name(f('→') @ w, \"fit_0\")  # ∑"),
    ],
)  # fmt: skip
def test_a_name_goes_around_the_expression_alone(line, expression, after):
    text = f"{HEAD}def body(x, w):\n\t{line}\n"
    if line.startswith("return"):
        text = text.replace("body(x, w)", "body(x, w, c=1)")
    result = named(text, expression)
    assert result.steps == ()
    assert body_of(result.texts[PATH]) == body_of(text).replace(line, after)
    assert result.texts[PATH].startswith(HEAD + IMPORT)


@pytest.mark.parametrize(
    ("lines", "expression", "after"),
    [
        ("h = (x @\n     w)\n", "x @\n     w", 'h = (checkpoint_name(x @\n     w, "fit_0"))\n'),
        ("h = x @ \\\n    w\n", "x @ \\\n    w",
         'h = checkpoint_name(x @ \\\n    w, "fit_0")\n'),
        ("h = f(  # one\n    x,  # two\n)\n", "f(  # one\n    x,  # two\n)",
         'h = checkpoint_name(f(  # one\n    x,  # two\n), "fit_0")\n'),
        ("h += (a  # one\n      + b)\n", "h += (a  # one\n      + b)",
         'h = checkpoint_name(h + ((a  # one\n      + b)), "fit_0")\n'),
    ],
)  # fmt: skip
def test_expressions_of_several_lines(lines, expression, after):
    result = named(HEAD + lines, expression)
    assert body_of(result.texts[PATH]) == after


def test_a_method_call_of_several_lines_is_found_by_its_name():
    """CPython's positions of such a call start at the name of the method."""
    text = f"{HEAD}h = (x\n     .reshape(2)\n     .sum(0))\n"
    whole = site(text, "x\n     .reshape(2)\n     .sum(0)")
    place = whole._replace(line=5, column=6)
    made = program([scan()], [switch("fit_0", place)])
    result = patch(made, Plan((0,), ("fit_0",)), {PATH: text}, "/src")
    assert body_of(result.texts[PATH]) == (
        'h = (checkpoint_name(x\n     .reshape(2)\n     .sum(0), "fit_0"))\n'
    )


@pytest.mark.parametrize(
    ("line", "expression", "why"),
    [
        ("x[0] += f(y)", "x[0] += f(y)", "an augmented assignment to more than a name"),
        ("self.h += f(y)", "self.h += f(y)", "an augmented assignment to more than a name"),
        ("for y in x: pass", "x", "computes no value of its own"),
        ("h = (a, b)", "(a, b)", "computes no value of its own"),
        ("a, b = x", "a, b", "the target of an assignment"),
        ("async def f(): h = await g(x)", "g(x)", "the value is awaited"),
    ],
)
def test_what_cannot_be_named_is_a_step_in_words(line, expression, why):
    text = f"{HEAD}{line}\n"
    result = named(text, expression)
    assert result.diff == ""
    assert result.texts == {}
    (step,) = result.steps
    assert step.startswith('train.py:3: by hand, put checkpoint_name(…, "fit_0") around')
    assert expression in step or "target" in step
    assert why in step


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="positions are exact")
def test_an_f_string_has_no_exact_positions():
    text = f"{HEAD}print(f'{{f(x)}}')\n"
    result = named(text, "f(x)")
    assert "f-string" in result.steps[0]


def test_a_position_that_is_no_expression_is_a_step():
    text = f"{HEAD}h = f(x)\n"
    place = site(text, "f(x)")._replace(end_column=6)
    result = patch(program([scan()], [switch("a", place)]), Plan((0,), ("a",)), {PATH: text}, "/")
    assert result.steps == (
        'train.py:3: by hand, put checkpoint_name(…, "a") around what is there: no expression of '
        "the file is at this position",
    )


def test_nested_expressions_are_both_named():
    text = f"{HEAD}h = f(g(x) + 1)\n"
    made = program([scan()], [switch("a", site(text, "g(x)")), switch("b", site(text, "g(x) + 1"))])
    result = patch(made, Plan((0,), ("a", "b")), {PATH: text}, "/src")
    after = 'h = f(checkpoint_name(checkpoint_name(g(x), "a") + 1, "b"))\n'
    assert body_of(result.texts[PATH]) == after


def test_an_augmented_assignment_and_its_value_are_both_named():
    text = f"{HEAD}h *= f(h)\n"
    made = program(
        [scan()], [switch("a", site(text, "f(h)")), switch("b", site(text, "h *= f(h)"))]
    )
    result = patch(made, Plan((0,), ("a", "b")), {PATH: text}, "/src")
    after = 'h = checkpoint_name(h * (checkpoint_name(f(h), "a")), "b")\n'
    assert body_of(result.texts[PATH]) == after


def test_names_that_are_there_stay_as_they_are():
    text = f"{HEAD}from jax.ad_checkpoint import checkpoint_name as name\nh = name(f(x), 'mine')\n"
    made = program([scan()], [switch("mine", site(text, "f(x)"), is_named=True)])
    assert patch(made, Plan((0,), ("mine",)), {PATH: text}, "/src").texts == {}


# -- what a body is given --------------------------------------------------------------------------

NAMING = 'x = checkpoint_name(x, "x_in")'


def carried(text: str):
    """The patch that moves the parameter x of the function body."""
    line = next(at for at, row in enumerate(text.splitlines(), 1) if "body" in row)
    place = Site(PATH, line, 0, line, 0, "body")
    one = switch("x_in", place, lever="carried", argument="x")
    made = program([scan()], [one])
    return patch(made, Plan((0,), offloaded=("x_in",)), {PATH: text}, "/src")


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("def body(x, w):\n    return f(x @ w), None\n", "    return f(x @ w)"),
        ('def body(x, w):\n    """Doc."""\n    y = x\n    return y, None\n', "    y = x"),
        ("def body(x, /, w):\n    # a comment\n    return x, None\n", "    return x"),
        ("@jax.checkpoint\ndef body(x, w):\n\treturn x, None\n", "\treturn x"),
        ("def body(x, w):\n    @f\n    def g(y):\n        return y\n    return g(x)\n", "    @f"),
        ("def body(\n    x,\n    w,\n):\n    return x, None\n", "    return x"),
    ],
)
def test_a_carried_parameter_is_named_where_the_body_begins(body, before):
    made = carried(HEAD + IMPORT + body)
    assert made.steps == ()
    text = made.texts[PATH]
    indent = before[: len(before) - len(before.lstrip())]
    assert f"{indent}{NAMING}\n{before}" in text
    ast.parse(text)


@pytest.mark.parametrize(
    "body",
    [
        "def body(x, w): return f(x, w), None\n",
        "def body(x,\n         w): return f(x, [0 for _ in w]), None\n",
    ],
)
def test_a_parameter_without_a_line_is_named_where_it_is_read(body):
    made = carried(HEAD + IMPORT + body)
    assert made.steps == ()
    assert made.texts[PATH] == HEAD + IMPORT + body.replace("f(x", 'f(checkpoint_name(x, "x_in")')


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def body(x, w): return x @ w, x\n", "it has no line for that, and not one place"),
        ("def body(x, w): return [x for _ in w], w\n", "and may read x several times"),
        ("def body(x, w): return (lambda y: x + y)(w), w\n", "and may read x several times"),
        ("def body(*args):\n    return args\n", "it has no parameter x"),
        ("body = 1\n", "no function is at this line"),
    ],
)
def test_a_parameter_that_cannot_be_named_is_a_step(body, why):
    made = carried(HEAD + body)
    assert made.diff == ""
    step = made.steps[-1]
    assert step.startswith(f"train.py:3: by hand, put {NAMING} at the beginning of")
    assert why in step


def test_products_with_names_on_the_host_are_a_step():
    text = f"{HEAD}y = {CALL}\n"
    region = scan(site(text, CALL), has_products=True)
    one = switch("h", site(text, CALL), is_named=True)
    plan = Plan((0,), offloaded=("h",), with_dots=(0,))
    made = patch(program([region], [one]), plan, {PATH: text}, "/src")
    assert "no policy saves products and moves names to the host" in made.steps[0]


# -- imports ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "after", "name"),
    [
        ("import jax\n", "import jax\n" + IMPORT, "checkpoint_name"),
        (IMPORT, IMPORT, "checkpoint_name"),
        ("from jax.ad_checkpoint import checkpoint_name as n\n", None, "n"),
        ('"""Doc."""\nfrom __future__ import annotations\n',
         '"""Doc."""\nfrom __future__ import annotations\n' + IMPORT, "checkpoint_name"),
        ("", IMPORT, "checkpoint_name"),
        ("# first\n", "# first\n", "checkpoint_name"),
        # What is done before JAX is imported stays before it.
        ("import os\nos.environ['A'] = 'b'\nimport jax.numpy as jnp\n",
         "import os\nos.environ['A'] = 'b'\nimport jax.numpy as jnp\n" + IMPORT,
         "checkpoint_name"),
        ("import jax; import os\n", "import jax; import os\n" + IMPORT, "checkpoint_name"),
        ("from jax import (\n    lax,\n)\n", "from jax import (\n    lax,\n)\n" + IMPORT,
         "checkpoint_name"),
        # Names of the user are left alone.
        ("import jax\ncheckpoint_name = 3\n",
         "import jax\nfrom jax.ad_checkpoint import checkpoint_name as checkpoint_name_\n"
         "checkpoint_name = 3\n", "checkpoint_name_"),
    ],
)  # fmt: skip
def test_imports(head, after, name):
    patched = named(f"{head}h = f(x)\n", "f(x)").texts[PATH]
    if head.startswith("#"):
        assert patched == f'{IMPORT}# first\nh = {name}(f(x), "fit_0")\n'
        return
    assert patched == f'{head if after is None else after}h = {name}(f(x), "fit_0")\n'


def test_a_local_name_hides_an_import():
    text = f"{IMPORT}def f(x, checkpoint_name):\n    return g(x)\n"
    patched = named(text, "g(x)").texts[PATH]
    assert "import checkpoint_name as checkpoint_name_\n" in patched
    assert 'return checkpoint_name_(g(x), "fit_0")' in patched


# -- scans -----------------------------------------------------------------------------------------


def scanned(text: str, call: str, plan=None, **fields):
    """The patch of a file whose scan saves the name `a`, which the source has already."""
    function = fields.pop("function", "")
    place = site(text, call, function=function)
    remats = fields.pop("remats", ())
    region = scan(place, remats=tuple(place if one is None else one for one in remats), **fields)
    made = program([region], [switch("a", place, is_named=True)])
    return patch(made, plan or Plan((0,), ("a",)), {PATH: text}, "/src")


POLICY = f'policy={ONLY}("a"), prevent_cse=False'


@pytest.mark.parametrize(
    ("head", "call", "after"),
    [
        ("", "jax.lax.scan(body, x, ws)", f"jax.lax.scan(jax.checkpoint(body, {POLICY}), x, ws)"),
        ("", "jax.lax.scan(f=body, init=x, xs=ws)",
         f"jax.lax.scan(f=jax.checkpoint(body, {POLICY}), init=x, xs=ws)"),
        ("from jax import lax\n", "lax.scan(lambda c, w: (c @ w, None), x, ws)",
         f"lax.scan(jax.checkpoint(lambda c, w: (c @ w, None), {POLICY}), x, ws)"),
        ("from jax.lax import scan as loop\n", "loop(self.body, x, ws)",
         f"loop(jax.checkpoint(self.body, {POLICY}), x, ws)"),
        ("loop = jax.lax.scan\n", "loop(body, x, ws)",
         f"loop(jax.checkpoint(body, {POLICY}), x, ws)"),
        ("", "jax.lax.map(body, ws)", f"jax.lax.map(jax.checkpoint(body, {POLICY}), ws)"),
        ("", "jax.lax.fori_loop(0, 4, body, x)",
         f"jax.lax.fori_loop(0, 4, jax.checkpoint(body, {POLICY}), x)"),
        ("import functools\n", "jax.lax.scan(functools.partial(body, k=2), x, ws)",
         f"jax.lax.scan(jax.checkpoint(functools.partial(body, k=2), {POLICY}), x, ws)"),
    ],
)  # fmt: skip
def test_the_body_of_a_scan_gets_the_policy(head, call, after):
    text = f"{HEAD}{head}def loss(x, ws):\n    return {call}\n"
    result = scanned(text, call)
    assert result.steps == ()
    assert result.texts[PATH] == text.replace(call, after)


CALL = "jax.lax.scan(body, x, ws)"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("jax.lax.scan(jax.checkpoint(step), x, ws)",
         f"jax.lax.scan(jax.checkpoint(step, {POLICY}), x, ws)"),
        ("jax.lax.scan(jax.remat(step, prevent_cse=True, policy=mine(1), static_argnums=(2,)), x)",
         f"jax.lax.scan(jax.remat(step, static_argnums=(2,), {POLICY}), x)"),
    ],
)  # fmt: skip
def test_a_checkpoint_at_the_scan_gets_another_policy(before, after):
    text = f"{HEAD}y = {before}\n"
    assert scanned(text, before, remats=[None]).texts[PATH] == text.replace(before, after)


def test_a_checkpoint_with_a_name_gets_another_policy():
    text = f"{HEAD}def loss(x, ws):\n    body = jax.checkpoint(step)\n    return {CALL}\n"
    result = scanned(text, CALL, remats=[None])
    assert result.texts[PATH] == text.replace("checkpoint(step)", f"checkpoint(step, {POLICY})")


@pytest.mark.parametrize(
    "other",
    [
        "def other(body):\n    return body(1)\n",
        "class Other:\n    def f(self):\n        self.body()\n",
    ],
)
def test_a_name_of_another_scope_is_no_other_use_of_it(other):
    text = f"{HEAD}{other}def loss(x, ws):\n    body = jax.checkpoint(step)\n    return {CALL}\n"
    result = scanned(text, CALL, remats=[None])
    assert result.texts[PATH] == text.replace("checkpoint(step)", f"checkpoint(step, {POLICY})")


def test_a_checkpoint_that_a_function_around_uses_is_left():
    head = f"{HEAD}def step(x, w):\n    return x, None\n\n"
    inner = f"    def run(x):\n        return {CALL}\n    return run(x), body(x, ws)\n"
    text = f"{head}def loss(x, ws):\n    body = jax.checkpoint(step)\n{inner}"
    result = scanned(text, CALL, remats=[None])
    assert "body = jax.checkpoint(step)\n" in result.texts[PATH]
    assert f"jax.lax.scan(jax.checkpoint(step, {POLICY}), x, ws)" in result.texts[PATH]


def test_a_checkpoint_that_others_use_is_left_to_them():
    head = f"{HEAD}def step(x, w):\n    return x, None\n\n"
    text = f"{head}body = jax.checkpoint(step)\ny = {CALL}\nz = body(x, w)\n"
    result = scanned(text, CALL, remats=[None])
    after = f"jax.lax.scan(jax.checkpoint(step, {POLICY}), x, ws)"
    assert result.texts[PATH] == text.replace(CALL, after)
    text = text.replace("jax.checkpoint(step)", "jax.checkpoint(lambda x, w: (x, None))")
    result = scanned(text, CALL, remats=[None])
    assert result.texts == {}
    assert "its checkpoint body is used elsewhere" in result.steps[0]


@pytest.mark.parametrize(
    ("decorator", "after"),
    [
        ("jax.checkpoint", f"partial(jax.checkpoint, {POLICY})"),
        ("partial(jax.checkpoint, policy=p)", f"partial(jax.checkpoint, {POLICY})"),
    ],
)
def test_a_decorator_gets_another_policy(decorator, after):
    head = "from functools import partial\n"
    text = f"{HEAD}{head}@{decorator}\ndef body(x, w):\n    return x, None\n\ny = {CALL}\n"
    result = scanned(text, CALL, remats=[None])
    assert result.texts[PATH] == text.replace(f"@{decorator}\n", f"@{after}\n")


def test_a_checkpoint_that_is_not_found_is_a_step():
    result = scanned(f"{HEAD}def loss(x, ws, body):\n    return {CALL}\n", CALL, remats=[None])
    assert result.texts == {}
    assert "the checkpoint of its body is not found" in result.steps[0]


@pytest.mark.parametrize("call", ["nn.RNN(cell)(x)", "jax.lax.scan(*args)", "helper(body, x)"])
def test_a_scan_that_is_not_found_is_a_step(call):
    text = f"{HEAD}from flax import linen as nn\ny = {call}\n"
    result = scanned(text, call)
    assert result.texts == {}
    assert result.steps[0].startswith(f"train.py:4: by hand, give the scan's body {ONLY}")


def test_checkpoints_inside_the_body_go():
    text = f"""{HEAD}
@jax.checkpoint
def first(h):
    return jnp.sin(h)

second = jax.checkpoint(first_of, policy=p)

def body(x, w):
    a = first(x @ w)
    b = second(a)
    return jax.checkpoint(lambda h: h * h)(b), None

y = {CALL}
"""
    inner = [
        site(text, one)
        for one in ("first(x @ w)", "second(a)", "jax.checkpoint(lambda h: h * h)(b)")
    ]
    result = scanned(text, CALL, remats=inner)
    assert result.steps == ()
    after = text.replace("@jax.checkpoint\n", "", 1)
    after = after.replace("jax.checkpoint(first_of, policy=p)", "first_of")
    after = after.replace("jax.checkpoint(lambda h: h * h)(b)", "(lambda h: h * h)(b)")
    after = after.replace(CALL, f"jax.lax.scan(jax.checkpoint(body, {POLICY}), x, ws)")
    assert result.texts[PATH] == after


def test_a_shared_checkpoint_is_a_step():
    text = (
        f"{HEAD}f = jax.checkpoint(g)\ndef body(x, w):\n    return f(x), None\ny = {CALL}\nf(1)\n"
    )
    result = scanned(text, CALL, remats=[site(text, "f(x)")])
    assert "its checkpoint f is used elsewhere" in result.steps[0]
    assert "f = jax.checkpoint(g)" in result.texts[PATH]


def test_two_scans_share_the_names_of_an_expression():
    text = f"{HEAD}def layer(h, w):\n    return f(h @ w)\n"
    text += "y, _ = jax.lax.scan(one, x, ws)\nz, _ = jax.lax.scan(two, y, ws)\n"
    first, second = (site(text, f"jax.lax.scan({a}, ws)") for a in ("one, x", "two, y"))
    made = program(
        [scan(first), scan(second)],
        [switch("a", site(text, "h @ w"), (0, 1)), switch("b", site(text, "f(h @ w)"), (1,))],
    )
    new = patch(made, Plan((0, 1), ("a", "b")), {PATH: text}, "/src").texts[PATH]
    assert f'jax.lax.scan(jax.checkpoint(one, policy={ONLY}("a"), prevent_cse=False), x' in new
    assert f'jax.lax.scan(jax.checkpoint(two, policy={ONLY}("a", "b"), prevent_cse=False), y' in new
    assert 'checkpoint_name(f(checkpoint_name(h @ w, "a")), "b")' in new


@pytest.mark.parametrize(
    ("plan", "policy"),
    [
        (Plan((0,)), "jax.checkpoint_policies.nothing_saveable"),
        (Plan((0,), with_dots=(0,)), "jax.checkpoint_policies.dots_saveable"),
        (Plan((0,), ("a",), with_dots=(0,)),
         f'jax.checkpoint_policies.save_from_both_policies({ONLY}("a"), '
         "jax.checkpoint_policies.dots_saveable)"),
        (Plan((0,), (), ("a",)),
         "jax.checkpoint_policies.save_and_offload_only_these_names("
         'names_which_can_be_saved=[], names_which_can_be_offloaded=["a"], '
         'offload_src="device", offload_dst="pinned_host")'),
    ],
)  # fmt: skip
def test_policies(plan, policy):
    result = scanned(f"{HEAD}y = {CALL}\n", CALL, plan)
    assert f"jax.checkpoint(body, policy={policy}, prevent_cse=False)" in result.texts[PATH]


# -- flax ------------------------------------------------------------------------------------------

LINEN = "import jax\nfrom flax import linen as nn\nfrom functools import partial\n"


@pytest.mark.parametrize(
    ("before", "call", "after"),
    [
        ("    y = nn.scan(Block, length=4)(name='layers')(x, None)\n",
         "nn.scan(Block, length=4)(name='layers')(x, None)",
         f"    y = nn.scan(nn.remat(Block, {POLICY}), length=4)(name='layers')(x, None)\n"),
        ("    stack = nn.scan(Block, length=4)\n    y = stack(8, name='layers')(x, None)\n",
         "stack(8, name='layers')(x, None)",
         f"    stack = nn.scan(nn.remat(Block, {POLICY}), length=4)\n"
         "    y = stack(8, name='layers')(x, None)\n"),
        ("    block = nn.remat(Block, policy=p)\n    y = nn.scan(block, length=4)()(x, None)\n",
         "nn.scan(block, length=4)()(x, None)",
         f"    block = nn.remat(Block, {POLICY})\n    y = nn.scan(block, length=4)()(x, None)\n"),
        ("    y = nn.scan(nn.remat(Block, prevent_cse=False), length=4)()(x, None)\n",
         "nn.scan(nn.remat(Block, prevent_cse=False), length=4)()(x, None)",
         f"    y = nn.scan(nn.remat(Block, {POLICY}), length=4)()(x, None)\n"),
        ("    layers = partial(nn.scan, length=4)(Block)\n    y = layers(name='a')(x, None)\n",
         "layers(name='a')(x, None)", None),
    ],
)  # fmt: skip
def test_a_scan_of_linen(before, call, after):
    text = f"{LINEN}class Block(nn.Module):\n    pass\n\ndef f(x):\n{before}"
    remats = [None] if "remat" in before else []
    result = scanned(text, call, remats=remats, module="Block", owner="linen")
    if after is None:
        assert result.texts == {}
        assert result.steps
        return
    assert result.steps == ()
    assert result.texts[PATH] == text.replace(before, after)


def test_a_scan_of_linen_by_another_name():
    text = (
        "import jax\nimport flax.linen as nn\nscan = nn.scan\nclass Block(nn.Module):\n    pass\n\n"
        "class Model(nn.Module):\n    def setup(self):\n"
        "        self.layers = scan(Block, length=4)()\n\n"
        "    def __call__(self, x):\n        return self.layers(x, None)\n"
    )
    result = scanned(text, "self.layers(x, None)", module="Block", owner="linen")
    assert f"self.layers = scan(nn.remat(Block, {POLICY}), length=4)()" in result.texts[PATH]


def test_a_module_without_a_name_keeps_that_of_its_class():
    """nn.remat(Block) would be CheckpointBlock, and its parameters ScanCheckpointBlock_0."""
    text = (
        f"{LINEN}class Block(nn.Module):\n    @nn.compact\n    def __call__(self, x, _):\n"
        "        return x, None\n\ndef f(x):\n    return nn.scan(Block, length=4)()(x, None)\n"
    )
    result = scanned(text, "nn.scan(Block, length=4)()(x, None)", module="Block", owner="linen")
    new = f"    @partial(nn.remat, {POLICY})\n    @nn.compact\n"
    assert result.texts[PATH] == text.replace("    @nn.compact\n", new)


def test_a_scan_of_nnx():
    text = "import jax\nfrom flax import nnx\nnnx.scan(forward, in_axes=(0, None))(layers, x)\n"
    call = "nnx.scan(forward, in_axes=(0, None))(layers, x)"
    result = scanned(text, call, owner="nnx")
    after = (
        f"nnx.scan(nnx.remat(forward, {POLICY}, graph_updates=False), in_axes=(0, None))(layers, x)"
    )
    assert result.texts[PATH] == text.replace(call, after)


def test_a_function_that_nnx_scans_as_its_decorator():
    text = (
        "import jax\nfrom flax import nnx\ndef f(x):\n    @nnx.split_rngs(splits=4)\n"
        "    @nnx.scan(in_axes=(0, None),\n              out_axes=0)\n    def forward(m, x):\n"
        "        return m(x)\n    return forward(layers, x)\n"
    )
    result = scanned(text, "forward(layers, x)", owner="nnx")
    line = f"              out_axes=0)\n    @nnx.remat({POLICY}, graph_updates=False)\n"
    assert result.texts[PATH] == text.replace("              out_axes=0)\n", line)


# -- calls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "after"),
    [
        ("block(x, w)", "jax.checkpoint(lambda: block(x, w))()"),
        ("self.block(x, k=1)", "jax.checkpoint(lambda: self.block(x, k=1))()"),
        ("block(f(x), w)", "(lambda fit_0: jax.checkpoint(lambda: block(fit_0, w))())(f(x))"),
        ("block(x + y, k=g(w))",
         "(lambda fit_0, fit_1: jax.checkpoint(lambda: block(fit_0, k=fit_1))())(x + y, g(w))"),
        ("Block(8)(x)", "jax.checkpoint(lambda: Block(8)(x))()"),
        ("block(*x, **w)", "jax.checkpoint(lambda: block(*x, **w))()"),
        ("block(\n    x,  # one\n)", "jax.checkpoint(lambda: block(\n    x,  # one\n))()"),
        ("block(lambda: f(x))", "jax.checkpoint(lambda: block(lambda: f(x)))()"),
    ],
)  # fmt: skip
def test_calls_are_checkpointed(call, after):
    text = f"{HEAD}def loss(x, w):\n    return {call}\n"
    made = program([calls(site(text, call))])
    result = patch(made, Plan(calls=(0,)), {PATH: text}, "/src")
    assert result.steps == ()
    assert result.texts[PATH] == text.replace(call, after)


KINDS = {"parameters": ("x", "w", "k"), "arrays": ("x", "w"), "statics": ("k",)}
OF_CLASS = {
    "function": "Block.__call__", "parameters": ("self", "x"), "arrays": ("x",),
    "statics": ("self",),
}  # fmt: skip
MODULE = {**OF_CLASS, "arrays": ("self", "x"), "statics": (), "owner": "equinox"}


@pytest.mark.parametrize(
    ("region", "call", "after"),
    [
        (KINDS, "block(x, w, 8)", "jax.checkpoint(block, static_argnums=(2,))(x, w, 8)"),
        (KINDS, "block(x, w, k=8)", "jax.checkpoint(partial(block, k=8))(x, w)"),
        (KINDS, "block(f(x), w=w, k=8)", "jax.checkpoint(partial(block, k=8))(f(x), w=w)"),
        ({**KINDS, "arrays": ("x", "w", "k")}, "block(\n    x,  # one\n    w, k)",
         "jax.checkpoint(block)(\n    x,  # one\n    w, k)"),
        (OF_CLASS, "layers[0](x)", "jax.checkpoint(layers[0])(x)"),
        (OF_CLASS, "Block(8)(x)", "jax.checkpoint(Block(8))(x)"),
        ({**OF_CLASS, "function": "Block.run"}, "self.up.run(x)",
         "jax.checkpoint(self.up.run)(x)"),
        (MODULE, "self.block(x)", "equinox.filter_checkpoint(self.block)(x)"),
        # Unknown, an object without a hash, stars, less than the function has: whole in a lambda.
        ({**KINDS, "statics": ()}, "block(x, w, 8)", "jax.checkpoint(lambda: block(x, w, 8))()"),
        ({**MODULE, "owner": ""}, "block(x)", "jax.checkpoint(lambda: block(x))()"),
        (KINDS, "block(x, *w)", "jax.checkpoint(lambda: block(x, *w))()"),
        (KINDS, "block(x)", "jax.checkpoint(lambda: block(x))()"),
        ({**OF_CLASS, "function": "Block.run"}, "run(x)", "jax.checkpoint(lambda: run(x))()"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_the_function_that_is_called(region, call, after):
    head = f"from functools import partial\nimport equinox\n{HEAD}"
    text = f"{head}def loss(x, w):\n    return {call}\n"
    result = patch(program([calls(site(text, call), **region)]), Plan(calls=(0,)), {PATH: text})
    assert result.steps == ()
    assert result.texts[PATH] == text.replace(call, after)


def test_defaults_of_the_function_need_not_be_passed():
    text = f"{HEAD}def block(x, w, k=2):\n    return x @ w\n\n\ny = block(x, w)\n"
    defined = site(text, "2")._replace(line=text[: text.index("def block")].count("\n") + 1)
    region = calls(site(text, "block(x, w)"), defined=defined, **KINDS)
    result = patch(program([region]), Plan(calls=(0,)), {PATH: text})
    assert "y = jax.checkpoint(block)(x, w)" in result.texts[PATH]


NNX = ("nnx", "from flax import nnx\n")
NN = ("linen", "import flax.linen as nn\n")
METHOD = {"function": "Block.__call__", "parameters": ("self", "x", "m"), "held": ("self",)}
FORWARD = {**METHOD, "function": "Block.forward"}
LAYER = {"function": "layer", "parameters": ("block", "x", "rngs"), "held": ("block", "rngs")}


@pytest.mark.parametrize(
    ("library", "region", "call", "after"),
    [
        (NNX, METHOD, "block(x, m)", "nnx.remat(lambda block: block(x, m))(block)"),
        (NNX, METHOD, "self.blocks[i](x, m=m)",
         "nnx.remat(lambda fit_0: fit_0(x, m=m))(self.blocks[i])"),
        (NNX, METHOD, "block(2 * x, m)",
         "(lambda fit_1: nnx.remat(lambda block: block(fit_1, m))(block))(2 * x)"),
        (NNX, FORWARD, "self.up.forward(x)",
         "nnx.remat(lambda fit_0: fit_0.forward(x))(self.up)"),
        (NNX, LAYER, "layer(block, x, rngs=self.rngs)",
         "nnx.remat(lambda block, fit_1: layer(block, x, rngs=fit_1))(block, self.rngs)"),
        (NNX, {**LAYER, "held": ("block", "x")}, "layer(b, b, 1)",
         "nnx.remat(lambda b: layer(b, b, 1))(b)"),
        (NN, METHOD, "Block()(x, m)", "nn.remat(lambda fit_0: fit_0(x, m))(Block())"),
        (("haiku", "import haiku as hk\n"), {}, "block(x)", "hk.remat(lambda: block(x))()"),
    ],
)  # fmt: skip
def test_calls_of_modules_have_these_as_arguments(library, region, call, after):
    lift, head = library
    text = f"{HEAD}{head}def loss(block, x, m, rngs):\n    return {call}\n"
    made = program([calls(site(text, call), lift=lift, **region)])
    result = patch(made, Plan(calls=(0,)), {PATH: text}, "/src")
    assert result.steps == ()
    assert result.texts[PATH] == text.replace(call, after)


@pytest.mark.parametrize(
    ("library", "region", "call", "why"),
    [
        (NNX, {**LAYER, "held": ("",)}, "layer(x)", "layer has modules in its closure"),
        (NNX, FORWARD, "run(x)", "does not show the module whose method forward"),
        (NNX, LAYER, "layer(*blocks)", "does not show block, which holds modules"),
        (NN, LAYER, "layer(block, x, rngs)", "nn.remat accepts one module"),
    ],
)
def test_modules_that_a_call_does_not_show_are_steps(library, region, call, why):
    lift, head = library
    text = f"{HEAD}{head}def loss(block, x, rngs):\n    return {call}\n"
    made = program([calls(site(text, call), lift=lift, **region)])
    result = patch(made, Plan(calls=(0,)), {PATH: text}, "/src")
    assert result.diff == "" and why in result.steps[0]
    assert f"remat(lambda module: CALL of it)(module) `{call}`" in result.steps[0]


def test_a_call_in_a_call_is_hoisted_with_its_own_checkpoint():
    text = f"{HEAD}y = block(block(x))\n"
    region = calls(site(text, "block(block(x))"), site(text, "block(x)"))
    new = patch(program([region]), Plan(calls=(0,)), {PATH: text}, "/src").texts[PATH]
    assert new == (
        f"{HEAD}y = (lambda fit_0: jax.checkpoint(lambda: block(fit_0))())"
        "(jax.checkpoint(lambda: block(x))())\n"
    )


def test_only_the_outermost_call_is_checkpointed():
    text = f"{HEAD}def block(x):\n    return attend(x)\n\ny = block(x)\n"
    outer = calls(site(text, "block(x)"), function="block")
    inner = calls(site(text, "attend(x)"), function="attend", within=(0,))
    result = patch(program([outer, inner]), Plan(calls=(0, 1)), {PATH: text}, "/src")
    assert result.texts[PATH] == text.replace(
        "y = block(x)", "y = jax.checkpoint(lambda: block(x))()"
    )


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("y = reduce(block, ws, block(x))", "block"),
        ("y = tree.map(net.layer, xs)", "Net.layer"),
        ("y = cond(p, lambda: f(x), lambda: g(x))", "loss.<locals>.<lambda>"),
        ("y = sum(map(lambda x: f(x), xs))", "<lambda>"),
    ],
)
def test_calls_by_what_is_passed_a_function_are_steps(text, function):
    region = calls(site(f"{HEAD}{text}\n", text.removeprefix("y = ")), function=function)
    made = patch(program([region]), Plan(calls=(0,)), {PATH: f"{HEAD}{text}\n"}, "/src")
    assert not made.texts
    assert "may call what it is passed several times" in made.steps[0]


def test_a_call_may_be_passed_what_has_its_name():
    text = f"{HEAD}y = block(p.block, block(x))\n"
    region = calls(site(text, "block(p.block, block(x))"), site(text, "block(x)"))
    assert not patch(program([region]), Plan(calls=(0,)), {PATH: text}, "/src").steps


@pytest.mark.parametrize(
    ("text", "call", "why"),
    [
        (
            "class A(B):\n    def f(self, x):\n        return super().f(x)\n",
            "super().f(x)",
            "super",
        ),
        ("y = block(z := f(x))\n", "block(z := f(x))", "assigns"),
        ("class A:\n    x = 1\n    y = block(x)\n", "block(x)", "class"),
        ("y = block(*f(x))\n", "block(*f(x))", "a star"),
    ],
)
def test_calls_that_cannot_be_checkpointed_are_steps(text, call, why):
    made = program([calls(site(HEAD + text, call))])
    result = patch(made, Plan(calls=(0,)), {PATH: HEAD + text}, "/src")
    assert result.texts == {}
    assert why in result.steps[0]


def test_a_call_that_saves_its_products():
    text = f"{HEAD}y = block(x)\n"
    made = program([calls(site(text, "block(x)"))])
    new = patch(made, Plan(calls=(0,), with_dots=(0,)), {PATH: text}, "/src").texts[PATH]
    dots = "policy=jax.checkpoint_policies.dots_saveable"
    assert new == f"{HEAD}y = jax.checkpoint(lambda: block(x), {dots})()\n"


# -- donations -------------------------------------------------------------------------------------


def donated(text: str, line: int, numbers=(0,)):
    place = site(text, "1")._replace(line=line, column=0)
    return patch(program(function_site=place), Plan(donated=numbers), {PATH: text}, "/src")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("@jax.jit\n", "@partial(jax.jit, donate_argnums=0)\n"),
        ("@partial(jax.jit, static_argnums=2)\n",
         "@partial(jax.jit, static_argnums=2, donate_argnums=0)\n"),
        ("@jax.jit(\n    donate_argnums=[1],\n)\n", "@jax.jit(\n    donate_argnums=(0, 1),\n)\n"),
    ],
)  # fmt: skip
def test_arguments_are_donated_at_the_jit(before, after):
    head = "import jax\nfrom functools import partial\n"
    text = f"{head}{before}def step(params, batch):\n    return 1\n"
    assert donated(text, 3).texts[PATH] == text.replace(before, after)


def test_a_jit_elsewhere_in_the_file_donates():
    text = "import jax\ndef step(a, b):\n    return 1\n\nfast = jax.jit(step, static_argnums=1)\n"
    after = "jax.jit(step, static_argnums=1, donate_argnums=(0, 2))"
    new = donated(text, 2, (0, 2)).texts[PATH]
    assert new == text.replace("jax.jit(step, static_argnums=1)", after)


@pytest.mark.parametrize("rest", ["", "a = jax.jit(step)\nb = jax.jit(step)\n"])
def test_without_one_jit_it_is_a_step(rest):
    text = f"import jax\ndef step(a, b):\n    return 1\n{rest}"
    result = donated(text, 2)
    assert result.texts == {}
    assert result.steps[0].startswith("train.py:2: by hand, donate params (donate_argnums=0)")


OF_EQUINOX = "import equinox as eqx\nfrom functools import partial\n"


def filtered(head, rest, numbers, lost=()):
    text = f"{OF_EQUINOX}{head}def step(a, b):\n    return 1\n{rest}"
    place = site(text, "1")._replace(line=3, column=0)
    own = program(function_site=place, is_filtered=True, lost=lost)
    return text, patch(own, Plan(donated=numbers), {PATH: text}, "/src")


@pytest.mark.parametrize(
    ("head", "rest", "numbers", "before", "after"),
    [
        ("@eqx.filter_jit\n", "", (0, 1), "filter_jit", 'filter_jit(donate="all")'),
        ("@eqx.filter_jit()\n", "", (1,), "jit()", 'jit(donate="all-except-first")'),
        ('@eqx.filter_jit(donate="none")\n', "", (0, 1), '"none"', '"all"'),
        ('@eqx.filter_jit(donate="warn-except-first")\n', "", (0,), '"warn-except-first"',
         '"warn"'),
        ("@partial(eqx.filter_jit, inline=True)\n", "", (1,), "=True",
         '=True, donate="all-except-first"'),
        ("", "fast = eqx.filter_jit(step)\n", (0, 1), "(step)", '(step, donate="all")'),
    ],
)  # fmt: skip
def test_equinox_donates_at_its_own_jit(head, rest, numbers, before, after):
    text, made = filtered(head, rest, numbers)
    assert made.texts[PATH] == text.replace(before, after) and not made.steps


@pytest.mark.parametrize(
    ("head", "lost", "why"),
    [
        ("@eqx.filter_jit\n", ("b",), "b is given away, too, which the program may read after"),
        ("@eqx.filter_jit(donate=how)\n", (), "its donate is not a constant"),
        ("@eqx.filter_jit(**options)\n", (), "its options come from two stars"),
        ("@jax.jit\n", (), "the file has no equinox.filter_jit of it"),
    ],
)
def test_a_donation_of_equinox_by_hand(head, lost, why):
    _, made = filtered(head, "", (0, 1), lost)
    assert not made.texts and why in made.steps[0]
    assert 'eqx.filter_jit(donate="all")' in made.steps[0]


# -- the diff --------------------------------------------------------------------------------------

FILES = {
    "crlf": "import jax\r\n\r\ndef f(x):\r\n\treturn g(x)\r\n",
    "no end": "import jax\ndef f(x):\n    return g(x)",
    "bom": "\ufeffimport jax\ndef f(x):\n    return g(x)\n",
    "form feed": "import jax\n\x0cdef f(x):\n    a = '\u2028'\n    return g(x)\n",
    "no import": "def f(x): return g(x)",
    "mixed": "import jax\r\ndef f(x):\n    return g(x)\r\n",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_git_applies_the_diff(text, tmp_path):
    result = named(text, "g(x)")
    assert result.is_whole
    assert result.diff.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    assert git_apply(tmp_path, {"train.py": text}, result.diff) == {"train.py": result.texts[PATH]}
    rest = result.texts[PATH].replace('checkpoint_name(g(x), "fit_0")', "g(x)")
    assert rest.replace(IMPORT.strip() + "\r\n", "").replace(IMPORT, "") == text


def test_two_files_are_one_diff(tmp_path):
    model = "import jax\ndef layer(x, w):\n    return f(x @ w), None\n"
    train = f"import jax\nfrom model import layer as body\ny = {CALL}\n"
    texts = {"/src/lib/model.py": model, PATH: train}
    made = program(
        [scan(site(train, CALL))], [switch("a", site(model, "x @ w", "/src/lib/model.py"))]
    )
    result = patch(made, Plan((0,), ("a",)), texts, "/src")
    before = {"lib/model.py": model, "train.py": train}
    after = git_apply(tmp_path, before, result.diff)
    assert after == {
        "lib/model.py": result.texts["/src/lib/model.py"],
        "train.py": result.texts[PATH],
    }
    for text in after.values():
        ast.parse(text)


def test_an_argument_that_a_call_has_twice_is_no_python():
    source = Source(PATH, "y = f(a=1)\n")
    source.replace((9, 9), lambda render: ", a=2")
    with pytest.raises(Refused, match="no Python"):
        source.result()


def test_a_plan_of_nothing_is_no_diff():
    assert patch(program(), Plan(), {}, "/src").diff == ""
    assert not patch(program(), Plan(), {}, "/src").is_whole


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return jax.grad(loss)(params, x)", None),
        # Of the parameter, though its name has another value later on.
        ("grads = jax.grad(loss)(params, x)\n    params = update(params, grads)", None),
        ("params = update(params, jax.grad(loss)(params, x))", None),
        ("(params, x) = jax.grad(loss)(params, x), 1", None),
        ("if x is None:\n        g = jax.grad(loss)(params, x)\n    else:\n        x = 1", None),
        # Perhaps of the batch, or of some of it.
        ("params = tune(params, x)\n    g = jax.grad(loss)(params, x)", "argument 1 is not"),
        ("x = x[:4]\n    return jax.grad(loss)(params, x)", "argument 2 is not"),
        ("g = [params := x, jax.grad(loss)(params, x)]", "argument 1 is not"),
        (
            "for _ in x:\n        g = jax.grad(loss)(params, x)\n        params = g",
            "argument 1 is not",
        ),
        ("with x as params:\n        return jax.grad(loss)(params, x)", "argument 1 is not"),
        ("return jax.grad(loss)(others, x)", "argument 1 is not"),
        (
            "def own():\n        nonlocal params\n        params = x\n    own()\n"
            "    return jax.grad(loss)(params, x)",
            "argument 1 is not",
        ),
    ],
)
def test_a_gradient_of_parameters_takes_microbatches(body, reason):
    text = f"{HEAD}def loss(p, x): return p\ndef step(params, x):\n    {body}\n"
    gradient = site(text, "jax.grad(loss)(" + body.partition("(loss)(")[2].partition(")")[0] + ")")
    change = Change("microbatch=2", "", "in 2", "", "", (gradient,), 2, ("x",))
    result = patch(replace(program(), changes=(change,)), Plan(extra=(change.key,)), {PATH: text})
    assert bool(result.diff) == (reason is None)
    assert reason is None or reason in result.steps[0]
    assert reason is not None or "microbatched(jax.grad(loss), 2, (1,))(params, x)" in result.diff


def test_what_only_the_user_can_do_is_a_step():
    change = Change("microbatch=2", "in 2", "in 2", "train.py:3", "checked")
    changed = replace(program(), changes=(change,))
    result = patch(changed, Plan(extra=("microbatch=2",)), {}, "/src")
    assert result.steps == ("train.py:3: by hand, in 2",) and not result.diff
