"""A headless Chromium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

from .lanes import require_real

#: ms; a machine that is busy takes its time.
PATIENCE = 30_000

#: What fingers may miss: less than 24 pixels (WCAG 2.2 AA, 2.5.8). A check box is hit by its label.
SMALL = """() => [...document.querySelectorAll("button, select, nav a, label.check")]
    .filter((node) => node.checkVisibility())
    .filter((node) => Math.min(node.getBoundingClientRect().width, node.getBoundingClientRect().height) < 24)
    .map((node) => node.outerHTML.slice(0, 200))"""
#: Texts whose contrast is less than it must be.
CONTRAST = """() => {
  const parse = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = (colour) => {
    const parts = colour.slice(0, 3).map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || !node.checkVisibility()) continue;
    const [one, other] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    const contrast = (one + 0.05) / (other + 0.05);
    if (contrast < 4.5) weak.push(`${node.tagName} ${node.textContent.trim().slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return weak;
}"""


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
