"""Validation of a comparison's arguments, before anything is compared."""

import pytest
from small_db import Module, in_bulk

from bufdb.errors import UsageError
from bufdb.query.pairs import require_pairs


def test_pairs_that_cannot_be_are_refused_with_the_name(con):
    with in_bulk(con):
        for number, run in enumerate("ab"):
            Module(con, number, run, "train,eval").close()
    for pair, message in (
        ("f", "--pair: expected OLD=NEW, found 'f'"),
        ("train=f", r"no function and no module 'train' in BASE; did you mean 'train,eval'\?"),
        ("train,eval=f", "no function and no module 'f' in NEW; there is train,eval, "),
        ("train,eval=train,eval", "a name with a comma cannot be asked for"),
    ):
        with pytest.raises(UsageError, match=message):
            require_pairs(con, "a", "b", [pair], "--pair")
    require_pairs(con, "a", "b", [], "--pair")
