"""The walk from a buffer to the maker of its data: each step of the rule on a few lines of HLO."""

import gc
import re
import weakref

import pytest

from bufdb.read.hlo_graph import HloGraph, loops_in, loops_of
from bufdb.rows.loop_origins import Slices
from bufdb.rows.loop_places import Places
from bufdb.rows.loop_walk import MAX_GUESSES, MAX_STEPS, Walker

LOOP_LINE = 9
"""The line of the call that makes the loop."""


def meta(line, op_name="jit(f)/while/body/closed_call/sin", file="/u/model.py"):
    return f'metadata={{op_name="{op_name}" source_file="{file}" source_line={line}}}'


def own(tail=""):
    """Return the metadata of a loop's own instructions."""
    return meta(LOOP_LINE, f"jit(f)/while/body/{tail}")


INSERT = own("jit(dynamic_update_index_in_dim)/dynamic_update_slice")
TAKE = own("jit(dynamic_index_in_dim)/dynamic_slice")
TRIPS = 'backend_config={"known_trip_count":{"n":"4"}}'


def module(body, entry="", others=""):
    """A loop whose carry is (i, x, stack, w): what the body makes of it, and what is around."""
    carry = "(s32[], f32[8], f32[4,8], f32[16])"
    return f"""{others}
%cond (c: {carry}) -> pred[] {{
  %c = {carry} parameter(0)
  ROOT %ci = s32[] get-tuple-element(%c), index=0
}}

%body (p: {carry}) -> {carry} {{
  %p = {carry} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
  %stack = f32[4,8] get-tuple-element(%p), index=2
  %w = f32[16] get-tuple-element(%p), index=3
{body}
}}

ENTRY %main (a: f32[8], b: f32[16]) -> f32[4,8] {{
  %a = f32[8] parameter(0), metadata={{op_name="x"}}
  %b = f32[16] parameter(1), metadata={{op_name="w"}}
  %zero = f32[] constant(0)
  %zeros = f32[4,8] broadcast(%zero), dimensions={{}}
  %init = {carry} tuple(%one, %a, %zeros, %b)
  %while = {carry} while(%init), condition=%cond, body=%body, {own()[:-1]}}}, {TRIPS}
  ROOT %out = f32[4,8] get-tuple-element(%while), index=2
{entry}
}}
""".lstrip()


def walk(text, name="while", index=()):
    text = text.encode()
    loops = loops_in(text)
    graph = HloGraph(text, loops)
    walker = Walker(graph, Places(None, loops_of(text, loops), text=text))
    name = name.encode()
    ins = graph.find(graph.homes([name])[name], name)
    return (None if ins is None else walker.origin(ins, index)), walker


def origin_of(text, name="while", index=(2,)):
    """(kind, instruction, line) of an origin."""
    origin, walker = walk(text, name, index)
    place = None if origin.instruction is None else walker.places.own(origin.instruction)
    name = None if origin.instruction is None else origin.instruction.name.decode()
    return origin.kind, name, None if place is None else place[1]


STACKED = f"""  %sin = f32[8] sine(%x), {meta(21)}
  %new = f32[8] add(%sin, %x), {meta(22)}
  %row = f32[1,8] bitcast(%sin), {own("closed_call")}
  %put = f32[4,8] dynamic-update-slice(%stack, %row, %i, %i), {INSERT}
  ROOT %t = (s32[], f32[8], f32[4,8], f32[16]) tuple(%i, %new, %put, %w)"""


def test_a_stack_leads_to_what_is_inserted():
    origin, _ = walk(module(STACKED), index=(2,))
    assert origin_of(module(STACKED)) == ("stacked", "sin", 21)
    assert (origin.loop.name, origin.loop.trip_count) == (b"while", 4)
    assert (origin.written_by.name, origin.slice_shape.text) == (b"put", "f32[1,8]")
    assert (origin.slice_count, origin.is_layer_input, origin.is_exact) == (4, False, True)


def test_a_walk_needs_no_garbage_collection():
    """It is off in an ingest; what refers to itself would keep a module's text to the end."""
    gc.disable()
    try:
        origin, walker = walk(module(STACKED), index=(2,))
        gone = weakref.ref(walker), weakref.ref(walker.graph)
        del origin, walker
        assert [there() for there in gone] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("names", [("moved", "out"), ("out", "moved")])
def test_a_line_on_a_path_counts_for_that_path_alone(names):
    """The stacked data has no line here; only the instruction that moves the stack has one."""
    body = STACKED.replace(meta(21), own()).replace("tuple(%i, %new", "tuple(%i, %x")
    text = module(body, f"  %moved = f32[4,8] copy(%out), {meta(30)}")
    _, walker = walk(text)
    every = {b: walker.graph.find(walker.graph.homes([b])[b], b) for b in (b"moved", b"out")}
    origins = {name: walker.origin(every[name.encode()], ()) for name in names}
    lines = {name: walker.places.own(origin.instruction) for name, origin in origins.items()}
    assert lines == {"moved": ("/u/model.py", 30), "out": None}


