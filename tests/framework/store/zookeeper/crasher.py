"""Writes to ZooKeeper and dies at a given point. Run by test_crash.py, which looks at what is left.

    crasher.py ADDRESS FOLDER before|after POINT...   one store and one death per point: chroot /KIND-POINT

SIGKILL before, or after, the bytes of the n-th request are written to the socket: of the first connection, of reading,
of the parts of a snapshot, of each commit, of sweeping, of the leadership. Snapshots and parts are small, so that a few
decisions have all of them. Each apply that has returned adds one byte to FOLDER/KIND-POINT; the output has a line for
each point: the number of the signal that ended the writer, 0 when it came to its end.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from itertools import count
from pathlib import Path

from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Ping, Transaction

from tf_scheduler.store.interface import Delete, Put, Write
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore, layout, store

#: Enough for the first change, entries, a snapshot, and entries after it.
TRANSACTIONS = 6
LIMITS = {"part": 120, "log": 3 * 1024}


def transaction(number: int) -> list[Write]:
    """Return writes that leave four equal parts and the log entries of the last two transactions."""
    parts = [Put(f"part/{part}", b"%06d" % number * 200) for part in range(4)]
    return [*parts, Put(f"log/{number}", b""), Delete(f"log/{number - 2}")]


def small_nodes() -> None:
    layout.NODE_LIMIT = LIMITS["part"]
    store._MIN_LOG_COST = LIMITS["log"]


def die_at_request(kind: str, point: int) -> None:
    """Kill this process before or after the bytes of one request are written; signs of life do not count."""
    submit, counter = ConnectionHandler._submit, count()

    def counted(self, request, timeout, xid=None):
        mine = not _is_sign_of_life(request) and next(counter) == point
        if mine and kind == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        submit(self, request, timeout, xid)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)

    ConnectionHandler._submit = counted


def _is_sign_of_life(request) -> bool:
    """Those come when they come: pings, and the leader's question whether it still leads."""
    return isinstance(request, Ping) or (isinstance(request, Transaction) and len(request.operations) == 1)


def run(address: str, acknowledged: Path, kind: str, point: int) -> None:
    small_nodes()
    die_at_request(kind, point)
    place = ZooKeeperAddress((address,), f"/{kind}-{point}", session_timeout=1.0)
    writer = ZooKeeperStore(place, "tensorflow")
    writer.lead()
    writer.load()
    with acknowledged.open("ab", buffering=0) as acknowledgements:
        for number in range(1, TRANSACTIONS + 1):
            writer.apply(transaction(number))
            acknowledgements.write(b".")
    writer.close()


def run_in_child(address: str, acknowledged: Path, kind: str, point: int) -> int:
    """Return the signal that ended the child, 0 for none."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        run(address, acknowledged, kind, point)
        os._exit(0)
    return -min(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def main(address: str, folder: Path, kind: str, *points: str) -> None:
    for point in points:
        print(run_in_child(address, folder / f"{kind}-{point}", kind, int(point)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
