"""Headless Chromium for the report's page, watched: what it prints and what it asks for.

Debian's chromium and chromium-driver, driven by selenium. `.ci/run` has them; without them tests
skip. `python tests/support/browser.py PAGE PICTURE` takes a picture of a page.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OPTIONS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync"
)
PATIENCE = 120
"""Seconds that a page may take on the slowest machine; none should come near."""
AXE = Path(__file__).parents[1] / "page/scripts/node_modules/axe-core/axe.min.js"
"""Examines a page for what keeps people out; 'npm ci' in page/scripts installs it."""
_BINARY, _DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


def missing() -> str | None:
    """Why there is no browser here; None if there is one."""
    try:
        import selenium.webdriver  # noqa: F401
    except ImportError:
        return "this Python has no selenium"
    if _BINARY is None or _DRIVER is None:
        return "this machine has no chromium or no chromedriver"
    return None


class Browser:
    """One window; `open` a page, do something, `check_quiet`."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def resize(self, width: int, height: int = 900, *, is_dark: bool = False) -> None:
        """The size of the window in CSS pixels, and the theme of the system."""
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        theme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})

    def barriers(self) -> list[tuple[object, ...]]:
        """What axe-core finds serious on the page: its rule, how serious, where."""
        self.run(AXE.read_text("utf-8"))
        violations = self.driver.execute_async_script(
            "const done = arguments[0]; axe.run().then(result => done(result.violations))"
        )
        return [
            (one["id"], one["impact"], [node["target"] for node in one["nodes"]][:3])
            for one in violations
            if one["impact"] in ("serious", "critical")
        ]

    def open(self, page: Path, fragment: str = "") -> None:
        """A page from disk, until it is drawn. Copies go to `copied` instead of a clipboard."""
        self.driver.get("about:blank")
        self.messages()
        self.driver.get(page.resolve().as_uri() + fragment)
        self.page = page.resolve().as_uri()
        self.wait("document.body.dataset.ready === 'yes'")
        self.run(
            "Object.defineProperty(navigator, 'clipboard', {configurable: true, value: {"
            "writeText: text => { window.copied = text; return Promise.resolve(); }}})"
        )

    def run(self, script: str, *arguments: Any) -> Any:
        """A script's `return`."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, *arguments: Any) -> None:
        """Until an expression holds."""
        until = time.monotonic() + PATIENCE
        while not self.run(f"return {condition}", *arguments):
            if time.monotonic() > until:
                raise TimeoutError(condition)
            time.sleep(0.02)

    def drawn(self) -> None:
        """Wait until pending drawing is done: two frames."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def text(self, selector: str) -> str:
        """The visible text of the first element."""
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def rows(self, table: str) -> list[list[str]]:
        """The cells of a table's body."""
        script = (
            "return Array.from(document.querySelectorAll(arguments[0] + ' tbody tr'),"
            " row => Array.from(row.cells, cell => cell.textContent.trim()))"
        )
        return self.run(script, table)

    def click(self, selector: str) -> None:
        """A click by script: it needs no place on the screen."""
        self.run("document.querySelector(arguments[0]).click()", selector)
        self.drawn()

    def press(self, key: str, *, shift: bool = False, ctrl: bool = False) -> None:
        """A key on the page, wherever the focus is."""
        script = (
            "(document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent('keydown',"
            "{key: arguments[0], shiftKey: arguments[1], ctrlKey: arguments[2], bubbles: true,"
            "cancelable: true}))"
        )
        self.run(script, key, shift, ctrl)
        self.drawn()

    def mouse(self, kind: str, selector: str, x: float, y: float, **more: Any) -> None:
        """A true movement, click or turn of the wheel at a place within an element."""
        at = self.run(
            "const element = document.querySelector(arguments[0]);"
            "element.scrollIntoView({block: 'center'});"
            "const box = element.getBoundingClientRect(); return [box.left, box.top]",
            selector,
        )
        event = {"type": kind, "x": at[0] + x, "y": at[1] + y, **more}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.drawn()

    def press_mouse(self, selector: str, x: float, y: float) -> None:
        """A true click at a place within an element."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, selector, x, y, button="left", clickCount=1)

    def copy(self, selector: str) -> str:
        """Click a button and return what it copies."""
        self.run("window.copied = null")
        self.click(selector)
        self.wait("window.copied !== null")
        return self.run("return window.copied")

    def picture(self, path: Path, height: int | None = None) -> None:
        """Save the page as PNG, all of it or down to a height."""
        width, whole = self.run(
            "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": width, "height": height or whole, "scale": 1}
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        path.write_bytes(base64.b64decode(shot["data"]))

    def check_quiet(self) -> None:
        """Check that nothing was printed and nothing requested but the page itself.

        Raises:
            AssertionError: with what was.
        """
        printed, urls = self.messages()
        assert not printed, printed
        assert urls <= {self.page}, urls

    def messages(self) -> tuple[list[str], set[str]]:
        """Return messages printed since the last call, and requests made and not refused."""
        printed = [entry["message"] for entry in self.driver.get_log("browser")]
        requests = {}
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            params = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                requests[params["requestId"]] = params["request"]["url"].partition("#")[0]
            elif params.get("blockedReason") == "csp":  # of a loadingFailed
                requests.pop(params["requestId"], None)
        return printed, set(requests.values()) - {"about:blank"}


@contextlib.contextmanager
def opened() -> Iterator[Browser]:
    """A browser of its own, with an empty profile."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _BINARY
    for option in OPTIONS.split():
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_DRIVER))
    try:
        driver.set_script_timeout(PATIENCE)
        driver.set_page_load_timeout(PATIENCE)
        yield Browser(driver)
    finally:
        driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description="A picture of a report.")
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, help="of the picture; all of the page without")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--fragment", default="", help="such as '#by=op&step=12'")
    options = parser.parse_args()
    with opened() as browser:
        browser.resize(options.width, is_dark=options.dark)
        browser.open(options.page, options.fragment)
        browser.picture(options.picture, options.height)


if __name__ == "__main__":
    main()
