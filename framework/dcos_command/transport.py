"""Requests with the standard library: the cluster to ask, HTTP, and server-sent events."""

from __future__ import annotations

import http.client
import ipaddress
import re
import ssl
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from .errors import CommandError, UnreachableError

_SECTION = re.compile(r"\s*\[([\w.-]+)\]\s*(?:#.*)?")
_SETTING = re.compile(r"""\s*([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s#]+))\s*(?:#.*)?""")
#: Values of core.ssl_verify that are no file name.
_SWITCH = ("true", "false")


@dataclass(frozen=True)
class ClusterConnection:
    """`url` without a slash at the end; `token` empty: none; `verify`: "true", "false" or a file of certificates."""

    url: str
    token: str = ""
    verify: str = "true"
    #: Name of the service where none is given.
    service: str = ""
    #: File of the certificate, with its key, that says who we are; empty: none.
    certificate: str = ""
    #: What says `verify`.
    verified_by: str = "core.ssl_verify"

    def tls(self) -> ssl.SSLContext | None:
        """None for http. Raise CommandError when the certificates cannot be read."""
        if not self.url.startswith("https:"):
            return None
        checked = self.verify.lower() != "false"
        try:
            context = ssl.create_default_context(cafile=self.verify if self.verify.lower() not in _SWITCH else None)
        except OSError as error:
            why = error.strerror if error.filename or not isinstance(error, ssl.SSLError) else "it holds no certificate"
            raise CommandError(f"{self.verified_by}: cannot read {self.verify}: {why}") from error
        if self.certificate:
            self._identify(context)
        if not checked:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _identify(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self.certificate)
        except OSError as error:
            raise CommandError(f"the certificate {self.certificate} cannot be read: {error}") from error


def attached_cluster(environment: Mapping[str, str]) -> ClusterConnection:
    """Raise CommandError when no cluster is set up."""
    settings = _settings(Path(environment.get("DCOS_DIR") or Path.home() / ".dcos"))
    url = environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL") or settings.get("core.dcos_url", "")
    if not url.startswith(("http://", "https://")):
        raise CommandError("no cluster is set up; run: dcos cluster setup <url>, or give --url")
    token = environment.get("DCOS_ACS_TOKEN") or settings.get("core.dcos_acs_token", "")
    service = environment.get("DCOS_TENSORFLOW_SERVICE_NAME") or settings.get("tensorflow.service_name", "")
    verify, said_by = tls_verification(environment, settings)
    return ClusterConnection(url.rstrip("/"), token, verify, service, verified_by=said_by)


def tls_verification(environment: Mapping[str, str], settings: Mapping[str, str]) -> tuple[str, str]:
    """`Cluster.verify`, and what says it."""
    if environment.get("DCOS_TLS_INSECURE") in ("1", "true"):
        return "false", "DCOS_TLS_INSECURE"
    for name in ("DCOS_TLS_CA_PATH", "DCOS_SSL_VERIFY"):
        if environment.get(name):
            return environment[name], name
    return settings.get("core.ssl_verify", "true"), "core.ssl_verify"


def _settings(home: Path) -> dict[str, str]:
    attached = [path.parent / "dcos.toml" for path in home.glob("clusters/*/attached")]
    clusters = list(home.glob("clusters/*/dcos.toml"))
    # The only cluster is the attached one: so the dcos command sees it, too.
    chosen = attached or (clusters if len(clusters) == 1 else [])
    for path in [*chosen, home / "dcos.toml"]:
        if path.is_file():
            return parse_toml(path.read_text(encoding="utf-8"))
    return {}


def parse_toml(text: str) -> dict[str, str]:
    """`section.name` -> value, of the little of TOML that dcos.toml uses: Python has a reader from 3.11 on only."""
    settings, section = {}, ""
    for line in text.splitlines():
        if head := _SECTION.fullmatch(line):
            section = head[1] + "."
        elif found := _SETTING.fullmatch(line):
            settings[section + found[1]] = next(value for value in found.groups()[1:] if value is not None)
    return settings


_STREAM_TIMEOUT = 60.0  # seconds without a line of a stream: servers of such streams say something more often than that


