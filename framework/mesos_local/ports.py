"""Ports for the nodes."""

from __future__ import annotations

import random
import socket

from .errors import MesosLocalError

# Below the range that Linux takes for outgoing connections (from 32768) and beside the one that agents offer (from
# 31000): while a node is down, before its restart, nothing takes its port by chance.
_CANDIDATES = range(20000, 30000)


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody uses now. Chosen at random, so that two clusters that start at once do not meet."""
    found: list[int] = []
    for port in random.sample(_CANDIDATES, len(_CANDIDATES)):
        if len(found) == count:
            return found
        if is_free(port):
            found.append(port)
    raise MesosLocalError("No free port between 20000 and 29999.")


def is_free(port: int) -> bool:
    """Whether a server could listen there on loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
