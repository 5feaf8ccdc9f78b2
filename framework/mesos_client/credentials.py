"""How a scheduler proves to the master who it is, and an executor to its agent."""

from __future__ import annotations

import base64
import threading
from contextlib import suppress
from typing import Callable


class Credentials:
    """None at all, or one value of the Authorization header for ever. Safe for all threads."""

    def __init__(self, header: str | None = None) -> None:
        self._header = header

    def header(self) -> str | None:
        """Value of the Authorization header for the next request; may ask a login service, and raise what that does."""
        return self._header

    def renew(self, refused: str | None) -> bool:  # noqa: ARG002
        """Mesos answered 401 to a request with this header. Return whether `header` will now give another one."""
        return False


class Basic(Credentials):
    """HTTP Basic, what Mesos' own authenticator takes. Source: docs/authentication.md of Apache Mesos; RFC 7617."""

    def __init__(self, principal: str, secret: str) -> None:
        """Raise ValueError for a principal that HTTP Basic cannot carry."""
        if ":" in principal:
            raise ValueError(f"principal {principal!r}: HTTP Basic allows no colon in it")
        super().__init__("Basic " + base64.b64encode(f"{principal}:{secret}".encode()).decode())


class Token(Credentials):
    """A token that a login service gives, and gives anew when Mesos refuses it.

    `login` returns the token; it is called when the first request is made, after each refusal, and when `is_stale` says
    of the last one that it will soon be of no use. `scheme` stands before the token: `Bearer ` by default, `token=` on
    DC/OS.
    """

    def __init__(
        self,
        login: Callable[[], str],
        scheme: str = "Bearer ",
        is_stale: Callable[[str], bool] = lambda _: False,
    ) -> None:
        super().__init__()
        self._login, self._scheme, self._is_stale = login, scheme, is_stale
        self._lock = threading.Lock()

    def header(self) -> str | None:
        # Under the lock: two requests at once are one login.
        with self._lock:
            if self._header is None:
                self._header = self._scheme + self._login()
            elif self._is_stale(self._header[len(self._scheme) :]):
                # As long as Mesos takes the old one, a login service that is away is no reason to stop.
                with suppress(OSError):
                    self._header = self._scheme + self._login()
            return self._header

    def renew(self, refused: str | None) -> bool:
        with self._lock:
            # Another request may have renewed it meanwhile.
            if self._header == refused:
                self._header = None
            return True