@pytest.mark.parametrize("name", ["out", "put"])
def test_every_holder_of_the_stack_has_its_origin(name):
    assert origin_of(module(STACKED), name, ()) == ("stacked", "sin", 21)


@pytest.mark.parametrize(("body", "right"), [
    ("jit(f)/while/body/", ("stacked", "sin", 21)),
    # No step of a scan is there: a user's while_loop may write the same itself.
    ("jit(f)/while/body/closed_call/while/body/", ("carry", "put", 77)),
])  # fmt: skip
def test_an_insertion_may_have_the_line_of_another_scan(body, right):
    """JAX traces it once a process for each shape; the line is that of the first scan of all."""
    elsewhere = meta(77, f"{body}jit(dynamic_update_index_in_dim)/dynamic_update_slice")
    assert origin_of(module(STACKED.replace(INSERT, elsewhere))) == right


ELSEWHERE = meta(77, "jit(f)/while/body/jit(dynamic_update_index_in_dim)/dynamic_update_slice")


@pytest.mark.parametrize(("change", "unknown"), [
    ({"closed_call": "eval_jaxpr"}, []),
    ({"closed_call": "called_step"}, ["called_step"]),
    ({"jit(dynamic_update_index_in_dim)": "jit(put)"}, ["jit(put)"]),
    ({"closed_call": "called_step", "jit(dynamic_update_index_in_dim)": "jit(put)"},
     ["called_step", "jit(put)"]),
])  # fmt: skip
def test_a_scan_is_known_whatever_jax_calls_its_parts(change, unknown):
    text = module(STACKED.replace(INSERT, ELSEWHERE))
    for old, new in change.items():
        text = text.replace(old, new)
    assert origin_of(text) == ("stacked", "sin", 21)
    assert walk(text)[1].places.unknown_names == unknown


@pytest.mark.parametrize("neighbor", [
    # The user's own sum, directly in the body of a while_loop.
    f"  %new = f32[8] add(%sin, %x), {meta(22, 'jit(f)/while/body/add')}",
    # Only jitted functions, and what is in the scope of a loop's own: no name for a step.
    "",
])  # fmt: skip
def test_a_while_loop_with_a_named_scope_is_no_scan(neighbor):
    scope = "jit(f)/while/body/attention/sin" if neighbor else "jit(f)/while/body/jit(step)/sin"
    text = module(STACKED.replace(INSERT, ELSEWHERE).replace(meta(21), meta(21, scope)))
    text = text.replace(
        f"  %new = f32[8] add(%sin, %x), {meta(22)}", neighbor or "  %new = f32[8] negate(%sin)"
    )
    assert "closed_call" not in text.replace(own("closed_call"), "")
    assert origin_of(text.replace(own("closed_call"), own())) == ("carry", "put", 77)


@pytest.mark.parametrize(("op_name", "right"), [
    ("jit(f)/dot_general", ("self", "logits", LOOP_LINE)),
    ("jit(f)/jit(relu)/max", ("self", "logits", LOOP_LINE)),
    # The loop's own, and what XLA made of it.
    ("jit(f)/jvp()/while", ("carry", "new", 22)),
    ("jit(f)/vmap(while)", ("carry", "new", 22)),
    ("jit(f)/jvp()/broadcast_in_dim", ("carry", "new", 22)),
])  # fmt: skip
def test_the_target_of_a_loop_has_its_line(op_name, right):
    """`relu(scan(…)[0] @ w)`: the product is what the user computes there, not what was carried."""
    logits = f"""  %last = f32[8] get-tuple-element(%while), index=1
  %logits = f32[8] dot(%last, %zero), {meta(LOOP_LINE, op_name)}"""
    assert origin_of(module(STACKED, logits), "logits", ()) == right


def test_what_the_carry_becomes_is_written_by_the_step():
    assert origin_of(module(STACKED), index=(1,)) == ("carry", "new", 22)


def test_what_is_never_written_is_what_went_in():
    assert origin_of(module(STACKED), index=(3,)) == ("parameter", "b", None)
    made = module(STACKED).replace("tuple(%one, %a, %zeros, %b)", "tuple(%one, %a, %zeros, %made)")
    made = made.replace("  %init =", f"  %made = f32[16] negate(%b), {meta(30)}\n  %init =")
    assert origin_of(made, index=(3,)) == ("invariant", "made", 30)


def test_a_saved_carry_is_an_input_of_the_layer():
    text = module(STACKED.replace("bitcast(%sin)", "bitcast(%x)"))
    origin, _ = walk(text, index=(2,))
    assert origin_of(text) == ("stacked", "new", 22)
    assert origin.is_layer_input
    unchanging = text.replace("tuple(%i, %new, %put", "tuple(%i, %x, %put")
    origin, _ = walk(unchanging, index=(2,))
    assert (origin.instruction.name, origin.is_layer_input) == (b"a", False)


