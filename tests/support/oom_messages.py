"""Out-of-memory messages in each form of format section 9.2: XLA's words, made-up programs."""

from places import ROOT

GPU = (ROOT / "data/oom/gpu.log").read_text(encoding="utf-8")
TPU = (ROOT / "data/oom/tpu.log").read_text(encoding="utf-8")

LIST = """\
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. \
Ran out of memory in memory space hbm. Used 41.25G of 30.75G hbm. Exceeded hbm capacity by 10.50G.

Total hbm usage >= 42.50G:
    reserved          1.25G
    program          41.25G
    arguments            0B

Output size 0B; shares 0B with arguments.

Program hbm requirement 41.25G:
    global            1.00M
    scoped            4.00M
    HLO temp         41.24G (100.0% utilization: Unpadded (41.00G) Padded (41.00G), 0.2% \
fragmentation (100.00M))

  Largest program allocations in hbm:

  1. Size: 4.00G
     Operator: op_name="jit(egret_step)/jit(main)/jvp(Egret)/h/0/bqhd,bkhd->bhqk/dot_general" \
source_file="/srv/egret/a.py" source_line=71
     Shape: f32[64,4096,4096]{2,1,0:T(8,128)}
     Unpadded size: 4.00G
     XLA label: fusion.31.remat2 = fusion(custom-call.2, custom-call.4), kind=kOutput, \
calls=fused_computation.9.clone
     Allocation type: HLO temp
     ==========================

  2. Size: 2.00G
     Operator: op_name="jit(egret_step)/jit(main)/jvp(Egret)/h/1/mul" \
source_file="/srv/egret/a.py" source_line=80
     Shape: f32[32,4096,4096]{2,1,0:T(8,128)}
     Unpadded size: 2.00G
     XLA label: fusion.32 = fusion(custom-call.5), kind=kLoop, calls=fused_computation.10
     Allocation type: HLO temp
     ==========================
"""
"""The form since 2023: labels have no shapes."""

OLD_LIST = """\
Compilation failure: Ran out of memory in memory space hbm. Used 9.00G of 8.00G hbm. Exceeded hbm \
capacity by 1.00G.

Total hbm usage >= 9.00G:
    reserved        528.00M
    program           8.25G
    arguments       240.00M (99.9% utilization)

Output size 240.00M (99.9% utilization); shares 224.00M with arguments.

Program hbm requirement 8.25G:
    reserved           4.0K
    global            65.0K
    HLO temp          8.25G (100.0% utilization, 0.0% fragmentation (1.00M))

  Largest program allocations in hbm:

  1. Size: 4.00G
     Operator: op_name="XLA_Args"
     Shape: bf16[256,2048,4096]{2,1,0}
     Unpadded size: 4.00G
     XLA label: %arg_tuple.1996.1402 = (s32[], s32[], f32[], f32[4,1024]{1,0}, bf16[4,1024]{1,0...
     Allocation type: HLO temp
     ==========================
"""
"""The form until 2020, with the utilization of arguments and outputs."""

SCRATCH = """\
RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of \
memory in memory space vmem. Used 24.08M of 16.00M vmem. Exceeded vmem capacity by 8.08M.

Program vmem requirement 24.08M:
    scoped           24.08M

  Largest program allocations in vmem:

  1. Size: 16.08M
     XLA label: register allocator spill slots in HLO :: bittern_matmul.1
     Allocation type: scoped
     ==========================

  2. Size: 4.00M
     Operator: op_name="jit(bittern)/pallas_call" source_file="/srv/bittern.py" source_line=9
     Shape: u8[4194304]{0}
     Unpadded size: 4.00M
     Tag: output window
     XLA label: bittern_matmul.1 = custom-call(a.1, b.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================

  3. Size: 2.00M
     Shape: u8[2097152]{0}
     Unpadded size: 2.00M
     XLA label: bittern_matmul.1 = custom-call(a.1, b.1), custom_call_target="tpu_custom_call"
     Allocation type: scoped
     ==========================
"""
"""Memory that instructions need for themselves; spilled registers have no shape."""

