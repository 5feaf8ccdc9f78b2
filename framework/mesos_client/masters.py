"""Which master to talk to: the addresses we were given, and the leader that one of them named."""

from __future__ import annotations

import threading
from typing import Sequence
from urllib.parse import urlsplit

DEFAULT_PORT = 5050


def parse_masters(text: str, scheme: str = "http") -> tuple[str, ...]:
    """Return base URLs for `host:port`, `host`, `[::1]:5050`, `https://host:port`, or several of these with commas
    between. `scheme` is that of masters that name none.

    Raise ValueError naming what is wrong. `zk://` is read by `detector.ZooKeeperUrl`.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError("master is empty: host:port is expected")
    return tuple(_base_url(part, scheme) for part in parts)


def _base_url(part: str, scheme: str) -> str:
    try:
        url = urlsplit(part if "://" in part else f"{scheme}://{part}")
        port = url.port
    except ValueError as error:
        raise ValueError(f"master {_without_secret(part)!r}: {error}") from error
    if "@" in url.netloc:
        raise ValueError(f"master {_without_secret(part)!r}: name and password are no part of a master's address")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"master {part!r}: host:port, http(s)://host:port or zk://host:port/path is expected")
    return base_url(url.scheme, url.hostname, DEFAULT_PORT if port is None else port)


def _without_secret(part: str) -> str:
    return part.rpartition("@")[2]


def base_url(scheme: str, host: str, port: int) -> str:
    """Such as `http://[::1]:5050`."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Masters:
    """The master to ask next. A leader named by a redirect is used until it fails.

    Then the given ones are asked in turn. Safe for all threads: an answer to a question that was asked before
    `replace` changes nothing.
    """

    def __init__(self, base_urls: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._given = tuple(base_urls)
        self._turn = 0
        self._leader: str | None = None

    @property
    def current(self) -> str | None:
        """Base URL, or None when no master is known."""
        with self._lock:
            return self._asked()

    def replace(self, base_urls: Sequence[str]) -> None:
        """A detector saw another leader, or none."""
        with self._lock:
            self._given, self._turn, self._leader = tuple(base_urls), 0, None

    def follow(self, asked: str, location: str) -> None:
        """Master `asked` named the leader, in a Location header; Mesos leaves its scheme out (`//10.0.0.1:5050/...`).

        Raise ValueError for one that cannot be read, or that would send what we asked over TLS without it.
        """
        scheme = urlsplit(asked).scheme
        leader = _base_url(f"{scheme}:{location}" if location.startswith("//") else location, scheme)
        if scheme == "https" and not leader.startswith("https:"):
            raise ValueError(f"master {asked} names a leader without TLS: {leader}")
        with self._lock:
            if asked == self._asked():
                self._leader = leader

    def failed(self, asked: str) -> bool:
        """Master `asked` did not serve us. Return whether another of the given ones has not been asked yet."""
        with self._lock:
            if asked != self._asked():
                return False
            if self._leader is not None:
                self._leader = None
                return False
            self._turn = (self._turn + 1) % len(self._given)
            return self._turn != 0

    def _asked(self) -> str | None:
        return self._leader or (self._given[self._turn] if self._given else None)
