"""Write to ZooKeeper and die at a given point, for test_crash.py.

    crasher.py ADDRESS FOLDER before|after POINT...   one store and one death per point: chroot /FOLDER-POINT

SIGKILL before or after the bytes of the n-th request are written to the socket: of the first connection, of reading,
of the parts of a snapshot, of each commit, of garbage collection, of the leadership. Snapshots and parts are small, so
that a few decisions have all of them. Each completed apply adds one byte to FOLDER/KIND-POINT; the output has a line
for each point: the number of the signal that ended the writer, 0 if it exited.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from itertools import count
from pathlib import Path

from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Ping, Transaction

from kit.stores import apply_transactions, run_in_child
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore, layout, store

#: Enough for the first change, entries, a snapshot, and entries after it.
TRANSACTIONS = 6
LIMITS = {"part": 120, "log": 3 * 1024}


def small_nodes() -> None:
    layout.NODE_LIMIT = LIMITS["part"]
    store._MIN_LOG_COST = LIMITS["log"]


def die_at_request(kind: str, point: int) -> None:
    """Kill this process before or after one request is written, except heartbeats."""
    submit, counter = ConnectionHandler._submit, count()

    def counted(self, request, timeout, xid=None) -> None:
        mine = not _is_heartbeat(request) and next(counter) == point
        if mine and kind == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        submit(self, request, timeout, xid)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)

    ConnectionHandler._submit = counted


def _is_heartbeat(request) -> bool:
    """Pings, and the leader's confirmations, come at any time."""
    return isinstance(request, Ping) or (isinstance(request, Transaction) and len(request.operations) == 1)


def write_until_crash(address: str, acknowledged: Path, kind: str, point: int) -> None:
    small_nodes()
    die_at_request(kind, point)
    place = ZooKeeperAddress((address,), f"/{acknowledged.parent.name}-{point}", session_timeout=1.0)
    writer = ZooKeeperStore(place, "tensorflow")
    writer.lead()
    writer.load()
    for _ in apply_transactions(writer, acknowledged, range(1, TRANSACTIONS + 1)):
        pass
    writer.close()


def main(address: str, folder: Path, kind: str, *points: str) -> None:
    for point in points:
        print(
            run_in_child(partial(write_until_crash, address, folder / f"{kind}-{point}", kind, int(point))), flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