WITHOUT_SIZES = """\
INFO:tensorflow:Error recorded from training_loop: Compilation failure: Ran out of memory in \
memory space vmem. It should not be possible to run out of vmem - please file a bug against XLA.

Largest program allocations in vmem:

  XLA label: register allocator spill slots
  Allocation type: scoped

  XLA label: %fusion.177 = (bf16[], f32[256]{0}) fusion(f32[256]{0} %a), kind=kOutput, \
calls=%fused_computation.177
  Allocation type: scoped
"""
"""The form until 2020."""

_INSTRUCTION = (
    "%heron_kernel.3 = f32[4096,512]{1,0:T(8,128)S(1)} custom-call(%a.1, %b.1), "
    'custom_call_target="tpu_custom_call", operand_layout_constraints={f32[4096,512]{1,0}, '
    'f32[512,512]{1,0}}, metadata={op_name="jit(step)/jit(heron)/pallas_call" '
    'source_file="/srv/heron.py" source_line=12}'
)
_STACK = f"Ran out of memory in memory space vmem while allocating on stack for {_INSTRUCTION}"
_SCOPED = "Scoped allocation with size 36.25M and limit 32.00M exceeded scoped vmem limit by 4.25M."
_BUG = "It should not be possible to run out of scoped vmem - please file a bug against XLA."
KERNELS = {
    "2023": f"ValueError: RESOURCE_EXHAUSTED: {_STACK}. {_SCOPED} {_BUG}\n",
    "2025": f"RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:\n{_STACK}\n{_SCOPED} {_BUG}\n"
    "See https://openxla.org/xla/errors/error_1001 for more details.\n",
    "2026": f"RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:\n{_STACK}. {_SCOPED} It should "
    "not be possible to run out of scoped vmem - \nSee https://openxla.org/xla/errors/error_1001 "
    "for more details.\n",
    "wrapped": "RESOURCE_EXHAUSTED: "
    + f"{_STACK}. {_SCOPED}\n".replace('"tpu_custom', '"tpu_\ncustom').replace(
        "jit(he", "jit(\nhe"
    ),
}
"""A kernel's scratch memory, by year."""

TEMPORARIES = (
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory "
    "on HBM, the total memory required for HLO temporaries (64.01G) exceeds available HBM "
    "(15.75G). HLO module: jit_egret_step.\n"
    "See https://openxla.org/xla/errors/error_1000 for more details.\n"
)
CORES = (
    "RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 20.00G, SparseCore Hbm usage 80.00G, exceeding "
    "available bytes: 95.74G\n"
)
EARLY = (
    "RESOURCE_EXHAUSTED: Compilation failure: Aborting compilation early because it's unlikely to "
    "have enough memory. Requires 3.84T, has 90.96G available. If more detailed logging is "
    "desired, set --xla_tpu_impure_oom_fast_exit_threshold=-1\n"
)
PROGRAM = (
    "RESOURCE_EXHAUSTED: Error loading program 'jit_egret_step': Attempting to reserve 9.62G at "
    "the bottom of memory. That was not possible. There are 7.14G free, 0B reserved, and 7.14G "
    "reservable. Scope: unknown..: while running replica 0 and partition 34 of a replicated "
    "computation (other replicas may have failed as well).\n"
)
PROGRAM_IN_LINES = (
    "RESOURCE_EXHAUSTED: Error loading program 'jit_egret_step':\nAttempting to allocate 1.82G.\n"
    "That was not possible. There are 1.54G free.\n"
)
ARRAY = (
    "ValueError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 8.00M. "
    "That was not possible. There are 6.43M free.; (0x0x1_HBM0)\n"
)
USED = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space smem. "
    "Used 1.01M of 1.00M smem. Exceeded smem capacity by 7.5K.\n"
)
GPU_ARRAY = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.\n"
TILE = (
    "jax.errors.JaxRuntimeError: INTERNAL: Failed to run pass pipeline. Hlo-Op: "
    "egret_gather.4:31:1: error: 'memref.alloca' op current allocation offset upper bound "
    "(150000 words) exceeds the legitimate user allocatable offset upper bound (131071 words) in "
    "memory space 201 when allocating 30000 words. egret_gather.4:31:1: note: see current "
    'operation: %9 = "memref.alloca"()'
    " : () -> memref<30000xf32, 201>\n"
)
TILE_2026 = (
    "RESOURCE_EXHAUSTED: 'memref.alloca' op E3000: CompileTimeSparseCoreAllocationFailure: current "
    "allocation offset upper bound (150000 words) exceeds the legitimate user allocatable offset "
    "upper bound (131071 words) in memory space 202.\n"
)
BLOCK = (
    "RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 250000, available: 232448\n"
)
BLOCKS = {
    "triton": "Shared memory requested (180224 b) exceeds device resources (101376 b).\n",
    "mosaic": "ValueError: Mosaic GPU kernel exceeds available shared memory: "
    "smem_bytes=264192 > max_smem_bytes=232448\n",
    "tensor": "RESOURCE_EXHAUSTED: Tensor memory size limit exceeded: requested 1024, "
    "available: 512\n",
    "ptxas": "ptxas error   : Entry function 'loop_egret_3' uses too much shared data "
    "(0xc400 bytes, 0xc000 max)\n",
}
"""Messages about the memory of a GPU kernel's block, by source."""
OPERAND = (
    "RESOURCE_EXHAUSTED: Allocation (size=204800000) would exceed memory (size=134217728) :: "
    "#allocation3 [shape = 'f32[400000,128]{1,0:T(8,128)}', space=vmem, size = 0xc350000, scoped, "
    "tag = 'scratch operand'] :: egret.1\n"
)
SHORT = {
    "operand": OPERAND,
    "tile": TILE,
    "tile 2026": TILE_2026,
    "block": BLOCK,
    **BLOCKS,
    "temporaries": TEMPORARIES,
    "cores": CORES,
    "early": EARLY,
    "program": PROGRAM,
    "program in lines": PROGRAM_IN_LINES,
    "array": ARRAY,
    "used": USED,
    "gpu array": GPU_ARRAY,
}
"""Figures without a list."""

