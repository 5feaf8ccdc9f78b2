"""Health checks: their rules, and their execution."""

import socket

import pytest

from dcos.app import HealthCheck
from dcos.health import Health, probe
from kit.http_server import HttpServer, QuietHandler

CHECK = HealthCheck("MESOS_HTTP", "/v1/health", 0, 100.0, 10.0, 5.0, 2, 3.0)


def test_first_check_waits_for_the_delay() -> None:
    health = Health.new(CHECK, 1000.0)

    assert (1003.0, 1014.0) == (health.due, health.after(True, 1004.0).due)


def test_failures_in_grace_period_do_not_count() -> None:
    """A scheduler may start slowly."""
    health = Health.new(CHECK, 1000.0).after(False, 1050.0).after(False, 1060.0)

    assert (None, 0, False) == (health.alive, health.failures, health.fatal)
    assert (False, 1) == (health.after(False, 1100.0).alive, health.after(False, 1100.0).failures)


def test_consecutive_failures_are_fatal() -> None:
    """A success resets the count."""
    health = Health.new(CHECK, 1000.0).after(True, 1003.0).after(False, 1010.0)

    assert (False, 1, False) == (health.alive, health.failures, health.fatal)
    assert health.after(False, 1020.0).fatal
    assert not health.after(True, 1020.0).after(False, 1030.0).fatal


def test_limit_of_0_allows_all_failures() -> None:
    """The package's app: the scheduler exits by itself."""
    health = Health.new(HealthCheck("HTTP", "/", 0, 0.0, 1.0, 1.0, 0, 0.0), 0.0)

    assert not health.after(False, 1.0).after(False, 2.0).after(False, 3.0).fatal


@pytest.fixture
def port():
    """Answers the code that the path names."""

    class Handler(QuietHandler):
        def respond(self) -> None:
            self.answer(int(self.path.strip("/")), b"")

    with HttpServer(Handler) as server:
        yield server.port


@pytest.mark.parametrize(("code", "alive"), [(200, True), (204, True), (318, True), (404, False), (500, False)])
def test_2xx_and_3xx_are_healthy(port, code, alive) -> None:
    check = HealthCheck("MESOS_HTTP", f"/{code}", 1, 0.0, 1.0, 20.0, 0, 0.0)

    assert alive is probe(check, "127.0.0.1", (1, port))


def test_tcp_check_needs_a_connection_only(port) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    checks = [HealthCheck(protocol, "/200", 0, 0.0, 1.0, 20.0, 0, 0.0) for protocol in ("TCP", "HTTP", "HTTPS")]

    assert probe(checks[0], "127.0.0.1", (port,))
    assert [False] * 3 == [probe(check, "127.0.0.1", (free,)) for check in checks]
