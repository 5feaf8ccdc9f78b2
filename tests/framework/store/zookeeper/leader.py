"""A scheduler that leads and acts, run by test_leadership.py: leader.py ZK_ADDRESS

Prints `waits HOLDER`, `leads`, then the time (seconds, CLOCK_BOOTTIME) before each act that it was sure of, then
`lost REASON` and `stored nothing` or `stored`, for the write that it tries afterwards.
"""

from __future__ import annotations

import sys
import time

from tf_scheduler.store.interface import LeadershipLostError, Put, StoreConflictError
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore


def say(*words: object) -> None:
    print(*words, flush=True)


def main(url: str) -> None:
    store = ZooKeeperStore(ZooKeeperAddress.parse(url), "tensorflow")
    leadership = store.lead(waiting=lambda holder: say("waits", holder))
    store.load()
    say("leads")
    try:
        while True:
            now = time.clock_gettime(time.CLOCK_BOOTTIME)
            leadership.check()
            say(now)
            time.sleep(0.01)
    except LeadershipLostError as error:
        say("lost", error)
    try:
        store.apply([Put("late", b"")])
        say("stored")
    except StoreConflictError:
        say("stored nothing")
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