RUNTIME = """\
RuntimeError: Resource exhausted: From /job:tpu_worker/replica:0/task:0:
Attempting to reserve 4.00G at the bottom of memory. That was not possible. There are 2.00G free, \
0B reserved, and 2.00G reservable.;
HBM capacity 8.00G:
       Top-of-Memory reserved:  512.00M (     536,870,912 bytes)
          Currently allocated:    5.50G (   5,905,580,032 bytes)
          Program requirement:    4.00G (   4,294,967,296 bytes)
                               ------------
      Available after request:   -2.00G (  -2,147,483,648 bytes)
; attempting reservation for program memory

Total hbm usage >= 10.25G:
    reserved(Infeed/Outfeed/Continuations) 512.00M
    heap allocations (without fragmentation)   5.50G
    program                    4.25G

Heap allocator status:
    Max free chunk             2.00G (0.0% fragmentation)

Persistent allocations include some or all of:
    arguments                480.00M (89.4% utilization)
    output                     5.00G (71.6% utilization) [may share some memory with arguments]

Program hbm requirement 4.25G:
    reserved           4.0K
    scoped           16.00M
    HLO temp          4.00G (97.4% utilization: Unpadded (3.90G) Padded (3.99G), 0.4% \
fragmentation (16.00M))
    overlays         16.00M
"""
"""A program that could not be loaded, as in 2020: what other arrays hold is in it."""

WHOLE = {
    "gpu": GPU[: GPU.index("Traceback")],
    "tpu": TPU,
    "list": LIST,
    "old list": OLD_LIST,
    "scratch": SCRATCH,
    "without sizes": WITHOUT_SIZES,
    "runtime": RUNTIME,
}
"""Messages of many lines."""
# -- Sums of programs that compiled ----------------------------------------------------------------

