"""A headless Chromium for tests, and a page in it that is looked at as a person would: until what is expected is there.

Promises: nothing is looked at once only. Every question is asked again until it is answered as expected or 20 s are over, and
elements are found anew each time, as the page may draw them anew at any moment.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PATIENCE_S = 60.0
POLL_S = 0.05


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A driver; skips where there is no Chromium, or no driver for it."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip(
            "there is no chromium with its chromedriver here (Debian: apt-get install chromium chromium-driver)"
        )
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        *("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # it does not start as root otherwise
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as left:  # what it leaves behind
        service = selenium.ChromeService(driver_path, env={**os.environ, "TMPDIR": left})
        driver = selenium.Chrome(options=options, service=service)
        try:
            driver.set_page_load_timeout(60)
            driver.set_script_timeout(60)
            yield driver
        finally:
            driver.quit()


class Page:
    """The dashboard at *url* in a browser."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver = driver
        self.url = url

    # --- going ----------------------------------------------------------------------------------------------------------

    def open(self, hash_: str = "#/") -> "Page":
        """Load the dashboard anew, with a page of it."""
        self.driver.get("about:blank")
        self.driver.get(f"{self.url}/dashboard/{hash_}")
        self.until(lambda: self.script("return document.querySelector('#main > *') !== null"), "the page is drawn")
        return self

    def size(self, width: int, height: int) -> None:
        """Be a screen of that size, as a phone is."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.until(lambda: self.script("return innerWidth") == width, "the window has its width")

    def usual_size(self) -> None:
        """Be the window again that it was."""
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def prefer(self, scheme: str) -> None:
        """Light or dark is what the system likes."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    # --- looking ----------------------------------------------------------------------------------------------------------

    def script(self, code: str, *arguments: Any) -> Any:
        """The value of JavaScript."""
        return self.driver.execute_script(code, *arguments)

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        """What *condition* gives, once that is something; it is asked again whatever became of the elements meanwhile."""
        from selenium.common.exceptions import WebDriverException  # noqa: PLC0415 - not there where nothing is tested

        deadline = time.monotonic() + PATIENCE_S
        problem = ""
        while time.monotonic() < deadline:
            try:
                found = condition()
            except WebDriverException as error:  # the element has gone, or is covered for the moment
                problem = str(error.msg)
            else:
                if found:
                    return found
            time.sleep(POLL_S)
        seen = self.script("return document.body.innerText")
        raise AssertionError(
            f"not so within {PATIENCE_S:g} s: {what or condition} {problem}\n{self.log()}\n{seen[:4000]}"
        )

    def text(self, selector: str) -> str:
        """What is read there, "" if there is no such element."""
        return self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def texts(self, selector: str) -> list[str]:
        """What is read in each of such elements."""
        return self.script("return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector)

    def sees(self, text: str, selector: str = "body") -> None:
        """Wait until *text* is read there."""
        self.until(lambda: text in self.text(selector), f"{text!r} in {selector}")

    def log(self) -> str:
        """What the browser complains of."""
        return "\n".join(entry["message"] for entry in self.driver.get_log("browser"))

    # --- doing ------------------------------------------------------------------------------------------------------------

    def find(self, selector: str, text: str = "") -> Any:
        """The first element that is like that and holds *text*; None if there is none."""
        found = self.driver.find_elements("css selector", selector)
        return next((element for element in found if text in element.text), None)

    def click(self, selector: str, text: str = "") -> None:
        """Click it, once it is there and can be clicked."""

        def clicked() -> bool:
            element = self.find(selector, text)
            if element is None or not element.is_enabled():
                return False
            element.click()
            return True

        self.until(clicked, f"a click on {selector} {text}")

    def type(self, selector: str, text: str) -> None:
        """Put *text* in place of what is in a field."""

        def typed() -> bool:
            element = self.find(selector)
            if element is None:
                return False
            if self.script("return arguments[0].value", element):
                element.clear()
            element.send_keys(text)
            return bool(self.script("return arguments[0].value", element) == text)

        self.until(typed, f"{text!r} in {selector}")

    def keys(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415

        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        """What has the focus: its text, or its label."""
        return self.script(
            "const e = document.activeElement; return e.getAttribute('aria-label') || e.innerText || e.id || e.tagName"
        )