def test_an_unrolled_scan_saves_inputs_of_several_layers():
    """XLA puts them together, on the line of the loop."""
    both = f"  %both = f32[16] concatenate(%x, %new), {own('concatenate')}\n"
    body = STACKED.replace(
        "  %row = f32[1,8] bitcast(%sin)", f"{both}  %row = f32[1,16] bitcast(%both)"
    )
    origin, _ = walk(module(body), index=(2,))
    assert origin_of(module(body)) == ("stacked", "new", 22)
    assert (origin.is_layer_input, origin.is_exact) == (True, False)
    made = module(body.replace("concatenate(%x", "multiply(%x"))
    assert not walk(made, index=(2,))[0].is_layer_input


def test_fused_computations_are_walked_through():
    fused = f"""%fused (f0: f32[4,8], f1: s32[], f2: f32[8]) -> f32[4,8] {{
  %f0 = f32[4,8] parameter(0)
  %f1 = s32[] parameter(1)
  %f2 = f32[8] parameter(2)
  %cos = f32[8] cosine(%f2), {meta(25)}
  %frow = f32[1,8] bitcast(%cos), {meta(99)}
  ROOT %fput = f32[4,8] dynamic-update-slice(%f0, %frow, %f1, %f1), {INSERT}
}}

"""
    body = STACKED.replace(
        "dynamic-update-slice(%stack, %row, %i, %i)", "fusion(%stack, %i, %sin), calls=%fused"
    )
    assert origin_of(module(body, others=fused)) == ("stacked", "cos", 25)
    through = fused.replace("bitcast(%cos)", "bitcast(%f2)")
    assert origin_of(module(body, others=through)) == ("stacked", "sin", 21)


def test_of_a_fusion_of_several_the_output_counts():
    fused = f"""%fused (f0: f32[8]) -> (f32[8], f32[8]) {{
  %f0 = f32[8] parameter(0)
  %one.1 = f32[8] cosine(%f0), {meta(25)}
  %two.1 = f32[8] sine(%f0), {meta(26)}
  ROOT %ft = (f32[8], f32[8]) tuple(%one.1, %two.1)
}}

"""
    body = STACKED.replace("%new =", "%f = (f32[8], f32[8]) fusion(%x), calls=%fused\n  %other =")
    body += "\n  %new = f32[8] get-tuple-element(%f), index=1"
    assert origin_of(module(body, others=fused), index=(1,)) == ("carry", "two.1", 26)


@pytest.mark.parametrize("move", ["copy", "bitcast", "reshape", "transpose", "convert", "pad",
                                  "reduce-precision", "slice"])  # fmt: skip
def test_moves_lead_on_whatever_line_they_have(move):
    body = STACKED.replace("bitcast(%sin)", f"{move}(%sin)")
    assert origin_of(module(body)) == ("stacked", "sin", 21)


@pytest.mark.parametrize("move", ["convert", "broadcast", "slice", "pad", "transpose", "reshape"])
def test_a_move_that_the_user_wrote_is_what_is_saved(move):
    body = STACKED.replace(f"bitcast(%sin), {own('closed_call')}", f"{move}(%sin), {meta(40)}")
    assert origin_of(module(body)) == ("stacked", "row", 40)


def test_what_vmap_turns_around_is_made_by_the_step():
    """In a mapped step, as in lax.map(…, batch_size=16), it has the line of the loop."""
    turned = meta(LOOP_LINE, "jit(f)/while/body/closed_call/vmap()/transpose")
    body = STACKED.replace(f"bitcast(%sin), {own('closed_call')}", f"transpose(%sin), {turned}")
    assert origin_of(module(body)) == ("stacked", "sin", 21)
    alone = body.replace("transpose(%sin)", "transpose(%take)")
    alone = f"  %take = f32[8] dynamic-slice(%w, %i), {TAKE}\n{alone}"
    assert origin_of(module(alone)) == ("stacked", "row", LOOP_LINE)
    # XLA merges this with a product: the instruction that computes is known, but not its line.
    product = STACKED.replace(f"sine(%x), {meta(21)}", f"dot(%x, %w), {turned}")
    assert origin_of(module(product)) == ("stacked", "sin", LOOP_LINE)
    assert not walk(module(product), index=(2,))[0].is_exact


@pytest.mark.parametrize("move", ["copy", "transpose", "convert", "reduce-precision"])
def test_a_name_given_in_a_helper_is_not_who_makes_the_data(move):
    """checkpoint_name compiles to a reduce_precision on the line that gives the name."""
    named = meta(33, "jit(f)/while/body/closed_call/reduce_precision")
    text = STACKED.replace("bitcast(%sin)", "bitcast(%n)")
    text = text.replace("  %new =", f"  %n = f32[8] {move}(%sin), {named}\n  %new =")
    assert origin_of(module(text)) == ("stacked", "sin", 21)


@pytest.mark.parametrize("move", ["copy", "bitcast", "reduce-precision"])
def test_other_moves_of_the_user_replace_an_end_without_a_line(move):
    text = module(
        STACKED.replace(f"bitcast(%sin), {own('closed_call')}", f"{move}(%sin), {meta(40)}")
    )
    assert origin_of(text) == ("stacked", "sin", 21)
    nameless = text.replace(f"sine(%x), {meta(21)}", "sine()")
    assert origin_of(nameless) == ("stacked", "row", 40)


