"""Parameters of the program before optimizations, line by line."""

from bufdb.read.other_files import BeforeOptimizations

HEAD = b"HloModule jit_f, num_partitions=4\n\n"
INNER = b"%inner (x: f32[]) -> f32[] {\n  ROOT %x = f32[] parameter(0)\n}\n\n"
ENTRY = b"ENTRY %main (a: f32[8]) -> f32[8] {\n"


def read(*parts):
    reader = BeforeOptimizations()
    for part in parts:
        reader.feed(part)
    return reader


def parameters(reader):
    return [(p.parameter_number, p.shape, p.text) for p in reader.parameters.values()]


def test_parameters_of_the_entry_alone():
    line = b"%a.1 = f32[8]{0:T(256)} parameter(1), sharding={replicated}"
    other = b"t = (f32[2]{0}, s32[]) parameter(0)"
    reader = read(HEAD + INNER + ENTRY + b"  " + line + b"\n  ROOT " + other + b"\n}\n\n" + INNER)
    assert parameters(reader) == [
        (1, "f32[8]{0:T(256)}", line.decode()),
        (0, "(f32[2]{0}, s32[])", other.decode()),
    ]
    assert (reader.header.module_name, reader.header.partition_count) == ("jit_f", 4)
    assert (reader.has_end, reader.problems, reader.read_count, reader.line_count) == (
        True,
        [],
        3,
        15,
    )


def test_the_same_in_parts():
    text = HEAD + INNER + ENTRY + b"  %a = s32[] parameter(0)\n}\n\n" + INNER
    lines = text.splitlines(keepends=True)
    assert vars(read(text)) == vars(read(*lines))


def test_a_brace_after_a_raw_line_end_ends_nothing():
    text = ENTRY + b'  %c = f32[] custom-call(), backend_config="{\n}\n"\n'
    reader = read(HEAD, text, b"  %a = s32[] parameter(0)\n}\n")
    assert (list(reader.parameters), reader.has_end) == ([0], True)


def test_the_name_of_a_computation_may_follow_its_end():
    """As jaxlib 0.4.35 prints it after computations of more than a few lines."""
    inner = b"inner {\n  ROOT x = f32[] parameter(0)\n} // inner\n\n"
    text = HEAD + inner + b"ENTRY main.8 {\n  ROOT a = s32[] parameter(0)\n} // main.8\n\n"
    reader = read(text + inner.replace(b"(0)", b"(1)"))
    assert (list(reader.parameters), reader.has_end) == ([0], True)
    assert read(*text.splitlines(keepends=True)).has_end


def test_names_and_numbers_that_are_none():
    quoted = b'  %c = s32[] constant(0), metadata={op_name="%p = s32[] parameter(7)"}\n'
    wrong = b"  %a = s32[] parameter(x)\n  %b = s32[] parameter(3)\n  %c = f32[] parameter(3)\n"
    reader = read(HEAD, ENTRY, quoted, wrong + b"}\n\n")
    assert [row[:2] for row in parameters(reader)] == [(3, "s32[]")]
    assert [number for number, _ in reader.problems] == [5, 7]
    assert reader.problems[1][1].startswith("expected a parameter of another number, found")


def test_a_text_that_is_cut_off_has_no_end():
    assert not read(HEAD, ENTRY, b"  %a = s32[] parameter(0)\n").has_end
    assert not read(HEAD + INNER).has_end
    assert [number for number, _ in read(b"nothing of the kind\n").problems] == [1]


def test_line_ends_and_marks_of_editors():
    text = b"\xef\xbb\xbf" + (HEAD + ENTRY + b"  %a = s32[] parameter(0)\n}\n\n")
    reader = read(text.replace(b"\n", b"\r\n"))
    assert parameters(reader) == [(0, "s32[]", "%a = s32[] parameter(0)")]
    assert (reader.header.partition_count, reader.has_end, reader.problems) == (4, True, [])
