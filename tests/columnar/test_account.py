"""Diagnostics about the lines and modules of a batch, and how often each is reported."""

import numpy as np

from bufdb.columnar.section import MAX_FINDINGS, READ, Account


def test_a_repeated_report_is_one_finding():
    account = Account()
    for path in ("a", "a", "b"):
        account.find(0, "error", "odd", "it is odd", path)
    assert [finding.path for finding in account.findings()] == ["a", "b"]


def test_of_many_findings_of_a_module_the_rest_is_counted():
    account = Account()
    for number in range(MAX_FINDINGS + 3):
        account.find(0, "notice", "odd", f"{number} is odd")
    account.find(1, "notice", "odd", "and so is another module's")
    *shown, rest, other = account.findings()
    assert [finding.message for finding in shown] == [f"{n} is odd" for n in range(MAX_FINDINGS)]
    assert (rest.severity, rest.message) == ("notice", "and 3 more like this")
    assert other.module == 1


def test_unclaimed_lines_are_known_or_reported():
    account = Account()
    account.open(0, "a.txt", 5, rest_is_known=True)
    account.open(0, "b.txt", 5, rest_is_known=False)
    for path in ("a.txt", "b.txt"):
        account.count(0, path, np.full(2, READ, np.uint8))
    account.close()
    assert account.tallies[0, "a.txt"].known_count == 3
    assert account.tallies[0, "b.txt"].unread_count == 3
    ((path, message),) = ((finding.path, finding.message) for finding in account.findings())
    assert (path, message) == ("b.txt", "3 lines belong to no section")
