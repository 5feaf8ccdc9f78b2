"""Send HTTP requests to DC/OS or a scheduler; read event streams; dcos settings."""

from __future__ import annotations

import http.client
import re
import ssl
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping
from urllib.parse import urlsplit

from tf_executor.contract.http import HttpClient, NoReplyError

from .errors import CommandError, UnreachableError

_SECTION = re.compile(r"\s*\[([\w.-]+)\]\s*(?:#.*)?")
_SETTING = re.compile(r"""\s*([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s#]+))\s*(?:#.*)?""")
#: Values of core.ssl_verify that are not a file name.
_SWITCH = ("true", "false")


@dataclass(frozen=True)
class ClusterConnection:
    """URL of a cluster or scheduler, without a final slash, and how to authenticate.

    `token`: empty without a login. `verify`: "true", "false" or a file of certificates.
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
        """Return the TLS context, None for http. Raise CommandError for a bad file."""
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
    """Return the cluster that the dcos command uses. Raise CommandError without one."""
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
    """Return `verify` of ClusterConnection, and the name of the setting that sets it."""
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


@dataclass(frozen=True)
class ServiceRequest:
    """A request to a cluster or scheduler."""

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = None


def send(request: ServiceRequest, cluster: ClusterConnection, timeout: float) -> tuple[int, str]:
    """Send a request; return status and body. Raise UnreachableError.

    `timeout`: seconds for each wait; all waits together may take twice as long.
    """
    with _errors_in_words(request, cluster):
        client = HttpClient(2 * timeout, timeout, cluster.tls(), uses_proxies=True, redirects=_RedirectHandler)
        reply = client.fetch(request.url, request.headers, request.body, request.method)
        return reply.status, reply.body.decode(errors="replace")


@contextmanager
def open_stream(request: ServiceRequest, cluster: ClusterConnection) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Open a stream: status, and lines until it breaks. Raise UnreachableError."""
    seconds, context = _STREAM_TIMEOUT, cluster.tls()
    client = HttpClient(seconds, seconds, context, uses_proxies=True, redirects=_RedirectHandler)
    with ExitStack() as stack:
        with _errors_in_words(request, cluster):
            reply, lines = stack.enter_context(client.stream(request.url, request.headers))
        if reply.status != 200:
            yield reply.status, iter([reply.body])
        elif not reply.headers.get("Content-Type", "").startswith("text/event-stream"):
            raise UnreachableError(f"{request.url} does not answer as a scheduler: not an event stream")
        else:
            yield reply.status, _until_broken(lines)


def _until_broken(lines: Iterable[bytes]) -> Iterator[bytes]:
    with suppress(OSError, http.client.HTTPException):
        yield from lines


@contextmanager
def _errors_in_words(request: ServiceRequest, cluster: ClusterConnection) -> Iterator[None]:
    """Raise UnreachableError if the connection fails, CommandError for a bad URL."""
    try:
        yield
    except NoReplyError as error:
        advice = _advice(error.cause, request.url.startswith("https:"), cluster)
        raise UnreachableError(f"{request.url} does not answer: {error}{advice}") from error
    except ValueError:  # its text may quote a header, such as the token
        raise CommandError(f"`{request.url}`: invalid URL or header") from None


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """Follow GET and HEAD redirects to the same host only, to protect the token."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.get_method() in ("GET", "HEAD") and is_safe_redirect(req.full_url, newurl):
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        why = "this redirect is not followed; if the new URL is right, pass it as --url"
        raise UnreachableError(f"{req.full_url} redirects to {newurl[:200]!a}; {why}")

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # missing before Python 3.11


def is_safe_redirect(here: str, there: str) -> bool:
    """Whether both URLs have the same host and port, or https replaces http (DC/OS)."""
    try:
        before, after = urlsplit(here), urlsplit(there)
        ports = {"http": 80, "https": 443}
        now = after.scheme, after.port or ports.get(after.scheme)
    except ValueError:
        return False
    same = now == (before.scheme, before.port or ports.get(before.scheme))
    return before.hostname == after.hostname and (same or (before.scheme == "http" and after.scheme == "https"))


def _advice(error: object, encrypted: bool, cluster: ClusterConnection) -> str:
    """Return a possible remedy for the error, or an empty text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"\nIf a private CA signed the server's certificate, set {cluster.verified_by} to the CA's PEM file"
    if encrypted and isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error):
        return "\nThe server seems not to use TLS; try http:// instead of https://"
    if not encrypted and isinstance(error, (http.client.BadStatusLine, ConnectionResetError)):
        return "\nThe server may require TLS; try https:// instead of http://"
    if isinstance(error, ConnectionRefusedError):
        return "\nThe service may have ended, or its scheduler is restarting"
    return ""


@dataclass(frozen=True)
class ServerSentEvent:
    """Event of a stream. `data`: its joined lines. `id`: the stream's last id so far."""

    data: str
    name: str = "message"
    id: str = ""


def parse_events(lines: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Yield each complete event; ignore comments and an incomplete last event."""
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
