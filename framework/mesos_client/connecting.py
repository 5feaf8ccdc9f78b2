"""Opens a TCP connection that another thread can give up at any moment, also while a name is looked up.

Standard library only. The system's resolver cannot be interrupted, so it runs in a thread of its own, which ends by
itself when nobody waits for it any more.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from contextlib import suppress
from typing import Any, List, Tuple

from mesos_client.transport import SocketHandle

#: The kernel's room for the path of a domain socket (`sun_path`), with its final zero.
_UNIX_PATH = 108
#: What getaddrinfo returns: family, type, protocol, canonical name, address.
Resolved = List[Tuple[Any, ...]]


def connect(host: str, port: int, timeout: float, handle: SocketHandle) -> socket.socket:
    """Connect to the first of the host's addresses that answers, IPv6 or IPv4; `timeout` seconds for each step.

    Raise OSError: of the last address, of the resolver, or because `handle` was aborted or interrupted.
    """
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in _resolve(host.strip("[]"), port, timeout, handle):
        connection = socket.socket(family, kind, protocol)
        try:
            _open(connection, address, timeout, handle)
        except OSError as error:
            connection.close()
            failure = error
            if handle.aborted:
                break
        else:
            return connection
    raise failure


def connect_unix(path: str, timeout: float, handle: SocketHandle) -> socket.socket:
    """Connect to a domain socket; one whose path is too long for the kernel is reached from the working directory.

    Raise OSError.
    """
    if len(os.fsencode(path)) >= _UNIX_PATH:
        path = os.path.relpath(path)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _open(connection, path, timeout, handle)
    except OSError:
        connection.close()
        raise
    return connection


def _open(connection: socket.socket, address: Any, timeout: float, handle: SocketHandle) -> None:
    connection.setblocking(False)
    code = connection.connect_ex(address)
    # Not before: shutting down ends a connection that is being made, but does not stop one from being made.
    handle.opened(connection)
    if code == errno.EINPROGRESS:
        code = _outcome(connection, timeout)
    if code != 0:
        raise OSError(code, os.strerror(code))
    connection.settimeout(timeout)
    if connection.family != socket.AF_UNIX:
        # Calls are small and waited for.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _outcome(connection: socket.socket, timeout: float) -> int:
    """Error number, or 0."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    if not poll.poll(timeout * 1000):
        return errno.ETIMEDOUT
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _resolve(host: str, port: int, timeout: float, handle: SocketHandle) -> Resolved:
    with suppress(socket.gaierror, UnicodeError):  # not an address but a name, or not even that
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    lookup = _Lookup(host, port)
    with handle.interrupting(lookup.give_up):
        return lookup.result(timeout)


class _Lookup:
    """One question to the system's resolver."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._done = threading.Event()
        self._found: Resolved = []
        self._failure: OSError | None = None
        threading.Thread(target=self._ask, name="mesos-name-lookup", daemon=True).start()

    def give_up(self) -> None:
        """Let `result` end now."""
        self._failure = OSError("interrupted")
        self._done.set()

    def result(self, timeout: float) -> Resolved:
        if not self._done.wait(timeout):
            raise OSError(f"no answer within {timeout:g} s to the question for the address of {self._host}")
        if self._failure is not None:
            raise self._failure
        return self._found

    def _ask(self) -> None:
        try:
            self._found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._failure = OSError(f"the address of {self._host} is not found: {error}")
        except UnicodeError as error:  # a name that cannot be one
            self._failure = OSError(f"{self._host!r} is no host name: {error}")
        self._done.set()
