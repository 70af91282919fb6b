"""Reports of an open database, read back: what tests of the page's data begin with."""

from functools import partial
from unittest import mock

from report_reading import Module, modules, slots

from bufdb import resources
from bufdb.page import comparison, contents, page, tables
from bufdb.query.catalogue import Catalogue

CATALOGUE = Catalogue([resources.query_folder()])


def html(con, filters=None, base=None, names=("peak", "top-values"), has_sections=False, **options):
    """The page that `bufdb report` writes for some options.

    Without the tables of most queries, and the sections of the summary, which take most of the
    time; None is all of them.
    """
    if names is not None:
        parts = {"wraps": tables.summary_parts} if has_sections else {"return_value": {}}
        with (
            mock.patch.object(tables, "NAMES", names),
            mock.patch.object(tables, "summary_parts", **parts),
        ):
            return html(con, filters, base, None, **options)
    filters = filters or {}
    compared = None if base is None else comparison.compared(con, base, filters)
    sides = [filters] if compared is None else compared.sides(filters)
    page_contents = contents.contents(con, CATALOGUE, sides, compared)
    pictures = partial(contents.pictures, con, page_contents)
    return page.page(page_contents, pictures, command="bufdb report", **options)


class Report:
    """A page's data."""

    def __init__(self, text):
        self.html = text
        self.head, self.slots = slots(text)
        self.modules = modules(self.head)

    def picture(self, **facts):
        """Return the slot of the only module with these facts."""
        (row,) = [row for row in self.modules if facts.items() <= row.items()]
        return Module(*self.slots[row["slot"]])

    def pictures(self):
        """Row and slot of each module that has blocks."""
        for row in self.modules:
            if row["slot"] is not None and row["peak_time"] is not None:
                yield row, Module(*self.slots[row["slot"]])


def report(con, filters=None, base=None, **options):
    """The data of that page; arguments as those of `html`."""
    return Report(html(con, filters, base, **options))
