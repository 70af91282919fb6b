"""The data model as reported from the database."""

import json

from bufdb.answers import schema
from bufdb.answers.schema import describe


def test_every_object_and_column_has_a_comment(con):
    for item in describe(con):
        assert item.comment, item.name
        for column in item.columns if item.kind != "macro" else ():
            assert column.comment, f"{item.name}.{column.name}"


def test_tables_then_views_then_macros_with_columns_in_order(con):
    items = {item.name: item for item in describe(con)}
    kinds = [item.kind for item in items.values()]
    assert kinds == sorted(kinds, key=["table", "view", "macro"].index)
    label = items["run_labels"]
    assert [(column.name, column.type) for column in label.columns] == [
        ("run_name", "VARCHAR"),
        ("label", "VARCHAR"),
        ("label_value", "VARCHAR"),
        ("is_metadata", "BOOLEAN"),
    ]
    assert not label.columns[0].is_nullable
    assert items["peak_value_details"].kind == "view"
    assert [column.name for column in items["is_library_path"].columns] == [
        "path",
        "own_pattern",
    ]


def test_text_markdown_and_json(con):
    con.execute("CREATE TABLE own (a|b INTEGER)".replace("a|b", '"a|b"'))
    con.execute("COMMENT ON TABLE own IS 'Mine.'")
    con.execute("""COMMENT ON COLUMN own."a|b" IS 'x|y [bytes]'""")
    own = [item for item in describe(con) if item.name == "own"]
    assert schema.as_text(own) == "table own\n  Mine.\n    a|b  INTEGER  x|y [bytes]\n"
    assert schema.as_markdown(own) == (
        "## Tables\n\n### `own`\n\nMine.\n\n"
        "| column | type | meaning |\n| --- | --- | --- |\n| `a|b` | INTEGER | x\\|y [bytes] |\n"
    )
    assert json.loads(schema.as_json(own)) == [
        {
            "kind": "table",
            "name": "own",
            "comment": "Mine.",
            "columns": [
                {"name": "a|b", "type": "INTEGER", "is_nullable": True, "comment": "x|y [bytes]"}
            ],
        }
    ]


def test_a_macro_shows_its_parameters(con):
    macro = [item for item in describe(con) if item.name == "jit_path"]
    assert schema.as_text(macro).startswith("macro jit_path(op_name)\n  Jitted")
    assert "### `jit_path(op_name)`" in schema.as_markdown(macro)
    assert schema.as_markdown([*macro, *macro]).count("\n## ") == 0  # one heading for all of a kind


def test_brief_leaves_out_the_columns(con):
    items = [i for i in describe(con) if i.name in ("run_labels", "base_name")]
    table, macro = items
    assert schema.brief(items, "text") == (
        f"table run_labels\n  {table.comment}\n\nmacro base_name(path)\n  {macro.comment}\n"
    )
    assert schema.brief(items, "markdown") == (
        f"| table | what it holds |\n| --- | --- |\n| `run_labels` | {table.comment} |\n\n"
        f"| macro | what it gives |\n| --- | --- |\n| `base_name(path)` | {macro.comment} |\n"
    )
    assert [item["name"] for item in json.loads(schema.brief(items, "json"))] == [
        "run_labels",
        "base_name",
    ]
