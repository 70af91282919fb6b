"""Content security policy of a page: only its own script and style run, named by their hashes."""

import base64
import hashlib
import re

from bufdb.page.page import Frame, _within, _without_module, page_frame

TEMPLATE = "{{csp}}|{{title}}|<style>{{style}}</style>{{slots}}<script>{{script}}</script>"


def digest(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_names_what_is_in_the_page():
    page = page_frame().fill("t", [b"data"])
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy == (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    assert page.index("Content-Security-Policy") < page.index("<title")
    assert page.index("slot-0") < page.index("<script>")


def test_marks_within_what_is_filled_in_are_text():
    page = Frame(TEMPLATE, "{{script}}", "{{slots}}").fill("{{style}} <b>&\"'", [b"\0"])
    assert page.endswith(
        "|{{style}} &lt;b&gt;&amp;&quot;&#x27;|<style>{{script}}</style>"
        '<script type="application/octet-stream" id="slot-0">AA==</script>'
        "<script>{{slots}}</script>"
    )


def test_no_script_ends_its_element_or_begins_a_comment():
    text = _within("a = '</SCRIPT><!-- </style>'", "script")
    assert text == r"a = '<\/SCRIPT><\!-- </style>'"


def test_modules_become_parts_of_one_scope():
    text = 'import { a,\n  b } from "./a.mjs";\nexport const c = a; // export\nexport class d {}\n'
    assert _without_module(text) == "const c = a; // export\nclass d {}\n"


def test_the_page_names_no_other_place():
    page = page_frame().fill("t", [])
    assert not re.search(r"\b(?:src|href)\s*=\s*[\"'](?!#|data:)", page)
    assert "@import" not in page_frame().style and "url(" not in page_frame().style
    assert "\r" not in page