def test_a_copy_has_two_halves():
    body = STACKED.replace("bitcast(%sin)", "copy-done(%s)")
    body = body.replace("  %row", "  %s = (f32[8], f32[8], u32[]) copy-start(%sin)\n  %row")
    assert origin_of(module(body)) == ("stacked", "sin", 21)


def test_one_step_read_back_is_a_slice():
    take = f"  %take = f32[1,8] dynamic-slice(%out, %z, %z), {TAKE}"
    origin, _ = walk(module(STACKED, take), "take")
    assert origin_of(module(STACKED, take), "take", ()) == ("slice", "sin", 21)
    assert (origin.written_by.name, origin.slice_count) == (b"put", 4)
    scanned = STACKED + f"\n  %part = f32[4] dynamic-slice(%w, %i), {TAKE}"
    assert origin_of(module(scanned), "part", ()) == ("slice", "b", None)


def test_a_cache_is_written_by_the_users_line():
    body = STACKED.replace(INSERT, meta(50, "jit(f)/while/body/dynamic_update_slice"))
    assert origin_of(module(body)) == ("carry", "put", 50)


def test_a_shared_gradient_is_made_where_its_part_is():
    body = f"""  %part = f32[16] dot(%x, %x), {meta(60)}
  %sum = f32[16] add(%w, %part), {own("add_any")}
  ROOT %t = (s32[], f32[8], f32[4,8], f32[16]) tuple(%i, %x, %stack, %sum)"""
    assert origin_of(module(body), index=(3,)) == ("carry", "part", 60)
    swapped = body.replace("add(%w, %part)", "add(%part, %w)")
    assert origin_of(module(swapped), index=(3,)) == ("carry", "part", 60)


def test_what_xla_made_leads_to_its_largest_changing_operand():
    made = "%k = f32[64] constant({…})\n  %s = f32[8] select(%k, %small, %sin)\n"
    body = STACKED.replace("  %row", f"  {made}  %small = f32[2] negate(%x)\n  %row")
    body = body.replace("bitcast(%sin)", "bitcast(%s)")
    origin, _ = walk(module(body), index=(2,))
    assert (origin.instruction.name, origin.is_exact) == (b"sin", False)


def test_few_of_those_are_crossed():
    def chain(length):
        more = "".join(f"  %k{n} = f32[8] tanh(%k{n + 1})\n" for n in range(length))
        body = STACKED.replace("  %row", f"  %k{length} = f32[8] copy(%sin)\n{more}  %row")
        return origin_of(module(body.replace("bitcast(%sin)", "bitcast(%k0)")))

    assert chain(MAX_GUESSES) == ("stacked", "sin", 21)
    assert chain(MAX_GUESSES + 1) == ("stacked", None, None)


def test_a_call_and_a_branch():
    called = """%called (k: f32[8]) -> f32[8] {
  %k = f32[8] parameter(0)
  ROOT %kc = f32[8] copy(%k)
}

%other (o: f32[8]) -> f32[8] {
  ROOT %o = f32[8] parameter(0)
}

"""
    for what in ("call(%sin), to_apply=%called",
                 "conditional(%i, %x, %sin), branch_computations={%other, %called}",
                 "conditional(%q, %x, %sin), true_computation=%other, "
                 "false_computation=%called"):  # fmt: skip
        body = STACKED.replace("bitcast(%sin)", what)
        assert origin_of(module(body, others=called)) == ("stacked", "sin", 21)
        assert origin_of(module(body, others=called), "kc", ())[1:] == ("sin", 21)


@pytest.mark.parametrize("zeros", [
    "broadcast(%nil), dimensions={}", "fusion(%nil), calls=%filled", "fusion(), calls=%zeroed",
])  # fmt: skip
@pytest.mark.parametrize("making", [("%one",), ("%two",), ("%one", "%two")])
def test_of_a_branch_that_saves_and_one_that_gives_zeros(zeros, making):
    """What a branch leaves for the backward pass counts; of two branches, the last, and no more
    than likely."""
    made = {"%one": f"sine(%k), {meta(61)}", "%two": f"cosine(%k), {meta(62)}"}
    others = f"""%filled (n: f32[]) -> f32[8] {{
  %n = f32[] parameter(0)
  ROOT %fb = f32[8] broadcast(%n), dimensions={{}}, {own("closed_call")}
}}

%zeroed () -> f32[8] {{
  %z = f32[] constant(0)
  ROOT %zb = f32[8] broadcast(%z), dimensions={{}}, {own("closed_call")}
}}

""" + "".join(f"""{name} (k{name[1:]}: f32[8]) -> (f32[8], f32[8]) {{
  %k = f32[8] parameter(0)
  %nil = f32[] constant(0), {own("closed_call")}
  %half = f32[8] {made[name] if name in making else zeros}
  ROOT %both = (f32[8], f32[8]) tuple(%k, %half)
}}

""" for name in ("%one", "%two"))  # fmt: skip
    body = STACKED.replace("bitcast(%sin)", "bitcast(%saved)").replace(
        "  %row",
        "  %which = (f32[8], f32[8]) conditional(%i, %sin, %sin), "
        "branch_computations={%one, %two}\n"
        "  %saved = f32[8] get-tuple-element(%which), index=1\n  %row",
    )
    text = module(body, others=others)
    assert origin_of(text) == ("stacked", "half", 61 if making == ("%one",) else 62)
    assert walk(text, index=(2,))[0].is_exact == (len(making) == 1)


