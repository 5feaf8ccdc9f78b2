"""Faults of the store of the scheduler's state."""

from __future__ import annotations

import resource
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from chaos.arena import Arena
from chaos.faults import Store
from kit.freezing import frozen
from mesos_local.host.process import PROC, read_stat

from .common import Done, Kind, health, program_of, signal_scheduler

_CANNOT_STORE = 319  # docs/api.md, /v1/health
#: Seconds after which a session of ZooKeeper has expired.
_SESSION = 25.0


def _zookeeper(arena: Arena, _number: int) -> Done:
    arena.cluster.zookeeper.kill()
    return Done("zookeeper", mend=arena.cluster.zookeeper.start)


def _zookeeper_frozen(arena: Arena, _number: int) -> Done:
    began = time.time()
    with frozen(arena.cluster.zookeeper):
        arena.until("its sessions have expired", lambda: time.time() > began + _SESSION, unseen=True)
    return Done("zookeeper")


def _disk_full(arena: Arena, number: int) -> Done:
    with _no_room(arena):
        done = program_of("worker")(arena, number)
        arena.until("the scheduler says that it cannot store", lambda: health(arena) == _CANNOT_STORE)
    return done


@contextmanager
def _no_room(arena: Arena) -> Iterator[None]:
    """Make all writes of the scheduler fail (setrlimit(2), RLIMIT_FSIZE)."""
    head = arena.app.process
    found = [] if head is None else [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]
    session = [pid for pid in found if head and (stat := read_stat(pid)) and stat.session == head.pid]
    before = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in session}
    for pid, (_, hard) in before.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        for pid, limits in before.items():
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


def _state_lost(arena: Arena, _number: int) -> Done:
    """Kill the scheduler, remove its state, and adopt the framework after the refusal."""
    with arena.repairing():
        _end_scheduler(arena)
        _remove_state(arena)
        _adopt(arena)
    return Done("scheduler")


def _end_scheduler(arena: Arena) -> None:
    process = arena.app.process
    signal_scheduler(arena, signal.SIGKILL)
    arena.until("it has ended", lambda: process is None or not process.alive(), unseen=True)


def _remove_state(arena: Arena) -> None:
    for file in arena.folder.path.glob(f"{arena.folder.store.name}*"):
        file.unlink()
    if arena.store is Store.ZOOKEEPER:
        arena.cluster.zookeeper.kill()
        shutil.rmtree(arena.cluster.directory / "zookeeper" / "data" / "version-2")
        arena.cluster.zookeeper.start()


def _adopt(arena: Arena) -> None:
    """Wait until the scheduler refuses to start beside the framework; adopt this one."""
    (framework,) = arena.cluster.state().frameworks
    _refused(arena, f"framework {framework.framework_id} of")
    arena.app.restart(ADOPT_FRAMEWORK=framework.framework_id)


def _refused(arena: Arena, why: str) -> None:
    def is_refused() -> bool:
        arena.app.poll()
        arena.app.read_log()
        return why in arena.app.trouble

    arena.until("the next scheduler refuses to start", is_refused, unseen=True)


KINDS: Mapping[str, Kind] = {
    "zookeeper": _zookeeper,
    "zookeeper-frozen": _zookeeper_frozen,
    "disk-full": _disk_full,
    "state-lost": _state_lost,
}
