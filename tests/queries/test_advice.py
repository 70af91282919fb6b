import re
from fractions import Fraction

import pytest
from ingesting import ingest_into
from shared_dumps import ROOT
from small_db import Module, insert, rows, shape
from tables import holds

from bufdb import resources
from bufdb.database import store
from bufdb.query import catalogue, execute
from bufdb.what_if import module_choice
from bufdb.what_if import removal as what_if


@pytest.mark.slow
def test_nothing_in_an_empty_database(con):
    holds(con, "advice", "run_name")


def step(con, platform="gpu"):
    """A module of 10 instructions with a peak at 5 of 1,000 bytes, 500 of them of its own."""
    module = Module(con, 1, function_name="step", platform=platform, schedule_length=10)
    module.allocation(0, "temp", 2000)
    module.value(99, 0, 1000, 500, (5, 5), "largest", opcode="dot", program_order=5)
    insert(con, "instructions", module_id=1, instruction_name="use8", program_order=8)
    return module


def wait(module, value_id, offset, size, **cells):
    """A value that waits across the peak."""
    values = {"opcode": "dot", "source_file": "model.py", "source_line": value_id} | cells
    module.value(value_id, 0, offset, size, (2, 8), f"v{value_id}", program_order=2, **values)


def stack(con, module, value_id, offset, **cells):
    """One hundred bytes that a loop stacks, ten at a time."""
    module.value(value_id, 0, offset, 100, (0, 9), f"v{value_id}", is_phi=True, opcode="while",
                 shape_index="{1}")  # fmt: skip
    values = {"opcode": "tanh", "op_name": "jit(step)/jvp()/while/body/tanh",
             "slice_bytes": 10, "slice_count": 10,
             "source_file": "layer.py", "source_line": value_id} | cells  # fmt: skip
    insert(con, "value_origins", module_id=1, value_id=value_id, origin_kind="stacked", **values)
    module.saves(value_id, 100)


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["gpu", "cpu"])
def test_what_waits_is_computed_again_or_offloaded(con, platform):
    module = step(con, platform)
    wait(module, 1, 0, 100)
    wait(module, 2, 100, 200, opcode="add")
    stack(con, module, 3, 300)
    stack(con, module, 4, 400, is_layer_input=True)
    for value_id in (1, 2):
        module.use(value_id, "use8")
    module.saves(1, 80)
    module.saves(2, 200)
    module.close()
    if platform == "cpu":  # it merges what is computed twice, and its memory is the host's
        holds(con, "advice", """
            kind     | saving_bytes | saving_ratio | sureness | value_count | name
            residual | 100          | 0.1          | likely   | 1           | saved layer.py:3
        """)  # fmt: skip
    else:
        # Of what goes to the host no slice stays at the most. Of what is computed again little may
        # come: the low end ranks.
        holds(con, "advice", """
            kind      | saving_bytes | saving_ratio | sureness | value_count | name
            offload   | 100          | 0.1          | possible | 1           | saved layer.py:4
            offload   | 80           | 0.08         | possible | 1           | model.py:1
            recompute | 200          | 0.2          | possible | 1           | model.py:2
            residual  | 100          | 0.1          | likely   | 1           | saved layer.py:3
        """)  # fmt: skip
        row = rows(con, "advice")[2]
        assert (row["low_saving_bytes"], row["advice"], row["query_name"], row["page"]) == (
            0,
            "compute it again: jax.checkpoint around the line",
            "remat-candidates",
            "queries/advice/recompute.md",
        )


