"""Devices that a program has in a command that asks about it: options, environment, hints."""

import json

import pytest

from bufdb.capture.simulated import Devices, require_one_process
from bufdb.capture.target import device_count
from bufdb.errors import UsageError

FLAG = "--xla_force_host_platform_device_count"


@pytest.fixture(autouse=True)
def no_devices(monkeypatch):
    """An environment without a number of devices."""
    for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("v5e-1", 1),
        ("tpu:v5e:2x4", 8),
        ("v5litepod-16", 16),
        ("v4-8", 4),
        ("v5p-16", 8),
        ("v6e-4", 4),
        ("tpu7x-8", 8),
        ("v3-8", 8),
        ("gpu:h100", 8),
        ("cpu", None),
        ("tpu:v9:2x2", None),
    ],
)
def test_a_target_has_devices(target, count):
    assert device_count(target) == count


def flags(devices, target=None):
    return devices.variables(target).get("XLA_FLAGS")


def test_a_program_has_as_many_devices_as_its_target(monkeypatch):
    assert flags(Devices()) is None
    assert flags(Devices(), "v5e-1") is None
    assert flags(Devices(), "v5e-8") == f"{FLAG}=8"
    assert flags(Devices(4), "v5e-8") == f"{FLAG}=4"
    assert flags(Devices(mesh={"data": 4, "model": 2})) == f"{FLAG}=8"
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_thunk_runtime=true")
    assert flags(Devices(2)) == f"--xla_cpu_use_thunk_runtime=true {FLAG}=2"


def test_a_number_of_devices_that_the_user_has_set_is_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=16")
    assert flags(Devices(), "v5e-8") == f"{FLAG}=16"
    assert flags(Devices(4), "v5e-8") == f"{FLAG}=4"
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "16")
    assert flags(Devices(), "v5e-8") is None
    variables = Devices(4).variables("v5e-8")
    assert variables["XLA_FLAGS"] == f"{FLAG}=4" and "JAX_NUM_CPU_DEVICES" not in variables


def test_a_mesh_may_have_more_devices_than_the_program_knows():
    devices = Devices.of(8, "data=16")
    assert flags(devices, "v5e-16") == f"{FLAG}=16"
    assert json.loads(devices.variables("v5e-16")["BUFDB_DEVICES"])["known"] == 8
    fewer = Devices.of(8, "data=4").variables("v5e-4")
    assert fewer["XLA_FLAGS"] == f"{FLAG}=8"
    assert json.loads(fewer["BUFDB_DEVICES"])["known"] is None


def test_simulated_devices_are_those_of_the_cpu():
    assert Devices(2).variables(None)["JAX_PLATFORMS"] == "cpu"
    assert Devices().variables("v5e-8")["JAX_PLATFORMS"] == "cpu"
    assert "JAX_PLATFORMS" not in Devices().variables(None)
    note = json.loads(Devices().variables("v5e-8")["BUFDB_DEVICES"])["note"]
    assert "8 simulated devices, as many as v5e-8" in note
    assert json.loads(Devices(1).variables("v5e-8")["BUFDB_DEVICES"])["note"] == ""


def test_a_file_of_flags_is_read(tmp_path, monkeypatch):
    (tmp_path / "flags").write_text("--xla_a=1\n--xla_b=2\n")
    monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags"))
    assert flags(Devices(2)) == f"--xla_a=1 --xla_b=2 {FLAG}=2"


@pytest.mark.parametrize("text", ["", "data", "data=", "data=0", "=4", "a=2,a=2", "a=2;b=3"])
def test_what_is_no_mesh_is_refused(text):
    with pytest.raises(UsageError, match="--mesh wants axes of the program's mesh with sizes"):
        Devices.of(None, text)


def test_a_mesh_is_of_all_devices():
    devices = Devices.of(None, "data=4, model=2")
    assert devices.mesh == {"data": 4, "model": 2}
    for target in (None, "v5e-8", "v5e-16", "cpu"):  # other axes may have the rest
        devices.require(target)
    with pytest.raises(UsageError, match=r"data=4,model=2 is 8 devices, v5e-4 has 4; .* to 4"):
        devices.require("v5e-4")
    with pytest.raises(UsageError, match="data=3 is 3 devices, --devices is 8"):
        Devices.of(8, "data=3").require(None)


def test_a_target_that_is_a_gpu_has_any_number():
    Devices.of(16, "data=16").require("gpu:h100")
    with pytest.raises(UsageError, match="data=16 is 16 devices, gpu:h100 has 8"):
        Devices.of(None, "data=16").require("gpu:h100")
    with pytest.raises(UsageError, match="data=16 is 16 devices, v5e-8 has 8"):
        Devices.of(16, "data=16").require("v5e-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ValueError: Number of devices 1 must be >= the product of mesh_shape (8,)", 8),
        ("ValueError: Number of devices 1 must equal the product of mesh_shape (4, 2)", 8),
        ("ValueError: cannot reshape array of size 1 into shape (2,3)", 6),
        ("ValueError: cannot select an axis to squeeze out which has size not equal to one, got "
         "shape=(4, 2) and dimensions=(0,)", 4),
        ("    assert jax.device_count() == 8\n           ^^^^\nAssertionError", "N"),
        ("    first = jax.devices()[3]\n            ~~~~^^^\nIndexError: list index", "N"),
    ],
)  # fmt: skip
def test_too_few_devices_have_a_hint(text, expected):
    assert f"--devices {expected}, simulates as many" in Devices().hint(f"Traceback\n{text}")


def test_failures_that_are_not_of_devices():
    assert Devices().hint("ValueError: wrong") == ""
    platform = "RuntimeError: Unknown backend: 'gpu' requested, but no platforms"
    assert "name no platform" in Devices().hint(platform)
    assert Devices().hint(f"compiling step for gpu:h100 failed: {platform}") == ""
    uneven = "IndivisibleError: … should evenly divide the shape"
    assert Devices().hint(uneven) == ""
    assert "name sizes in --mesh data=3 that divide" in Devices.of(None, "data=3").hint(uneven)


def test_a_launcher_of_processes_is_refused():
    require_one_process(["python", "srun.py", "mpirun"])
    require_one_process(["env", "A=1", "python3", "train.py"])
    with pytest.raises(UsageError, match=r"srun starts .* -- python3 -m my.train --b 1$"):
        require_one_process(["srun", "-n", "4", "python3", "-m", "my.train", "--b", "1"])
    with pytest.raises(UsageError, match=r"/opt/mpirun starts .* -- python train.py$"):
        require_one_process(["env", "A=1", "/opt/mpirun", "-n", "2", "./run.sh"])