_LIBTPU = "I0302 10:14:07.177275   13866 deepsea_compiler_backend.cc:{}] "
SUMMARY = (
    _LIBTPU.format(2385) + "XLA::TPU module name: jit_egret_step\n"
    + _LIBTPU.format(2387) + "XLA::TPU program HBM usage: 6.50G / 15.75G\n"
    + _LIBTPU.format(2394) + "Note that --xla_tpu_max_hbm_size_mib is not specified. This means "
    "that the compiler may use up all available HBM.\n"
    + _LIBTPU.format(2419) + "XLA::TPU program VMEM usage: 20.00M / 128.00M\n"
    + _LIBTPU.format(2430) + """Total hbm usage >= 7.00G:
    reserved        256.00M
    program           6.50G
    arguments       256.00M

Output size 1.00G; shares 256.00M with arguments.

Total host usage >= 0B:
    reserved             0B
    program         unknown size
    arguments            0B

Output size 0B; shares 0B with arguments.

"""
    + _LIBTPU.format(2434) + """Program sflag requirement 256B:
    reserved           204B
    scoped              52B
Program hbm requirement 6.50G:
    global            1.00M
    HLO temp          6.49G (100.0% utilization: Unpadded (6.00G) Padded (6.00G), 0.0% \
fragmentation (0B))
    overlays          4.00M
Program vmem requirement 20.00M:
    scoped            4.00M
    HLO temp         16.00M (0.0% utilization: Unpadded (0B) Padded (0B), 100.0% fragmentation \
(16.00M))
Program smem requirement 544B:
    scoped             544B
Program host requirement 0B:
"""
    + _LIBTPU.format(2442) + "XLA::TPU program SMEM usage: 2.4K / 1.00M (3 parameters)\n"
)  # fmt: skip
"""libtpu's summary of a compilation, with TPU_MIN_LOG_LEVEL=0."""
STATISTICS = (
    "CompiledMemoryStats(generated_code_size_in_bytes=65536, argument_size_in_bytes=3145728, "
    "output_size_in_bytes=2097152, alias_size_in_bytes=1048576, temp_size_in_bytes=8388608, "
    "host_generated_code_size_in_bytes=0, host_argument_size_in_bytes=0, "
    "host_output_size_in_bytes=0, host_alias_size_in_bytes=0, host_temp_size_in_bytes=4194304)\n"
)
"""`repr()` of what `Compiled.memory_analysis()` returns."""
SIZES = (
    "Total memory size: 37.4 GB, Output size: 12.1 GB, Temp size: 25.1 GB, Argument size: 12.3 GB, "
    "Host temp size: 8.0 GB.\n"
)
"""MaxText's line."""
COMPILED = {"summary": SUMMARY, "statistics": STATISTICS, "sizes": SIZES}

# -- Warnings -------------------------------------------------------------------------------------

_XLA = "W1002 11:20:31.114202   30411 {}:3231] "
REDUCED = (
    _XLA.format("hlo_rematerialization.cc") + "Can't reduce memory use below 18.88GiB "
    "(20266891105 bytes) by rematerialization; only reduced to 41.43GiB (44490724824 bytes), down "
    "from 45.92GiB (49309847144 bytes) originally\n"
)
REPLICATED = (
    _XLA.format("spmd_partitioner.cc") + "[spmd] Involuntary full rematerialization. The compiler "
    "was not able to go from sharding {devices=[1,16,1,4]<=[64] last_tile_dim_replicate} to "
    "{devices=[1,1,4,16]<=[16,4]T(1,0) last_tile_dim_replicate} without doing a full "
    "rematerialization of the tensor for HLO operation: %egret.3 = f32[3,8,128]{2,1,0} copy("
    "f32[3,8,128]{2,1,0} %a), sharding={devices=[1,16,1,4]<=[64] last_tile_dim_replicate}, "
    'metadata={op_name="jit(egret)/reshape" source_file="/srv/egret.py" source_line=88}. You '
    "probably want to enrich the sharding annotations to prevent this from happening.\n"
)
REPLICATED_2025 = (
    _XLA.format("spmd_partitioner.cc") + "[SPMD] Involuntary full rematerialization. The compiler "
    "cannot go from sharding {devices=[2,32,4]<=[2,8,4,4]T(0,2,1,3) last_tile_dim_replicate} to "
    "{devices=[1,256]<=[256]} efficiently for HLO operation %param = f32[1024,64]{1,0} "
    "parameter(0), sharding={devices=[2,32,4]<=[2,8,4,4]T(0,2,1,3) last_tile_dim_replicate}, "
    'metadata={op_name="x"}. As the last resort, SPMD will replicate the tensor and then partition '
    "it to obtain the target sharding, which is inefficient.\n"
)
WARNED = REDUCED + REPLICATED + REPLICATED_2025 + GPU_ARRAY
"""Warnings above a message."""

ALL = {**WHOLE, **KERNELS, **SHORT, **COMPILED}
"""All, by form."""
