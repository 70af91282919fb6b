"""What plans cost by the compiled programs, and that over limits what needs less costs more."""

import itertools

import pytest

jax = pytest.importorskip("jax", reason="this Python has no jax")

import fit_programs as programs  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from fit_programs import D, N  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

import bufdb  # noqa: E402
from bufdb.errors import UsageError  # noqa: E402

LIMITS = 2


def wide():
    stack = programs.shape(N, D, D)
    return {"w": stack, "v": stack}, programs.shape(512, D)


@pytest.fixture(scope="module")
def frontier():
    """Plans without a limit, ranked by bytes."""
    return bufdb.fit(programs.step, *wide(), budget_compiles=4, order="bytes")


def test_rows_have_the_bytes_of_their_runs(frontier):
    query = """
        SELECT run_name, sum(accessed_bytes) FROM instruction_traffic
        JOIN modules USING (module_id) GROUP BY run_name
    """
    runs = dict(frontier.db.sql(query).fetchall())
    written = frontier.data["as_written"]["accessed_bytes"]
    assert runs["fit:as-written"] == written > 0
    compiled = [row for row in frontier.plans if row.run is not None]
    assert compiled
    for row in compiled:
        assert runs[row.run] == row.accessed_bytes
        assert row.extra_accessed_ratio == pytest.approx(row.accessed_bytes / written - 1)
    ratios = [row.extra_accessed_ratio for row in compiled]
    assert ratios == sorted(ratios) and frontier.data["order"] == "bytes"
    assert "  products " in frontier.table and "Ranked by bytes." in frontier.text


def test_cycles_are_refused_where_no_compiler_has_them():
    with pytest.raises(UsageError, match="no estimate of cycles"):
        bufdb.fit(programs.step, *wide(), order="cycles")


@pytest.mark.slow
def test_need_and_work_never_rise_together(frontier):
    needs = [row.need_bytes for row in frontier.plans if row.is_compiled]
    low, high = min(needs), frontier.data["as_written"]["need_bytes"]
    limits = [low + (high - low) * part // LIMITS for part in range(LIMITS)]
    options = {"budget_compiles": 4}
    answers = [bufdb.fit(programs.step, *wide(), limit=f"{limit}B", **options) for limit in limits]
    best = [answer.best for answer in answers]
    assert all(one.need_bytes <= limit for one, limit in zip(best, limits, strict=True))
    for one, other in itertools.combinations(best, 2):
        assert one.extra_work_ratio >= other.extra_work_ratio
    for answer in answers:
        rows = [row for row in answer.plans if row.is_compiled]
        for one, other in itertools.permutations(rows, 2):
            rises = (
                one.need_bytes > other.need_bytes
                and one.extra_work_ratio > other.extra_work_ratio
                and one.offloaded_bytes >= other.offloaded_bytes
            )
            assert not rises or other.steps


def test_what_products_do_not_see_are_bytes():
    """Products are saved, and what is elementwise between them is computed again."""

    def layer(w, x):
        h = checkpoint_name(x @ w, "product")
        return jnp.tanh(h * jax.lax.rsqrt((h * h).mean(0) + 1e-5))

    policy = jax.checkpoint_policies.save_only_these_names("product")

    def step(layer):
        def loss(ws, x):
            return (jax.lax.scan(lambda x, w: (layer(w, x), None), x, ws)[0] ** 2).sum()

        return jax.grad(loss)

    arguments = programs.shape(N, 32, 32), programs.shape(4096, 32)
    query = "SELECT sum(accessed_bytes), count(unknown_reason) FROM instruction_traffic"
    work = "SELECT sum(operation_count) FROM instruction_costs"
    costs = []
    for one in (layer, jax.checkpoint(layer, policy=policy, prevent_cse=False)):
        db = bufdb.explain(step(one), *arguments).db
        ((size, unknown),) = db.sql(query).fetchall()
        assert unknown == 0
        costs.append((size, db.sql(work).fetchall()))
    (written, products), (again, other) = costs
    # A loop over n layers that slices their weights does not read all of them n times.
    assert written < 60 * N * 4096 * 32 * 4
    assert products == other and again != written
