"""The picture of a notebook."""

from xml.etree import ElementTree

from bufdb.api.explain import HEIGHT, LINE, WIDTH, Span, svg

SPANS = [Span(0, 3, 512, "a"), Span(4, 7, 1024, "<b>&"), Span(8, 15, 0, None)]


def bars(text):
    return [
        {name: float(bar.get(name)) for name in ("x", "y", "width", "height")}
        for bar in ElementTree.fromstring(text).iter("rect")
    ]


def test_bars_are_scaled_to_spans_and_bytes():
    assert bars(svg(SPANS)) == [
        {"x": 0, "y": LINE + HEIGHT / 2, "width": WIDTH / 4, "height": HEIGHT / 2},
        {"x": WIDTH / 4, "y": LINE, "width": WIDTH / 4, "height": HEIGHT},
        {"x": WIDTH / 2, "y": LINE + HEIGHT, "width": WIDTH / 2, "height": 0},
    ]


def test_tooltips_have_the_figures_and_no_markup_of_a_dump():
    titles = [title.text for title in ElementTree.fromstring(svg(SPANS)).iter("title")]
    assert titles == ["0-3: 512 B a", "4-7: 1.00 KiB <b>&", "8-15: 0 B"]


def test_nothing_is_drawn_of_nothing():
    assert svg([]) == svg([Span(0, 3, 0, None)]) == ""
