"""TCP and Unix connections that another thread can abort, also in name lookup.

Standard library only. The system's resolver cannot be interrupted, so it runs in a thread that may outlive its caller.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, List, Tuple

from tf_executor.contract.http import SocketHandle

#: Maximum bytes of a domain socket's path (`sun_path`), with the terminating zero.
_UNIX_PATH = 108
#: What getaddrinfo returns: family, type, protocol, canonical name, address.
Resolved = List[Tuple[Any, ...]]


def connect(host: str, port: int, timeout: float, handle: SocketHandle) -> socket.socket:
    """Connect to the first address that answers; `timeout` seconds for each step.

    Raises OSError: the error of the last address or of the resolver, or after `handle` was aborted or interrupted.
    """
    failure: OSError = OSError(f"{host} does not resolve to an address")
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
    """Connect to a domain socket, by relative path if too long. Raises OSError."""
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
    # Register after connect_ex: shutdown aborts a pending connection, but does not prevent a new one.
    handle.opened(connection)
    if code == errno.EINPROGRESS:
        code = _outcome(connection, timeout)
    if code != 0:
        raise OSError(code, os.strerror(code))
    connection.settimeout(timeout)
    if connection.family != socket.AF_UNIX:
        # Calls are small and synchronous.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _outcome(connection: socket.socket, timeout: float) -> int:
    """Wait for a pending connection; return its errno, or 0."""
    poll = select.poll()
    poll.register(connection, select.POLLOUT)
    if not poll.poll(timeout * 1000):
        return errno.ETIMEDOUT
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _resolve(host: str, port: int, timeout: float, handle: SocketHandle) -> Resolved:
    with suppress(socket.gaierror, UnicodeError):  # not a numeric address
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    answers: SimpleQueue[Resolved | OSError] = SimpleQueue()
    threading.Thread(target=lambda: answers.put(_look_up(host, port)), name="mesos-name-lookup", daemon=True).start()
    with handle.interrupting(lambda: answers.put(OSError("interrupted"))):
        try:
            answer = answers.get(timeout=timeout)
        except Empty:
            raise OSError(f"looking up {host} timed out after {timeout:g} s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer


def _look_up(host: str, port: int) -> Resolved | OSError:
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return OSError(f"looking up {host} failed: {error}")
    except UnicodeError as error:
        return OSError(f"invalid host name {host!r}: {error}")
