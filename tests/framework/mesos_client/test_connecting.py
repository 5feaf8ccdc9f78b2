"""Aborted connections: to a host that does not answer, and during name lookup."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mesos_client import transport
from mesos_client.executor import ExecutorDriver
from mesos_client.http import HttpRequest, TransportError
from mesos_client.scheduler import SchedulerDriver
from mesos_client.transport import Transport, connect, connect_unix
from tf_executor.contract.http import SocketHandle
from wire.client import ENVIRON, FRAMEWORK
from wire.peer import PATIENCE, Peer, stream, subscribed


@pytest.fixture
def black_hole() -> Iterator[str]:
    """An address that answers no packet: the queue of its listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(16):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield "{}:{}".format(*listener.getsockname())


@pytest.fixture
def silent_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A resolver that never answers in the test; the first lookup sets the event."""
    asked, over = threading.Event(), threading.Event()
    real, threads = socket.getaddrinfo, []

    def getaddrinfo(host, *arguments, **options):
        if options.get("flags"):
            return real(host, *arguments, **options)
        threads.append(threading.current_thread())
        asked.set()
        over.wait(PATIENCE)
        raise socket.gaierror("asked in vain")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield asked
    over.set()
    for thread in threads:
        thread.join(PATIENCE)


class Waiting:
    """Runs `function` in a thread; `error` is what it raised."""

    def __init__(self, function, *arguments) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function, *arguments))
        self._thread.start()

    def _run(self, function, *arguments) -> None:
        try:
            function(*arguments)
        except Exception as error:
            self.error = error

    def join(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.error


class Telling(SocketHandle):
    """A handle that reports when a socket is about to connect."""

    def __init__(self) -> None:
        super().__init__()
        self.connecting = threading.Event()

    def opened(self, current) -> None:
        super().opened(current)
        self.connecting.set()


def test_connect_without_answer_times_out(black_hole) -> None:
    """Abort ends the wait for the first answer, which would last for minutes."""
    handle = Telling()
    host, port = black_hole.split(":")
    waiting = Waiting(connect, host, int(port), PATIENCE, handle)
    assert handle.connecting.wait(PATIENCE)
    handle.abort()
    assert isinstance(waiting.join(), OSError)


def test_unanswered_name_lookup_is_aborted(silent_resolver) -> None:
    """Abort ends the wait for a resolver, which cannot be interrupted itself."""
    handle = SocketHandle()
    waiting = Waiting(connect, "master.example", 5050, PATIENCE, handle)
    assert silent_resolver.wait(PATIENCE)
    handle.abort()
    assert str(waiting.join()) in ("interrupted", "aborted")


def test_name_lookup_times_out(silent_resolver) -> None:
    """The error names the host."""
    with pytest.raises(OSError, match=r"looking up master\.example"):
        connect("master.example", 5050, 0.01, SocketHandle())


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a" * 64 + ".example", "a..b"])
def test_names_that_do_not_exist_are_transport_errors(name) -> None:
    """P16: DNS failures and invalid host names are failures that name the host."""
    made = Transport()
    with pytest.raises(TransportError, match=name[:20].replace(".", r"\.")):
        made.post(HttpRequest(f"http://{name}:5050/", {}, b"", 5.0))
    made.close()


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with an IPv6 address without a server, and an IPv4 address with one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        addresses = [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
        with connect("master.example", port, PATIENCE, SocketHandle()) as connection:
            assert ("127.0.0.1", port) == connection.getpeername()


@pytest.mark.parametrize("code", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES])
def test_unreachable_network_is_transport_error(monkeypatch: pytest.MonkeyPatch, code) -> None:
    """P16: a missing route does not stop the driver."""

    monkeypatch.setattr(socket.socket, "connect_ex", lambda *_: code)
    made = Transport()
    with pytest.raises(TransportError, match=os.strerror(code)):
        made.post(HttpRequest("http://127.0.0.1:1/", {}, b"", 5.0))
    made.close()


def test_a_long_path_is_reached_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes 107 bytes; sandboxes are deeper than that."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("agent.sock")
        listener.listen()
        connect_unix(str(folder / "agent.sock"), PATIENCE, SocketHandle()).close()


def drivers(address):
    reports = {"on_event": lambda _: None, "on_state": lambda _: None}
    yield SchedulerDriver(FRAMEWORK, address, **reports)
    yield ExecutorDriver(environ={**ENVIRON, "MESOS_AGENT_ENDPOINT": address}, **reports)


@pytest.mark.parametrize("kind", [0, 1], ids=["scheduler", "executor"])
def test_p28_stop_does_not_wait_for_a_host_that_does_not_answer(
    black_hole, monkeypatch: pytest.MonkeyPatch, kind
) -> None:
    """P28: a driver that connects to a black hole stops and leaves no thread."""
    connecting_now = threading.Event()
    real = transport._outcome

    def tell_and_wait(connection, timeout):
        connecting_now.set()
        return real(connection, 10 * PATIENCE)

    monkeypatch.setattr(transport, "_outcome", tell_and_wait)
    driver = list(drivers(black_hole))[kind]
    driver.start()
    assert connecting_now.wait(PATIENCE)
    driver.stop()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mesos-")]


@pytest.mark.parametrize("kind", [0, 1], ids=["scheduler", "executor"])
def test_p28_stop_does_not_wait_for_a_resolver(silent_resolver, kind) -> None:
    """P28: a driver that waits for a name server stops on request."""
    driver = list(drivers("master.example:5050"))[kind]
    driver.start()
    assert silent_resolver.wait(PATIENCE)
    driver.stop()
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"mesos-scheduler-events", "mesos-executor-events"}


def test_silent_master_does_not_block_the_next(black_hole, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unresponsive master of the list costs the connect timeout only."""
    monkeypatch.setattr("mesos_client.http.CONNECT_TIMEOUT", 0.05)
    events: list[object] = []
    came = threading.Event()

    def on_event(event) -> None:
        events.append(event)
        came.set()

    with Peer(stream(subscribed())) as peer:
        driver = SchedulerDriver(FRAMEWORK, f"{black_hole},{peer.address}", on_event=on_event, on_state=print)
        driver.start()
        assert came.wait(PATIENCE)
        driver.stop()
    assert [subscribed()] == events
