"""Stages of JAX as dump files, with fakes for JAX: names, folders, error messages."""

import shutil
import sys
import types
from pathlib import Path

import pytest
from ingesting import ingest_into
from places import DEMO, ROOT
from proto_rows import PROTOS, differences, needs_protobuf, put

import bufdb
from bufdb.capture import dump, target
from bufdb.capture.dump import without_persistent_cache
from bufdb.dumps.place import Files
from bufdb.errors import BufdbError, UsageError
from bufdb.proto.reader import fields, hlo_proto


class Lowered:
    """Compiles to the dump of a demo run, whose modules get a number."""

    def __init__(self, first=0, options=None):
        self.first, self.options = first, options

    def compile(self, compiler_options):
        folder = Path(compiler_options["xla_dump_to"])
        self.options = compiler_options
        for path in (DEMO / "cpu_b8").iterdir():
            number = int(path.name[7:11]) + self.first
            shutil.copy(path, folder / f"module_{number:04d}{path.name[11:]}")
        for path in folder.glob("*.debug_options"):
            path.write_text(f'xla_dump_to: "{folder}"\nxla_cpu_x: true\n')


class Silent:
    def compile(self, compiler_options):
        pass


class Stats:
    serialized_buffer_assignment_proto = b""


class Empty:
    """A program compiled ahead of time, which has no buffer assignment."""

    def memory_analysis(self):
        return Stats()

    def runtime_executable(self):
        return AheadOfTime(MODULE, b"")

    def as_text(self):
        return "HloModule jit_layers"

    input_shardings = ()
    output_shardings = (types.SimpleNamespace(device_set=[types.SimpleNamespace(platform="tpu")]),)


(PROTO,) = (ROOT / "data" / "protos" / "tpu").glob("*.jit_layers.*.hlo.pb")
MODULE, ASSIGNMENT = (
    PROTO.read_bytes()[start:stop]
    for number, _, start, stop in fields(PROTO.read_bytes())
    if number in (1, 3)
)


class AheadOfTime:
    """An executable for hardware that is not there: one module, and what it is serialized to."""

    name = "jit_layers"

    def __init__(self, module, serialized):
        self.module, self.serialized = module, serialized

    def hlo_modules(self):
        return [self]

    def as_serialized_hlo_module_proto(self):
        return self.module

    def serialize(self):
        return self.serialized


def in_blocks(data):
    """Put the data after a header, split into blocks as Riegeli splits it."""
    begin, size = bytes.fromhex("83af70d10d884a3f") + bytes(16), (1 << 16) - 24
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"before" + b"".join((begin if not n else bytes(24)) + p for n, p in enumerate(parts))


def content(place):
    with place.open("rb") if isinstance(place, Path) else place.open() as file:
        return file.read()


def test_names_depend_on_the_program_alone(tmp_path):
    files, other = (dump.dumped(Lowered(first), tmp_path)[0] for first in (0, 7))
    assert files.keys() == other.keys()
    assert len({name.partition("/")[0] for name in files}) == 3
    assert all("/module_0000." in name for name in files)


def test_where_it_was_dumped_to_is_no_option(tmp_path):
    files, _ = dump.dumped(Lowered(), tmp_path)
    options = [content(files[name]) for name in files if name.endswith(".debug_options")]
    assert options == [b"xla_cpu_x: true\n"] * 3


def test_what_xla_writes_is_read_where_it_lies(tmp_path):
    files, _ = dump.dumped(Lowered(), tmp_path)
    (folder,) = tmp_path.iterdir()
    paths = {path for path in files.values() if isinstance(path, Path)}
    assert {path.parent for path in paths} == {folder}
    assert len(paths) + 3 == len(files) == len(list(folder.iterdir()))


