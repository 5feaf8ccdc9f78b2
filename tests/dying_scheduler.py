"""Scheduler that kills itself at each kind of crash point and then starts again.

Usage: dying_scheduler.py OPTIONS MASTER STATE FOLDER. Each process continues from the previous state and kills itself
(SIGKILL) at the first kind of point without a file in FOLDER: before the store, after an ACCEPT, and so on. The last
process exits normally and prints its framework and the verdict. All are forks of one process that loaded everything.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from kazoo.client import KazooClient

from kit.scheduler_process import build_process
from tf_scheduler.cli.common.options_file import load_options
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.service.store import state_file
from tf_scheduler.store.zookeeper import ZooKeeperAddress

#: More than there are kinds of points.
LIVES = 60
#: Seconds until a ZooKeeper answers.
PATIENCE = 60


def live(spec: ServiceSpec, master: str, state: str, folder: Path) -> None:
    def checkpoint(moment: str, what: str) -> None:
        mark = folder / f"{moment} {what}"
        if not mark.exists():
            mark.touch()
            # "after" a call: Mesos has answered it.
            while moment == "after" and process.connection.driver.queued_calls:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    bury(state, spec.name)
    process = build_process(spec, master, state, checkpoint)
    process.run()
    final = process.runner.state
    print("framework", final.stored.framework_id)
    print("verdict", final.stored.result.verdict.value, flush=True)


def bury(state: str, service: str) -> None:
    """Remove the ZooKeeper lock of a killed process, whose session has not expired."""
    if state_file(state) is not None:
        return
    place = ZooKeeperAddress.parse(state)
    client, path = KazooClient(",".join(place.servers)), f"{place.chroot}/dcos-service-{service}"
    client.start(PATIENCE)
    try:
        for name in client.get_children(path) if client.exists(path) else ():
            if name == "lock" or name.startswith("leader-"):
                client.delete(f"{path}/{name}")
    finally:
        client.stop()
        client.close()


def main(options: str, master: str, state: str, folder: str) -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    spec = load_options(Path(options))
    for _ in range(LIVES):
        child = os.fork()
        if child == 0:
            try:
                live(spec, master, state, Path(folder))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
        print("died", flush=True)
    sys.exit(f"{LIVES} lives were not enough")


if __name__ == "__main__":
    main(*sys.argv[1:])
