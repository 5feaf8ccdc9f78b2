"""Metrics endpoints, and the counter of API requests."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from asgi_client import ask
from builders import a_spec
from metered_world import a_life
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.routes.operations import RequestCounter, metric_routes
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.model.state import SchedulerState

BEARER = {"authorization": "Bearer reader"}


@pytest.fixture(scope="module")
def app():
    meter = a_life().meter
    rows = tuple(metric_routes(meter.prometheus, meter.dropwizard))
    return create_app(lambda: Snapshot(SchedulerState(a_spec())), Policy(read_token="reader"), rows)


def test_prometheus_media_type(app) -> None:
    reply = ask(app, "/v1/metrics/prometheus", headers=BEARER)

    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (reply.code, reply.headers["content-type"])
    assert "# HELP tensorflow_offers_total Offers" in reply.text


def test_dropwizard_json(app) -> None:
    """Numbers that JSON does not have are omitted."""
    reply = ask(app, "/v1/metrics", headers=BEARER)

    assert (200, "application/json") == (reply.code, reply.headers["content-type"])
    assert reply.body["counters"]["offers.received"]["count"]


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/metrics/prometheus"])
def test_metrics_need_read_access(app, path: str) -> None:
    assert 401 == ask(app, path).code
    assert path in ask(app, "/v1/openapi.json", headers=BEARER).body["paths"]


def test_requests_are_counted_by_method_and_code(app) -> None:
    """Unknown methods count as one; an unanswered request has code 0."""
    counts: Counter[Any] = Counter()
    counted = RequestCounter(app, lambda method, code: counts.update([(method, code)]))

    ask(counted, "/v1/tasks", headers=BEARER)
    ask(counted, "/v1/tasks")
    ask(counted, "/v1/plans/none/stop", "POST", headers=BEARER)
    for name in ("BREW", "PLOW"):
        ask(counted, "/v1/tasks", name, headers=BEARER)

    assert {("GET", 200): 1, ("GET", 401): 1, ("POST", 403): 1, ("other", 403): 2} == counts


def test_failed_request_is_counted() -> None:
    """The server still gets the error."""
    counts: Counter[Any] = Counter()

    async def broken(_scope, _receive, _send) -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        asyncio.run(
            RequestCounter(broken, lambda *what: counts.update([what]))({"type": "http", "method": "GET"}, None, None)
        )

    assert {("GET", 0): 1} == counts
