"""Whether a TensorFlow server answers: a gRPC server is an HTTP/2 server, which greets with a SETTINGS frame.

No gRPC library is needed: the connection preface and one frame each way, RFC 9113 sections 3.4 and 4.1.
"""

from __future__ import annotations

import socket

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER = 9
_SETTINGS, _GOAWAY = 4, 7
_EMPTY_SETTINGS = bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])
_SETTINGS_ACK = bytes([0, 0, 0, _SETTINGS, 1, 0, 0, 0, 0])
#: Last stream 0, NO_ERROR.
_FAREWELL = bytes([0, 0, 8, _GOAWAY, 0, 0, 0, 0, 0]) + bytes(8)
_FAREWELL_TIMEOUT = 1.0


def answers(address: str, timeout: float) -> bool:
    """Whether an HTTP/2 server greets at `address` (host:port) within `timeout` seconds for each step."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            return _greets(connection)
    except (OSError, ValueError):
        return False


def _greets(connection: socket.socket) -> bool:
    connection.sendall(_PREFACE + _EMPTY_SETTINGS)
    header = b""
    while len(header) < _HEADER:
        received = connection.recv(_HEADER - len(header))
        if not received:
            return False
        header += received
    greeting = header[3] == _SETTINGS and header[4] & 1 == 0 and header[5:9] == bytes(4)
    if greeting:
        _take_leave(connection)
    return greeting


def _take_leave(connection: socket.socket) -> None:
    """In good order: a connection that is closed with unread data is reset, which a server may log as an error."""
    try:
        connection.sendall(_SETTINGS_ACK + _FAREWELL)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(_FAREWELL_TIMEOUT)
        while connection.recv(4096):
            pass
    except OSError:
        return
