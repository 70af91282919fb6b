"""Two sides as text, of rows made up: what a line of a diff says of runs, spaces and donations."""

import sys

import pytest

from bufdb.answers import diff_text
from bufdb.answers.diff import Comparison, Row
from bufdb.commands import diff as command
from bufdb.page import comparison

UNKNOWN = dict.fromkeys(Row._fields)


def row(place=1, base=None, new=None, **cells):
    """A peak or, with `part`, a part of one; what is not given is unknown."""
    known = base is not None and new is not None
    facts = {
        "function_name": "f",
        "base_function_name": "f",
        "new_function_name": "f",
        "paired_by": "name",
        "color": 0,
        "figure": "peak",
        "delta_bytes": new - base if known else None,
        "change": "grew" if known and new > base else "same" if known else "unknown",
    }
    return Row(
        **{**UNKNOWN, **facts, "place": place, "base_bytes": base, "new_bytes": new, **cells}
    )


def compared(figures, parts=(), key_name="op"):
    return Comparison(
        figures, list(parts), [], [(name, "VARCHAR") for name in Row._fields], key_name
    )


def headline(figures, parts=()):
    return diff_text.summary(compared(figures, parts))


def test_nothing_was_there_to_compare():
    assert headline([]) == "nothing to compare"


def test_a_change_from_nothing_has_no_ratio():
    assert headline([row(base=0, new=2048)]) == "f: peak 0 B → 2.00 KiB"


def test_both_sides_of_a_small_change_differ():
    change = headline([row(base=1213333504, new=1214333504, delta_ratio=0.0008)])
    assert change.startswith("f: peak 1.130 GiB → 1.131 GiB (+0.1%)")


@pytest.mark.parametrize(
    ("width", "text"), [(80, "2 others"), (120, "padding, fragmentation"), (None, "padding, frag")]
)
def test_unchanged_figures_without_room_are_counted(width, text):
    figures = [row(base=1, new=2), row(base=1, new=1, figure="padding"),
               row(base=1, new=1, figure="fragmentation")]  # fmt: skip
    assert text in diff_text.text(compared(figures), 5, width=width).text


def test_a_change_of_many_times_is_a_factor():
    change = headline([row(base=96, new=8217280, delta_ratio=85595.67)])
    assert change == "f: peak 96 B → 7.84 MiB (×85,600)"


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ({"part": "w", "change": "donated", "new_value_count": 1}, "parameter 'w' is donated now"),
        (
            {"part": "(none)", "change": "not donated", "base_value_count": 3},
            "3 parameters are not donated any more",
        ),
        ({"part": "dot", "new_source": "a.py:3"}, "dot a.py:3"),
        ({"part": "dot", "base_added_bytes": 0, "new_added_bytes": 8}, "for dot"),
    ],
)
def test_the_part_that_grew_most_is_named_for_what_it_is(cells, what):
    figures = [row(base=2**20, new=2**21, delta_ratio=1.0)]
    line = headline(figures, [row(base=0, new=8, **cells)])
    assert line == f"f: peak 1.00 MiB → 2.00 MiB (+100.0%), largest: +8 B {what}"


def test_what_only_changed_its_name_is_not_what_grew():
    """Versions of jax name the same argument or op otherwise; each is a pair once."""

    def part(name, change, delta, shape="f32[8]", kind="temp"):
        side = "base" if change == "vanished" else "new"
        cells = {"allocation_kind": kind, f"{side}_shape": shape, "delta_bytes": delta}
        return row(part=name, change=change, **cells)

    parts = [
        part("x", "appeared", 32),
        part("y", "appeared", 32),
        part("(parameter)", "vanished", -32),
        part("z", "appeared", 32, shape="f32[4,2]"),
        part("exp", "grew", 16),
        part("w", "appeared", 32, kind="output"),
        part("dot", "shrank", -8),
    ]
    assert [part_row.part for part_row in diff_text.moved(parts, 104)] == ["y", "z", "w", "exp"]
    assert [part_row.part for part_row in diff_text.moved(parts, -8)] == ["dot"]
    assert headline([row(base=8, new=24)], [*parts[:1], *parts[2:3], parts[4]]) == (
        "f: peak 8 B → 24 B, largest: +16 B exp"
    )