def test_an_asynchronous_call():
    called = f"""%run (k: f32[8]) -> f32[8] {{
  %k = f32[8] parameter(0)
  ROOT %kc = f32[8] cosine(%k), {meta(70)}
}}

"""
    body = STACKED.replace("bitcast(%sin)", "async-done(%s)")
    start = "  %s = ((f32[8]), f32[8], u32[]) async-start(%sin), calls=%run\n  %row"
    assert origin_of(module(body.replace("  %row", start), others=called)) == ("stacked", "kc", 70)


@pytest.mark.parametrize(("op_name", "right"), [
    ("all_gather", ("stacked", "s", 71)), ("dot_general", ("stacked", "sin", 21)),
])  # fmt: skip
def test_a_users_gather_makes_data_and_one_of_xla_moves_it(op_name, right):
    body = STACKED.replace("bitcast(%sin)", "all-gather-done(%s)")
    written = meta(71, f"jit(f)/while/body/closed_call/{op_name}")
    start = f"  %s = (f32[4], f32[8]) all-gather-start(%sin), dimensions={{0}}, {written}\n  %row"
    assert origin_of(module(body.replace("  %row", start))) == right


ON_SPARSECORE = """%run (k: f32[8], l: f32[24]) -> f32[8] {
  %k = f32[8] parameter(0)
  %l = f32[24] parameter(1)
  ROOT %kc = f32[8] custom-call(%k, %l), custom_call_target="x"
}

"""


@pytest.mark.parametrize(("op_name", "right"), [
    ("all_gather", ("stacked", "all-gather.3.call-start", 71)),
    ("dot_general", ("stacked", "sin", 21)),
])  # fmt: skip
def test_a_gather_on_sparsecore_is_a_gather(op_name, right):
    """Its start has the line, its update the operands, and what it wraps has no line."""
    called = ON_SPARSECORE.replace("%k, %l", "%k")
    written = meta(71, f"jit(f)/while/body/closed_call/{op_name}")
    lines = f"""  %all-gather.3.call-start = ((), (), s32[4]) async-start(), \
async_execution_thread="sparsecore", calls=%run, {written}
  %u = ((f32[8]), f32[8], s32[4]) async-update(%all-gather.3.call-start, %sin)
  %row"""
    body = STACKED.replace("bitcast(%sin)", "async-done(%u)").replace("  %row", lines)
    text = module(body, others=called)
    assert origin_of(text) == right
    assert walk(text, index=(2,))[0].is_exact


def test_an_index_after_an_operand():
    text = module(STACKED, "  %half = f32[4,8] copy(%while#2)")
    assert origin_of(text, "half", ()) == ("stacked", "sin", 21)


def test_names_without_percent_and_shapes_before_operands():
    bare = re.sub(r"%(?=[a-z])", "", module(STACKED))
    assert origin_of(bare) == ("stacked", "sin", 21)
    shaped = module(STACKED).replace("bitcast(%sin)", "bitcast(f32[8]{0} %sin)")
    assert origin_of(shaped.replace("(%stack, %row", "(f32[4,8]{1,0} %stack, f32[1,8] %row")) == (
        "stacked", "sin", 21
    )  # fmt: skip


def test_nested_loops_need_nothing_more():
    """A stack of stacks: the outer update holds what an inner loop has stacked."""
    inner = STACKED.replace("%", "%n.").replace("%n.fused", "%fused")
    carry = "(s32[], f32[8], f32[4,8], f32[16])"
    heads = "".join(
        f"  %n.{name} = {shape} get-tuple-element(%n.p), index={at}\n"
        for at, (name, shape) in enumerate(
            [("i", "s32[]"), ("x", "f32[8]"), ("stack", "f32[4,8]"), ("w", "f32[16]")]
        )
    )
    nest = f"""%nest (n.p: {carry}) -> {carry} {{
  %n.p = {carry} parameter(0)
{heads}{inner}
}}

"""
    body = f"""  %again = {carry} tuple(%i, %x, %stack, %w)
  %deep = {carry} while(%again), condition=%cond, body=%nest, {own()}
  %made = f32[4,8] get-tuple-element(%deep), index=2
  %put = f32[4,8] dynamic-update-slice(%stack, %made, %i, %i), {INSERT}
  ROOT %t = {carry} tuple(%i, %x, %put, %w)"""
    origin, _ = walk(module(body, others=nest), index=(2,))
    assert origin_of(module(body, others=nest)) == ("stacked", "n.sin", 21)
    assert (origin.loop.name, origin.written_by.name) == (b"while", b"put")
    assert not origin.is_layer_input


