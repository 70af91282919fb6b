"""Devices by name: the one a name means, the memory a program may use, and the documentation."""

import re
from pathlib import Path

import pytest

from bufdb.answers import devices
from bufdb.errors import UsageError

GIB = 2**30
PAGE = Path(__file__).resolve().parents[2] / "bufdb" / "commands" / "devices.md"
TABLE = re.compile(r"(<!-- devices -->\n)(.*?)(\n<!-- end of devices -->\n)", re.DOTALL)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("TPU v2", "v2-8", "tpu v2"), "TPU v2"),
        (("v3-32", "TPU v3"), "TPU v3"),
        (("TPUv4", "v4-8", "TPU v4"), "TPU v4"),
        (("v5e", "TPU v5 lite", "v5litepod-8", "v5e-4", "v5e:2x2", "tpu:v5e:2x2"), "TPU v5e"),
        (("v5p", "TPU v5", "TPU v5p", "v5p-128", "v5p:2x2x1"), "TPU v5p"),
        (("v6e-8", "TPU v6 lite", "Trillium"), "TPU v6e"),
        (("v7x", "TPU7x", "TPU v7x", "tpu7x-16", "Ironwood"), "TPU7x"),
        (("V100", "Tesla V100-SXM2-16GB"), "V100 16GB"),
        (("Tesla V100-SXM2-32GB",), "V100 32GB"),
        (("A100", "a100-40gb", "NVIDIA A100-SXM4-40GB"), "A100 40GB"),
        (("A100 80GB", "NVIDIA A100-SXM4-80GB"), "A100 80GB"),
        (("NVIDIA A100 80GB PCIe",), "A100 80GB PCIe"),
        (("H100", "gpu:h100", "NVIDIA H100 80GB HBM3", "H100 SXM5"), "H100 80GB"),
        (("H200", "NVIDIA H200"), "H200"),
        (("GH200", "NVIDIA GH200 480GB"), "GH200 96GB"),
        (("B200", "NVIDIA B200"), "B200"),
        (("GB200",), "GB200"),
        (("L4", "NVIDIA L4"), "L4"),
        (("NVIDIA GeForce RTX 4090",), "RTX 4090"),
        (("MI300X", "AMD Instinct MI300X"), "MI300X"),
    ],
)
def test_names_as_people_write_them(names, expected):
    assert {getattr(devices.device(name), "name", name) for name in names} == {expected}


def test_what_is_no_name_is_none():
    for name in ("", "7", "16", "16GiB", "H1", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "v5"):
        assert devices.device(name) is None


@pytest.mark.parametrize(
    ("name", "usable"),
    [
        ("v5e", 15.75), ("v6e", 31.25), ("v4", 30.75), ("v3", 15.48), ("v2", 7.48),
        ("v5p", 95.74), ("TPU7x", 94.74), ("H100", 59.33),
    ],
)  # fmt: skip
def test_a_limit_is_what_a_program_may_use(name, usable):
    assert devices.limit_of(name)[0] == pytest.approx(usable * GIB, abs=0.005 * GIB)


def test_what_the_compiler_refused_does_not_fit():
    assert devices.limit_of("TPU v5e")[0] < 15.80 * GIB


def test_every_device_has_a_page_and_names_of_its_own():
    names = [name for d in devices.DEVICES for name in (d.name, *d.other_names)]
    assert len({name.casefold() for name in names}) == len(names)
    for known in devices.DEVICES:
        assert known.source.startswith("https://")
        assert 7 * GIB <= known.memory_bytes <= 512 * GIB
        assert all(devices.device(name) is known for name in (known.name, *known.other_names))
        assert known.larger is None or devices.device(known.larger).name == known.larger


@pytest.mark.parametrize(
    ("size_text", "forms"),
    [
        ("16", "16GiB or 16B"), (16, "16GiB or 16B"), ("16G", "16GiB or 16GB"),
        ("512m", "512MiB or 512MB"), ("1.5", "1.5GiB or 1.5GB"), ("999999", "999999GiB or 999999B"),
    ],
)  # fmt: skip
def test_an_unclear_size_is_asked_about(size_text, forms):
    with pytest.raises(UsageError, match=rf"^--limit {size_text}: {forms}\?"):
        devices.limit_of(size_text)


@pytest.mark.parametrize(
    ("limit_text", "size"), [("16GiB", 2**34), (10**6, 10**6), ("16B", 16), ("500 kB", 500_000)]
)
def test_a_size(limit_text, size):
    assert devices.limit_of(limit_text) == (size, None)


def test_an_unknown_name_has_the_nearest():
    with pytest.raises(UsageError, match=r"such as A100 40GB, .*; got 'A1000'"):
        devices.limit_of("A1000")
    with pytest.raises(UsageError, match="TPU v5e"):
        devices.limit_of("v5x")


def test_the_documentation_has_the_table(request):
    text = PAGE.read_text(encoding="utf-8")
    made = TABLE.sub(lambda match: match[1] + devices.table() + match[3], text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made, encoding="utf-8", newline="\n")
        text = made
    assert devices.table() in text and made == text


def test_a_run_may_take_another_share_of_a_gpu():
    known = devices.device("GB200")
    assert devices.with_share(known, ".93").memory_bytes == int(known.whole_bytes * 0.93)
    assert devices.with_share(known, ".93").explained == (
        "a program may use it (memory_fraction=.93 of the run)"
    )
    for text in ("4.0", "0", "x", "nan"):  # above 1 it is the host's memory, too
        assert devices.with_share(known, text) == known
    tpu = devices.device("TPU v5e")
    assert devices.with_share(tpu, ".5") == tpu
