"""Shared memory of Mosaic GPU kernels as JAX lowers them, without a GPU."""

import pytest

from bufdb.read import mosaic_gpu

jax = pytest.importorskip("jax", reason="this Python has no jax")


@pytest.mark.parametrize("rows", [64, 128])
def test_the_size_is_that_of_scratch_arrays(rows):
    pallas = pytest.importorskip("jax.experimental.pallas.mosaic_gpu")
    of = jax.ShapeDtypeStruct((rows, 128), "float32")

    def kernel(source, target, scratch, barrier):
        pallas.copy_gmem_to_smem(source, scratch, barrier)
        pallas.barrier_wait(barrier)
        target[...] = scratch[...] + 1.0

    scratch = [pallas.SMEM((rows, 128), "float32"), pallas.Barrier()]
    made = jax.jit(pallas.kernel(kernel, out_type=of, scratch_types=scratch))
    text = made.trace(of).lower(lowering_platforms=("cuda",)).as_text().encode()
    (line,) = (line for line in text.splitlines() if b"mosaic_gpu_v2" in line)
    assert mosaic_gpu.shared_bytes(line) == rows * 128 * 4 + 8
