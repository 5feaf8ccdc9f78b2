"""Horovod's rendezvous with simulated processes, because Horovod has no wheel."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tf_executor.launch import rendezvous
from tf_executor.launch.rendezvous import RendezvousServer

#: A simulated Horovod process: publish its address, wait for the others', unregister.
MEMBER = """
import os, sys, time, urllib.error, urllib.request
rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
base = "http://127.0.0.1:" + os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"] + "/global/"
def call(method, name, data=None):
    return urllib.request.urlopen(urllib.request.Request(base + name, data=data, method=method), timeout=60).read()
call("PUT", str(rank), f"address of {rank}".encode())
for other in range(size):
    while True:
        try:
            print(call("GET", str(other)).decode())
            break
        except urllib.error.HTTPError as error:
            assert error.code == 404
            time.sleep(0.01)
call("DELETE", str(rank))
"""


def ask(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    source: str = "127.0.0.1",
    host: str = "127.0.0.1",
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=60, source_address=(source, 0))
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_value_is_available_after_put() -> None:
    """On 404 a process asks again."""
    with RendezvousServer(0, host="127.0.0.1") as served:
        before, put = ask(served.port, "GET", "/global/0"), ask(served.port, "PUT", "/global/0", b"\x00bytes")

        assert (404, 200) == (before[0], put[0])
        assert (200, b"\x00bytes") == ask(served.port, "GET", "/global/0")
        assert 404 == ask(served.port, "GET", "/local/0")[0]


def test_processes_exchange_addresses() -> None:
    with RendezvousServer(0, host="127.0.0.1") as served:
        around = {"HOROVOD_SIZE": "2", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(served.port)}
        members = [
            subprocess.Popen(
                [sys.executable, "-c", MEMBER], env={**around, "HOROVOD_RANK": rank}, stdout=subprocess.PIPE, text=True
            )
            for rank in ("1", "0")
        ]
        try:
            outputs = [member.communicate(timeout=60)[0] for member in members]
        finally:
            for member in members:
                member.kill()
                member.wait()

    assert ["address of 0\naddress of 1\n"] * 2 == outputs


def test_oversized_value_is_refused() -> None:
    with RendezvousServer(0, host="127.0.0.1") as served:
        connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        with connection:
            connection.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.0 413")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Content-Length: -1", 400),
        ("Content-Length: abc", 400),
        ("Content-Length: +1", 400),
        ("Content-Length: \u00b2", 400),
        ("Content-Length: 1\r\nContent-Length: 2", 400),
        ("Transfer-Encoding: chunked", 400),
        ("Content-Length: " + "9" * 5000, 413),
        ("Content-Length: 1048577", 413),
    ],
)
def test_invalid_length_is_refused(header: str, status: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Without a traceback, which would be in the stderr of the task."""
    with RendezvousServer(0, host="127.0.0.1") as served:
        connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        with connection:
            connection.sendall(f"PUT /a HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n".encode("latin-1"))
            assert connection.recv(100).startswith(b"HTTP/1.0 %d" % status)
        assert 404 == ask(served.port, "GET", "/a")[0]
    assert ("", "") == capfd.readouterr()


def test_only_hosts_of_the_cluster_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names count, too; without hosts all are served."""
    monkeypatch.setattr(rendezvous, "_LOOKUP_SECONDS", 0.2)
    for hosts in (["127.0.0.2"], ["no-such-host.invalid", "localhost"]):
        with RendezvousServer(0, hosts, "127.0.0.1") as served:
            assert 200 == ask(served.port, "PUT", "/global/0", b"right", "127.0.0.1")[0]
            for method in ("PUT", "GET", "DELETE"):
                body = b"x" * 100_000 if method == "PUT" else None
                assert (403, b"") == ask(served.port, method, "/global/0", body, "127.0.0.3")
            assert (200, b"right") == ask(served.port, "GET", "/global/0")
    with RendezvousServer(0, ["127.0.0.2"], "127.0.0.1") as served:
        assert 200 == ask(served.port, "PUT", "/global/0", b"right", "127.0.0.2")[0]
    with RendezvousServer(0, host="127.0.0.1") as served:
        assert 200 == ask(served.port, "PUT", "/global/0", b"right", "127.0.0.3")[0]


class Names:
    """Name server that knows a name only after some look-ups, or when it may answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, misses: int = 0) -> None:
        self.misses, self.may_answer, self._real = misses, threading.Event(), socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self.look_up)

    def look_up(self, host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "worker-1.example":
            return self._real(host, *arguments, **options)
        if options.get("flags"):
            raise socket.gaierror("not an address")
        assert self.may_answer.wait(60)
        self.misses -= 1
        if self.misses >= 0:
            raise socket.gaierror("not known yet")
        return self._real("127.0.0.2", *arguments, **options)


def test_host_whose_name_appears_late_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a virtual network. Horovod gives up after a few errors."""
    Names(monkeypatch, misses=2).may_answer.set()
    with RendezvousServer(0, ["worker-1.example"], "127.0.0.1") as served:
        assert 404 == ask(served.port, "GET", "/a", source="127.0.0.2")[0]
        assert 403 == ask(served.port, "GET", "/a", source="127.0.0.3")[0]


def test_all_clients_wait_for_a_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also more clients than there are places for other hosts."""
    names = Names(monkeypatch)
    with RendezvousServer(0, ["worker-1.example"], "127.0.0.1") as served, ExitStack() as stack:
        stack.callback(names.may_answer.set)
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), 60, ("127.0.0.2", 0)))
            for _ in range(2 * rendezvous.MAX_OTHER_CONNECTIONS)
        ]
        for client in clients:
            client.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        # An answer shows that all earlier connections were accepted.
        assert 404 == ask(served.port, "GET", "/a")[0]
        names.may_answer.set()
        assert {b"HTTP/1.0 404"} == {client.recv(12) for client in clients}


