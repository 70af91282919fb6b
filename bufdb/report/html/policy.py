"""The page's static files put together, and the policy that lets nothing else run.

Names from dumps are data: they stand base64-encoded in elements that no browser executes. The
policy names the script and the style by their hashes and forbids everything else, all requests
included.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_ORDER = "order.txt"
_MARK = re.compile(r"\{\{(\w+)\}\}")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_MARKS = ["csp", "title", "style", "slots", "script"]


@dataclass(frozen=True)
class Frame:
    """What is the same on every page."""

    template: str
    """HTML with a {{mark}} for each part that is filled in."""
    style: str
    script: str

    @property
    def policy(self) -> str:
        """The content security policy."""
        return (
            f"default-src 'none'; script-src {_hash(self.script)}; style-src {_hash(self.style)}; "
            "base-uri 'none'; form-action 'none'"
        )

    def fill(self, title: str, slots: Sequence[bytes]) -> str:
        """The page with its data.

        Parts are put in side by side, not one after the other, so that no part is looked at for
        marks.
        """
        parts = {
            "csp": self.policy,
            "title": html.escape(title),
            "style": self.style,
            "script": self.script,
            "slots": "\n".join(_slot(number, data) for number, data in enumerate(slots)),
        }
        return _MARK.sub(lambda mark: parts[mark[1]], self.template)


@cache
def frame() -> Frame:
    """The static files that come with bufdb; order.txt has the order of scripts and styles.

    Scripts (.js) stand as they are, modules (.mjs) behind them in one scope of their own.
    """
    folder = files(__package__) / "static"

    def text(name: str) -> str:
        # A browser takes \r\n for \n, and would not find the hash.
        return (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")

    lines = (line.partition("#")[0].strip() for line in text(_ORDER).splitlines())
    names = [line for line in lines if line]
    scripts = "".join(text(name) + "\n" for name in names if name.endswith(".js"))
    modules = [_without_module(text(name)) for name in names if name.endswith(".mjs")]
    if modules:
        scripts += '(() => {\n"use strict";\n' + "".join(modules) + "})();\n"
    styles = "".join(text(name) + "\n" for name in names if name.endswith(".css"))
    template = text("page.html")
    if sorted(_MARK.findall(template)) != sorted(_MARKS):
        raise ValueError(f"page.html wants each of the marks {', '.join(_MARKS)} once")
    return Frame(template, _within(styles, "style"), _within(scripts, "script"))


def _without_module(text: str) -> str:
    """A module as a part of one scope, in which names are not imported but there.

    A page from disk may not load modules; Node and the type checker take the files as they are.
    """
    return _EXPORT.sub("", _IMPORT.sub("", text))


def _within(text: str, element: str) -> str:
    """A text that does not end its element, nor begin what a browser reads in another way."""
    text = re.sub(rf"</(?={element})", r"<\\/", text, flags=re.IGNORECASE)
    return text.replace("<!--", r"<\!--")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _slot(number: int, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    return f'<script type="application/octet-stream" id="slot-{number}">{text}</script>'
