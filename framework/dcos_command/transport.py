"""HTTP and server-sent events by the standard library, to a DC/OS or a scheduler."""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from .errors import CommandError, UnreachableError

_SECTION = re.compile(r"\s*\[([\w.-]+)\]\s*(?:#.*)?")
_SETTING = re.compile(r"""\s*([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s#]+))\s*(?:#.*)?""")
#: Values of core.ssl_verify that are not a file name.
_SWITCH = ("true", "false")


@dataclass(frozen=True)
class ClusterConnection:
    """URL of a cluster or scheduler, without a final slash, and how to authenticate.

    `token` empty: none; `verify`: "true", "false" or a file of certificates.
    """

    url: str
    token: str = ""
    verify: str = "true"
    #: Default name of the service.
    service: str = ""
    #: File with the client's certificate and key; empty: none.
    certificate: str = ""
    #: Name of the setting that `verify` is from.
    verified_by: str = "core.ssl_verify"
    #: Default token of the scheduler's API; empty: none.
    api_token: str = field(default="", repr=False)

    def tls(self) -> ssl.SSLContext | None:
        """None for http. Raise CommandError if the certificates cannot be read."""
        if not self.url.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.verify if self.verify.lower() not in _SWITCH else None)
        except OSError as error:
            why = error.strerror if error.filename or not isinstance(error, ssl.SSLError) else "contains no certificate"
            raise CommandError(f"{self.verified_by}: `{self.verify}`: cannot be read: {why}") from error
        try:
            if self.certificate:
                context.load_cert_chain(self.certificate)
        except OSError as error:
            raise CommandError(f"client certificate `{self.certificate}`: cannot be read: {error}") from error
        if self.verify.lower() == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def attached_cluster(environment: Mapping[str, str]) -> ClusterConnection:
    """The cluster of the dcos command. Raise CommandError if none is set up."""
    settings = _settings(Path(environment.get("DCOS_DIR") or Path.home() / ".dcos"))
    url = environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL") or settings.get("core.dcos_url", "")
    if not url.startswith(("http://", "https://")):
        raise CommandError("no cluster is set up; run `dcos cluster setup URL`, or pass --url")
    token = environment.get("DCOS_ACS_TOKEN") or settings.get("core.dcos_acs_token", "")
    service = environment.get("DCOS_TENSORFLOW_SERVICE_NAME") or settings.get("tensorflow.service_name", "")
    verify, setting = tls_verification(environment, settings)
    # DCOS_URL may name another cluster, which must not get the API token.
    is_configured = settings.get("core.dcos_url", url).rstrip("/") == url.rstrip("/")
    api_token = settings.get("tensorflow.token", "") if is_configured else ""
    return ClusterConnection(url.rstrip("/"), token, verify, service, verified_by=setting, api_token=api_token)


def tls_verification(environment: Mapping[str, str], settings: Mapping[str, str]) -> tuple[str, str]:
    """`ClusterConnection.verify`, and the name of the setting that it is from."""
    if environment.get("DCOS_TLS_INSECURE") in ("1", "true"):
        return "false", "DCOS_TLS_INSECURE"
    for name in ("DCOS_TLS_CA_PATH", "DCOS_SSL_VERIFY"):
        if environment.get(name):
            return environment[name], name
    return settings.get("core.ssl_verify", "true"), "core.ssl_verify"


def _settings(home: Path) -> dict[str, str]:
    attached = [path.parent / "dcos.toml" for path in home.glob("clusters/*/attached")]
    clusters = list(home.glob("clusters/*/dcos.toml"))
    # A single cluster counts as attached, as in the dcos command.
    chosen = attached or (clusters if len(clusters) == 1 else [])
    for path in [*chosen, home / "dcos.toml"]:
        if path.is_file():
            return parse_toml(path.read_text(encoding="utf-8"))
    return {}


def parse_toml(text: str) -> dict[str, str]:
    """Parse dcos.toml to `section.name` -> value; Python 3.8 has no TOML parser."""
    settings, section = {}, ""
    for line in text.splitlines():
        if head := _SECTION.fullmatch(line):
            section = head[1] + "."
        elif match := _SETTING.fullmatch(line):
            settings[section + match[1]] = next(value for value in match.groups()[1:] if value is not None)
    return settings


_STREAM_TIMEOUT = 60.0  # seconds without a line; servers send keep-alive comments more often