# -- collectives of several ------------------------------------------------------------------------

TWO = f"""  %cos = f32[24] cosine(%x), {meta(25)}
"""
"""Saved in addition to STACKED."""


def combined(lines, taken):
    """Return a stack of one element taken from a combined collective."""
    body = f"{TWO}{STACKED}".replace("bitcast(%sin)", f"bitcast({taken})")
    return module(body.replace("  %row", f"{lines}\n  %row"))


@pytest.mark.parametrize(("number", "right"), [(0, ("sin", 21)), (1, ("cos", 25))])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("opcode", ["all-reduce", "reduce-scatter", "all-gather"])
def test_each_element_of_a_collective_has_its_operand(opcode, asynchronous, number, right):
    """It has the line of one of them."""
    start = "-start" if asynchronous else ""
    lines = [f"%all = (f32[8], f32[24]) {opcode}{start}(%sin, %cos), to_apply=%sum, {meta(21)}"]
    if asynchronous:
        lines.append(f"%done = (f32[8], f32[24]) {opcode}-done(%all)")
    last = "%done" if asynchronous else "%all"
    lines.append(f"%taken = f32[8] get-tuple-element({last}), index={number}")
    text = combined("\n".join(f"  {line}" for line in lines), "%taken")
    assert origin_of(text) == ("stacked", *right)
    assert walk(text, index=(2,))[0].is_exact


@pytest.mark.parametrize(("number", "right"), [(0, ("sin", 21)), (1, ("cos", 25))])
def test_so_has_each_element_of_one_on_sparsecore(number, right):
    lines = [
        "%all-reduce.3.call-start = ((), (), s32[4]) async-start(), "
        f'async_execution_thread="sparsecore", calls=%run, {meta(21)}',
        "%u = ((f32[8], f32[24]), (f32[8], f32[24]), s32[4]) "
        "async-update(%all-reduce.3.call-start, %sin, %cos)",
        "%done = (f32[8], f32[24]) async-done(%u)",
        f"%taken = f32[8] get-tuple-element(%done), index={number}",
    ]
    text = ON_SPARSECORE + combined("\n".join(f"  {line}" for line in lines), "%taken")
    assert origin_of(text) == ("stacked", *right)
    assert walk(text, index=(2,))[0].is_exact


@pytest.mark.parametrize(("number", "line", "right"), [
    (0, "", ("all", 50, True)), (1, meta(51, "jit(f)/jvp()/ppermute"), ("taken", 51, True)),
    (1, "", ("all", 50, False)),
])  # fmt: skip
def test_collectives_of_the_user_keep_their_lines(number, line, right):
    """It is the line of the first, or of the element, which newer texts leave out."""
    lines = ["%all = ((f32[8], f32[24]), (f32[8], f32[24])) collective-permute-start(%sin, %cos), "
             + meta(50, "jit(f)/jvp()/ppermute"),
             "%done = (f32[8], f32[24]) collective-permute-done(%all)",
             f"%taken = f32[8] get-tuple-element(%done), index={number}, {line}"]  # fmt: skip
    text = combined("\n".join(f"  {line}" for line in lines), "%taken")
    assert origin_of(text) == ("stacked", *right[:2])
    assert walk(text, index=(2,))[0].is_exact is right[2]


FLAT = """  %flat = f32[32] concatenate(%sin, %cos), dimensions={0}
  %all = f32[32] all-reduce-start(%flat), to_apply=%sum
  %done = f32[32] all-reduce-done(%all)
  %taken = f32[8] slice(%done), slice={[BEGIN:END]}"""


@pytest.mark.parametrize(
    ("begin", "end", "right", "is_exact"),
    [
        (0, 8, ("sin", 21), True),
        (8, 32, ("cos", 25), True),
        (16, 24, ("cos", 25), True),
        (4, 12, ("cos", 25), False),
        (0, 32, ("cos", 25), False),
    ],
)
def test_a_part_of_what_is_put_together_is_of_one_of_them(begin, end, right, is_exact):
    text = combined(FLAT.replace("BEGIN", str(begin)).replace("END", str(end)), "%taken")
    assert origin_of(text) == ("stacked", *right)
    assert walk(text, index=(2,))[0].is_exact is is_exact


@pytest.mark.parametrize("change", [
    ("f32[32] all-reduce-start(", "f32[32] reverse("), ("slice={[0:8]}", "slice={[0:8:2]}"),
    ("slice={[0:8]}", "slice={[0:2], [0:4]}"), ("f32[32] all-reduce-done", "f32[4] reduce-done"),
])  # fmt: skip
def test_of_what_is_no_part_of_it_the_largest_is_taken(change):
    text = combined(FLAT.replace("BEGIN", "0").replace("END", "8").replace(*change), "%taken")
    assert origin_of(text) == ("stacked", "cos", 25)
    assert not walk(text, index=(2,))[0].is_exact


