import pytest

from bufdb.export.values import Frame, without_rounds


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ("xcbacbacbam", "xcbam"),
        ("bacbacbam", "bacbam"),
        ("fffm", "fm"),
        ("ghgm", "ghgm"),
        ("", ""),
    ],
)
def test_of_rounds_of_the_same_frames_the_outermost_stays(stack, expected):
    frames = without_rounds([Frame(name) for name in stack])
    assert "".join(frame.name for frame in frames) == expected
