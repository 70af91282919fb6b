"""Validation of a comparison's arguments, before anything is compared."""

import pytest
from small_db import Module, in_bulk

from bufdb.answers.diff import asked_pairs
from bufdb.errors import UsageError


def test_pairs_that_cannot_be_are_refused_with_the_name(con):
    with in_bulk(con):
        for number, run in enumerate("ab"):
            Module(con, number, run, "train,eval").close()
    for pair, message in (
        ("f", "--pair: expected OLD=NEW, found 'f'"),
        ("train=f", r"no function and no module 'train' in BASE; did you mean 'train,eval'\?"),
        ("train,eval=f", "no function and no module 'f' in NEW; 'bufdb query modules' lists them"),
        ("train,eval=train,eval", "a name with a comma cannot be asked for"),
    ):
        with pytest.raises(UsageError, match=message):
            asked_pairs(con, "a", "b", [pair])
    assert asked_pairs(con, "a", "b", []) is None
