"""Where Horovod's processes meet. Stand-ins for them, since Horovod has no wheel: what its gloo does over HTTP."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys

import pytest

from tf_executor.rendezvous import Rendezvous

#: A process of Horovod, as far as its rendezvous goes: tell the own address, wait for everybody's, take leave.
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


def test_a_value_is_there_when_it_was_put_and_not_before() -> None:
    """404 makes a process ask again."""
    with Rendezvous(0, "127.0.0.1") as served:
        before, put = ask(served.port, "GET", "/global/0"), ask(served.port, "PUT", "/global/0", b"\x00bytes")

        assert (404, 200) == (before[0], put[0])
        assert (200, b"\x00bytes") == ask(served.port, "GET", "/global/0")
        assert 404 == ask(served.port, "GET", "/local/0")[0]


def test_processes_meet() -> None:
    """Each learns the addresses of all, whoever comes first."""
    with Rendezvous(0, "127.0.0.1") as served:
        around = {"HOROVOD_SIZE": "2", "HOROVOD_GLOO_RENDEZVOUS_PORT": str(served.port)}
        members = [
            subprocess.Popen(
                [sys.executable, "-c", MEMBER], env={**around, "HOROVOD_RANK": rank}, stdout=subprocess.PIPE, text=True
            )
            for rank in ("1", "0")
        ]
        try:
            told = [member.communicate(timeout=60)[0] for member in members]
        finally:
            for member in members:
                member.kill()
                member.wait()

    assert ["address of 0\naddress of 1\n"] * 2 == told


def test_a_value_that_is_too_large_is_refused() -> None:
    """Addresses are short; whoever sends more is somebody else."""
    with Rendezvous(0, "127.0.0.1") as served:
        connection = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        with connection:
            connection.sendall(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_a_port_that_is_taken_is_an_error() -> None:
    """The task then fails with a sentence, before its program starts."""
    with Rendezvous(0, "127.0.0.1") as served, pytest.raises(OSError, match="in use"):
        Rendezvous(served.port, "127.0.0.1")


def test_the_port_is_free_afterwards() -> None:
    """For the next launch."""
    with Rendezvous(0, "127.0.0.1") as served:
        port = served.port
    with Rendezvous(port, "127.0.0.1") as served:
        assert 404 == ask(served.port, "GET", "/a")[0]