def build_request(method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> urllib.request.Request:
    """A request that is not sent yet. Raise CommandError when that is no URL."""
    try:
        return urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - http(s): see cluster
    except ValueError as error:
        raise CommandError(f"{url} cannot be asked: {error}") from error


def send(asked: urllib.request.Request, cluster: ClusterConnection, timeout: float) -> tuple[int, str]:
    """Status and body, whatever the status is. `timeout` in seconds. Raise UnreachableError."""
    with _open(asked, cluster, timeout) as found:
        return int(found.status), found.read().decode(errors="replace")


@contextmanager
def open_stream(asked: urllib.request.Request, cluster: ClusterConnection) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Status and lines, as they come; an interrupted stream just ends. Raise UnreachableError when it never began."""
    with _open(asked, cluster, _STREAM_TIMEOUT) as found:
        yield int(found.status), _until_broken(found)


def _until_broken(found: Any) -> Iterator[bytes]:
    try:
        yield from found
    except (OSError, http.client.HTTPException):
        return


@contextmanager
def _open(asked: urllib.request.Request, cluster: ClusterConnection, timeout: float) -> Iterator[Any]:
    handlers: list[urllib.request.BaseHandler] = [
        urllib.request.HTTPSHandler(context=cluster.tls()),
        _RedirectHandler(),
    ]
    try:
        if _is_loopback(asked.full_url):
            handlers.append(urllib.request.ProxyHandler({}))  # no proxy can reach our own machine
        found = urllib.request.build_opener(*handlers).open(asked, timeout=timeout)
    except urllib.error.HTTPError as error:
        found = error
    except (OSError, http.client.HTTPException) as error:
        advice = _advice(getattr(error, "reason", error), asked.type == "https", cluster)
        raise UnreachableError(f"{asked.full_url} does not answer: {_reason(error)}{advice}") from error
    except ValueError:  # it quotes what is wrong, which may be a header: that is not to be read anywhere
        raise CommandError(f"{asked.full_url} cannot be asked: its address or a header is none of HTTP") from None
    with found:
        yield found


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follows questions only, and only where our token may be known: urllib itself would send it to anybody."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.get_method() in ("GET", "HEAD") and is_safe_redirect(req.full_url, newurl):
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        hint = "which is not followed: give that address, if it is right"
        raise UnreachableError(f"{req.full_url} leads to {newurl[:200]!a}, {hint}")

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # Python knows it from 3.11 on only


def is_safe_redirect(here: str, there: str) -> bool:
    """Whether who answers there is who answers here; https may take the place of http, as DC/OS has it."""
    try:
        before, after = urlsplit(here), urlsplit(there)
        ports = {"http": 80, "https": 443}
        now = after.scheme, after.port or ports.get(after.scheme)
    except ValueError:
        return False
    same = now == (before.scheme, before.port or ports.get(before.scheme))
    return before.hostname == after.hostname and (same or (before.scheme == "http" and after.scheme == "https"))


def _reason(error: Exception) -> str:
    """`Connection refused`."""
    found = getattr(error, "reason", error)
    return getattr(found, "strerror", None) or str(found) or repr(found)


def _advice(error: object, encrypted: bool, cluster: ClusterConnection) -> str:
    """What to do about it, where that can be guessed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"\nIf its certificate is of an authority of your own, name the file of that: {cluster.verified_by}"
    if encrypted and isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error):
        return "\nIt does not speak TLS, it seems: try http:// instead of https://"
    if not encrypted and isinstance(error, (http.client.BadStatusLine, ConnectionResetError)):
        return "\nDoes it speak TLS? Try https:// instead of http://"
    return ""


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class ServerSentEvent:
    """`data` of several lines is one text. `id`: the last one seen; with it a stream is taken up again."""

    data: str
    name: str = "message"
    id: str = ""


def parse_events(lines: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Each event that is complete; comments and what is cut off at the end are left out."""
    data: list[str] = []
    name, last = "", ""
    for raw in lines:
        line = raw.decode("utf-8", errors="replace").rstrip("\r\n")
        if not line:
            if data:
                yield ServerSentEvent("\n".join(data), name or "message", last)
            data, name = [], ""
            continue
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            last = value