@pytest.mark.slow
def test_values_of_a_line_save_what_it_does(con):
    module = step(con)
    for value_id, line in ((1, 7), (2, 7), (3, 8), (4, 8)):
        wait(module, value_id, 100 * value_id, 100, source_line=line)
        module.use(value_id, "use8")
        module.saves(value_id, 60)
    module.saves(None, 150, what="source_line", name="model.py:7", held_bytes=200)
    # Line 8 holds 50 bytes more at the peak that are no candidates.
    module.saves(None, 250, what="source_line", name="model.py:8", held_bytes=250)
    module.close()
    holds(con, "advice", """
        saving_bytes | value_count | name
        200          | 2           | model.py:8
        150          | 2           | model.py:7
    """)  # fmt: skip
    # What they cost is known if it is of all of them.
    for value_id in (1, 2, 3):
        insert(con, "recompute_costs", module_id=1, value_id=value_id, operation_count=500)
    assert [row["operation_count"] for row in rows(con, "advice")] == [None, 1000]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("opcode", "kind", "occupied", "ends"),
    [
        ("add", "recompute", 501, (0, 170)),
        ("add", "recompute", 500, (0, 175)),
        # At the most nothing that is gathered is left.
        ("all-gather", "gather", 501, (70, 200)),
        ("all-gather", "gather", 500, (75, 200)),
    ],
)
def test_a_line_saves_less_without_its_other_values(con, opcode, kind, occupied, ends):
    """Without the line the peak falls by 200, and at 6 and 9 others of its values are live."""
    module = step(con)
    for value_id in (1, 2):
        wait(module, value_id, 100 * value_id, 100, source_line=7, opcode=opcode)
        module.use(value_id, "use8")
        module.saves(value_id, 60, held_bytes=100)
    other = {"source_file": "model.py", "source_line": 7, "opcode": "add"}
    module.value(3, 0, 0, 30, (9, 9), "v3", **other)
    module.value(4, 0, 0, 25, (6, 6), "v4", **other)
    module.value(5, 0, 0, 90, (7, 7), "v5", **other)
    module.saves(None, 200, what="source_line", name="model.py:7", held_bytes=200)
    module.close()
    for time, height in ((0, 200), (5, 700), (6, 600), (7, 200), (9, occupied), (10, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=height)  # fmt: skip
    assert [
        (row["low_saving_bytes"], row["saving_bytes"])
        for row in rows(con, "advice")
        if row["kind"] == kind
    ] == [ends]


def test_nothing_uses_it_any_more(con):
    module = step(con)
    wait(module, 1, 0, 100)
    module.saves(1, 100)
    module.close()
    holds(con, "advice", """
        kind      | saving_bytes | saving_ratio        | sureness | value_count | name
        late_free | 100          | 0.16666666666666666 | possible | 1           | model.py:1
    """)  # fmt: skip


@pytest.mark.slow
def test_advice_of_every_kind_in_one_module(con):
    wide, narrow = shape(con, "f32[8]{0}"), shape(con, "bf16[8]{0}")
    tiled = shape(con, "s32[2]{0:T(4)}")
    module = step(con)
    module.allocation(1, "constant", 50)
    module.value(1, 1, 0, 50, (0, 9), "table", opcode="constant", op_name="jit(step)/table")
    module.allocation(2, "parameter", 40, parameter_number=0)
    module.value(2, 2, 0, 40, (0, 2), "p", wide, opcode="parameter", op_name="params['w']")
    module.allocation(3, "output", 40)
    module.value(3, 3, 0, 40, (6, 9), "new_w", wide)
    at_peak = {"source_file": "m.py"}
    module.value(4, 0, 0, 70, (2, 5), "copy", opcode="copy", source_line=4, **at_peak)
    module.use(1, "copy")
    for value_id, size in ((5, 40), (6, 30)):
        module.value(value_id, 0, 100 * value_id, size, (3, 5), opcode="all-gather", source_line=5,
                     **at_peak)  # fmt: skip
    module.value(7, 0, 700, 30, (5, 6), "norm", wide, source_line=7, **at_peak)
    module.value(8, 0, 800, 2, (5, 6), "half", narrow)
    module.value(9, 0, 900, 90, (5, 6), "padded", tiled, logical=8)
    for value_id, saving, half in ((4, 70, 35), (5, 40, 20), (6, 30, 15), (7, 30, 15), (9, 90, 45)):
        module.saves(value_id, saving, half)
    module.close()
    # Gathered one at a time, the larger may be the one that is needed at the peak: 30 at least. Of
    # the constant nothing may come.
    holds(con, "advice", """
        kind     | saving_bytes | value_count | name
        padding  | 82           | 1           | s32[2]{0:T(4)}
        copy     | 70           | 1           | m.py:4
        donate   | 40           | 1           | params['w']
        gather   | 70           | 2           | m.py:5
        dtype    | 15           | 1           | m.py:7
        constant | 50           | 1           | jit(step)/table
    """, min_ratio=0)  # fmt: skip
    holds(con, "advice", """
        kind
        padding
        copy
    """, top_n=2)  # fmt: skip
    holds(con, "advice", """
        kind
        padding
    """, min_ratio=0.08)  # fmt: skip


@pytest.mark.slow
def test_a_donation_that_xla_copies_is_not_in_the_figure(con):
    text = shape(con, "f32[10]{0}")
    module = step(con)
    for number, opcode in enumerate(("subtract", "custom-call")):
        module.allocation(1 + number, "parameter", 40, parameter_number=number)
        module.value(1 + number, 1 + number, 0, 40, (0, 10), f"p{number}", text, opcode="parameter")
        module.allocation(3 + number, "output", 40)
        module.value(3 + number, 3 + number, 0, 40, (8 + number, 10), f"new{number}", text,
                     opcode=opcode, program_order=8 + number)  # fmt: skip
        module.use(1 + number, f"new{number}")
    module.close()
    holds(con, "advice", """
        kind   | saving_bytes | saving_ratio        | value_count | name
        donate | 40           | 0.06060606060606061 | 1           | p0
    """)  # fmt: skip


@pytest.mark.slow
def test_the_query_that_advice_names_shows_what_it_names(demo_db):
    con = store.open_readable(str(demo_db))
    queries = catalogue.Catalogue([resources.query_folder()])

    def cells_of(name, **params):
        query = queries.find(name)
        params = {param.name: params[param.name] for param in query.params if param.name in params}
        result = execute.execute_query(con, query, execute.bind(query, params))
        names = [name for name, _ in result.columns]
        return [dict(zip(names, row, strict=True)) for row in result.rows]

    everything = {"top_functions": "1000", "top_n": "10000"}
    shown = {}
    for row in cells_of("advice", min_ratio="0", **everything):
        if row["name"].startswith("scan of"):  # several rows of loop-residuals
            continue
        name, subject = row["query_name"], re.sub(r" and \d+ more$| \(.*", "", row["name"])
        module = row["run_name"], row["function_name"], row["color"]
        shown.setdefault(name, []).append((module, subject))
    assert len(shown) > 4
    for name, advised in shown.items():
        cells = {
            ((row["run_name"], row["function_name"], row["color"]), cell)
            for row in cells_of(name, **everything)
            for cell in [*row.values(), f"{row.get('shape')}{row.get('layout')}"]
            if isinstance(cell, str)
        }
        assert set(advised) <= cells, name
    con.close()


@pytest.mark.slow
def test_no_advice_promises_more_than_what_if(con):
    """Removing a whole line saves no less than the advice for its values."""
    ingest_into(con, [ROOT / "data" / "loops" / "gpu"])
    query = catalogue.Catalogue([resources.query_folder()]).find("advice")
    values = execute.bind(query, {"top_functions": "100", "min_ratio": "0"})
    result = execute.execute_query(con, query, values)
    names = [name for name, _ in result.columns]
    shown = [dict(zip(names, row, strict=True)) for row in result.rows]
    shown = [
        row
        for row in shown
        if ".py:" in (row["name"] or "")
        and row["kind"] not in ("block", "carry", "chunk", "constant")
    ]
    assert len({row["kind"] for row in shown}) > 2
    for row in shown:
        chosen = module_choice.choose(con, row["function_name"], row["run_name"], row["color"])
        keep = Fraction(1, 2) if row["kind"] == "dtype" else Fraction(0)
        reduction = what_if.Reduction(without=[f"line:{row['name']}"], keep=keep)
        saved = what_if.answer(con, chosen, reduction).rows[0].saving_bytes
        assert row["saving_bytes"] <= saved, row


@pytest.mark.slow
def test_a_saved_line_has_the_range_of_savings(con):
    module = step(con)
    stack(con, module, 3, 300)
    con.execute("UPDATE peak_savings SET low_saving_bytes = 20 WHERE value_id = 3")
    module.saves(None, 95, what="source_line", name="saved layer.py:3", held_bytes=100,
                 low_saving_bytes=-5, saving_form="wrap", kept_name="layer.py:2",
                 low_operation_count=7, operation_count=90)  # fmt: skip
    module.close()
    (row,) = rows(con, "advice")
    assert {name: row[name] for name in [*list(row)[5:14], "advice"]} == {
        "low_saving_bytes": -5,
        "saving_bytes": 95,
        "saving_ratio": 95 / 600,
        "kind": "residual",
        "sureness": "possible",
        "saving_form": "wrap",
        "kept_name": "layer.py:2",
        "low_operation_count": 7,
        "operation_count": 90,
        "advice": "recompute: jax.checkpoint around it, or a policy",
    }


def decode(con, platform="gpu", op_name="jit(step)/while/body/dynamic_update_slice"):
    """A loop that reads a cache of 100 bytes by slices and stacks a new one."""
    cache = shape(con, "f32[5,5]{1,0}")
    module = Module(con, 1, function_name="step", platform=platform)
    module.allocation(0, "temp", 500)
    module.allocation(1, "parameter", 100, parameter_number=0)
    module.value(1, 1, 0, 100, (0, 9), "cache", cache, opcode="parameter")
    module.value(2, 0, 0, 100, (2, 8), "while", cache, is_phi=True, opcode="while",
                 shape_index="{1}")  # fmt: skip
    module.value(3, 0, 100, 100, (2, 8), "other", cache)
    insert(con, "value_origins", module_id=1, value_id=2, origin_kind="stacked", op_name=op_name,
           opcode="add", slice_bytes=20, slice_count=5, loop_instruction_name="while",
           source_file="decode.py", source_line=14)  # fmt: skip
    module.use(1, "while", index="{3}")
    module.close()


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "low"), [("gpu", 80), ("cpu", -20)])
def test_a_cache_of_xs_and_ys_is_carried(con, platform, low):
    """One slice more or less is copied; the CPU may copy a whole array to write one slice."""
    decode(con, platform)
    (row,) = [row for row in rows(con, "advice") if row["kind"] == "carry"]
    assert (row["low_saving_bytes"], row["saving_bytes"], row["name"], row["value_count"]) == (
        low,
        120,
        "saved decode.py:14",
        1,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "op_name"),
    [
        ("tpu", "jit(step)/while/body/add"),
        # Weights and their gradients.
        ("gpu", "jit(step)/transpose(jvp())/while/body/add"),
        ("gpu", "jit(step)/jvp()/while/body/add"),
    ],
)
def test_what_is_no_carry(con, platform, op_name):
    decode(con, platform, op_name)
    assert [row for row in rows(con, "advice") if row["kind"] == "carry"] == []


