"""Horovod's rendezvous with simulated processes, because Horovod has no wheel."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys

import pytest

from tf_executor.around.rendezvous import RendezvousServer

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


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_value_is_available_after_put() -> None:
    """On 404 a process asks again."""
    with RendezvousServer(0, "127.0.0.1") as served:
        before, put = ask(served.port, "GET", "/global/0"), ask(served.port, "PUT", "/global/0", b"\x00bytes")

        assert (404, 200) == (before[0], put[0])
        assert (200, b"\x00bytes") == ask(served.port, "GET", "/global/0")
        assert 404 == ask(served.port, "GET", "/local/0")[0]


def test_processes_exchange_addresses() -> None:
    with RendezvousServer(0, "127.0.0.1") as served:
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
    with RendezvousServer(0, "127.0.0.1") as served:
        connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        with connection:
            connection.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_used_port_raises() -> None:
    with RendezvousServer(0, "127.0.0.1") as served, pytest.raises(OSError, match="in use"):
        RendezvousServer(served.port, "127.0.0.1")


def test_port_is_released_on_exit() -> None:
    with RendezvousServer(0, "127.0.0.1") as served:
        port = served.port
    with RendezvousServer(port, "127.0.0.1") as served:
        assert 404 == ask(served.port, "GET", "/a")[0]
