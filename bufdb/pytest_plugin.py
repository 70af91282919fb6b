"""pytest plugin: fixtures that fail a test whose compiled function needs too much memory.

`assert_peak` takes a function and reports what holds its peak; `bufdb_limit` supports more metrics,
and existing dumps.

pytest imports this in every session where bufdb is installed, so nothing heavier than pytest is
imported before the fixture is used, and never jax: the test imports it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bufdb.answers.budget import Verdict
    from bufdb.query.figures import MemoryFigures

CONTRIBUTORS = 10
"""Maximum values that a failing test lists."""


@pytest.fixture
def assert_peak() -> Callable[..., int]:
    """Fail the test if a function needs more memory than allowed; else return its peak [bytes].

        def test_step(assert_peak):
            assert_peak(jax.jit(step).lower(params, batch).compile(), max="2GiB")
            assert_peak(step, params, batch, max="TPU v5e", target="tpu:v5e:2x2")

    Takes the arguments of `bufdb.explain`; `max` is a size, bytes, or a device whose memory is the
    limit. The failure shows the lines that hold the peak, and advice. The need is compared with the
    limit: the peak, and the holes in the memory that XLA reserves for temporaries.
    """
    return _assert_peak


def _assert_peak(function: Any, *args: Any, max: int | str, **options: Any) -> int:
    __tracebackhide__ = True
    from bufdb.api.explain import explain

    explanation = explain(function, *args, limit=max, **options)
    explanation.db.close()
    unknown, peak = explanation.data["unknown_peaks"], explanation.data["peak"]
    if unknown or peak is None:
        reason = f": {unknown[0]['unknown_reason']}" if unknown else ""
        pytest.fail(f"bufdb: the peak cannot be judged{reason}\n{explanation}", pytrace=False)
    peak_bytes, limit = int(peak["peak_bytes"]), int(explanation.data["limit_bytes"])
    need = int(peak["need_bytes"])
    if need > limit:
        lines = [
            f"bufdb: {peak['function_name']} needs more than its limit",
            f"  needs         {_exact(need)}",
            f"  peak          {_exact(peak_bytes)}",
            f"  limit         {_exact(limit)}",
            f"  too much      {_exact(need - limit)}",
            "",
        ]
        pytest.fail("\n".join(lines) + f"\n{explanation}", pytrace=False)
    return peak_bytes


@pytest.fixture
def bufdb_limit(tmp_path_factory: pytest.TempPathFactory) -> BufdbLimit:
    """Fail the test if a compiled function needs more memory than allowed.

    Compile the result of `jax.jit(f).lower(...)`, and check its memory:

        def test_step(bufdb_limit):
            bufdb_limit(jax.jit(step).lower(params, batch), peak="16 MiB")

    `bufdb_limit.dumps(DIR, function="step", peak="16 MiB")` checks existing dumps.
    """
    return BufdbLimit(tmp_path_factory)


class BufdbLimit:
    """The value of the fixture `bufdb_limit`."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._tmp_path_factory = tmp_path_factory

    def __call__(
        self,
        lowered: Any,
        *,
        function: str = "*",
        memory_space: str | None = None,
        color: int | str | None = None,
        platform: str | None = None,
        compiler_options: Mapping[str, Any] | None = None,
        **limits: int | str,
    ) -> dict[str, int | None]:
        """Compile a lowered function with a dump by XLA, and check the dump.

        Args:
            lowered: the result of `jax.jit(f).lower(...)` or `.trace(...).lower()`.
            function: glob; only modules of matching functions are checked.
            memory_space: the same as color.
            color: number or name of a memory space, such as "vmem", or "all"; by default the
                device's own memory.
            platform: only modules for this platform: cpu, gpu or tpu.
            compiler_options: passed to `lowered.compile`.
            limits: by metric (need, peak, temp, arguments, outputs, constants, total,
                fragmentation), each bytes or text such as "16 MiB".

        Returns:
            The figures by metric, the largest of several modules; None if unknown.
        """
        __tracebackhide__ = True
        from bufdb.capture.dump import dump_options, without_persistent_cache

        if not callable(getattr(lowered, "compile", None)):
            raise TypeError(
                "bufdb_limit wants what can still be compiled, jax.jit(f).lower(...), for XLA "
                f"writes a dump when it compiles; got {type(lowered).__name__}"
            )
        folder = self._tmp_path_factory.mktemp("bufdb-dump")
        options = {**(compiler_options or {}), **dump_options(folder)}
        with without_persistent_cache():
            lowered.compile(compiler_options=options)
        space = memory_space if color is None else color
        return self._check(folder, function, space, platform, limits)

    def dumps(
        self,
        folder: str | os.PathLike[str],
        *,
        function: str = "*",
        memory_space: str | None = None,
        color: int | str | None = None,
        platform: str | None = None,
        **limits: int | str,
    ) -> dict[str, int | None]:
        """Check the dumps in a directory; arguments and result as for a call of the fixture."""
        __tracebackhide__ = True
        space = memory_space if color is None else color
        return self._check(Path(folder), function, space, platform, limits)

    def _check(
        self,
        folder: Path,
        function: str,
        color: int | str | None,
        platform: str | None,
        limits: Mapping[str, int | str],
    ) -> dict[str, int | None]:
        __tracebackhide__ = True
        from bufdb.answers.budget import WITHIN, judge
        from bufdb.answers.budget_file import Budget, parse_color
        from bufdb.database import store
        from bufdb.dumps.discover import discover
        from bufdb.ingest.ingest import ingest
        from bufdb.query import figures
        from bufdb.query.figures import METRICS

        # Unknown keywords of the fixture would be taken for metrics, so they are checked here.
        budgets = [
            Budget(function, metric, limit, parse_color(color), platform)
            for metric, limit in _limits(limits).items()
        ]
        if not discover(folder):
            pytest.fail(
                f"bufdb: no buffer assignment in {folder}: what was compiled came from a cache, "
                "or XLA_FLAGS turn dumps off",
                pytrace=False,
            )
        db = str(self._tmp_path_factory.mktemp("bufdb") / "bufdb.duckdb")
        # As the command reads it: globs separated by spaces.
        own = os.environ.get("BUFDB_OWN", "").split()
        ingest(db, [folder], run="test", own_globs=own or None)
        with store.open_readable(db) as con:
            figures_of_run = figures.of_run(con, "test")
            verdicts = judge(budgets, figures_of_run, unread=figures.unread(con, "test"))
            failures = [verdict for verdict in verdicts if verdict.status != WITHIN]
            if failures:
                texts = [_text(verdict, con) for verdict in failures]
                pytest.fail("\n\n".join(texts), pytrace=False)
        judged = [verdict.figure for verdict in verdicts if verdict.figure is not None]
        return {metric: _largest(judged, metric) for metric in METRICS}


