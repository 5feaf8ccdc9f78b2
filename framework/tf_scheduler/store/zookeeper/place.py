"""Where a ZooKeeper is and how to talk to it: the `zk://` address, understood."""

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
_LEAST, _MOST = 1.0, 3600.0

_GRAMMAR = (
    "zk://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]...[/CHROOT][?OPTION=VALUE&...], zks:// for TLS; options: "
    "session_timeout, request_timeout (seconds), credentials (file of USER:PASSWORD), ca, certificate, key (PEM files)"
)


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: who may sign the servers' certificates (None: whom the system trusts), and our own certificate."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class ZooKeeperPlace:
    """A ZooKeeper and how to talk to it.

    `servers`: "HOST:PORT" each. `chroot`: "" or "/a/b"; the services' nodes lie below it. `credentials`: of digest
    authentication, "USER:PASSWORD", empty for none. `tls`: None for none. `session_timeout`: seconds without contact
    after which ZooKeeper lets a standby take over. `request_timeout`: seconds that one call of the store may take.
    """

    servers: tuple[str, ...]
    chroot: str = ""
    credentials: str = field(default="", repr=False)
    tls: Tls | None = None
    session_timeout: float = SESSION_TIMEOUT
    request_timeout: float = REQUEST_TIMEOUT

    def __str__(self) -> str:
        """The address without its secrets."""
        return f"{SECURE if self.tls else PLAIN}://{','.join(self.servers)}{self.chroot}"

    @classmethod
    def parse(cls, url: str) -> ZooKeeperPlace:
        """Understand an address; reads the credentials' file if it names one. Raises StoreAddressError.

            zk://[USER:PASSWORD@]HOST[:PORT],HOST[:PORT]...[/CHROOT][?OPTION=VALUE&...]

        as Mesos writes it (`--zk`, `--master`); `zks://` for TLS. Options: `session_timeout` (10) and `request_timeout`
        (15), in seconds; `credentials`, a file with USER:PASSWORD, which unlike the address is in no list of processes;
        with `zks`: `ca`, `certificate`, `key`, PEM files. On DC/OS the address is zk://master.mesos:2181.
        """
        scheme, _, rest = url.partition("://")
        if scheme not in (PLAIN, SECURE):
            raise StoreAddressError(f"{_masked(url)} is no address of a ZooKeeper; write {_GRAMMAR}")
        try:
            return _parse(scheme, rest)
        except (ValueError, OSError) as error:
            raise StoreAddressError(f"{_masked(url)}: {error}; write {_GRAMMAR}") from error


def _parse(scheme: str, rest: str) -> ZooKeeperPlace:
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    options = dict(_options(query))
    tls = Tls(*(_path(options.pop(name, "")) for name in ("ca", "certificate", "key")))
    if scheme == PLAIN and tls != Tls():
        raise ValueError("ca, certificate and key are for zks:// only")
    if (tls.certificate is None) != (tls.key is None):
        raise ValueError("certificate and key go together")
    return ZooKeeperPlace(
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
            raise ValueError(f"there is no option {name!r}")
        if not value:
            raise ValueError(f"{name} has no value")
        yield name, value


def _server(text: str) -> str:
    parts = urlsplit(f"//{text}")
    if not parts.hostname or parts.netloc != text or any(char.isspace() for char in text):
        raise ValueError(f"{text!r} is no HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{DEFAULT_PORT if parts.port is None else parts.port}"


def _chroot(path: str) -> str:
    path = path.rstrip("/")
    if not path:
        return ""
    try:
        return f"/{check_key(path[1:])}"
    except InvalidKeyError as error:
        raise ValueError(f"the chroot {path!r} is not a path that ZooKeeper allows: {error}") from error


def _credentials(login: str, file: str) -> str:
    if login and file:
        raise ValueError("give the credentials in the address or in a file, not both")
    found = Path(file).read_text(encoding="utf-8").strip() if file else login
    user, colon, password = found.partition(":")
    if found and not (user and colon and password):
        raise ValueError(f"the credentials{f' in {file}' if file else ''} are not USER:PASSWORD")
    return found


def _seconds(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not _LEAST <= value <= _MOST:
        raise ValueError(f"{name} must be a number of seconds from {_LEAST:g} to {_MOST:g}, not {text!r}")
    return value


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _masked(url: str) -> str:
    """For messages: no login, and nothing behind the question mark."""
    scheme, separator, rest = url.partition("?")[0].partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
