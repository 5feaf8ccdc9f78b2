"""Redirects and tokens: a token is sent only to the given address."""

from __future__ import annotations

import traceback
from contextlib import ExitStack, contextmanager
from itertools import islice

import pytest

from dcos_command import transport
from dcos_command.client import ServiceClient
from dcos_command.errors import CommandError, UnreachableError
from dcos_command.transport import ClusterConnection, ServiceRequest, is_safe_redirect, send
from kit.http_server import HttpServer, QuietHandler, dripping_server


@contextmanager
def a_server(leads_to=""):
    """Its port, and the Authorization headers that it was sent."""
    heard = []

    class Handler(QuietHandler):
        def respond(self) -> None:
            heard.append(self.headers["Authorization"])
            away = leads_to if leads_to.startswith("http") or self.path != leads_to else ""
            self.answer(302 if away else 200, b"[]", Location=away)

    with HttpServer(Handler) as server:
        yield server.port, heard


def test_token_is_not_sent_to_redirect_target() -> None:
    """Neither to another host name nor to another port; the error names the target."""
    with ExitStack() as stack:
        port, heard = stack.enter_context(a_server())
        for name in ("localhost", "127.0.0.1"):
            first, _ = stack.enter_context(a_server(f"http://{name}:{port}/v1/plans"))
            service = ServiceClient(ClusterConnection(f"http://127.0.0.1:{first}"), "x", direct=True, token="secret")
            message = f"http://127.0.0.1:{first}/v1/plans redirects to 'http://{name}:{port}/v1/plans'"
            asks = (
                lambda it: it.get("v1/plans"),
                lambda it: it.post("v1/plans"),
                lambda it: next(it.events("v1/plans")),
            )
            for ask in asks:
                with pytest.raises(UnreachableError, match=message):
                    ask(service)

    assert [] == heard


def test_redirected_post_is_refused() -> None:
    """urllib would turn it into a GET."""
    with a_server("/v1/there") as (port, heard):
        service = ServiceClient(ClusterConnection(f"http://127.0.0.1:{port}"), "x", direct=True, token="secret")

        assert [] == service.get("v1/plans")
        with pytest.raises(UnreachableError, match="redirects to"):
            service.post("v1/plans")

    assert ["Bearer secret"] * 3 == heard


HEAD = b"HTTP/1.1 %d x\r\nContent-Type: text/event-stream\r\n"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("start", "drip"), [(HEAD % 200 + b"\r\n[", b" "), (HEAD % 200, b"x"), (b"HTTP/", b"1")])
def test_answer_that_drips_is_cut_off(start: bytes, drip: bytes) -> None:
    """Each byte restarts the timeout of the socket."""
    with dripping_server(start, drip) as url:
        service = ServiceClient(ClusterConnection(url), "x", direct=True, timeout=0.25)

        for ask in (service.get, service.post):
            with pytest.raises(UnreachableError, match=r"not complete within 0\.5 s"):
                ask("v1/plans")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("start", [HEAD % 200, HEAD % 500 + b"\r\n"])
def test_start_of_a_stream_that_drips_is_cut_off(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its head, and the text of an error; a stream itself has no end."""
    monkeypatch.setattr(transport, "_STREAM_TIMEOUT", 0.5)
    with dripping_server(start, b"x") as url:
        service = ServiceClient(ClusterConnection(url), "x", direct=True)

        with pytest.raises(UnreachableError, match=r"not complete within 0\.5 s"):
            next(service.events("v1/events"))


@pytest.mark.timeout(30)
def test_stream_outlasts_the_limit_of_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_STREAM_TIMEOUT", 0.5)
    with dripping_server(HEAD % 200 + b"\r\n", b"data: 1\n\n") as url:
        events = ServiceClient(ClusterConnection(url), "x", direct=True).events("v1/events")

        assert ["1"] * 20 == [event.data for event in islice(events, 20)]


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ("http://dcos/x", "https://dcos/y", True),
        ("http://dcos:80/x", "http://DCOS/y", True),
        ("https://dcos/x", "https://dcos:443/y", True),
        ("https://dcos/x", "http://dcos/y", False),
        ("https://dcos/x", "https://dcos:8443/y", False),
        ("http://dcos/x", "https://dcos.evil/y", False),
        ("http://dcos/x", "https://dcos@evil/y", False),
        ("http://dcos/x", "https://dcos:x/y", False),
        ("http://dcos/x", "//[", False),
    ],
)
def test_safe_redirect_keeps_host_and_port(here: str, there: str, same: bool) -> None:
    """DC/OS redirects from http to https."""
    assert same == is_safe_redirect(here, there)


@pytest.mark.parametrize("token", ["secret\r", "secret\r\n", "  secret \n"])
def test_line_end_of_a_token_is_removed(token) -> None:
    """`$(cat file)` keeps the carriage return of a Windows editor."""
    with a_server() as (port, heard):
        ServiceClient(ClusterConnection(f"http://127.0.0.1:{port}"), "x", direct=True, token=token).get("v1/plans")
        ServiceClient(ClusterConnection(f"http://127.0.0.1:{port}"), "x", direct=True, token=" \r\n").get("v1/plans")

    assert ["Bearer secret", None] == heard


@pytest.mark.parametrize("token", ["q9zx\rw7kj", "q9zx\nX-Other: w7kj", "q9zx\0w7kj", "q9zxéw7kj€", "\ufeffq9zxw7kj"])
@pytest.mark.parametrize("direct", [True, False])
def test_invalid_token_is_refused_and_not_shown(token, direct: bool) -> None:
    """Neither by the message nor by the traceback."""
    cluster = ClusterConnection("http://127.0.0.1:1", "" if direct else token)
    service = ServiceClient(cluster, "x", direct=direct, token=token if direct else "")
    for ask in (lambda: service.get("v1/plans"), lambda: service.post("v1/plans"), lambda: next(service.events("v1"))):
        with pytest.raises(CommandError, match="invalid token: contains a newline") as refused:
            ask()

        text = "".join(traceback.format_exception(refused.value))
        assert "q9zx" not in text
        assert "w7kj" not in text


def test_invalid_header_is_not_shown() -> None:
    """Python's error quotes it."""
    asked = ServiceRequest("GET", "http://127.0.0.1:1/v1/plans", {"X-Thing": "secret\r"})
    with pytest.raises(CommandError, match="v1/plans`: invalid URL or header") as refused:
        send(asked, ClusterConnection("http://127.0.0.1:1"), 1.0)

    assert "secret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("url", ["http://[", "http://127.0.0.1:port", "http://a b/"])
def test_invalid_url_raises_command_error(url: str) -> None:
    with pytest.raises(CommandError):
        ServiceClient(ClusterConnection(url, "secret"), "x", direct=True).get("v1/plans")
