"""The scheduler's web server, put together. All that it needs is loaded with this module, and by nobody before."""

from __future__ import annotations

import socket
from functools import partial

from tf_scheduler.api.app import create_app
from tf_scheduler.api.backend import Backend
from tf_scheduler.api.clients import line_of
from tf_scheduler.api.courtesy import Courtesy
from tf_scheduler.api.secrets import Give, with_secrets
from tf_scheduler.api.server import ApiServer
from tf_scheduler.api.table_metrics import Counted, metrics
from tf_scheduler.metrics.meter import Meter
from tf_scheduler.web.pages import pages

from .front import ApiSettings


def web_server(backend: Backend, access: ApiSettings, give: Give, meter: Meter, listener: socket.socket) -> ApiServer:
    """On a socket that listens. Raise ApiError for files of `access` that cannot be used."""
    rows = tuple(metrics(meter.prometheus, meter.dropwizard))
    app = create_app(backend, access.policy, rows, pages=pages())
    # Tasks that fetch their secrets do not stand in the line of those who look.
    courtesy = Courtesy(app, partial(line_of, policy=access.policy))
    whole = Counted(with_secrets(courtesy, give), meter.request)
    host, port = listener.getsockname()[:2]
    return ApiServer(whole, host, port, access.tls, listener)