def test_options_of_the_user_are_kept_and_dumps_switched_on(tmp_path):
    lowered = Lowered()
    dump.compile_into(lowered, tmp_path, {"mine": 1, "xla_dump_hlo_as_text": False})
    expected = {"mine": 1, "xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True}
    assert lowered.options == {**expected, "xla_dump_hlo_module_re": ".*"}


@pytest.mark.slow
def test_a_program_is_ingested_once_and_several_are_one_run():
    with bufdb.connect() as db:
        assert db.ingest([Lowered(), Lowered(3)], run="x").module_count == 3
        assert db.ingest(Lowered(9), run="x").unchanged_count == 3
        rows = db.sql("SELECT run_name, source_path FROM runs").fetchall()
        assert rows == [("x", "a compiled function")]


def test_a_backend_without_dumps_is_reported(tmp_path):
    with pytest.raises(BufdbError, match="--xla_dump_to=DIR"):
        dump.dumped(Silent(), tmp_path)


class Refused(Lowered):
    """XLA dumps what it has planned, and gives up."""

    def __init__(self, text):
        super().__init__()
        self.text = text

    def compile(self, compiler_options):
        super().compile(compiler_options)
        raise RuntimeError(self.text)


E1000 = "E1000: CompileTimeHbmOom: the total memory (33.52G) exceeds available HBM (15.75G)."
E1001 = """E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %k.1 = f32[8]{0} \
custom-call(%a.1), metadata={op_name="jit(f)/pallas_call"}. Scoped allocation with size 72.00M \
and limit 16.00M exceeded scoped vmem limit by 56.00M. It should not be possible to run out."""


def test_a_program_that_is_refused_is_in_its_dump(tmp_path):
    text = f"{E1000}\nSee https://openxla.org/xla/errors/error_1000 for more details."
    files, refusal = dump.dumped(Refused(text), tmp_path)
    assert refusal == E1000
    assert len(files) == len(list((DEMO / "cpu_b8").iterdir()))


def test_a_refused_kernel_is_in_the_text_next_to_the_dump(tmp_path):
    files, refusal = dump.dumped(Refused(E1001), tmp_path)
    assert refusal == (
        "E1001: CompileTimeScopedVmemOom: Ran out of memory in memory space vmem while allocating "
        "on stack for %k.1: Scoped allocation with size 72.00M and limit 16.00M exceeded scoped "
        "vmem limit by 56.00M."
    )
    assert content(files["compiler.log"]).decode() == E1001.partition("\n")[2] + "\n"


def test_a_long_refusal_is_cut(tmp_path):
    assert len(dump.dumped(Refused("x" * 10_000), tmp_path)[1]) == dump.REFUSAL_LENGTH


def test_what_fails_before_it_is_planned_fails(tmp_path):
    class Failing:
        def compile(self, compiler_options):
            raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel"):
        dump.dumped(Failing(), tmp_path)


@pytest.mark.slow
def test_a_refusal_is_said_and_the_program_stored():
    with bufdb.connect() as db:
        done = db.ingest(Refused(E1000), run="x")
        assert (done.module_count, done.refusals) == (3, [E1000])
        assert bufdb.explain(Refused(E1000)).notes[-1] == f"XLA gave up: {E1000}"


@needs_protobuf
@pytest.mark.parametrize(
    "nothing",
    [
        {"runtime_executable": lambda self: None},
        {"runtime_executable": lambda self: types.SimpleNamespace(hlo_modules=list)},
        {"memory_analysis": lambda self: None, "as_text": lambda self: None},
    ],
)
def test_a_backend_without_text_is_reported(tmp_path, nothing):
    compiled = type("Nothing", (Empty,), nothing)()
    with pytest.raises(BufdbError, match="--xla_dump_to=DIR"):
        dump.dumped(compiled, tmp_path)


def test_an_empty_assignment_asks_for_the_lowered_function(tmp_path):
    with pytest.raises(BufdbError, match=r"Pass the result of \.lower\(\.\.\.\)"):
        dump.dumped(Empty(), tmp_path)


@needs_protobuf
@pytest.mark.parametrize("wrapped", [lambda data: b"\x0a" + data + b"\x00", in_blocks])
def test_a_tpu_executable_has_the_assignment(tmp_path, monkeypatch, wrapped):
    whole = hlo_proto(MODULE, ASSIGNMENT)
    inside = b"\x32" + MODULE[:40] + bytes(60_000) + whole + hlo_proto(MODULE, b"")
    executable = AheadOfTime(MODULE, wrapped(inside))
    monkeypatch.setattr(Empty, "runtime_executable", lambda self: executable)
    leaves = types.SimpleNamespace(leaves=lambda trees: [one for tree in trees for one in tree])
    monkeypatch.setattr(dump, "jax_module", lambda: types.SimpleNamespace(tree=leaves))
    ((name, place),) = dump.dumped(Empty(), tmp_path)[0].items()
    assert name.endswith("/module_0000.jit_layers.after_optimizations.hlo.pb")
    assert place.content == whole
    assert list(tmp_path.iterdir()) == []


@needs_protobuf
def test_an_executable_has_its_module(tmp_path, monkeypatch):
    """A libtpu newer than jaxlib makes instructions that jaxlib refuses."""
    whole = hlo_proto(MODULE, ASSIGNMENT)

    def refused():
        raise RuntimeError("async-update instruction should have 1 operands but sees 2")

    executable = AheadOfTime(MODULE, in_blocks(b"\x32" + MODULE[:40] + bytes(60_000) + whole))
    executable.hlo_modules = refused
    monkeypatch.setattr(Empty, "runtime_executable", lambda self: executable)
    leaves = types.SimpleNamespace(leaves=lambda trees: [one for tree in trees for one in tree])
    monkeypatch.setattr(dump, "jax_module", lambda: types.SimpleNamespace(tree=leaves))
    ((name, place),) = dump.dumped(Empty(), tmp_path)[0].items()
    assert name.endswith("/module_0000.jit_layers.after_optimizations.hlo.pb")
    assert place.content == whole
    assert list(tmp_path.iterdir()) == []
    executable.serialized = b"nothing"
    with pytest.raises(BufdbError, match=r"Pass the result of \.lower\(\.\.\.\)"):
        dump.dumped(Empty(), tmp_path)


@needs_protobuf
def test_a_gpu_executable_has_the_assignment(con, tmp_path, monkeypatch):
    pytest.importorskip("cramjam", reason="the package cramjam is not installed")
    (proto,) = (PROTOS / "gpu").glob("*.jit_nested.*")
    executable = AheadOfTime(
        next(proto.read_bytes()[start:stop] for _, _, start, stop in fields(proto.read_bytes())),
        (ROOT / "data" / "executables" / "gpu" / "jit_nested.executable").read_bytes(),
    )
    executable.name = "jit_nested"
    executable.client = types.SimpleNamespace(platform="gpu")
    monkeypatch.setattr(Empty, "runtime_executable", lambda self: executable)
    ingest_into(con, Files("", dump.dumped(Empty(), tmp_path)[0], ""), run="compiled")
    ingest_into(con, put(tmp_path / "text", (ROOT / "data/loops/gpu").glob("*nested*")), run="text")
    # The frame of main() has the line on which it compiles, the file's name the kind of the GPU.
    odd = [text.partition(":")[0] for text in differences(con, "compiled", "text")]
    assert odd == ["modules", "stack_frames"]


OTHER = MODULE.replace(b"fusion", b"fission")


@needs_protobuf
@pytest.mark.parametrize(
    "inside",
    [
        hlo_proto(MODULE, ASSIGNMENT)[:-1],
        hlo_proto(MODULE, b""),
        hlo_proto(MODULE, b"\x00" * 100),
        hlo_proto(OTHER, ASSIGNMENT),
        MODULE[:1000] * 3,
        b"",
    ],
)
def test_what_is_not_the_whole_of_this_module_is_none(tmp_path, monkeypatch, inside):
    monkeypatch.setattr(Empty, "runtime_executable", lambda self: AheadOfTime(MODULE, inside))
    with pytest.raises(BufdbError, match="has no buffer assignment"):
        dump.dumped(Empty(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_protobuf_its_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(dump, "is_readable", lambda: False)
    with pytest.raises(BufdbError, match=r"pip install 'bufdb\[proto\]'"):
        dump.dumped(Empty(), tmp_path)


def test_without_jax_a_block_says_what_else_there_is(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "jax._src.compiler", None)
    with pytest.raises(BufdbError, match="bufdb capture -- COMMAND"), dump.watched(tmp_path):
        pass


def test_a_block_that_fails_leaves_jax_as_it_was(tmp_path, monkeypatch):
    compiler = types.ModuleType("jax._src.compiler")
    compiler.get_compile_options = original = lambda: None
    for name in ("jax", "jax._src", "jax._src.compiler"):
        monkeypatch.setitem(sys.modules, name, compiler)
    with pytest.raises(ZeroDivisionError), dump.watched(tmp_path):
        assert compiler.get_compile_options is not original
        _ = 1 / 0
    assert compiler.get_compile_options is original


@pytest.mark.slow
def test_a_block_that_fails_has_stored_what_was_compiled(monkeypatch):
    compiler = types.ModuleType("jax._src.compiler")
    compiler.get_compile_options = lambda: types.SimpleNamespace(env_option_overrides=[])
    for name in ("jax", "jax._src", "jax._src.compiler"):
        monkeypatch.setitem(sys.modules, name, compiler)
    with bufdb.connect() as db:
        with pytest.raises(RuntimeError, match="E1000"), db.capture(run="x"):
            Refused(E1000).compile(dict(compiler.get_compile_options().env_option_overrides))
        assert db.sql("SELECT count(*) FROM modules").fetchall() == [(3,)]
        with pytest.raises(BufdbError, match="nothing was compiled"), db.capture(run="y"):
            pass


def test_the_cache_is_left_alone_where_jax_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    with without_persistent_cache():
        assert "jax" not in sys.modules


@pytest.mark.parametrize("text", ["tpu", "cpu:1", "gpu:", ""])
def test_what_is_no_target_is_refused(text):
    with pytest.raises(UsageError, match="--target wants tpu:v5e:2x2"):
        target.target(text)
