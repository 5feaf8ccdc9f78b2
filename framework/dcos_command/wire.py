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
from .errors import UnreachableError

_SILENCE = 60.0  # seconds without a line of a stream: servers of such streams say something more often than that


def request(method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> urllib.request.Request:
    """A request that is not sent yet."""
    return urllib.request.Request(url, data=body, headers=headers, method=method)  # noqa: S310 - http(s): see cluster


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
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=cluster.tls())]
    if _on_loopback(asked.full_url):
        handlers.append(urllib.request.ProxyHandler({}))  # no proxy can reach our own machine
    try:
        found = urllib.request.build_opener(*handlers).open(asked, timeout=timeout)
    except urllib.error.HTTPError as error:
        found = error
    except (OSError, http.client.HTTPException) as error:
        advice = _advice(getattr(error, "reason", error), asked.type == "https", cluster)
        raise UnreachableError(f"{asked.full_url} does not answer: {_reason(error)}{advice}") from error
    with found:
        yield found


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