def test_what_is_only_gathered_is_made_by_its_operand():
    """A collective without a line needs no guess."""
    text = combined("  %all = f32[16] all-gather(%sin), dimensions={0}", "%all")
    assert origin_of(text) == ("stacked", "sin", 21)
    assert walk(text, index=(2,))[0].is_exact


# -- whose a line is -------------------------------------------------------------------------------


def test_a_scan_on_one_line_is_recognized_by_its_names():
    text = module(STACKED.replace(meta(21), meta(LOOP_LINE)))
    assert origin_of(text) == ("stacked", "sin", LOOP_LINE)
    counter = text.replace("%sin = f32[8]", "%sin = s32[]")
    assert origin_of(counter) == ("stacked", "new", 22)


def test_library_lines_are_not_used():
    library = meta(21, file="/usr/lib/python3.11/site-packages/flax/linen.py")
    text = module(STACKED.replace(meta(21), library))
    origin, _ = walk(text, index=(2,))
    assert origin_of(text) == ("stacked", "new", 22)
    assert (origin.is_exact, origin.is_layer_input) == (False, False)


LIBRARY = meta(21, file="/l/site-packages/flax/linen.py")


def test_a_library_line_counts_if_no_user_line_follows():
    """Not the argument that it was computed from, at which the walk ends."""
    text = module(STACKED.replace(meta(21), LIBRARY).replace("%new, %put", "%x, %put"))
    origin, walker = walk(text, index=(2,))
    assert origin_of(text) == ("stacked", "sin", None)
    assert walker.places.library_source(origin.instruction) == "library flax/linen.py:21"
    assert (origin.is_exact, origin.is_layer_input, origin.written_by.name) == (True, False, b"put")
    assert walk(text, index=(1,))[0].kind == "parameter"


def test_of_several_that_libraries_compute_the_last_counts():
    twice = STACKED.replace(meta(21), LIBRARY).replace("sine(%x)", "sine(%y)")
    twice = f"  %y = f32[8] cosine(%x), {LIBRARY}\n" + twice.replace("%new, %put", "%x, %put")
    assert origin_of(module(twice)) == ("stacked", "sin", None)


def test_a_line_of_the_users_goes_before_it():
    before = STACKED.replace(meta(21), LIBRARY)
    assert origin_of(module(before)) == ("stacked", "new", 22)
    after = before.replace("bitcast(%sin), " + own("closed_call"), f"copy(%sin), {meta(40)}")
    assert origin_of(module(after.replace("%new, %put", "%x, %put"))) == ("stacked", "row", 40)


def test_what_is_read_of_an_argument_for_a_library_is_no_slice():
    """It is what the library makes of it."""
    body = STACKED.replace("%new, %put", "%x, %put")
    part = f"""  %part = f32[4] dynamic-slice(%w, %i), {TAKE}
  %scaled = f32[4] negate(%part), {LIBRARY}
"""
    text = module(part + body)
    assert origin_of(text, "part", ()) == ("slice", "b", None)
    assert origin_of(text, "scaled", ()) == ("self", "scaled", None)


def test_library_lines_count_where_there_are_no_others():
    text = module(STACKED).replace("/u/model.py", "/l/site-packages/flax/linen.py")
    graph = HloGraph(text.encode(), loops := loops_in(text.encode()))
    places = Places(None, loops_of(text.encode(), loops), text=text.encode())
    assert not places.has_own
    computed = graph.find(graph.homes([b"sin"])[b"sin"], b"sin")
    assert places.own(computed) == ("/l/site-packages/flax/linen.py", 21)
    assert places.library_source(computed) == "library flax/linen.py:21"
    assert places.is_users(computed)


def test_without_metadata_there_is_no_line_but_a_stack():
    bare = re.sub(r", metadata=\{[^}]*\}", "", module(STACKED))
    origin, _ = walk(bare, index=(2,))
    assert (origin.kind, origin.slice_count) == ("stacked", 4)
    assert origin_of(bare)[2] is None