def test_sums_are_of_one_memory_space_each():
    grown = [row(1, 4, 9), row(2, 1, 3, color=1, memory_space_name="vmem")]
    totals = "in all: color 0 grew 5 B in 1 function; vmem grew 2 B in 1 function"
    assert headline(grown) == f"f (color 0): peak 4 B → 9 B; {totals}"
    others = [row(3, 7, 7), row(4)]
    assert headline(grown + others).endswith(f"{totals}; 1 unchanged, 1 unknown")


def test_functions_of_several_runs_or_modules_name_them():
    runs = [
        row(1, 1, 2, base_run_name="a", new_run_name="c"),
        row(2, 1, 2, base_run_name="b", new_run_name=None, function_name="g"),
    ]
    assert diff_text.labels(runs) == {1: "f [a → c]", 2: "f [b → -]"}
    keys = [
        row(1, 1, 2, base_module_key="x/module_0001.jit_f", new_module_key="odd"),
        row(2, 1, 2, base_module_key=None, new_module_key="x/module_0002.jit_f"),
    ]
    assert diff_text.labels(keys) == {1: "f [module_0001 → odd]", 2: "f [- → module_0002]"}


def test_without_allocations_there_is_no_figure():
    reason = "base: the dump has no allocations"
    alone = row(color=None, base_module_key="m", new_module_key="m", unknown_reason=reason)
    shown = diff_text.text(compared([alone]), 10)
    assert shown.text.splitlines()[0] == "no known peak changed: 1 unknown"
    assert shown.text.splitlines()[-1] == f"f, -: peak unknown: {reason}"
    assert diff_text.signed_bytes(None) == "-"


def test_parts_beyond_the_first_functions_are_counted():
    places = range(1, diff_text.MOST_PLACES + 3)
    figures = [row(place, 1, 2, function_name=f"f{place}") for place in places]
    parts = [row(place, 1, 2, part="dot") for place in places]
    shown = diff_text.text(compared(figures, parts), len(places))
    assert shown.notes == ["parts of 2 more functions changed; --function shows them"]
    assert shown.text.count("peak +1 B by op") == diff_text.MOST_PLACES


def test_parts_beyond_the_first_are_one_row_that_adds_up(monkeypatch):
    monkeypatch.setattr(comparison, "TOP", 1)
    parts = [row(1, 0, 9, part="a"), row(1, 5, 2, part="b"), row(1, 0, 2, part="c")]
    parts += [row(2, 1, 2, part="d"), row(2, 1, 1, part="e", base_shape="f32[]")]
    kept, rest, other, same = comparison._summed(parts)
    assert (kept, other) == (parts[0], parts[3])
    assert (rest.part, rest.change, rest.base_bytes, rest.new_bytes, rest.delta_bytes) == (
        "(2 other parts)", "shrank", 5, 4, -1,
    )  # fmt: skip
    assert (same.part, same.change, same.delta_bytes, same.base_shape) == (
        "(1 other parts)", "same", 0, None,
    )  # fmt: skip
    assert rest.base_value_count is None  # unknown of all, not none


def test_what_is_shortened_at_a_terminal_is_counted(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    long = "scope/" * 20 + "dot"
    both = compared([row(base=1, new=2)], [row(base=1, new=2, part=long)])
    command._write_text(both, 10, [], format_name="table", output=None, full=None)
    out, err = capsys.readouterr()
    assert long in out.splitlines()[0] and long not in out.partition("\n")[2]
    assert err == "bufdb: 1 cells shortened to fit the terminal; --full shows all of them\n"
    command._write_text(both, 10, [], format_name="table", output=None, full="--full")
    assert long in capsys.readouterr().out.partition("\n")[2]