FLAX = "/x/flax/linen/module.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("caller", "words"),
    [
        (FLAX, "compute it again: nn.remat around the line"),
        ("/x/equinox/_jit.py", "compute it again: eqx.filter_checkpoint around the line"),
        ("/x/maxtext/train.py", "compute it again: remat_policy=full"),
        ("/x/keras/src/layers/layer.py", 'compute it again: keras.RematScope(mode="full")'),
        ("/x/train.py", "compute it again: jax.checkpoint around the line"),
        (None, "compute it again: jax.checkpoint around the line"),  # flax calls another line
    ],
)
def test_advice_is_in_the_words_of_the_framework(con, caller, words):
    module = step(con)
    frames = [(1, None, caller or "/x/main.py"), (2, 1, "model.py"), (3, None, FLAX)]
    for frame, parent, file in frames if caller is None else frames[:2]:
        last = 2 if frame == 1 else frame
        insert(con, "stack_frames", module_id=1, stack_frame_id=frame, parent_frame_id=parent,
               own_frame_id=frame, source_file=file, source_line=1, function_name="f",
               tree_ordinal=frame, last_tree_ordinal=last)  # fmt: skip
    wait(module, 1, 0, 200, opcode="add", op_name="jit(step)/jvp()/add")
    module.use(1, "use8")
    module.saves(1, 200)
    module.close()
    texts = [row["advice"] for row in rows(con, "advice") if row["kind"] == "recompute"]
    assert texts == [words]


