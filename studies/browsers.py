"""A headless Chromium, driven by Selenium: for pictures and measures of pages, and their tests."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posteer.core.errors import InputError

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--disable-dev-shm-usage"),
)
SIZES = {"desk": (1280, 900), "phone": (390, 844)}
SECONDS = 60
"""Until a page that does not answer is given up."""


class NoBrowserError(InputError):
    """There is no browser, or nothing to drive it with."""


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser whose profile and downloads are in a folder."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise NoBrowserError("no chromium and chromedriver: `make browser` installs them")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service
    except ImportError as error:
        raise NoBrowserError("Selenium is not installed: `make browser` does so") from error
    options = Options()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    try:
        opened.set_script_timeout(SECONDS)
        yield Browser(opened, folder / "saved")
    finally:
        opened.quit()


class Browser:
    """What is done with a page."""

    def __init__(self, driver: Any, saved: Path) -> None:
        self.driver, self.saved = driver, saved
        saved.mkdir(exist_ok=True)
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(saved))
        self.command("Browser.grantPermissions", permissions=["clipboardReadWrite"])
        self.look()

    def command(self, name: str, **given: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, given)

    def look(self, size: str = "desk", dark: bool = False) -> None:
        """The size of the window and the system's theme."""
        width, height = SIZES[size]
        shape = {"width": width, "height": height, "deviceScaleFactor": 1}
        self.command("Emulation.setDeviceMetricsOverride", **shape, mobile=size == "phone")
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[theme])

    def open(self, page: Path | str, address: str = "") -> None:
        """A page from disk or a server, loaded anew, once it says that it is ready."""
        where = page if isinstance(page, str) else page.as_uri()
        self.driver.get("about:blank")
        self.driver.get(f"{where}{address}")
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def read(self, expression: str) -> Any:
        return self.driver.execute_script(f"return {expression}")

    def run(self, script: str) -> Any:
        """What a script hands to `done`."""
        return self.driver.execute_async_script(f"const done = arguments[0]; {script}")

    def wait(self, condition: str) -> None:
        """Until an expression holds in the page."""
        self.until(lambda: self.read(condition))

    def until(self, holds: Any) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, SECONDS, 0.02).until(lambda _: holds())

    def find(self, selector: str) -> Any:
        """The first such element, as soon as the page has one."""
        self.wait(f"document.querySelector({selector!r}) !== null")
        return self.driver.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        nodes = f"[...document.querySelectorAll({selector!r})]"
        found: list[str] = self.read(f"{nodes}.map((node) => node.textContent.trim())")
        return found

    def choose(self, selector: str, value: str) -> None:
        from selenium.webdriver.support.ui import Select

        Select(self.find(selector)).select_by_value(value)

    def give(self, selector: str, value: object, event: str) -> None:
        """A value for an input, as if somebody had set it."""
        script = (
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event(arguments[2]))"
        )
        self.driver.execute_script(script, self.find(selector), value, event)

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.keys import Keys

        pressed = ActionChains(self.driver)
        pressed.send_keys(*(getattr(Keys, key, key) for key in keys)).perform()

    def export(self, holder: str, label: str) -> None:
        """Press a button of an export menu."""
        menu = self.find(f"{holder} details.tools")
        self.driver.execute_script("arguments[0].open = true", menu)
        buttons = menu.find_elements("css selector", "button")
        next(button for button in buttons if button.text == label).click()

    def downloaded(self, name: str) -> bytes:
        """A file that the page saved."""
        self.until((self.saved / name).exists)
        return (self.saved / name).read_bytes()

    def complaints(self) -> list[str]:
        """What the page wrote to its console since it was last asked."""
        return [one["message"] for one in self.driver.get_log("browser")]

    def barriers(self) -> list[list[str]]:
        """What axe-core finds serious on the page: a rule, its weight, the first node."""
        import axe_core_python

        script = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
        self.driver.execute_script(script)
        run = "axe.run(document, {resultTypes: ['violations']})"
        pick = "(v) => [v.id, v.impact, v.nodes[0].html]"
        found: list[list[str]] = self.run(f"{run}.then((r) => done(r.violations.map({pick})))")
        return [one for one in found if one[1] in ("serious", "critical")]

    def screenshot(self, out: Path, most: int | None = None) -> None:
        """The page from its top, at most so high."""
        height = self.read("document.documentElement.scrollHeight")
        tall = height if most is None else min(height, most)
        clip = {"x": 0, "y": 0, "width": self.read("innerWidth"), "height": tall, "scale": 1}
        shot = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        out.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", **shot)["data"]))