def build_request(method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> urllib.request.Request:
    """Build a request. Raise CommandError if the URL is invalid."""
    try:
        return urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - http(s): see cluster
    except ValueError as error:
        raise CommandError(f"`{url}`: invalid URL: {error}") from error


class TimeLimit:
    """Maximum seconds for a whole request.

    A socket's own timeout starts again with each byte. In its block, requests through `handler` are cut off at the
    limit; then the block raises TimeoutError.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._expired = seconds, False
        self._socket: Any = None
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def handler(self, context: ssl.SSLContext | None) -> urllib.request.BaseHandler:
        """Return the handler of http and https requests."""
        return _LimitedHandler(self, context)

    def opened(self, current: Any) -> None:
        """Register the socket in use."""
        self._socket = current
        if self._expired:
            raise self._error()

    def __enter__(self) -> TimeLimit:
        self._timer.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._timer.cancel()
        # http.client takes an answer that is cut off for complete, or raises another error.
        if self._expired and (error is None or isinstance(error, (OSError, http.client.HTTPException))):
            raise self._error() from error

    def _error(self) -> TimeoutError:
        return TimeoutError(f"answer not complete within {self._seconds:g} s")

    def _expire(self) -> None:
        self._expired = True
        if self._socket is not None:
            with suppress(OSError):  # closed before
                # SSLSocket's own shutdown would discard the session that the reading thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


class _LimitedHandler(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Registers each connection with a time limit."""

    def __init__(self, limit: TimeLimit, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._limit = limit

    def do_open(self, http_class: Any, req: Any, **arguments: Any) -> Any:
        def make(*args: Any, **options: Any) -> Any:
            connection = http_class(*args, **options)
            connect = connection.connect

            def connect_and_register() -> None:
                connect()
                self._limit.opened(connection.sock)

            connection.connect = connect_and_register
            return connection

        return super().do_open(make, req, **arguments)


def send(request: urllib.request.Request, cluster: ClusterConnection, timeout: float) -> tuple[int, str]:
    """Return status and body. Raise UnreachableError.

    `timeout`: seconds for each wait; the limit of all together is twice that.
    """
    limit = TimeLimit(2 * timeout)
    with _errors_in_words(request, cluster), limit, _open(request, cluster, timeout, limit) as response:
        return int(response.status), response.read().decode(errors="replace")


@contextmanager
def open_stream(request: urllib.request.Request, cluster: ClusterConnection) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Stream status and lines until it breaks. Raise UnreachableError at the start."""
    with _errors_in_words(request, cluster), TimeLimit(_STREAM_TIMEOUT) as limit:
        response = _open(request, cluster, _STREAM_TIMEOUT, limit)
        error = [] if response.status == 200 else [response.read()]
    with response:
        if response.status == 200 and response.headers.get_content_type() != "text/event-stream":
            raise UnreachableError(f"{request.full_url} does not answer as a scheduler: not an event stream")
        yield int(response.status), iter(error) if error else _until_broken(response)


def _until_broken(response: Any) -> Iterator[bytes]:
    try:
        yield from response
    except (OSError, http.client.HTTPException):
        return


def _open(request: urllib.request.Request, cluster: ClusterConnection, timeout: float, limit: TimeLimit) -> Any:
    """Return the response once its head has arrived, also one with an error status."""
    handlers = [limit.handler(cluster.tls()), _RedirectHandler()]
    try:
        if is_loopback(request.full_url):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy cannot reach this machine
        return urllib.request.build_opener(*handlers).open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        return error
    except ValueError:  # its text may quote a header, such as the token
        raise CommandError(f"`{request.full_url}`: invalid URL or header") from None


@contextmanager
def _errors_in_words(request: urllib.request.Request, cluster: ClusterConnection) -> Iterator[None]:
    """Raise UnreachableError if the connection fails."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        advice = _advice(getattr(error, "reason", error), request.type == "https", cluster)
        raise UnreachableError(f"{request.full_url} does not answer: {_reason(error)}{advice}") from error


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follow GET and HEAD redirects to the same host only, to protect the token."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.get_method() in ("GET", "HEAD") and is_safe_redirect(req.full_url, newurl):
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        why = "this redirect is not followed; if the new URL is right, pass it as --url"
        raise UnreachableError(f"{req.full_url} redirects to {newurl[:200]!a}; {why}")

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # missing before Python 3.11


def is_safe_redirect(here: str, there: str) -> bool:
    """Whether both URLs have one host and port; https may replace http, as on DC/OS."""
    try:
        before, after = urlsplit(here), urlsplit(there)
        ports = {"http": 80, "https": 443}
        now = after.scheme, after.port or ports.get(after.scheme)
    except ValueError:
        return False
    same = now == (before.scheme, before.port or ports.get(before.scheme))
    return before.hostname == after.hostname and (same or (before.scheme == "http" and after.scheme == "https"))


def _reason(error: Exception) -> str:
    """The cause in words, such as `Connection refused`."""
    cause = getattr(error, "reason", error)
    return getattr(cause, "strerror", None) or str(cause) or repr(cause)


def _advice(error: object, encrypted: bool, cluster: ClusterConnection) -> str:
    """A possible remedy, or an empty text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"\nIf a private CA signed the server's certificate, set {cluster.verified_by} to the CA's PEM file"
    if encrypted and isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error):
        return "\nThe server seems not to use TLS; try http:// instead of https://"
    if not encrypted and isinstance(error, (http.client.BadStatusLine, ConnectionResetError)):
        return "\nThe server may require TLS; try https:// instead of http://"
    if isinstance(error, ConnectionRefusedError):
        return "\nThe service may have ended, or its scheduler is restarting"
    return ""


def is_loopback(url: str) -> bool:
    """Whether the URL is one of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class ServerSentEvent:
    """Event of a stream. `data`: its lines, joined. `id`: last id, to resume from."""

    data: str
    name: str = "message"
    id: str = ""


def parse_events(lines: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Each complete event; comments and an incomplete last event are ignored."""
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
