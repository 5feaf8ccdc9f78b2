"""Where pip finds packages: the package indexes that its environment variables and its configuration name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import urlsplit

HONOURED = (
    "Indexes asked: that of $PIP_INDEX_URL, else pip's setting index-url, else the public one; then those of "
    "$PIP_EXTRA_INDEX_URL and extra-index-url. $HTTPS_PROXY, $NO_PROXY and $REQUESTS_CA_BUNDLE are honoured."
)
_TIMEOUT = 30.0  # seconds


def indexes(
    public: str, environment: Mapping[str, str] = os.environ, read: Callable[[], Mapping[str, str]] | None = None
) -> list[str]:
    """Simple endpoints in the order in which to ask; `public` if no other is named. `read`: pip's configuration."""
    settings = (read or pip_settings)()
    first = environment.get("PIP_INDEX_URL") or _setting(settings, "index-url") or public
    extra = environment.get("PIP_EXTRA_INDEX_URL") or _setting(settings, "extra-index-url")
    return list(dict.fromkeys([first.strip(), *extra.split()]))


def _setting(settings: Mapping[str, str], name: str) -> str:
    """Those of `pip install` win, as in pip."""
    return settings.get(f"install.{name}") or settings.get(f"global.{name}") or ""


def pip_settings() -> dict[str, str]:
    """What `pip config list` prints, such as "global.index-url"; empty if there is no pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=_TIMEOUT)
        return dict(_settings(done.stdout))
    return {}


def _settings(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, _, value = line.partition("=")
        with suppress(ValueError, SyntaxError):
            yield name, str(ast.literal_eval(value))


def without_credentials(text: str, endpoint: str) -> str:
    """A message about an endpoint, without the user and password that its URL may hold."""
    credentials, at, _ = urlsplit(endpoint).netloc.rpartition("@")
    return text.replace(credentials + at, "") if at else text