def test_client_on_the_host_of_the_server_is_served() -> None:
    """Debian gives its name 127.0.1.1; connections to it come from 127.0.0.1."""
    with RendezvousServer(0, ["127.0.1.1"], "127.0.1.1") as served:
        assert 404 == ask(served.port, "GET", "/a", host="127.0.1.1")[0]


#: Server in a process of its own. Prints its port, and ends with stdin.
SERVER = """
import sys
from tf_executor.launch.rendezvous import RendezvousServer
with RendezvousServer(0, ["127.0.0.1"], "127.0.0.1") as served:
    print(served.port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def server() -> Iterator[tuple[int, Callable[[], int]]]:
    """Port of a server, and a function that returns its resident memory in MiB."""
    command, pipe = [sys.executable, "-c", SERVER], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:

        def memory() -> int:
            status = Path(f"/proc/{process.pid}/status").read_text()
            return int(status.partition("VmHWM:")[2].split()[0]) >> 10

        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), memory
        finally:
            process.kill()


def test_memory_stays_flat(server: tuple[int, Callable[[], int]]) -> None:
    """Whatever arrives: a body without end, many values, many and long requests."""
    port, memory = server
    assert 200 == ask(port, "PUT", "/first", b"x")[0]
    before = memory()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, suppress(OSError):
        connection.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n")
        for _ in range(100):
            connection.sendall(bytes(1 << 20))
    statuses = [ask(port, "PUT", f"/{number}", bytes(1 << 20))[0] for number in range(100)]
    assert [200] * 15 + [507] * 85 == statuses
    # A value may be replaced, which needs no more.
    assert 200 == ask(port, "PUT", "/first", b"y")[0]
    with ExitStack() as stack:
        for number in range(60):
            source = ("127.0.0.1" if number % 2 else "127.0.0.2", 0)
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, source))
            with suppress(OSError):
                connection.sendall(b"PUT /b HTTP/1.1\r\n" + b"".join(b"A: %s\r\n" % (b"x" * 60_000) for _ in range(50)))
        assert (200, b"y") == ask(port, "GET", "/first")
    assert memory() - before < 32


def test_connections_of_others_do_not_block_the_cluster(server: tuple[int, Callable[[], int]]) -> None:
    port, _ = server
    assert 200 == ask(port, "PUT", "/first", b"x")[0]
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, ("127.0.0.2", 0)))
        assert (200, b"x") == ask(port, "GET", "/first")


def test_slow_requests_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if bytes keep coming; then others get their place."""
    monkeypatch.setattr(rendezvous, "CONNECTION_SECONDS", 0.1)
    monkeypatch.setattr(rendezvous, "MAX_CONNECTIONS", 1)
    with RendezvousServer(0, host="127.0.0.1") as served:
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
            connection.sendall(b"PUT /a HTTP/1.1\r\nContent-Length: 100\r\n\r\nonly this")
            assert 404 == ask(served.port, "GET", "/a")[0]
            while connection.recv(1000):
                pass
        assert 404 == ask(served.port, "GET", "/a")[0]


def test_used_port_raises() -> None:
    with RendezvousServer(0, host="127.0.0.1") as served, pytest.raises(OSError, match="in use"):
        RendezvousServer(served.port, host="127.0.0.1")


def test_port_is_released_on_exit() -> None:
    with RendezvousServer(0, host="127.0.0.1") as served:
        port = served.port
    with RendezvousServer(port, host="127.0.0.1") as served:
        assert 404 == ask(served.port, "GET", "/a")[0]
