"""Shared memory of Mosaic GPU kernels: what launches in their MLIR module ask for."""

import random
import zlib
from base64 import b85decode

import pytest

from bufdb.read import mosaic_gpu

TEXT = b"""
module @kern attributes {stable_mosaic_gpu.version = 6 : i64} {
  "stable_mosaic_gpu.func.func"() ({
  ^bb0(%arg0: i64):
    %0 = "stable_mosaic_gpu.arith.constant"() {value = 1 : index} : () -> index
    %1 = "stable_mosaic_gpu.arith.constant"() {note = "no", value = 65544 : i32} : () -> i32
    %2 = "stable_mosaic_gpu.gpu.launch"(%0, %0, %1) ({
    ^bb0(%arg1: index, %arg2: index):
      %5 = "stable_mosaic_gpu.arith.constant"() {value = 7 : i32} : () -> i32
      "stable_mosaic_gpu.cf.br"(%5)[^bb1] : (i32) -> ()
    ^bb1(%6: i32):
      "stable_mosaic_gpu.gpu.terminator"() : () -> ()
    }) : (index, index, i32) -> !gpu.async.token
    %3 = "stable_mosaic_gpu.arith.constant"() {value = 512 : i32} : () -> i32
    %4 = "stable_mosaic_gpu.gpu.launch"(%0, %0, %3) ({
      "stable_mosaic_gpu.gpu.terminator"() : () -> ()
    }) : (index, index, i32) -> !gpu.async.token
    "stable_mosaic_gpu.func.return"() : () -> ()
  }) {sym_name = "f"} : () -> ()
}
""".replace(b'{note = "no", value', b"{value")
BYTECODE = zlib.decompress(b85decode(
    "c-m!8U2D}q5Z%diT*4aGCB!9!O9<s6QW~qJh=_<tDMI_wM_(?vac>)Xvyo&|=)3>Rf8t;8FF2_WKDg`-XU;kEu~(PBui@"
    "(Q%k`Vn`lLR&>4Jb#0urFaBvy$wDQ+%exKK(JN~<*Go9eVs%BKI0UIIuhHQ{;mHKL3x<w&ujgbG7Btt=2CQc9%-DJ{f?)"
    "50KGQ0%M@aZME+8u%feSx5>CI%CJNfr#@J*O!@vwX#rY3x=^dV*P^wmeR^X#<XQR*APVr(Lr_deXg77!MAl7?wl6~KM9P"
    "M5`kiq8UA6x;}KUmH^LVs^Uq%*>qv509pB<R#E<V0lBb`L*XPR5Qk)~cI$FH1AHDI?Pl_`oPM<IW@he(OMd~a~D9N+ZmO"
    "5UW?cD7{=fxD7?cQzrVQRW|!yAg_^~1M$??f|p;kIrE&n_PprQSEQZ*L!AaAV*3CJdw4F<CF+FB)B#M=#o4y&c7|xNr8e"
    "6VpS#@lEgkA6ehKaq0#y?i^R`gdc+AApQXJuUqN"
))  # fmt: skip
"""TEXT as MLIR writes it in version 0, with the note."""


def call(module):
    """Return attributes of a custom call as XLA prints them."""
    plain = range(0x20, 0x7F)
    text = "".join(
        chr(byte) if byte in plain and chr(byte) not in '"\\' else f"\\{byte:02X}"
        for byte in module
    )
    return f'custom_call_target="x", backend_config={{hash = "\\22", module = "{text}"}}'.encode()


@pytest.mark.parametrize("module", [TEXT, BYTECODE], ids=["text", "bytecode"])
def test_the_largest_launch_counts(module):
    assert mosaic_gpu.shared_bytes(call(module)) == 65544


@pytest.mark.parametrize(
    ("module", "size"),
    [
        (b"", None),
        (TEXT.replace(b"gpu.launch", b"gpu.other"), None),
        (BYTECODE.replace(b"gpu.launch", b"gpu.lounge"), None),
        (TEXT.replace(b"(%0, %0, %3)", b"(%0, %0, %arg0)"), None),
        (TEXT.replace(b"65544", b"0").replace(b"512", b"0"), 0),
    ],
    ids=["nothing", "no launch", "none in bytecode", "a size that is no constant", "zero"],
)
def test_a_size_that_is_not_there_is_unknown(module, size):
    assert mosaic_gpu.shared_bytes(call(module)) == size


def test_no_module_is_unknown():
    assert mosaic_gpu.shared_bytes(b'custom_call_target="mosaic_gpu_v2"') is None


@pytest.mark.parametrize(
    ("module", "why"),
    [(BYTECODE.replace(b"R\x01", b"R\x0d", 1), "not of version 0"), (BYTECODE[:400], "ends within"),
     (BYTECODE[:9], "ends within")],
)  # fmt: skip
def test_what_is_not_understood_says_why(module, why):
    with pytest.raises(ValueError, match=why):
        mosaic_gpu.shared_bytes(call(module))


def test_damage_is_an_error_or_a_size():
    chance = random.Random(7)
    for _ in range(300):
        module = bytearray(BYTECODE)
        for _ in range(chance.randint(1, 3)):
            module[chance.randrange(4, len(module))] = chance.randrange(256)
        try:
            size = mosaic_gpu.shared_bytes(call(bytes(module)))
        except ValueError:
            continue
        assert size is None or isinstance(size, int)
