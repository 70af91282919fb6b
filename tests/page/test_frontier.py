"""The page of `bufdb fit --page`: the plans as a curve, each point a link to its patch."""

import base64
import hashlib
import re

import browser as headless
import pytest
from once import one_at_a_time

from bufdb.fitting.answer_text import Described
from bufdb.page.frontier import frontier, page

MIB = 1 << 20
PATCH = "--- a/t.py\n+++ b/t.py\n@@ -1 +1 @@\n-old <script>alert(1)</script>\n+new \u202e & text\n"


def plan(rank, need, ratio, **more):
    return {
        "rank": rank, "need_bytes": need, "extra_work_ratio": ratio, "is_compiled": True,
        "is_verified": False, "is_broken": False, "steps": [], "patch": None, **more,
    }  # fmt: skip


ANSWER = {
    "function": "t.py:step",
    "order": "products",
    "limit_bytes": 300 * MIB,
    "as_written": {"need_bytes": 900 * MIB},
    "best": 2,
    "plans": [
        plan(1, 500 * MIB, 0.0, is_compiled=False),
        plan(2, 250 * MIB, 0.125, is_verified=True, patch=PATCH),
        plan(3, 240 * MIB, 0.25, steps=["donate ws at t.py:9"]),
        plan(4, 90 * MIB, 0.5, is_broken=True),
        plan(5, 80 * MIB, None),
    ],
}
RANKS = range(1, 6)
WORDS = Described(
    "t.py:step needs 900 MiB; plan 2 fits 300 MiB",
    {rank: f"state {rank}" for rank in RANKS},
    {rank: f"again t.py:{rank}" for rank in RANKS},
    ["3 compiled."],
)


def test_the_frontier_leaves_out_what_another_beats():
    points = [(0.2, 5), (0.0, 9), (0.1, 5), (0.3, 6), (0.4, 1), (0.0, 10)]
    assert frontier(points) == [(0.0, 9), (0.1, 5), (0.4, 1)]


def test_each_plan_is_a_link_to_its_patch():
    text = page(ANSWER, WORDS)
    links = re.findall(
        r"<a class='point ([\w ]+)' href='#(?:plan-)?([\w-]+)' aria-label='(.*?)'", text
    )
    wide = links[: len(links) // 2]
    assert links == wide * 2  # for a narrow screen, too
    assert wide == [
        ("compiled best", "2", "plan 2: 250 MiB, +12.5% extra products, the best that fits"),
        ("written", "as-written", "as written: 900 MiB, +0.0% extra products"),
        ("traced", "1", "plan 1: ~500 MiB, +0.0% extra products, estimated"),
        ("compiled", "3", "plan 3: 240 MiB, +25.0% extra products"),
        ("broken", "4", "plan 4: 90.0 MiB, +50.0% extra products, its patch fails"),
    ]
    shown = dict(
        re.findall(r"id='plan-(\d)'>(?:(?!</section>).)*<p class='dim'>(.*?)</p></section>", text)
    )
    assert shown == {
        "1": "It has no patch: plans that cost less or save more have.",
        "4": "Its patch cannot be compiled, or needs more than the limit: see the notes.",
        "5": "It has no patch: plans that cost less or save more have.",
    }
    assert "unknown: plan 5." in text and "donate ws at t.py:9" in text
    assert re.findall(r"<section class='plan( best)?' id='plan-(\d)'>", text) == [
        ("", "1"), (" best", "2"), ("", "3"), ("", "4"), ("", "5"),
    ]  # fmt: skip


def test_nothing_in_a_patch_is_obeyed():
    text = page({**ANSWER, "function": "<img onerror=x>{style}"}, WORDS)
    assert "<script" not in text and "<img" not in text and "\u202e" not in text
    assert "-old &lt;script&gt;alert(1)" in text and "\\u202e &amp; text" in text
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"content=\"default-src 'none'; style-src 'sha256-{digest}'; base-uri" in text


@pytest.mark.parametrize(
    "change", [{"plans": []}, {"as_written": {"need_bytes": None}, "plans": []}]
)
def test_an_answer_without_plans_has_a_page(change):
    assert WORDS.headline in page({**ANSWER, "best": None, **change}, WORDS)


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    if (why := headless.missing()) is not None:
        pytest.skip(why)
    with one_at_a_time(tmp_path_factory, "browser"), headless.opened() as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 390])
def test_a_click_on_a_point_shows_its_patch(window, tmp_path, width):
    file = tmp_path / "fit.html"
    file.write_text(page(ANSWER, WORDS), encoding="utf-8")
    shown = (
        "return [...document.querySelectorAll('.plan')].filter(each => each.offsetHeight)"
        ".map(each => each.id)"
    )
    for is_dark in (False, True):
        window.resize(width, is_dark=is_dark)
        window.open(file)
        assert window.run(shown) == ["plan-2"]
        points = window.driver.find_elements("css selector", "a[href='#plan-4']")
        (point,) = [each for each in points if each.is_displayed()][:1]
        point.click()
        assert window.run(shown) == ["plan-4"]
        assert window.run("return document.documentElement.scrollWidth") <= width
        if headless.AXE.exists():
            assert window.barriers() == []
    window.check_quiet()
