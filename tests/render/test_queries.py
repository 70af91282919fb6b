"""Saved queries as text, without a command line."""

import json

from bufdb.query.catalogue import Catalogue
from bufdb.render import queries
from bufdb.resources import query_folder

CATALOGUE = Catalogue([query_folder()])


def test_help_names_the_options_that_abbreviate_parameters():
    query = CATALOGUE.find("top-temps")
    lines = queries.help_text(query, {"top": "top_n"}).splitlines()
    assert lines[0].startswith("top-temps: ")
    assert "  --top, -p top_n BIGINT" in lines
    assert "  -p top_n BIGINT" in queries.help_text(query, {}).splitlines()
    assert lines[-1].endswith(f"File: {query.path}")


def test_each_query_is_in_each_list():
    loaded_queries = CATALOGUE.load_all()
    names = [query.name for query in loaded_queries]
    text, markdown = queries.as_text(loaded_queries), queries.as_markdown(loaded_queries)
    assert all(f"  {name} " in text and f"| `{name}` |" in markdown for name in names)
    assert [one["name"] for one in json.loads(queries.as_json(loaded_queries))] == names
