"""How services are reached: as the label of their app says, encrypted or not; whose certificate it is, nobody asks.

So does DC/OS (mesosphere/marathon, health checks; dcos/dcos, Admin Router).
"""

from __future__ import annotations

import http.client
import ssl

from .app import App

HTTP, HTTPS = "http", "https"


def scheme_of(app: App) -> str:
    """Of its service, behind the admin router."""
    return HTTPS if app.definition["labels"].get("DCOS_SERVICE_SCHEME") == HTTPS else HTTP


def connection_to(scheme: str, address: str, timeout: float) -> http.client.HTTPConnection:
    """To "IP:PORT"; it connects with the first request."""
    if scheme == HTTPS:
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(address, timeout=timeout, context=context)
    return http.client.HTTPConnection(address, timeout=timeout)
