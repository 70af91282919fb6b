"""The function of a module, read from the module's name, by frontend."""

import pytest
from small_db import Module, answer

from bufdb.ingest.rows import function_name


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("jit_train_step", "train_step"),
        ("jit_train_step.15", "train_step"),
        ("jit__step", "_step"),
        ("jit___step", "__step"),
        ("jit__lambda", "_lambda"),
        ("pjit_f", "f"),
        ("pmap_f", "f"),
        ("xmap_f", "f"),
        ("xla_computation_f.3", "f"),
        ("jit_", "jit_"),
        ("main", "main"),
        ("a_inference_mlp_step_72__XlaMustCompile_true_config_proto___n_007.107", "mlp_step"),
        ("a_inference_step_2_7", "step_2"),
        ("cluster_4759178432672044955__.74", "cluster_4759178432672044955"),
        ("cluster_352941784734477516_f15n_0__.48", "cluster_352941784734477516_f15n_0"),
        ("SyncTensorsGraph.105381", None),
        ("IrToHlo.7", None),
        (None, None),
    ],
)
def test_the_function_is_named_as_its_author_did(module, function):
    assert function_name(module) == function


def test_programs_may_share_a_name(con):
    for number in (1, 2):
        name = f"SyncTensorsGraph.{number}"
        module = Module(con, number, module_name=name, function_name=function_name(name))
        module.allocation(0, "temp", 100 * number)
        module.value(1, 0, 0, 100 * number)
        module.close()
    assert answer(con, "retraces") == []
    assert len(answer(con, "jit-functions")) == 2
    assert len(answer(con, "peak", top_functions=5)) == 2
