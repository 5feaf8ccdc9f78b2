"""The page's files: access and security headers."""

import re
import sys
from importlib import resources
from pathlib import Path

import pytest

from asgi_client import ask
from kit.api import registered
from kit.commands import run_program
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.package.artefacts import build_scheduler
from tf_scheduler.web.pages import KINDS, pages

FILES = {item.name: item.read_text() for item in resources.files("tf_scheduler.web").joinpath("static").iterdir()}
SCRIPTS = [name for name in FILES if name.endswith(".js")]
APP = create_app(lambda: Snapshot(registered()), Policy(read_token="r", write_token="w"), pages=pages())


def test_page_is_public_and_its_data_is_not() -> None:
    """The page itself requests the token."""
    assert 200 == ask(APP, "/").code
    assert 401 == ask(APP, "/v1/tasks").code


@pytest.mark.parametrize(("path", "target"), [("/v1", "./"), ("/v1/", "../")])
def test_v1_leads_browsers_to_the_page(path: str, target: str) -> None:
    """A person copies the address of the API; a proxy may add a prefix to it."""
    reply = ask(APP, path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})

    assert (307, target) == (reply.code, reply.headers["location"])
    assert 404 == ask(APP, path).code


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_file_has_its_media_type(name) -> None:
    """With nosniff, browsers accept no other media type."""
    reply = ask(APP, "/" if name == "index.html" else f"/page/{name}")

    assert (200, KINDS[name[name.rfind(".") :]]) == (reply.code, reply.headers["content-type"])
    assert "nosniff" == reply.headers["x-content-type-options"]


def test_only_files_of_the_page_are_served() -> None:
    names = ("../__init__.py", "none.js", "", "%2e%2e/pages.py")

    assert {404} == {ask(APP, f"/page/{name}", headers={"Authorization": "Bearer r"}).code for name in names}


def test_policy_allows_only_own_scripts() -> None:
    """No inline script or style, no other origin, no text that becomes markup."""
    rules = ask(APP, "/").headers["content-security-policy"].split(";")
    policy = dict(rule.strip().partition(" ")[::2] for rule in rules)

    assert ("'none'", "'self'", "'self'") == (policy["default-src"], policy["script-src"], policy["style-src"])
    assert "'script'" == policy["require-trusted-types-for"]
    assert "unsafe" not in str(policy)


def test_script_without_token_gets_no_browser_dialog() -> None:
    """A person who opens an address in a browser reads the answer."""
    asked = {"X-Requested-With": "XMLHttpRequest"}

    assert "Bearer" == ask(APP, "/v1/tasks", headers=asked).headers["www-authenticate"].split()[0]
    assert "Basic" == ask(APP, "/v1/tasks").headers["www-authenticate"].split()[0]


def test_addresses_are_relative() -> None:
    """On DC/OS the page is at /service/NAME/; it requests nothing from other hosts."""
    named = re.findall(r'(?:href|src)="([^"]*)"', FILES["index.html"])
    named += [address for name in SCRIPTS for address in re.findall(r'from "([^"]*)"', FILES[name])]

    assert named
    assert [] == [address for address in named if not re.match(r"(page/|\./|#)", address)]
    assert [] == [name for name in SCRIPTS if re.search(r"""["'`]/(v1|page)""", FILES[name])]


def test_page_never_parses_markup() -> None:
    """Names, messages and logs come from users."""
    ways = r"(inn|out)erHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|createContextualFragment"

    assert [] == [name for name in SCRIPTS if re.search(ways, FILES[name])]


def test_one_file_scheduler_contains_page(tmp_path: Path) -> None:
    bundle = build_scheduler(tmp_path / "scheduler.pyz")
    names = "print(*(page.name for page in pages() if page.path[:3] != '/v1'))"
    program = f"from tf_scheduler.web.pages import pages; {names}"

    # -S: nothing that is installed here.
    run = run_program(sys.executable, "-S", "-c", program, env={"PYTHONPATH": str(bundle)})

    assert sorted([*FILES, "states.js"]) == run.stdout.split(), run.stderr