def _limits(limits: Mapping[str, int | str]) -> dict[str, Any]:
    from bufdb.answers.budget_file import parse_limit
    from bufdb.query.figures import METRICS

    if not limits:
        raise TypeError(f"bufdb_limit wants a limit: one or more of {', '.join(METRICS)}")
    parsed = {}
    for metric, value in limits.items():
        if metric not in METRICS:
            raise TypeError(f"bufdb_limit has no limit {metric!r}; there are {', '.join(METRICS)}")
        parsed[metric] = parse_limit(value)
        if parsed[metric].is_relative:
            raise ValueError(f"{metric}={value!r}: there is no base run here; give a size")
    return parsed


def _largest(judged: list[MemoryFigures], metric: str) -> int | None:
    values = [figure.values[metric] for figure in judged]
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def _text(verdict: Verdict, con: Any) -> str:
    """Describe why one verdict fails the test."""
    from bufdb.answers.budget import OVER
    from bufdb.query import figures
    from bufdb.render.text import align, escape_control, human_bytes

    figure, metric = verdict.figure, verdict.metric
    what = f"{metric} of {figure.function}" if figure else f"{metric or 'dumps'}"
    if figure is None or metric is None or verdict.status != OVER:
        fits = f" ({verdict.budget.function})" if verdict.budget and figure is None else ""
        return escape_control(f"bufdb: {what}{fits} cannot be judged: {verdict.reason}")
    assert verdict.value is not None and verdict.limit is not None
    lines = [
        f"bufdb: {what} is over its limit",
        f"  {metric:<14}{_exact(verdict.value)}",
        f"  limit         {_exact(verdict.limit)}",
        f"  too much      {_exact(verdict.value - verdict.limit)}",
        f"  memory space  {figure.memory_space or 'unknown'} (color {figure.color}) "
        f"of {figure.platform or 'an unknown platform'}",
        f"  module        {figure.module_key}",
    ]
    largest, count = figures.contributors(con, figure, metric, CONTRIBUTORS)
    if largest:
        kinds = "" if metric in ("need", "peak", "total") else f" among {metric}"
        lines.append(f"  largest of {count} values held at the peak{kinds}:")
        rows = [
            [
                human_bytes(item.held_bytes),
                *(
                    escape_control(text or "-")
                    for text in (
                        item.kind,
                        item.shape,
                        item.source,
                        item.op_path or item.instruction_name,
                    )
                ),
            ]
            for item in largest
        ]
        table = align(rows, [True, False, False, False, False])
        lines += [f"    {line}" for line in table.splitlines()]
    return "\n".join(escape_control(line) for line in lines)


def _exact(count: int) -> str:
    from bufdb.render.text import human_bytes

    return human_bytes(count) if count < 1024 else f"{human_bytes(count)} ({count} bytes)"
