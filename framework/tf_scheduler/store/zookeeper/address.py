"""Parse `zk://` addresses of ZooKeeper with timeouts, credentials and TLS files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tf_scheduler.store.interface import InvalidKeyError, StoreAddressError, check_key

PLAIN, SECURE = "zk", "zks"
DEFAULT_PORT = 2181
#: Seconds. ZooKeeper allows 2 to 20 of its ticks: 4 s to 40 s on DC/OS.
SESSION_TIMEOUT, REQUEST_TIMEOUT = 10.0, 15.0
_MIN_TIMEOUT, _MAX_TIMEOUT = 1.0, 3600.0

_GRAMMAR = (
    "zk://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]...[/CHROOT][?OPTION=VALUE&...] (zks:// for TLS); options: "
    "session_timeout, request_timeout (seconds), credentials (file of USER:PASSWORD), ca, certificate, key (PEM files)"
)


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """PEM files: the servers' CA (None: the system's), client certificate and its key."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """Address and connection settings of a ZooKeeper.

    Args:
        servers: "HOST:PORT" of each server.
        chroot: "" or "/a/b", the parent of the services' nodes.
        credentials: "USER:PASSWORD" for digest authentication; empty for none.
        session_timeout: Seconds without contact to the leader after which a standby takes over.
        request_timeout: Maximum seconds of one call of the store.
    """

    servers: tuple[str, ...]
    chroot: str = ""
    credentials: str = field(default="", repr=False)
    tls: ZooKeeperTls | None = None
    session_timeout: float = SESSION_TIMEOUT
    request_timeout: float = REQUEST_TIMEOUT

    def __str__(self) -> str:
        """Return the address without its secrets."""
        return f"{SECURE if self.tls else PLAIN}://{','.join(self.servers)}{self.chroot}"

    @classmethod
    def parse(cls, url: str) -> ZooKeeperAddress:
        """Parse an address (`_GRAMMAR`) and read its credentials file, if any.

        A password in the file is not in the process list. DC/OS: zk://master.mesos:2181. Raises StoreAddressError.
        """
        scheme, _, rest = url.partition("://")
        if scheme not in (PLAIN, SECURE):
            raise StoreAddressError(f"{_masked(url)}: invalid ZooKeeper address; expected {_GRAMMAR}")
        try:
            return _parse(scheme, rest)
        except (ValueError, OSError) as error:
            raise StoreAddressError(f"{_masked(url)}: {error}; expected {_GRAMMAR}") from error


def _parse(scheme: str, rest: str) -> ZooKeeperAddress:
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    options = dict(_options(query))
    files = [options.pop(name, "") for name in ("ca", "certificate", "key")]
    tls = ZooKeeperTls(*(Path(file) if file else None for file in files))
    if scheme == PLAIN and tls != ZooKeeperTls():
        raise ValueError("ca, certificate and key require zks://")
    if (tls.certificate is None) != (tls.key is None):
        raise ValueError("certificate and key: set both or neither")
    return ZooKeeperAddress(
        servers=tuple(_server(host) for host in hosts.split(",")),
        chroot=_chroot(slash + path),
        credentials=_credentials(unquote(login), options.pop("credentials", "")),
        tls=tls if scheme == SECURE else None,
        session_timeout=_seconds("session_timeout", options.pop("session_timeout", f"{SESSION_TIMEOUT}")),
        request_timeout=_seconds("request_timeout", options.pop("request_timeout", f"{REQUEST_TIMEOUT}")),
    )


def _options(query: str) -> Iterator[tuple[str, str]]:
    allowed = ("session_timeout", "request_timeout", "credentials", "ca", "certificate", "key")
    for name, value in parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else ():
        if name not in allowed:
            raise ValueError(f"unknown option {name!r}")
        if not value:
            raise ValueError(f"missing value of {name}")
        yield name, value


def _server(text: str) -> str:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.netloc != text or any(char.isspace() for char in text):
        raise ValueError(f"invalid HOST:PORT {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{DEFAULT_PORT if parts.port is None else parts.port}"


def _chroot(path: str) -> str:
    path = path.rstrip("/")
    if not path:
        return ""
    try:
        return f"/{check_key(path[1:])}"
    except InvalidKeyError as error:
        raise ValueError(f"invalid chroot {path!r}: {error}") from error


def _credentials(login: str, file: str) -> str:
    if login and file:
        raise ValueError("credentials are both in the address and in a file; choose one")
    credentials = Path(file).read_text(encoding="utf-8").strip() if file else login
    user, colon, password = credentials.partition(":")
    if credentials and not (user and colon and password):
        raise ValueError(f"invalid credentials{f' in {file}' if file else ''}: USER:PASSWORD is required")
    return credentials


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _MIN_TIMEOUT <= value <= _MAX_TIMEOUT:
        allowed = f"{_MIN_TIMEOUT:g} to {_MAX_TIMEOUT:g}"
        raise ValueError(f"invalid {name} {text!r}: a number of seconds from {allowed} is required")
    return value


def _masked(url: str) -> str:
    """Return the address for messages, without login and options."""
    scheme, separator, rest = url.partition("?")[0].partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
