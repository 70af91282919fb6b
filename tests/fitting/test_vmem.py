"""The limit of a kernel's vector memory: by the text of its call, and the search for the least."""

from dataclasses import replace

import pytest
from patched import PATH, program, site

from bufdb.fitting.levers.vmem import MOST, limited
from bufdb.fitting.patch import patch
from bufdb.fitting.plans import Compiled, Plan, SearchRequest, Traced
from bufdb.fitting.vector_memory import VectorMemory, lines_before

PALLAS = "from jax.experimental import pallas as pl\n"
TPU = "from jax.experimental.pallas import tpu as pltpu\n"
CALL = "pl.pallas_call(kernel, out_shape=s{})(x)"


def edited(text, *calls, name="CompilerParams"):
    change = limited(tuple(site(text, call) for call in calls), 64, name)
    return patch(program(changes=(change,)), Plan(extra=(change.key,)), {PATH: text}, "/src")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ", compiler_params=pltpu.CompilerParams(vmem_limit_bytes=64)"),
        (", compiler_params=pltpu.CompilerParams()",
         ", compiler_params=pltpu.CompilerParams(vmem_limit_bytes=64)"),
        (", compiler_params=pltpu.TPUCompilerParams(has_side_effects=True)",
         ", compiler_params=pltpu.TPUCompilerParams(has_side_effects=True, vmem_limit_bytes=64)"),
        (", compiler_params=pltpu.CompilerParams(vmem_limit_bytes=1 << 5, collective_id=2,)",
         ", compiler_params=pltpu.CompilerParams(vmem_limit_bytes=64, collective_id=2,)"),
    ],
)  # fmt: skip
def test_a_call_gets_the_limit(before, after):
    call = CALL.format(before)
    made = edited(f"{PALLAS}{TPU}y = {call}\n", call)
    assert made.steps == ()
    assert made.texts[PATH] == f"{PALLAS}{TPU}y = {CALL.format(after)}\n"


def test_names_that_are_bound_and_modules_that_are_not_imported():
    head = f"{PALLAS}{TPU}p = pltpu.CompilerParams()\n"
    run = "run = pl.pallas_call(kernel, out_shape=s, compiler_params=p)\ny = run(x)\n"
    made = edited(head + run, "run(x)")
    assert made.texts[PATH] == head.replace("()", "(vmem_limit_bytes=64)") + run
    call = CALL.format("")
    made = edited(f"{PALLAS}y = {call}\n", call, name="TPUCompilerParams")
    assert "from jax.experimental.pallas import tpu\n" in made.texts[PATH]
    assert "compiler_params=tpu.TPUCompilerParams(vmem_limit_bytes=64)" in made.texts[PATH]


@pytest.mark.parametrize("options", ["", ", compiler_params=p"])
def test_kernels_that_share_what_is_edited(options):
    head = f"{PALLAS}{TPU}p = pltpu.CompilerParams()\n"
    run = f"run = pl.pallas_call(kernel, out_shape=s{options})\n"
    other = f"other = pl.pallas_call(less, out_shape=s{options or ', compiler_params=p'})\n"
    made = edited(f"{head}{run}{other}y = run(x) + run(z) + other(x)\n",
                  "run(x)", "run(z)", "other(x)")  # fmt: skip
    assert made.steps == ()
    text = made.texts[PATH]
    assert "p = pltpu.CompilerParams(vmem_limit_bytes=64)\n" in text
    assert text.count("vmem_limit_bytes") == (1 if options else 2)
    compile(text, PATH, "exec")


@pytest.mark.parametrize(
    ("line", "call", "why"),
    [
        ("y = pl.pallas_call(k, **options)(x)", "pl.pallas_call(k, **options)(x)", "two stars"),
        ("y = pl.pallas_call(k, compiler_params=p)(x)", "pl.pallas_call(k, compiler_params=p)(x)",
         "not made in sight"),
        ("y = pl.pallas_call(k, compiler_params=f())(x)",
         "pl.pallas_call(k, compiler_params=f())(x)", "none of pltpu.CompilerParams"),
        ("y = flash(x)", "flash(x)", "is not pl.pallas_call"),
    ],
)  # fmt: skip
def test_what_is_not_in_sight_is_a_step_in_words(line, call, why):
    made = edited(f"{PALLAS}{line}\n", call)
    assert made.diff == ""
    (step,) = made.steps
    assert "by hand, set vmem_limit_bytes=64 in compiler_params of" in step
    assert why in step


REFUSED = "Scoped allocation with size 9.00M and limit 8B exceeded scoped vmem limit by 1B."


CAPACITY = "Ran out of memory in memory space vmem. Used 144.00M of 128.00M vmem. Exceeded"
OTHER = "kernel.py:9: by hand, set it: what is called is not pl.pallas_call(…) in sight"

UNKNOWN = "--also vmem: whether another vmem_limit_bytes would do is unknown"


