"""`bufdb.fit` in the process of the caller."""

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_programs as programs  # noqa: E402
import numpy as np  # noqa: E402
from fit_programs import D, N  # noqa: E402

import bufdb  # noqa: E402


def test_a_function_of_this_process_gets_plans_and_a_patch():
    answer = bufdb.fit(programs.step, *big(), budget_compiles=4)
    assert answer.plans and answer.best is None and answer.patch is None
    assert all(row.patch for row in answer.plans)
    needs = [row.need_bytes for row in answer.plans if row.is_compiled]
    written = answer.data["as_written"]["need_bytes"]
    assert min(needs) < written
    stored = answer.db.sql("SELECT run_name, need_bytes FROM memory_figures WHERE is_device_memory")
    runs = dict(stored.fetchall())
    assert runs["fit:as-written"] == written
    assert all(runs[row.run] == row.need_bytes for row in answer.plans if row.run is not None)
    assert answer.table in answer.text


def test_what_is_wrapped_in_jax_is_put_back():
    before = jax.vjp, jax._src.api.vjp
    bufdb.fit(programs.step, *big(), budget_compiles=1)
    with pytest.raises(TypeError, match="missing"):
        bufdb.fit(programs.step, budget_compiles=1)
    assert (jax.vjp, jax._src.api.vjp) == before


def test_the_package_is_still_a_package():
    import bufdb.fitting.plans

    assert bufdb.fitting.plans.Plan().is_as_written


def big():
    stack = programs.shape(N, D, D)
    return {"w": stack, "v": stack}, programs.shape(512, D)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "name", [name for name in dir(programs) if name.startswith("step") and name != "step_jitted"]
)
def test_gradients_of_every_plan_are_equal_to_rounding(name):
    from bufdb.fitting.function import Function
    from bufdb.fitting.plans import Plan

    random = np.random.default_rng(0)
    args = jax.tree.map(
        lambda one: jax.numpy.asarray(random.standard_normal(one.shape, np.float32) * 0.3),
        programs.args(),
    )
    function = Function(getattr(programs, name), args, {}, name)
    program = function.program()
    half = tuple(one.name for one in program.switches[::2])
    regions = tuple(range(len(function._losses.survey.regions)))
    calls = tuple(at for at in regions if function._losses.survey.regions[at].kind == "call")
    wanted = jax.jit(getattr(programs, name))(*args)
    for plan in (Plan(scans=program.scans), Plan(scans=program.scans, saved=half, calls=calls)):
        got = function.stage(plan).compile()(*args)
        for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)
