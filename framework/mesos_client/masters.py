"""Parse addresses of Mesos masters, select the next master, decode the leader.

Sources: Apache Mesos, include/mesos/zookeeper, src/zookeeper/url.hpp and src/master/detector/zookeeper.cpp. Standard
library only.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from dataclasses import dataclass, field
from typing import Callable, Iterable, Sequence
from urllib.parse import urlsplit

DEFAULT_PORT = 5050


def parse_masters(text: str, scheme: str = "http") -> tuple[str, ...]:
    """Return the base URLs of a comma-separated list of masters.

    Forms: `host:port`, `host`, `[::1]:5050`, `https://host`. For `zk://` see `ZooKeeperUrl`. Raises ValueError.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError("master is empty: host:port is required")
    return tuple(_base_url(part, scheme) for part in parts)


def _base_url(part: str, scheme: str) -> str:
    try:
        url = urlsplit(part if "://" in part else f"{scheme}://{part}")
        port = url.port
    except ValueError as error:
        raise ValueError(f"master {_without_secret(part)!r}: {error}") from error
    if "@" in url.netloc:
        raise ValueError(f"master {_without_secret(part)!r}: a user and password are not allowed here")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f"master {part!r}: invalid; expected host:port, http(s)://host:port or zk://host:port/path")
    return base_url(url.scheme, url.hostname, DEFAULT_PORT if port is None else port)


def _without_secret(part: str) -> str:
    return part.rpartition("@")[2]


def base_url(scheme: str, host: str, port: int) -> str:
    """Return a URL such as `http://[::1]:5050`."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class MasterList:
    """Select the master to ask: the leader of a redirect until it fails, else in turn.

    Thread-safe. Answers to requests from before `replace` are ignored.
    """

    def __init__(self, base_urls: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._base_urls = tuple(base_urls)
        self._index = 0
        self._leader: str | None = None

    @property
    def current(self) -> str | None:
        """Base URL of the master to ask; None if no master is known."""
        with self._lock:
            return self._current()

    def replace(self, base_urls: Sequence[str]) -> None:
        """Set the masters that a detector reports."""
        with self._lock:
            self._base_urls, self._index, self._leader = tuple(base_urls), 0, None

    def follow(self, asked: str, location: str) -> None:
        """Follow a master's redirect; Mesos omits the scheme (`//10.0.0.1:5050/...`).

        Raises ValueError for an invalid location, and for a redirect from https to http.
        """
        scheme = urlsplit(asked).scheme
        leader = _base_url(f"{scheme}:{location}" if location.startswith("//") else location, scheme)
        if scheme == "https" and not leader.startswith("https:"):
            raise ValueError(f"master {asked} redirects to a leader without TLS: {leader}")
        with self._lock:
            if asked == self._current():
                self._leader = leader

    def failed(self, asked: str) -> bool:
        """Record a failure of `asked`; return whether this round has an untried master."""
        with self._lock:
            if asked != self._current():
                return False
            if self._leader is not None:
                self._leader = None
                return False
            self._index = (self._index + 1) % len(self._base_urls)
            return self._index != 0

    def _current(self) -> str | None:
        return self._leader or (self._base_urls[self._index] if self._base_urls else None)


#: Sequential node of a master that is a candidate; the lowest number leads.
_CANDIDATE = re.compile(r"json\.info_(\d+)")


@dataclass(frozen=True)
class Leader:
    """The leading master. `identity` changes when it restarts."""

    identity: str
    hostname: str
    ip: str
    port: int

    def url(self, scheme: str) -> str:
        """Return the URL with the IP address; for https with the certificate's host name."""
        host = (self.hostname or self.ip) if scheme == "https" else (self.ip or self.hostname)
        return base_url(scheme, host, self.port)


#: Called with the leader, or with None and the reason.
OnLeader = Callable[["Leader | None", str], None]


class Detector:
    """Interface of leader detection. A driver calls `start` and `stop`."""

    def start(self, on_leader: OnLeader) -> None:
        """Call `on_leader` for each change, in a background thread."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the detection. May be called without `start`, and again."""
        raise NotImplementedError


@dataclass(frozen=True)
class ZooKeeperUrl:
    """`zk://user:password@host1:port1,host2:port2/path`, as in Mesos' flag --master."""

    servers: str
    path: str
    #: `user:password` for ZooKeeper's scheme `digest`.
    credentials: str | None = field(default=None, repr=False)

    @staticmethod
    def is_zookeeper(text: str) -> bool:
        return text.strip().startswith(("zk://", "zoo://"))

    @classmethod
    def parse(cls, text: str) -> ZooKeeperUrl:
        """Parse a URL. Raises ValueError, whose message omits the password."""
        rest = text.strip().partition("://")[2]
        authority, slash, path = rest.partition("/")
        credentials, at, servers = authority.rpartition("@")
        if not servers or not all(map(_is_server, servers.split(","))):
            raise ValueError(f"master zk://{servers}{slash}{path}: invalid; expected zk://host:port,host:port/path")
        if at and ":" not in credentials:
            raise ValueError(f"master zk://...@{servers}{slash}{path}: user:password is required before @")
        if not path.strip("/"):
            raise ValueError(f"master zk://{servers}/: the path of the masters' nodes is missing, such as /mesos")
        return cls(servers, "/" + path.strip("/"), credentials if at else None)

    def __str__(self) -> str:
        return f"zk://{self.servers}{self.path}"


def _is_server(text: str) -> bool:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(:(\d{1,5}))?", text)
    return match is not None and 0 < int(match.group(3) or 2181) < 65536


def candidates(children: Iterable[str]) -> dict[int, str]:
    """Return number -> name of the masters' nodes among the children of the path."""
    return {int(match.group(1)): match.group(0) for match in map(_CANDIDATE.fullmatch, children) if match}


def leading_candidate(children: Iterable[str]) -> str | None:
    """Return the leader's node among the children of the path; None without one."""
    nodes = candidates(children)
    return nodes[min(nodes)] if nodes else None


def resolve_hosts(hosts: Iterable[str]) -> frozenset[str]:
    """Return all IP addresses of the hosts. Raises OSError if none of them resolves."""
    addresses, failure = set[str](), OSError("no Mesos master is known")
    for host in hosts:
        try:
            addresses |= {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
        except (OSError, UnicodeError) as error:
            failure = OSError(f"{host}: {error}")
    if not addresses:
        raise failure
    return frozenset(addresses)


def decode_leader(data: bytes) -> Leader:
    """Decode MasterInfo in JSON. Raises ValueError."""
    try:
        info = json.loads(data)
        address = info.get("address", {})
        host, ip = address.get("hostname") or info.get("hostname", ""), str(address.get("ip", ""))
        leader = Leader(str(info.get("id", "")), str(host), ip, int(address.get("port") or info["port"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"invalid MasterInfo in the leader's ZooKeeper node: {error!r}") from error
    if not (leader.hostname or leader.ip):
        raise ValueError("the leader's ZooKeeper node contains neither an IP address nor a host name")
    return leader
