"""Names of hardware as people write them, and what XLA is given of it."""

import pytest

from bufdb.capture import target
from bufdb.capture.target import hardware_of
from bufdb.errors import UsageError


@pytest.mark.parametrize(
    ("text", "topology"),
    [
        ("tpu:v5e:2x2", "v5e:2x2"),
        ("v5e", "v5e:2x2"),
        ("v5e-1", "v5e:1x1"),
        ("v5litepod-8", "v5e:2x4"),
        ("tpu:v5litepod:4x4", "v5e:4x4"),
        ("TPU v5 lite", "v5e:2x2"),
        ("tpu-v5-lite-podslice", "v5e:2x2"),
        ("tpu:v5p-8", "v5p:2x2x1"),
        ("v5p-2", "v5p:1x1x1"),
        ("v5p-128", "v5p:4x4x4"),
        ("v6e-8", "v6e:2x4"),
        ("v6e-256", "v6e:16x16"),
        ("trillium", "v6e:2x2"),
        ("v7x", "tpu7x:2x2x1"),
        ("tpu7x-8", "tpu7x:2x2x1"),
        ("tpu:tpu7x:2x2x2", "tpu7x:2x2x2"),
        ("ironwood", "tpu7x:2x2x1"),
        ("v4-32", "v4:2x2x4"),
        ("v3-8", "v3:2x2"),
        ("v2-512", "v2:16x16"),
        ("tpu:v9:2x2", "v9:2x2"),  # which a later libtpu may know
    ],
)
def test_a_tpu_is_a_generation_and_a_topology(text, topology):
    assert target.tpu(text)[0] == topology
    assert hardware_of(text) == target.tpu(text)


def test_a_device_of_v4_is_a_chip():
    assert target.tpu("v4-8") == ("v4:2x2x1", {"chip_config_name": "megacore"})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("a100", "NVIDIA A100-SXM4-80GB"),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB"),
        ("nvidia-a100-80gb", "NVIDIA A100-SXM4-80GB"),
        ("B200", "NVIDIA B200"),
        ("Tesla T4", "Tesla T4"),
        ("rtx a6000", "NVIDIA RTX A6000"),
    ],
)
def test_a_gpu_has_many_names(text, kind):
    assert target.gpu(text).kind == kind
    assert hardware_of(text) == text
    assert hardware_of(f"gpu:{text}") == text


def test_every_gpu_is_found_by_what_jax_calls_it():
    kinds = [one.kind for one in target.GPUS]
    assert [target.gpu(kind).kind for kind in kinds] == kinds
    names = [target.folded(name) for one in target.GPUS for name in one.names]
    assert len(set(names)) == len(names)


def test_a_description_has_what_xla_asks():
    text = target.gpu("a100").config()
    assert "cuda_compute_capability { major: 8 minor: 0 }" in text
    assert "shared_memory_per_core: 167936" in text
    assert "shared_memory_per_block_optin: 166912" in text
    assert 'device_description_str: "NVIDIA A100-SXM4-80GB"' in text
    assert "shared_memory_per_block_optin: 98304" in target.gpu("v100").config()


@pytest.mark.parametrize("text", ["tpu", "cpu:1", "gpu:", "", "v9", "h300", "v5e:2x2:1", "tpu:v9"])
def test_what_is_no_hardware_is_refused_with_what_is(text):
    with pytest.raises(UsageError, match=r"--target wants tpu:v5e:2x2.* v5p, .* h100, "):
        hardware_of(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v5p-3", "v5p-N counts cores, two of each chip, .* the nearest v5p-2 and v5p-4; or"),
        ("v5p-1", "a power of two, the nearest v5p-2; or"),
        ("v5p-24", "a power of two, the nearest v5p-16 and v5p-32; or"),
        ("v5e-6", "chips must be a power of two, the nearest v5e-4 and v5e-8; .* tpu:v5e:2x2"),
        ("v6e-0", "v6e-N counts chips"),
        ("gpu:h300", "no GPU and no file of that name; known: .* h100, "),
        ("mi300x", "ahead of time bufdb compiles only for NVIDIA's GPUs; known"),
    ],
)
def test_what_cannot_be_says_why(text, message):
    with pytest.raises(UsageError, match=message):
        hardware_of(text)
