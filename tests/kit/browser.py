"""A headless Chromium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

from .lanes import require_real

#: ms; a machine that is busy takes its time.
PATIENCE = 30_000


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """Start Chromium, and end it."""
    require_real()
    program = shutil.which("chromium")
    assert program, "chromium is missing: scripts/setup --test installs it"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        # Chromium's own walls need a user that is not root; what it shows here is ours.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def service_at(address: str) -> str:
    """Open the page at `address`; return the service that it shows once it has data."""
    with open_chromium() as browser:
        page = browser.new_page()
        page.goto(address, timeout=PATIENCE)
        expect(page.locator("#pill")).not_to_be_empty()
        return page.get_by_role("heading", level=1).inner_text()
