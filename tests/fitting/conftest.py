"""What tests of `bufdb fit` share."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def few_passes() -> Iterator[None]:
    """Compile with few of LLVM's passes, in less time: the same buffers, results to rounding."""
    import jax

    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)
