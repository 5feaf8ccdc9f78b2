"""Freeze and thaw cluster nodes, which looks like a network partition to others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from mesos_local.host import read_stat
from mesos_local.node import Node

from .waiting import wait_until


def freeze(node: Node) -> None:
    """Send SIGSTOP, and wait until the process is stopped."""
    _signal(node, signal.SIGSTOP)
    wait_until(lambda: is_frozen(node))


def thaw(node: Node) -> None:
    """Send SIGCONT."""
    _signal(node, signal.SIGCONT)


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    """Freeze the node within the block."""
    freeze(node)
    try:
        yield
    finally:
        thaw(node)


def is_frozen(node: Node) -> bool:
    """Whether its process exists and is stopped."""
    stat = read_stat(node.process.pid) if node.process else None
    return stat is not None and stat.state == "T"


def _signal(node: Node, number: int) -> None:
    assert node.process is not None, f"{node.name} is not running"
    node.process.signal(number)
