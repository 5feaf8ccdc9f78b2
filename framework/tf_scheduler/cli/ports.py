"""Ports for the agents of a cluster of one's own: all local clusters share the machine's."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mesos_local.ports import is_free
from tf_scheduler.errors import JobError

#: Below the ports that masters and agents listen on (from 20000); then above those of `local up` (from 31000), below
#: those that Linux takes for outgoing connections (from 32768).
_BLOCKS = (*range(10_000, 19_701, 300), *range(31_300, 32_401, 300))


@contextmanager
def port_block() -> Iterator[int]:
    """The first port of 300 that no other run of this user has; held until the end, also by a sudden one.

    Wherever the runs keep their state. Whose first port is in use belongs to somebody else.
    """
    folder = Path(tempfile.gettempdir()) / f"dcos-tensorflow-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for first in filter(is_free, _BLOCKS):
        with (folder / str(first)).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield first
            return
    raise JobError(f"{len(_BLOCKS)} local runs are under way: that is as many as there are ports for")