def searched(used, least, refusal=REFUSED, budget=9, below=REFUSED, hidden=()):
    """The limits that are compiled, plans by their keys, and notes, for two kernels."""
    text = "f(x)\ng(x)\n"
    change = limited((site(text, "f(x)"), site(text, "g(x)")), MOST, "CompilerParams")
    made, compiled, notes = [replace(program(), changes=(change,))], [], []

    def widen(one):
        made.append(replace(made[-1], changes=(one,)))
        return made[-1]

    def compiling(plan, is_full):
        (key,) = plan.extra
        limit = int(key.partition("=")[2])
        compiled.append((limit, len(made[-1].changes[0].sites)))
        notes.append("XLA gave up")
        return Compiled(70, 70, is_full, 1.0, refusal=None if limit >= least else below)

    written = Compiled(70, 70, True, 1.0, refusal=refusal)
    request = SearchRequest(None, written, lambda plan: Traced(0, 0, 0, 0), compiling)
    lines = {f"{PATH}:{line}": size for line, size in enumerate(used, 1)}

    def by_hand(one):
        return [OTHER] if {one.line for one in one.sites} & {*hidden} else []

    search = VectorMemory(
        made[0], request, widen, lambda plan: lines, lambda: len(compiled) < budget, notes, by_hand
    )
    keys = [one.plan.extra for one in search.with_found(())]
    return compiled, keys, notes


def test_kernels_that_no_edit_reaches_keep_their_limit():
    others = "the limit of the other kernels alone: kernel.py:9: by hand"
    compiled, keys, notes = searched((12, 4), 12, hidden=[2])
    assert (compiled, keys) == ([(MOST, 1), (12, 1), (11, 1)], [("vmem=12",)])
    assert others in notes[0] and "train.py:1 uses 12 B" in notes[1]
    compiled, keys, notes = searched((), 2 * MOST, hidden=[1])
    assert (compiled, keys) == ([(MOST, 1)], [])
    assert "which may be one that no edit reaches" in notes[1]
    compiled, keys, notes = searched((), 0, hidden=[1, 2])
    assert (compiled, keys, notes) == ([], [], [f"{UNKNOWN}: {OTHER}"])


def test_what_the_kernel_uses_is_the_least_limit():
    compiled, keys, notes = searched((12, 4), 12)
    assert compiled == [(MOST, 2), (12, 1), (11, 1)]
    assert keys == [("vmem=12",)]
    (note,) = notes
    assert "train.py:1 uses 12 B of vector memory (12 bytes)" in note
    assert "one byte lower the program does not compile" in note


def test_a_kernel_that_needs_more_to_compile_than_it_uses():
    compiled, keys, notes = searched((12, 10), 20)
    assert compiled == [(MOST, 2), (12, 2), (24, 2), (23, 2)]
    assert keys == [("vmem=24",)]
    assert "the kernels at train.py:1, train.py:2 use up to 12 B of vector memory" in notes[0]
    assert "the program needs vmem_limit_bytes of at most 24 to compile" in notes[0]


@pytest.mark.parametrize("below", [REFUSED, CAPACITY])
def test_all_vector_memory_is_not_enough(below):
    compiled, keys, (note,) = searched((), 2 * MOST, below=below)
    assert (compiled, keys) == ([(MOST, 2)], [])
    assert f"all vector memory is not enough; smaller blocks, or fewer, would do: {below}" in note


def test_a_plan_that_is_refused_for_another_reason_says_nothing():
    compiled, keys, notes = searched((), 2 * MOST, below=OTHER)
    assert (compiled, keys) == ([(MOST, 2)], [])
    assert notes == [f"{UNKNOWN}: {OTHER}"]
    compiled, keys, notes = searched((12, 4), 12, budget=0)
    assert (compiled, keys) == ([], [])
    assert notes == [f"{UNKNOWN}, as no compilation is left"]


@pytest.mark.parametrize(
    ("refusal", "why"),
    [
        (None, "as written no kernel needs more than its limit"),
        (CAPACITY, "no vmem_limit_bytes makes it compile, as all vector memory is not enough"),
        ("Used 20.0G of 16.0G hbm.", "no kernel's limit is why XLA gives up the function"),
    ],
)
def test_a_program_whose_limits_are_not_what_is_exceeded(refusal, why):
    compiled, keys, (note,) = searched((), 0, refusal=refusal)
    assert (compiled, keys) == ([], [])
    assert note.startswith(f"--also vmem: {why}")


def test_a_budget_that_ends():
    compiled, keys, notes = searched((12, 4), 12, budget=2)
    assert (compiled, keys) == ([(MOST, 2), (12, 1)], [("vmem=12",)])
    assert "was not tried" in notes[0]


def test_a_kernel_whose_line_is_not_known():
    compiled, keys, notes = searched((), 12)
    assert (compiled, keys) == ([(MOST, 2)], [(f"vmem={MOST}",)])
    assert "the least that does was not found" in notes[0]


def test_lines_of_an_edited_text():
    assert lines_before("a\nb\nc\n", "a\nnew\nb\nC\n") == {1: 1, 3: 2, 4: 3}
