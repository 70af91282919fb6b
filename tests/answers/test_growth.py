"""What grows in a process, as text."""

from small_db import insert

from bufdb.answers import growth

ROW = {
    "kind": "arrays", "first_count": 2, "last_count": 22, "growth_bytes": 20 << 19,
    "shape": "f32[256,512]", "snapshot_count": 20, "python_function_name": "train",
    "source": "/home/user/train.py:32", "holder_name": "history",
    "holder_source": "/home/user/train.py:22", "since_mark": "step 4", "since_seconds": 9.0,
    "sureness": "likely",
}  # fmt: skip


def test_a_leak_is_a_sentence():
    assert growth.sentence(ROW) == (
        "+10.0 MiB in 20 snapshots, 20 × f32[256,512] made at train train.py:32, "
        "held by history (train.py:22), since step 4: likely a leak"
    )


def test_a_possible_leak_is_said_so():
    assert growth.sentence(ROW | {"sureness": "possible"}).endswith(": possibly a leak")


def test_what_is_not_known_is_left_out():
    unknown = {"shape": None, "holder_name": None, "since_mark": None, "growth_bytes": None}
    assert growth.sentence(ROW | unknown) == (
        "in 20 snapshots, 20 × arrays made at train train.py:32, since 9.0 s: likely a leak"
    )


def test_a_curve_has_the_highest_of_each_column():
    def taken(sizes):
        return [{"elapsed_seconds": float(n), "total_bytes": size} for n, size in enumerate(sizes)]

    assert growth.curve(taken([0, 7, 3])) == "alive from 0.0 s to 2.0 s: 0 B ▁█▄ 3 B, at most 7 B"
    assert growth.curve(taken([0, 0])) == "alive from 0.0 s to 1.0 s: 0 B ▁▁ 0 B, at most 0 B"
    many = growth.curve(taken([1] * 55 + [80] + [1] * 24))
    assert many.count("█") == 1 and many.count("▁") == 39
    # Nothing was taken for long: a gap, not a guess.
    gap = [*taken([8, 8, 8]), {"elapsed_seconds": 9.0, "total_bytes": 8}]
    assert "8 B █  █ 8 B" in growth.curve(gap)


def test_text_of_the_program_controls_no_terminal():
    row = ROW | {"holder_name": "\x1b[2J", "since_mark": "\x1b]0;x\x07"}
    assert "\x1b" not in growth.sentence(row) and "\x07" not in growth.sentence(row)


def test_copies_of_one_program_are_counted_in_the_account_alone(con):
    insert(con, "runs", run_name="r")
    for name, moment, ordinal in (("m-0.prof", "snapshot", 0), ("m.prof", "end", None)):
        of = {"run_name": "r", "profile_name": name}
        insert(con, "live_profiles", **of, moment=moment, snapshot_ordinal=ordinal,
               program_count=growth.MANY + 2)  # fmt: skip
        for place in range(growth.MANY + 2):
            insert(con, "live_programs", **of, program_ordinal=place, is_failed=False,
                   program_name="jit_f" if place < growth.MANY else "jit_g",
                   argument_bytes=4, code_bytes=1024)  # fmt: skip
    (row,) = growth.copies(con, {})
    assert (row["program_name"], row["program_count"]) == ("jit_f", growth.MANY)
    assert growth.lines([], [row]) == [
        "8 programs named jit_f are loaded, all with the same needs, code 8.00 KiB:",
        "  'bufdb query retraces' says why",
    ]
