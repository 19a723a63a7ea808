"""A real Chromium without a window, as dev/fetch_chromium.py has fetched it, or the one on the PATH."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

FETCHED = Path(__file__).resolve().parents[1] / ".chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run Chromium until the block ends."""
    fetched = FETCHED / "chromium"
    found = str(fetched) if fetched.exists() else next(filter(None, map(shutil.which, NAMES)), None)
    assert found is not None, f"expected Chromium in {FETCHED} (`make test` fetches it), or on the PATH; found none"
    beside = {
        "FONTCONFIG_FILE": str(FETCHED / "fonts" / "fonts.conf"),
        "LD_LIBRARY_PATH": str(FETCHED / "libraries" / "lib"),
    }
    environment = dict(os.environ) | (beside if fetched.exists() else {})
    # The sandbox needs rights that root in a container has not; only our own pages are opened.
    arguments = ["--headless", "--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments, env=environment)
        try:
            yield browser
        finally:
            browser.close()


def complaints_of(page: Page) -> list[str]:
    """Return a list to which every error is added that a page shows in its console, frames included."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    return said
