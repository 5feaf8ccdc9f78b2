"""A headless Chromium that fails on console errors and requests to other hosts."""

from urllib.parse import urlsplit

import pytest

from builders import a_spec
from kit.browser import PATIENCE, open_chromium
from live_api import LiveApi

#: Console message of Chromium for an answer that is not a success.
_STATUS = "Failed to load resource"


# Of a module, not of the session: Playwright's event loop stays in the thread, and other tests have their own.
@pytest.fixture(scope="module")
def chromium(real_browser):
    with open_chromium() as browser:
        yield browser


@pytest.fixture
def visit(chromium):
    """Open an address after `prepare(page)`; finally check console and requests."""
    contexts, complaints, strangers = [], [], []

    def go(url, prepare=lambda page: None, **options):
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: [complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()])
        place = urlsplit(url).netloc
        page.on("request", lambda sent: None if urlsplit(sent.url).netloc == place else strangers.append(sent.url))
        prepare(page)
        page.goto(url)
        return page

    yield go
    for context in contexts:
        context.close()
    assert [] == [text for text in complaints if not text.startswith(_STATUS)]
    assert [] == strangers


@pytest.fixture
def live():
    """The service dev/digits on a simulated Mesos with the real API; nothing runs."""
    with LiveApi(a_spec(name="dev/digits")) as api:
        yield api


@pytest.fixture
def home(live):
    """Where DC/OS has its page."""
    return f"{live.url}/service/dev/digits/"
