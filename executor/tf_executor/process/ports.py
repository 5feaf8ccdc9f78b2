"""Find out whether ports of this machine are free, and which processes use them."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Container, Iterable, Iterator, Sequence

from .tree import read_proc

#: Seconds in which the sockets of a killed process are closed, also on a busy machine.
CLOSING_SECONDS = 3.0
_LOOK = 0.05
#: Columns of /proc/net/tcp, and TCP_LISTEN and TCP_ESTABLISHED in hexadecimal (proc(5)).
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9
_LISTEN, _ESTABLISHED = "0A", "01"
#: Length of an IPv4 address with its port, with which an IPv6 address ends that stands for it.
_ADDRESS = 13


def is_free(port: int) -> bool:
    """Return whether a server could listen at `port` on all addresses of this machine."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - nothing listens
        try:
            with socket.socket(family) as probe:
                # As servers do: closed connections of an earlier server (TIME_WAIT) do not matter.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True


def stranger_at(port: int, own: Callable[[], Iterable[int]]) -> str:
    """Return who uses `port`; empty if it is free, or if a process of `own` uses it.

    Waits until an ended program's sockets close: the threads of a killed process hold them while they exit.
    """
    deadline = time.monotonic() + CLOSING_SECONDS
    while not is_free(port):
        sockets = {fields[_INODE] for fields in _sockets_at(port)}
        if any(sockets & set(_open_sockets(Path(f"/proc/{pid}"))) for pid in own()):
            return ""
        if time.monotonic() > deadline:
            return owner_of(port)
        time.sleep(_LOOK)  # no event reports that a socket has closed
    return ""


def owner_of(port: int) -> str:
    """Return `process 12 (nginx) of user www`, or what /proc shows of it to this user."""
    for fields in _sockets_at(port):
        try:
            user = pwd.getpwuid(int(fields[_UID])).pw_name
        except KeyError:
            user = fields[_UID]
        for process in Path("/proc").glob("[0-9]*"):
            if fields[_INODE] in _open_sockets(process):
                # Not its arguments, which may hold secrets.
                name = "".join(filter(str.isprintable, read_proc(process / "comm")))
                return f"process {process.name} ({name}) of user {user}"
        return f"a process of user {user}"
    return "another process"


def is_served_by_others(port: int, own: Iterable[int]) -> bool:
    """Return whether a process outside of `own` listens on `port`; False if unknown.

    Several processes may listen on one port (SO_REUSEPORT, as in gRPC): each gets some of the connections.
    """
    listening = {fields[_INODE] for fields in _sockets_at(port) if fields[_STATE] == _LISTEN}
    return bool(listening.difference(*(_open_sockets(Path(f"/proc/{pid}")) for pid in own)))


def is_connected(port: int, peers: Container[int], own: Iterable[int]) -> bool:
    """Return whether `own` has a TCP connection at `port`, or to a port of `peers`.

    Connections between processes of `own` do not count.
    """
    inodes = {inode for pid in own for inode in _open_sockets(Path(f"/proc/{pid}"))}
    rows = [each for each in _sockets() if each[_INODE] in inodes and each[_STATE] == _ESTABLISHED]
    ends = {each[_LOCAL][-_ADDRESS:] for each in rows}
    return any(
        (_port(each[_LOCAL]) == port or _port(each[_REMOTE]) in peers) and each[_REMOTE][-_ADDRESS:] not in ends
        for each in rows
    )


def _sockets_at(port: int) -> Iterator[Sequence[str]]:
    """Yield the fields of each open TCP socket at the local port."""
    return (fields for fields in _sockets() if _port(fields[_LOCAL]) == port and fields[_INODE] != "0")


def _sockets() -> Iterator[Sequence[str]]:
    for name in ("tcp", "tcp6"):
        yield from map(str.split, read_proc(Path("/proc/net", name)).splitlines()[1:])


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _open_sockets(process: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that a process has open."""
    with suppress(OSError):  # it has exited, or is another user's
        for entry in (process / "fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]
