"""The head of an HLO text: where it ends (format section 7)."""

import pytest

from bufdb.read import hlo

HEAD = b"HloModule jit_f, is_scheduled=true\n\nStackFrames\n1 {file_location_id=1}\n\n"


@pytest.mark.parametrize(
    "first",
    [
        b"%sum (a: f32[], b: f32[]) -> f32[] {\n",
        b"ENTRY %main (p: f32[2]) -> f32[2] {\n",
        b"sum (a: f32[], b: f32[]) -> f32[] {\n",
        b"main.3 {\n",
    ],
)
def test_computations_begin_with_or_without_a_percent_sign(first):
    assert hlo.header_end(HEAD + first + b"  a = f32[] add(b, c)\n}\n") == len(HEAD)


def test_a_text_without_computations_is_all_head():
    assert hlo.header_end(HEAD) == len(HEAD)
    assert hlo.header_end(HEAD + b"a {b}\n") == len(HEAD) + 6
