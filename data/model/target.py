"""GPU and TPU devices to compile for on a machine that has none."""

import os

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152 shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84942979072
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 minor: 0 }
  device_address_bits: 64
  name: "NVIDIA H100 80GB HBM3" device_vendor: "NVIDIA Corporation"
  driver_version: "12.8.0" runtime_version: "12.8.0"
  compile_time_toolkit_version: "12.8.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def devices(target):
    """The devices of an H100 host or a TPU v5e 2x2 slice, described, not present."""
    from jax.experimental import topologies

    if target == "gpu":
        import jax

        jax.devices()  # lets jax find its plugins
        return topologies.get_topology_desc(
            "h100", "cuda", target_config=H100, topology="1x1x8"
        ).devices
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    return topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices


def one_device(target):
    """The sharding that puts everything on the first device."""
    from jax.sharding import SingleDeviceSharding

    return SingleDeviceSharding(devices(target)[0])
