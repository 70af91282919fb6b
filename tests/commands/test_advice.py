"""`bufdb advice`, and what a summary says where there is none."""

import pytest

from bufdb.answers import summary_text
from bufdb.answers.summary import Overview

PEAK = {"peak_bytes": 1000, "function_name": "step", "run_name": "r", "color": 0}


def no_advice(saving, platform="gpu"):
    line = {"what": "source_line", "name": "m.py:17", "saving_bytes": saving, "platform": platform}
    parts = {"advice": [], "savings": [line]}
    head, *lines = summary_text.advice_text(Overview({}, peak=PEAK, parts=parts)).splitlines()
    assert head == "1000 B, the peak of step of run r"
    return " ".join(lines)


def test_nothing_saves_where_no_line_does():
    assert no_advice(9) == "  nothing that saves 1 % of it by itself"


def test_a_large_line_is_named_without_advice():
    assert no_advice(133).startswith("  no advice, but without m.py:17 it is 133 B less")
    assert "merges" not in no_advice(133)
    assert "CPU XLA merges" in " ".join(no_advice(133, "cpu").split())


ROW = {
    "kind": "donate", "name": "state.mu['w'] and 2 more", "low_saving_bytes": 0,
    "saving_bytes": 2048, "saving_ratio": 0.5, "advice": "donate them", "sureness": "likely",
    "saving_form": None, "kept_name": None, "query_name": "donation-missed", "page": "p.md",
    "function_name": "train_step",
}  # fmt: skip


def shown(page="", **cells):
    overview = Overview({}, peak=PEAK, parts={"advice": [ROW | cells]})
    return summary_text.advice_text(overview, lambda kind: f"{kind}\n```python\n{page}\n```\n")


def test_what_to_do_is_whole_in_a_terminal_of_80_columns():
    does = "choose dimensions that fill the tiles, or merge small ones"
    lines = shown(advice=does, low_saving_bytes=1024).splitlines()
    assert lines[3:5] == [
        "at least 1.00 KiB  choose dimensions that fill the tiles, or merge small ones".rjust(78),
        f"{'':20}(likely)",
    ]


@pytest.mark.parametrize(
    ("low", "text"),
    [(0, "or nothing"), (None, ""), (2048, ""), (1024, "at least 1.00 KiB"), (-5, "or 5 B more")],
)
def test_the_low_end_where_it_differs(low, text):
    assert summary_text.least({"low_saving_bytes": low, "saving_bytes": 2048}) == text


@pytest.mark.parametrize(
    ("page", "cells", "expected"),
    [
        ("jit(step, x=('params',))", {}, "jit(train_step, x=('state',))"),
        ("# train.py:65", {"name": "saved a/lm.py:7", "kind": "residual"}, "# a/lm.py:7"),
        ("name(y, 'train_65')", {"name": "lm.py:7", "kind": "offload"}, "name(y, 'lm_7')"),
        ("Block(x)", {"name": "Res.__call__ (u.py)", "kind": "block"}, "Res(x)"),
        ("steps = step", {"function_name": "<lambda>"}, "steps = step"),
    ],
)
def test_code_has_the_names_of_the_program(page, cells, expected):
    assert expected in shown(page, **cells).splitlines()


PAGE = """# Title

Prose.

```python
h = name(h, "train_65")  # train.py:65
keep = ["train_65"]
```

With flax (nnx; was `Block(x)`):

```python
from flax import nnx
```
"""


def test_an_example_is_shown_once_per_kind_with_its_library():
    rows = [ROW | {"kind": "offload", "name": f"a/lm.py:{n}", "page": "p.md"} for n in (7, 9, 7)]
    overview = Overview({}, peak=PEAK, parts={"advice": [*rows, ROW | {"name": "x"}]})
    lines = summary_text.advice_text(
        overview, {"offload": PAGE, "donate": "# Other\n"}.__getitem__
    ).splitlines()
    assert lines[lines.index("# Title (p.md)") :] == [
        "# Title (p.md)",
        "# for a/lm.py:7, a/lm.py:9",
        "",
        'h = name(h, "lm_7")  # a/lm.py:7',
        'keep = ["lm_7", "lm_9"]',
        "",
        "# With flax (nnx; was `Block(x)`):",
        "from flax import nnx",
        "",
        "# Other (p.md)",
        "# for x",
    ]


@pytest.mark.slow
def test_advice_of_a_database(call, demo_db):
    code, out, err = call("advice", "--db", demo_db, "--run", "cpu_b16", "--code")
    assert (code, err) == (0, "")
    assert "train.py:65" in out
    assert out.count("checkpoint_name(activation(h),") == 1
    assert "# With flax (linen):" in out.splitlines()
    assert call("advice", "step", "--function", "step", "--db", demo_db)[0] == 2
