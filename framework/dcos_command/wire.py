"""HTTP with what Python has: one request, its answer, or the lines of an answer that does not end."""

from __future__ import annotations

import http.client
import ipaddress
import ssl
import urllib.error
import urllib.request
from contextlib import contextmanager
from typing import Any, Iterator
from urllib.parse import urlsplit

from .cluster import Cluster
from .errors import CommandError, UnreachableError

_SILENCE = 60.0  # seconds without a line of a stream: servers of such streams say something more often than that


def request(method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> urllib.request.Request:
    """A request that is not sent yet. Raise CommandError when that is no URL."""
    try:
        return urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - http(s): see cluster
    except ValueError as error:
        raise CommandError(f"{url} cannot be asked: {error}") from error


def answer(asked: urllib.request.Request, cluster: Cluster, timeout: float) -> tuple[int, str]:
    """Status and body, whatever the status is. `timeout` in seconds. Raise UnreachableError."""
    with _opened(asked, cluster, timeout) as found:
        return int(found.status), found.read().decode(errors="replace")


@contextmanager
def lines(asked: urllib.request.Request, cluster: Cluster) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Status and lines, as they come; an interrupted stream just ends. Raise UnreachableError when it never began."""
    with _opened(asked, cluster, _SILENCE) as found:
        yield int(found.status), _until_broken(found)


def _until_broken(found: Any) -> Iterator[bytes]:
    try:
        yield from found
    except (OSError, http.client.HTTPException):
        return


@contextmanager
def _opened(asked: urllib.request.Request, cluster: Cluster, timeout: float) -> Iterator[Any]:
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=cluster.tls()), _Leading()]
    try:
        if _on_loopback(asked.full_url):
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


class _Leading(urllib.request.HTTPRedirectHandler):
    """Follows questions only, and only where our token may be known: urllib itself would send it to anybody."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if req.get_method() in ("GET", "HEAD") and is_same_place(req.full_url, newurl):
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        hint = "which is not followed: give that address, if it is right"
        raise UnreachableError(f"{req.full_url} leads to {newurl[:200]!a}, {hint}")

    http_error_308 = urllib.request.HTTPRedirectHandler.http_error_302  # Python knows it from 3.11 on only


def is_same_place(here: str, there: str) -> bool:
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


def _advice(error: object, encrypted: bool, cluster: Cluster) -> str:
    """What to do about it, where that can be guessed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"\nIf its certificate is of an authority of your own, name the file of that: {cluster.verified_by}"
    if encrypted and isinstance(error, ssl.SSLError) and "WRONG_VERSION" in str(error):
        return "\nIt does not speak TLS, it seems: try http:// instead of https://"
    if not encrypted and isinstance(error, (http.client.BadStatusLine, ConnectionResetError)):
        return "\nDoes it speak TLS? Try https:// instead of http://"
    return ""


def _on_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
