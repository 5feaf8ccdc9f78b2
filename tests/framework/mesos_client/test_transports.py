"""Streams and calls of the transport."""

from __future__ import annotations

import socket
import threading

import pytest

from mesos_client import transport as transport_module
from mesos_client.http import HttpRequest, TransportError
from mesos_client.stream import RecordDecoder
from mesos_client.transport import Transport
from wire.peer import Exchange, Peer, cut_after, hang, message, status, stream

SUBSCRIBE = b'{"type": "SUBSCRIBE"}'
CALL = b'{"type": "KILL", "secret": "in the body"}'


@pytest.fixture
def transport():
    made = Transport()
    yield made
    made.close()


def request_to(peer: Peer, body: bytes = SUBSCRIBE, timeout: float = 30.0) -> HttpRequest:
    return HttpRequest(f"http://{peer.address}/api", {"Content-Type": "application/json"}, body, timeout)


def test_stream_yields_chunks_on_arrival(transport) -> None:
    """Records arrive before the response ends, with status and lower-case headers."""
    with Peer(stream(message())) as peer:
        opened = transport.stream()
        head = opened.open(request_to(peer))
        assert (200, "stream-1") == (head.status, head.headers["mesos-stream-id"])
        decoder, chunks = RecordDecoder(), opened.chunks()
        records: list[bytes] = []
        while not records:
            records += decoder.feed(next(chunks))
        opened.close()
        assert len(records) == 1


@pytest.mark.parametrize("script", [hang, stream()], ids=["before the head", "in the body"])
def test_abort_ends_a_wait(transport, script) -> None:
    """Another thread can end a wait for the head, and one for the next chunk."""
    with Peer(script) as peer:
        opened, ended = transport.stream(), []

        def follow() -> None:
            try:
                opened.open(request_to(peer))
                list(opened.chunks())
                ended.append("ended")
            except TransportError:
                ended.append("broken")

        thread = threading.Thread(target=follow)
        thread.start()
        peer.wait("SUBSCRIBE")
        opened.abort()
        thread.join(30)
        opened.close()
        assert len(ended) == 1


def test_abort_before_open_is_kept(transport) -> None:
    """A stream that was aborted does not open."""
    with Peer(stream()) as peer:
        opened = transport.stream()
        opened.abort()
        with pytest.raises(TransportError):
            opened.open(request_to(peer))
        opened.close()


def test_silence_beyond_the_limit_is_an_error(transport) -> None:
    """The watchdog: no byte for so long ends the stream."""
    with Peer(stream()) as peer:
        opened = transport.stream()
        opened.open(request_to(peer))
        opened.set_silence_limit(0.05)
        with pytest.raises(TransportError, match=r"(?i)timed out|timeout"):
            list(opened.chunks())
        opened.close()


def test_a_cut_stream_is_an_error(transport) -> None:
    """The chunked body did not end as it should."""
    with Peer(cut_after(message())) as peer:
        opened = transport.stream()
        opened.open(request_to(peer))
        with pytest.raises(TransportError):
            list(opened.chunks())
        opened.close()


def test_refused_connection_error_hides_body(transport) -> None:
    """No server listens: the error names the cause."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TransportError, match="refused") as caught:
        transport.post(HttpRequest(f"http://127.0.0.1:{port}/", {}, CALL, 5.0))
    assert "in the body" not in str(caught.value)


def test_a_call_gets_its_answer(transport) -> None:
    """Status and body of any answer; redirects are not followed."""
    for code, body in ((202, b""), (403, b"Framework is not subscribed"), (307, b"")):
        with Peer(stream(), on_call=status(code, body, Location="//127.0.0.1:1/")) as peer:
            reply = transport.post(request_to(peer, CALL))
            assert (code, body.decode()) == (reply.status, reply.text)


def test_interrupt_ends_a_waiting_call_and_no_later_one(transport) -> None:
    """A lost master's answer is not waited for; the next call works."""
    scripts = iter([hang, status(202)])
    with Peer(stream(), on_call=lambda exchange: next(scripts)(exchange)) as peer:
        failed = []

        def call() -> None:
            try:
                transport.post(request_to(peer, CALL))
            except TransportError as error:
                failed.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        peer.wait("KILL")
        transport.interrupt()
        thread.join(30)
        assert len(failed) == 1
        assert transport.post(request_to(peer, CALL)).status == 202


def test_closed_transport_rejects_calls(transport) -> None:
    """Twice closed is closed."""
    transport.close()
    transport.close()
    with pytest.raises(TransportError, match="stopped"):
        transport.post(HttpRequest("http://127.0.0.1:1/", {}, CALL, 5.0))


def test_proxies_of_the_environment_are_ignored(transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master is reached directly, whatever http_proxy says."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with Peer(stream()) as peer:
        assert transport.post(request_to(peer, CALL)).status == 202


def drip(exchange: Exchange) -> None:
    """Send a head without end, one byte now and then."""
    exchange.connection.sendall(b"HTTP/1.1 200 OK\r\nA: ")
    while not exchange.peer.is_closed.wait(0.01):
        exchange.connection.sendall(b"a")


def test_endless_head_ends_call(transport) -> None:
    """The timeout of a socket starts again with each byte."""
    with Peer(on_call=drip) as peer, pytest.raises(TransportError):
        transport.post(request_to(peer, CALL, timeout=0.2))


def test_call_is_sent_at_the_limit_of_threads(transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container, for example."""

    def refuse_to_start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Peer(on_call=status(200, b"{}")) as peer:
        monkeypatch.setattr(threading.Timer, "start", refuse_to_start)
        assert b"{}" == transport.post(request_to(peer, CALL)).body


@pytest.mark.parametrize("limit", ["_MAX_ANSWER", "_MAX_SECONDS"])
def test_endless_answer_ends_call(transport, limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither memory nor the thread that sends calls is lost to it."""

    def endless(exchange: Exchange) -> None:
        exchange.begin()
        while not exchange.peer.is_closed.wait(0.001):
            exchange.send({"type": "more"})

    monkeypatch.setattr(transport_module, limit, 0.2)
    with Peer(on_call=endless) as peer, pytest.raises(TransportError, match="does not end"):
        transport.post(request_to(peer, CALL))


def test_cut_answer_fails_call(transport) -> None:
    """A part of an answer could look like an answer without content."""

    def cut(exchange: Exchange) -> None:
        exchange.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}")
        exchange.connection.shutdown(socket.SHUT_RDWR)

    with Peer(on_call=cut) as peer, pytest.raises(TransportError, match="7 bytes early"):
        transport.post(request_to(peer, CALL))


def test_connection_is_reused_after_answer(transport) -> None:
    """The body is read to its end."""
    with Peer(on_call=status(200, b"{}")) as peer:
        assert [b"{}", b"{}"] == [transport.post(request_to(peer, CALL)).body for _ in range(2)]
