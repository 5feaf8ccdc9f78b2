"""Connections to services; the app's label selects TLS, without verification.

So does DC/OS (mesosphere/marathon, health checks; dcos/dcos, Admin Router).
"""

from __future__ import annotations

import http.client
import ssl

from .app import App

HTTP, HTTPS = "http", "https"


def scheme_of(app: App) -> str:
    """URL scheme of the app's service, behind the admin router."""
    return HTTPS if app.definition["labels"].get("DCOS_SERVICE_SCHEME") == HTTPS else HTTP


def connection_to(scheme: str, address: str, timeout: float) -> http.client.HTTPConnection:
    """A connection to "IP:PORT", opened by the first request."""
    if scheme == HTTPS:
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(address, timeout=timeout, context=context)
    return http.client.HTTPConnection(address, timeout=timeout)