# -- damage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [
    ("body=%body", "body=%nowhere"), ("body=%body", "body=%main"),
    ("condition=%cond, body=%body", ""),
    ("while(%init)", "while()"), ("while(%init)", "while(%while)"), ("index=2", "index=99"),
    ("index=2", "index=999999999999999999999"), ("parameter(0)", "parameter(77777777777777777777)"),
    ("ROOT %t", "%t"), ("tuple(%i, %new, %put, %w)", "tuple(%t, %t, %t, %t)"),
    ("bitcast(%sin)", "conditional(%i, %x, %sin)"), ("bitcast(%sin)", "fusion(%sin), kind=kLoop"),
    ("%row = f32[1,8] bitcast(%sin)",
     "%moved = f32[9] copy(%nowhere)\n  %row = f32[1,8] select(%moved, %sin)"),
    ("%row = f32[1,8] bitcast(%sin)",
     "%moved = f32[9] copy(%moved)\n  %row = f32[1,8] select(%moved, %sin)"),
    ("bitcast(%sin)", "bitcast(%row)"), ("bitcast(%sin)", "fusion(%sin), calls=%body"),
    ("dynamic-update-slice(%stack, %row, %i, %i)", "dynamic-update-slice(%put, %put)"),
    ("dynamic-update-slice(%stack, %row, %i, %i)", "dynamic-update-slice()"),
    ("f32[1,8]", "f32[99999999999999999999,99999999999]"), ("f32[4,8]", "f32[0]"),
    ("f32[1,8]", "(("), ("source_line=21", "source_line=99999999999999999999"),
    ('"n":"4"', '"n":"99999999999999999999999999"'),
])  # fmt: skip
def test_damage_ends_a_walk_and_nothing_else(change):
    assert change[0] in module(STACKED)
    text = module(STACKED).replace(*change)
    for name in ("while", "put", "row", "out", "init", "p", "t"):
        for index in ((), (0,), (1,), (2,), (3,), (2, 2, 2), (10**9,)):
            try:
                origin, _ = walk(text, name, index)
            except KeyError:  # The name is no longer there.
                continue
            assert origin is None or origin.step_count <= MAX_STEPS


def test_a_long_walk_is_given_up_and_says_so():
    copies = "".join(f"  %k{n} = f32[8] copy(%k{n + 1})\n" for n in range(MAX_STEPS + 50))
    origin, _ = walk(module(STACKED, copies), "k0")
    assert (origin.instruction, origin.is_exact) == (None, False)


AFTER = """  %half = bf16[4,8] convert(%out)
  %both = f32[64] concatenate(%out, %out), dimensions={0}, metadata={op_name="jit(f)/concatenate"}
  %flat = f32[64] concatenate(%out, %out), dimensions={0}
  %padded = f32[5,8] pad(%out, %zero), padding=0_1x0_0
  %wide = f32[16,4,8] broadcast(%out), dimensions={1,2}
  %mask = pred[16,4,8] broadcast(%flag), dimensions={}
  %none = f32[16,4,8] broadcast(%zero), dimensions={}
  %dense = f32[16,4,8] select(%mask, %wide, %none)
  %turned = f32[4,16,8] transpose(%dense), dimensions={1,0,2}
  %back = f32[2,8] pad(%taken, %zero), padding=0_1x0_0
  %gone = f32[1,8] dynamic-slice(%dense, %one, %one, %one), dynamic_slice_sizes={1,1,8}
  %times = f32[4,16,8] dot(%out, %zeros)
  %start = (f32[4,8], f32[4,8], u32[]) copy-start(%out)
  %nested = ((f32[4,8], s32[]), f32[4,8]) tuple(%pair, %out)
  %pair = (f32[4,8], s32[]) tuple(%out, %one)
  %taken = f32[1,8] dynamic-slice(%out, %one, %one), dynamic_slice_sizes={1,8}"""


def slices(name, index):
    """(kind, slice_count, slice_bytes) of what an instruction defines at an index."""
    origin, walker = walk(module(STACKED, AFTER), name, index)
    graph, name = walker.graph, name.encode()
    origin = Slices().counted(origin, graph.find(graph.homes([name])[name], name), index)
    return origin.kind, origin.slice_count, origin.slice_bytes


@pytest.mark.parametrize(
    ("name", "index", "count", "size"),
    [
        ("while", (2,), 4, 32),
        ("out", (), 4, 32),
        ("half", (), 4, 16),
        ("start", (), None, None),
        ("start", (1,), 4, 32),
        ("start", (2,), None, None),
        ("start", (3,), None, None),
        ("nested", (0, 0), 4, 32),
    ],
)
def test_slices_fill_the_value_or_none_are_said(name, index, count, size):
    assert slices(name, index) == ("stacked", count, size)


def test_what_xla_puts_together_of_several_stacks_is_of_no_line():
    """One buffer for one all-reduce: the line of the largest would hold the bytes of all."""
    assert origin_of(module(STACKED, AFTER), "flat", ()) == ("self", None, None)


@pytest.mark.parametrize(
    "name", ["both", "padded", "wide", "dense", "turned", "back", "gone", "times"]
)
def test_what_is_larger_than_its_operand_is_other_data(name):
    """A stack does not hold it: ragged_dot selects rows for each of 16 experts."""
    assert origin_of(module(STACKED, AFTER), name, ()) == ("self", None, None)


@pytest.mark.parametrize(
    ("size", "opcode"), [("[1,8]", "bitcast"), ("[2,8]", "pad"), ("[1,8]", "negate")]
)
def test_what_a_loop_inserts_is_in_its_stack_whatever_its_size(size, opcode):
    body = STACKED.replace(
        f"%row = f32[1,8] bitcast(%sin), {own('closed_call')}", f"%row = f32{size} {opcode}(%sin)"
    )
    origin, _ = walk(module(body), index=(2,))
    assert origin_of(module(body)) == ("stacked", "sin", 21)
    assert origin.is_exact == (opcode == "bitcast")


def test_a_slice_read_back_is_no_stack():
    assert slices("taken", ()) == ("slice", None, None)