def loss(
    con,
    op_name="jit(step)/transpose(jvp(jit(take_along_axis)))/scatter-add",
    reads=None,
    weight="bf16[100,2]{1,0}",
    logits="bf16[4,100]{1,0}",
    sharding="",
    number=1,
):
    """Logits and their gradients of 4 tokens, 400 bytes each, one after the other."""
    module = Module(con, number, f"r{number}", function_name="step", platform="cpu")
    module.allocation(0, "temp", 1000)
    module.allocation(1, "parameter", 50, parameter_number=0)
    module.value(1, 1, 0, 50, (0, 9), "e", shape(con, weight), opcode="parameter")
    if sharding:
        con.execute(
            "UPDATE instructions SET text = ? WHERE instruction_name = 'e' AND module_id = ?",
            [f"%e = {weight} parameter(0), sharding={sharding}", number],
        )
    text = shape(con, logits, count=400)
    for value_id, live in ((2, (2, 4)), (3, (4, 6))):
        module.value(value_id, 0, 400 * (value_id - 2), 400, live, shape=text, op_name=op_name,
                     source_file="loss.py", source_line=88)  # fmt: skip
    module.value(4, 0, 800, 100, (6, 7), "other")
    if reads is not None:
        instruction, reader_shape = reads
        insert(con, "instructions", module_id=number, instruction_name="reader", program_order=7,
               source_file="train.py", source_line=12, op_name=instruction)  # fmt: skip
        module.value(5, 1, 0, 1, (7, 8), "reader", reader_shape)
        module.value(6, 0, 0, 1, (2, 4), "logits", text, op_name="jit(step)/jvp()/dot_general")
        module.use(6, "reader")
    for time, height in ((0, 0), (2, 400), (4, 800), (5, 400), (6, 500), (7, 100), (8, 0)):
        insert(con, "occupancy_steps", module_id=number, color=0, start_time=time,
               occupied_temp_bytes=height)  # fmt: skip
    module.close()


def of_losses(con, *losses):
    """What is advised of each of some losses: one question takes half a second."""
    for number, changes in enumerate(losses):
        loss(con, number=number, **changes)
    advice = rows(con, "advice", top_functions=len(losses))
    return [
        [row["advice"] for row in advice if row["run_name"] == f"r{number}"]
        for number in range(len(losses))
    ]


@pytest.mark.slow
def test_a_loss_of_all_tokens_is_computed_in_chunks(con):
    loss(con)
    (row,) = rows(con, "advice")
    # Without them 100 bytes remain: 350 with two chunks, and at most everything that they hold.
    assert (row["kind"], row["name"], row["low_saving_bytes"], row["saving_bytes"]) == (
        "chunk",
        "loss.py:88",
        350,
        800,
    )


def test_chunks_are_of_a_product_twice_as_wide(con):
    """As bufdb fit --also chunks wants it, see tests/fitting/test_jax_also.py."""
    weights = {"100,50": 1, "50,100": 1, "100,51": 0, "51,100": 0, "100,100": 0}
    advice = of_losses(con, *({"weight": f"bf16[{weight}]{{1,0}}"} for weight in weights))
    assert dict(zip(weights, map(len, advice), strict=True)) == weights


def test_the_number_of_examples_is_no_vocabulary(con):
    """A batch of numbers is an argument that is longer than wide, like an embedding."""
    loss(con, logits="bf16[100,4]{1,0}")
    assert rows(con, "advice") == []


def test_sharded_weights_are_as_wide_as_their_parts(con):
    tiles = {"1,1": 1, "2,1": 1, "1,4": 0, "2,4": 1}
    losses = (
        {"weight": "bf16[100,25]{1,0}", "sharding": f"{{devices=[{tile}]<=[8]}}"} for tile in tiles
    )
    advice = of_losses(con, *losses)
    assert dict(zip(tiles, map(len, advice), strict=True)) == tiles


def test_why_chunks_are_by_hand_is_said(con):
    """In the words of bufdb fit, see tests/fitting/test_jax_also.py."""
    cases = [
        ("jit(step)/shard_map/transpose(jvp(jit(take_along_axis)))/mul", "4",
         "the gradient is taken within a shard_map"),
        ("jit(step)/transpose(jvp())/shard_map/jit(take_along_axis)/mul", "4",
         "the loss is within a shard_map"),
        ("jit(step)/transpose(jvp(jit(take_along_axis)))/mul", "1,4",
         "the batch has no equal parts on a device"),
        ("jit(step)/transpose(jvp(jit(take_along_axis)))/mul", "17,4",
         "the batch has no equal parts on a device"),
        ("jit(step)/transpose(jvp(jit(take_along_axis)))/mul", "3,4", None),
        ("jit(step)/transpose(jvp(jit(take_along_axis)))/mul", "3", None),  # tokens
    ]  # fmt: skip
    losses = ({"op_name": name, "logits": f"bf16[{size},100]{{1,0}}"} for name, size, _ in cases)
    for texts, (_, _, why) in zip(of_losses(con, *losses), cases, strict=True):
        by_hand = f", by hand: {why}" if why else ""
        assert texts == [f"compute the loss in chunks under jax.checkpoint{by_hand}"]


