"""Ports for the agents of a cluster of one's own: all local clusters of a user share the machine's."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from tf_scheduler.errors import JobError

from .folders import state_home

#: Above the ports of `local up` (from 31000), below those that Linux takes for outgoing connections (from 32768), and
#: then below the ones that masters and agents listen on (from 20000).
_BLOCKS = (*range(31_300, 32_401, 300), *range(10_000, 19_701, 300))


@contextmanager
def port_block() -> Iterator[int]:
    """The first port of 300 that no other run of this user has; held until the end, also by a sudden one."""
    folder = state_home() / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    for first in _BLOCKS:
        with (folder / str(first)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield first
            return
    raise JobError(f"{len(_BLOCKS)} local runs are under way: that is as many as there are ports for")