def test_what_reads_the_logits_outside_is_named(con):
    reads = [
        ("jit(step)/jit(argmax)/argmax", shape(con, "s32[4]{0}", count=4)),
        ("jit(step)/jvp()/reduce_max", shape(con, "bf16[4]{0}", count=4)),
        ("jit(step)/sub", shape(con, "f32[100,2]{1,0}", count=200)),  # an update of the weights
    ]
    chunks = "compute the loss in chunks under jax.checkpoint"
    instead = ", and return metrics from it, not the logits that train.py:12 reads"
    advice = of_losses(con, *({"reads": one} for one in reads))
    assert advice == [[chunks + instead], [chunks], [chunks]]


def test_what_is_no_loss_of_all_tokens(con):
    op_names = [
        "jit(step)/jvp(jit(take_along_axis))/gather",  # no gradient
        "jit(step)/transpose(jvp())/while/body/jit(take_along_axis)/scatter-add",
        "jit(step)/transpose(jvp())/dot_general",
    ]
    assert of_losses(con, *({"op_name": name} for name in op_names)) == [[], [], []]


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "count"), [("gpu", 1), ("cpu", 0)])
def test_calls_that_leave_values_for_the_backward_pass(con, platform, count):
    """Two calls of 100 bytes each, from two lines; one is computed again at a time."""
    module = step(con, platform)
    for frame, parent, name, line in (
        (1, None, "step", 9), (2, 1, "block", 3), (3, 1, "block", 3), (4, None, "step", 8),
        (5, 4, "block", 3),
    ):  # fmt: skip
        cells = {"own_frame_id": frame, "function_name": name, "source_file": "m.py"}
        insert(con, "stack_frames", module_id=1, stack_frame_id=frame, parent_frame_id=parent,
               source_line=line, **cells)  # fmt: skip
    for value_id, frame in ((1, 2), (2, 5)):
        wait(module, value_id, 100 * value_id, 100, stack_frame_id=frame,
             op_name="jit(step)/jvp()/dot_general")  # fmt: skip
        module.use(value_id, "use8")
    for time, height in ((0, 0), (2, 200), (5, 700), (6, 200), (9, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=height)  # fmt: skip
    module.close()
    advice = [row for row in rows(con, "advice") if row["kind"] == "block"]
    assert [
        (row["name"], row["low_saving_bytes"], row["saving_bytes"], row["value_count"])
        for row in advice
    ] == [("block (m.py)", 50, 200, 2)] * count


@pytest.mark.slow
@pytest.mark.parametrize("is_updated", [False, True])
def test_arguments_that_all_devices_hold_are_divided(con, is_updated):
    """With what is made of them element by element, at the most."""
    text = "bf16[8,8]{1,0}"
    insert(con, "shapes", shape=text, dtype="bf16", dimensions_text="8,8", dimensions="[8, 8]")
    module = Module(con, 1, function_name="step", platform="gpu", partition_count=4,
                    replica_count=1)  # fmt: skip
    module.allocation(0, "temp", 10)
    module.value(9, 0, 0, 10)
    if is_updated:
        module.allocation(5, "output", 128)
        module.value(5, 5, 0, 128, (0, 9), "updated", text)
    for number in (0, 1):
        module.allocation(1 + number, "parameter", 128, parameter_number=number,
                          parameter_shape_index="{}")  # fmt: skip
        hlo = f"%p{number} = {text} parameter({number}), sharding={{replicated}}"
        module.value(1 + number, 1 + number, 0, 128, (0, 9), f"p{number}", text,
                     opcode="parameter", op_name=f"w[{number}]", text=hlo)  # fmt: skip
    module.close()
    (row,) = [row for row in rows(con, "advice") if row["kind"] == "shard"]
    # Of each 96 bytes are held too often; gathered for its use one takes 128 again.
    assert (row["name"], row["low_saving_bytes"], row["saving_bytes"], row["query_name"]) == (
        "w[0] and 1 more",
        64,
        288 if is_updated else 192,
        "replicated",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op_name", "ends", "argument"),
    [
        ("jit(step)/dot_general", (35, 70), "f32[10]{0}"),
        ("jit(step)/transpose(jvp())/dot_general", (25, 70), "f32[10]{0}"),
        ("jit(step)/dot_general", None, "bf16[10]{0}"),
    ],
)
def test_a_program_of_f32_is_told_so(con, op_name, ends, argument):
    """bf16 would halve all of it, at the least a half of that, in training without arguments."""
    module = Module(con, 1, function_name="step", platform="tpu")
    module.allocation(0, "temp", 200)
    module.allocation(1, "parameter", 40, parameter_number=0)
    module.value(1, 1, 0, 40, (0, 9), "p", shape(con, argument), opcode="parameter")
    for name in ("f32[25]{0}", "bf16[25]{0}"):
        shape(con, name)
    module.value(2, 0, 0, 100, (2, 5), "wide", "f32[25]{0}", op_name=op_name)
    module.value(3, 0, 100, 50, (2, 5), "half", "bf16[25]{0}", op_name="jit(step)/dot_general")
    module.close()
    advice = [row for row in rows(con, "advice") if row["name"] == "f32"]
    assert [(row["kind"], row["low_saving_bytes"], row["saving_bytes"]) for row in advice] == (
        [] if ends is None else [("dtype", *ends)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["gpu", "cpu"])
def test_the_body_of_a_scan_is_computed_again_as_a_whole(con, platform):
    module = step(con, platform)
    for value_id in (3, 4, 5):
        stack(con, module, value_id, 100 * value_id, is_layer_input=value_id == 4,
              loop_instruction_name="while")  # fmt: skip
    module.close()
    for time, height in ((0, 800), (10, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=height)  # fmt: skip
    (row,) = [row for row in rows(con, "advice") if row["kind"] == "block"]
    # One round of both is computed again; the input of the rounds stays.
    assert (row["low_saving_bytes"], row["saving_bytes"], row["query_name"]) == (
        180,
        200,
        "loop-residuals",
    )
    assert row["advice"] == "recompute rounds: jax.checkpoint of the body"


@pytest.mark.slow
def test_a_donation_read_by_a_product_promises_nothing(con):
    module = Module(con, 1, function_name="step", platform="tpu")
    module.allocation(0, "temp", 10)
    module.allocation(1, "parameter", 100, parameter_number=0)
    module.allocation(2, "output", 100)
    text = shape(con, "f32[25]{0}")
    module.value(1, 1, 0, 100, (0, 9), "w", text, opcode="parameter")
    module.value(2, 2, 0, 100, (5, 9), "fusion", text, opcode="fusion",
                 text="fusion(w), kind=kOutput", program_order=5)  # fmt: skip
    module.value(3, 0, 0, 10, (1, 9), "temp")
    module.use(1, "fusion")
    module.close()
    (row,) = [row for row in rows(con, "advice") if row["kind"] == "donate"]
    assert (row["low_saving_bytes"], row["saving_bytes"]) == (0, 100)


def makers(con, **of_values):
    for value_id, name in of_values.items():
        insert(con, "recompute_instructions", module_id=1, value_id=int(value_id[1:]),
               instruction_name=name)  # fmt: skip


def timed(con, **times):
    for name, ns in times.items():
        insert(con, "instruction_times", module_id=1, instruction_name=name, device="GPU:0",
               run_count=1, execution_count=1, total_ns=ns, self_ns=ns)  # fmt: skip


def waiting(con):
    """Three lines that wait; one of them holds two values of one kernel."""
    module = step(con)
    for value_id, offset, size, line in ((1, 0, 300, 1), (2, 300, 200, 2), (3, 500, 50, 3),
                                         (4, 550, 50, 3)):  # fmt: skip
        wait(module, value_id, offset, size, opcode="add", source_line=line)
        module.use(value_id, "use8")
        module.saves(value_id, size)
        insert(
            con, "recompute_costs", module_id=1, value_id=value_id, operation_count=size * value_id
        )
    module.close()
    makers(con, v1="slow", v2="fast", v3="shared", v4="shared")


@pytest.mark.slow
def test_most_bytes_per_millisecond_are_first(con):
    waiting(con)
    timed(con, slow=15_000_000, fast=1_000_000, shared=2_000_000)
    advice = rows(con, "advice")
    assert [(row["name"], row["recompute_ns"], row["ranked_by"]) for row in advice] == [
        ("model.py:2", 1_000_000, "time"),
        ("model.py:3", 2_000_000, "time"),
        ("model.py:1", 15_000_000, "time"),
    ]
    assert advice[0]["saving_bytes_per_ms"] == 200
    assert rows(con, "advice", rank_by="saving")[0]["name"] == "model.py:1"


@pytest.mark.slow
def test_an_untimed_line_is_last(con):
    waiting(con)
    timed(con, slow=15_000_000, shared=2_000_000)
    times = {row["name"]: row["recompute_ns"] for row in rows(con, "advice")}
    assert list(times) == ["model.py:3", "model.py:1", "model.py:2"]
    assert times["model.py:2"] is None


@pytest.mark.slow
def test_shared_work_counts_once(con):
    waiting(con)
    advice = rows(con, "advice", rank_by="cost")
    assert [(row["name"], row["operation_count"], row["ranked_by"]) for row in advice] == [
        ("model.py:1", 300, "work"),
        ("model.py:2", 400, "work"),
        ("model.py:3", 200, "work"),
    ]
    assert {row["ranked_by"] for row in rows(con, "advice")} == {"saving"}


def attention(
    con,
    number=1,
    platform="gpu",
    scores="f32[2,16,16]{2,1,0}",
    key="f32[2,16,2]{2,1,0}",
    width=2,
    softmax="jit(step)/jvp()/div",
    fusion_kind="kCustom",
    maximum=None,
    summed=16,
    is_backward=False,
    caller="train.py",
):
    """Scores of 512 pairs, 500 bytes, and as many weights, whose rows are summed at 7."""
    named = "jit(step)/transpose(jvp())/" if is_backward else "jit(step)/jvp()/"
    at_line = {"source_file": caller, "source_line": 5, "op_name": named + "dot_general"}
    module = Module(con, number, f"r{number}", function_name="step", platform=platform)
    module.allocation(0, "temp", 2000)
    small, pairs = shape(con, "f32[2,16,2]{2,1,0}", count=64), shape(con, scores, count=512)
    module.value(1, 0, 0, 60, (1, 4), "query", small)
    module.value(2, 0, 100, 60, (1, 4), "key", shape(con, key, count=64 if ",16,2" in key else 32))
    module.value(3, 0, 200, 500, (4, 6), "scores", pairs, logical=2048, **at_line)
    module.value(4, 0, 700, 500, (5, 7), "weights", pairs, op_name=softmax, source_file=caller,
                 fusion_kind=fusion_kind)  # fmt: skip
    if maximum is not None:
        module.value(7, 0, 1900, 10, (4, 6), "scores", shape(con, *maximum), shape_index="{1}")
    module.value(5, 0, 1200, 60, (7, 9), "sum", small, op_name=named + "dot_general")
    # Logits of 16 tokens, as many.
    module.value(6, 0, 1300, 500, (5, 5), "logits", shape(con, "f32[16,32]{1,0}", count=512))
    for value_id, reader in ((1, "scores"), (2, "scores"), (3, "weights"), (4, "sum")):
        module.use(value_id, reader)
    for name, each in (("scores", 512 * width), ("sum", 64 * summed)):
        insert(con, "instruction_costs", module_id=number, instruction_name=name,
               execution_count=3, operation_count=2 * 3 * each)  # fmt: skip
    heights = ((0, 0), (1, 120), (4, 620), (5, 1500), (6, 1000), (7, 560), (8, 60), (10, 0))
    for time, height in heights:
        insert(con, "occupancy_steps", module_id=number, color=0, start_time=time,
               occupied_temp_bytes=height)  # fmt: skip
    return module


def of_attentions(con, *attentions):
    """The names of scores that advice shows of each of some attentions."""
    for number, changes in enumerate(attentions):
        attention(con, number=number, **changes).close()
    advice = rows(con, "advice", top_functions=len(attentions))
    return [
        [row["name"] for row in advice
         if row["run_name"] == f"r{number}" and row["kind"] == "scores"]
        for number in range(len(attentions))
    ]  # fmt: skip


def test_scores_of_all_pairs_are_not_held(con):
    attention(con).close()
    (row,) = (row for row in rows(con, "advice") if row["kind"] == "scores")
    # Without both 500 of 1500 bytes remain; the logits are no scores.
    assert (row["name"], row["low_saving_bytes"], row["saving_bytes"], row["value_count"]) == (
        "train.py:5", 500, 1000, 2,
    )  # fmt: skip
    assert (row["sureness"], row["page"]) == ("possible", "queries/advice/scores.md")


def test_scores_grow_with_the_square_of_a_text(con):
    """Of the sample dumps: the weights, their gradient and that of the scores, of 4 heads each."""
    lengths = (512, 2048)
    ingest_into(con, [ROOT / "data" / "lengths" / f"length_{length}" for length in lengths])
    advice = [row for row in rows(con, "advice", top_functions=4) if row["kind"] == "scores"]
    text = (ROOT / "data" / "model" / "attention.py").read_text("utf-8").splitlines()
    # The compiler for CPUs makes the product and the largest of each row in one kernel.
    of_kernel = 1 + next(at for at, line in enumerate(text) if "softmax(scores)" in line)
    line = f"/home/user/model/attention.py:{of_kernel}"
    assert {(row["run_name"], row["name"], row["saving_bytes"]) for row in advice} == {
        (f"length_{length}", line, 3 * 4 * 2 * 4 * length**2) for length in lengths
    }
    assert all(2 * row["low_saving_bytes"] <= row["saving_bytes"] for row in advice)


def test_a_stack_of_scores_is_of_the_scores(con):
    module = attention(con)
    stack = shape(con, "f32[3,2,16,16]{3,2,1,0}", count=3 * 512)
    module.value(7, 0, 1800, 100, (2, 7), "stack", stack)
    insert(con, "value_origins", module_id=1, value_id=7, origin_kind="stacked", slice_count=3)
    module.value(8, 0, 1900, 100, (2, 7), "no_stack", stack)
    module.close()
    (row,) = (row for row in rows(con, "advice") if row["kind"] == "scores")
    assert row["value_count"] == 3


@pytest.mark.parametrize(
    ("platform", "caller", "words"),
    [
        ("gpu", "train.py", 'jax.nn.dot_product_attention(…, implementation="cudnn") in bf16, or '),
        ("tpu", "train.py", "splash attention (Pallas), or "),
        ("cpu", "train.py", ""),
        ("tpu", "/x/maxtext/layers/attention.py", "attention=flash (cudnn_flash_te on GPUs)"),
        ("gpu", "/x/levanter/layers/attention.py", "a setting for flash attention"),
    ],
)
def test_what_never_holds_scores_is_in_words(con, platform, caller, words):
    module = attention(con, platform=platform, caller=caller)
    insert(con, "stack_frames", module_id=1, stack_frame_id=1, own_frame_id=1, source_file=caller)
    module.close()
    (row,) = (row for row in rows(con, "advice") if row["kind"] == "scores")
    parts = "parts of the heads, by bufdb fit --also attention" if caller == "train.py" else ""
    start = "never hold all scores: " if words else ""
    assert row["advice"] == f"{start}{words}{parts}"


def test_what_reads_scores_shows_that_they_are(con):
    names_of_each = of_attentions(
        con, {}, {"softmax": "jit(step)/jvp(jit(softmax))/sub"}, {"summed": 8},
        {"softmax": "jit(step)/jvp()/tanh"}, {"softmax": None}, {"is_backward": True},
        {"softmax": "jit(step)/jvp()/reduce_max", "fusion_kind": "kLoop"},
        {"fusion_kind": "kLoop"},  # of a product with experts, an activation
        {"softmax": None, "maximum": ("f32[2,16]{1,0}", None, 32)},
        {"softmax": None, "maximum": ("f32[2,2]{1,0}", None, 4)},
    )  # fmt: skip
    assert [len(names) for names in names_of_each] == [1, 1, 0, 0, 0, 0, 1, 0, 1, 0]


def test_what_is_no_product_of_all_pairs(con):
    """One query, as in decoding; weights for all parts; a width as large as of experts; logits."""
    names_of_each = of_attentions(
        con, {"scores": "f32[32,1,16]{2,1,0}"}, {"key": "f32[16,2]{1,0}"}, {"width": 4},
        {"scores": "f32[16,32]{1,0}"}, {"scores": "s32[2,16,16]{2,1,0}"},
    )  # fmt: skip
    assert names_of_each == [[]] * 5


def test_an_unknown_product_is_no_score(con):
    module = attention(con)
    con.execute("UPDATE instruction_costs SET operation_count = NULL")
    module.close()
    assert "scores" not in {row["kind"] for row in rows(con, "advice")}


def mapped(con, op_name="jit(step)/vmap(jvp())/dot_general", platform="gpu"):
    """Two arrays of 400 bytes that a vmap over 4 makes, one with two dimensions merged."""
    module = Module(con, 1, function_name="step", platform=platform)
    module.allocation(0, "temp", 1000)
    cells = {"source_file": "ensemble.py", "source_line": 5, "opcode": "dot", "op_name": op_name}
    for value_id, text in ((1, "f32[4,5,5]{2,1,0}"), (2, "f32[5,20]{1,0}")):
        array_shape = shape(con, text, count=100)
        module.value(value_id, 0, 400 * (value_id - 1), 400, (2, 6), shape=array_shape, **cells)
    module.value(3, 0, 800, 100, (2, 6), "other", shape(con, "f32[25]{0}", count=25))
    for time, height in ((0, 0), (2, 900), (7, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=height)  # fmt: skip
    module.close()


@pytest.mark.slow
def test_what_a_vmap_makes_at_once_is_computed_in_batches(con):
    mapped(con)
    advice = {row["kind"]: row for row in rows(con, "advice")}
    row = advice["batch"]
    # Without them 100 of 900 bytes remain: half of 800 less in two batches, 3 of 4 parts in four.
    assert (row["name"], row["low_saving_bytes"], row["saving_bytes"], row["sureness"]) == (
        "vmap over 4", 400, 600, "possible",
    )  # fmt: skip
    text = "in batches, by lax.map(f, xs, batch_size=k), it holds about k/4 of this"
    assert row["advice"] == text


@pytest.mark.slow
@pytest.mark.parametrize(
    "op_name",
    [
        "jit(step)/jvp(vmap())/dot_general",  # a gradient of it keeps all
        "jit(step)/while/body/vmap()/dot_general",  # in batches already
        "jit(step)/my_vmap(f)/dot_general",
        None,
    ],
)
def test_what_is_no_vmap_that_batches_would_help(con, op_name):
    mapped(con, op_name)
    assert "batch" not in {row["kind"] for row in rows(con, "advice")}


def early(con, platform, uses=(8, 9, 9)):
    """Three results of one fusion of 100 bytes each that wait across the peak at 5."""
    module = Module(con, 1, function_name="step", platform=platform, schedule_length=10)
    module.allocation(0, "temp", 2000)
    module.value(99, 0, 1000, 500, (5, 5), "largest", opcode="dot", program_order=5)
    for value_id, time in enumerate(uses):
        module.value(value_id, 0, 100 * value_id, 100, (2, 9), "fills", opcode="fusion",
                     program_order=2, shape_index=f"{{{value_id}}}")  # fmt: skip
        if time:
            insert(con, "instructions", module_id=1, instruction_name=f"loop{value_id}",
                   program_order=time, opcode="while")  # fmt: skip
            module.use(value_id, f"loop{value_id}")
    insert(con, "instructions", module_id=1, instruction_name="pack", program_order=3,
           opcode="tuple")  # fmt: skip
    module.use(0, "pack")
    height = 100 * len(uses)
    for time, size in ((0, 0), (2, height), (5, 500 + height), (6, height), (10, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=time,
               occupied_temp_bytes=size)  # fmt: skip
    module.close()


@pytest.mark.slow
@pytest.mark.parametrize(("platform", "has_flag"), [("gpu", True), ("tpu", False), ("cpu", False)])
def test_an_instruction_whose_results_all_wait_is_named(con, platform, has_flag):
    early(con, platform)
    (row,) = [row for row in rows(con, "advice") if row["kind"] == "early"]
    assert (row["name"], row["value_count"], row["low_saving_bytes"], row["saving_bytes"]) == (
        "fills", 3, 0, 300,
    )  # fmt: skip
    assert (row["sureness"], row["query_name"]) == ("possible", "late-free")
    assert "an outer scan over equal blocks" in row["advice"]
    assert ("--xla_disable_hlo_passes=priority-fusion" in row["advice"]) == has_flag


@pytest.mark.slow
@pytest.mark.parametrize("uses", [(8,), (8, 5), (8, 3), (8, None)])
def test_one_result_that_waits_is_no_group(con, uses):
    early(con, "gpu", uses)
    assert "early" not in {row["kind"] for row in rows(con, "advice")}
