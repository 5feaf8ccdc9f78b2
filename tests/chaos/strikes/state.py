"""Faults of the store of the scheduler's state."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace

from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from chaos.arena import CHROOT, Arena
from chaos.faults import Store
from chaos.witness import logged
from kit.freezing import frozen
from mesos_local.host import PROC, read_stat
from tf_scheduler.cli.common.folders import write_private
from tf_scheduler.cli.local_run.follow import RunScheduler
from tf_scheduler.service.store import open_store
from tf_scheduler.store.interface import Put
from tf_scheduler.store.records import FRAMEWORK, SCHEMA

from .common import Done, Kind, health, program_of, signal_scheduler

_CANNOT_STORE = 319  # docs/reference/api.md, /v1/health
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
    arena.app.restart(ADOPT_FRAMEWORK="")
    identity = _framework(arena)
    _wait_refused(arena, arena.app, identity)
    began = time.time()
    arena.app.restart(ADOPT_FRAMEWORK=identity)
    arena.until("the framework is adopted", logged(arena.witness, f"adopted framework {identity}", began))


def _framework(arena: Arena) -> str:
    (framework,) = arena.cluster.state().frameworks
    return framework.framework_id


def _wait_refused(arena: Arena, app: RunScheduler, *words: str) -> None:
    def is_refused() -> bool:
        app.poll()
        app.read_log()
        return any(word in app.trouble for word in words)

    arena.until("the scheduler refuses to start", is_refused, unseen=True)


def _nodes_deleted(arena: Arena, number: int) -> Done:
    """Delete the nodes while the scheduler runs, or is down."""
    with arena.repairing(), _nodes(arena) as client:
        if number % 2:
            _end_scheduler(arena)
        while client.exists(CHROOT):
            with suppress(NotEmptyError):  # the scheduler has created another
                client.delete(CHROOT, recursive=True)
        if not number % 2:
            process = arena.app.process
            arena.until("the scheduler has ended", lambda: process is None or not process.alive(), unseen=True)
        _adopt(arena)
    return Done("scheduler")


@contextmanager
def _nodes(arena: Arena) -> Iterator[KazooClient]:
    client = KazooClient(arena.cluster.zookeeper.address)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _spoiled(spoil: Callable[[Arena, int], AbstractContextManager[None]], *words: str) -> Kind:
    """Spoil the state of a killed scheduler, and restore it after the refusal."""

    def do(arena: Arena, number: int) -> Done:
        with arena.repairing():
            _end_scheduler(arena)
            with spoil(arena, number):
                arena.app.restart(ADOPT_FRAMEWORK="")
                _wait_refused(arena, arena.app, *words)
                arena.app.stop()
            arena.app.restart()
        return Done("scheduler")

    return do


@contextmanager
def _flipped(arena: Arena, number: int) -> Iterator[None]:
    if arena.store is Store.ZOOKEEPER:
        with _nodes(arena) as client:
            (service,) = client.get_children(CHROOT)
            node = f"{CHROOT}/{service}/head"
            before, _ = client.get(node)
            client.set(node, _flip(before, number))
            yield
            client.set(node, before)
        return
    with closing(sqlite3.connect(arena.folder.store, isolation_level=None)) as file:
        entries = file.execute(
            "SELECT rowid, value FROM entry WHERE key = 'framework' OR key LIKE 'tasks/%'"
        ).fetchall()
        row, before = entries[number % len(entries)]
        file.execute("UPDATE entry SET value = ? WHERE rowid = ?", (_flip(before, number), row))
        yield
        file.execute("UPDATE entry SET value = ? WHERE rowid = ?", (before, row))


@contextmanager
def _newer(arena: Arena, _number: int) -> Iterator[None]:
    """Within, the framework's record has the schema of a newer version."""
    options = json.loads(arena.folder.options.read_text())

    def put(change: Callable[[bytes], bytes]) -> bytes:
        store = open_store(options["scheduler"]["state"], options["service"]["name"])
        with closing(store):
            before = store.load()[FRAMEWORK]
            store.apply([Put(FRAMEWORK, change(before))])
        return before

    before = put(lambda data: json.dumps({**json.loads(data), "schema": SCHEMA + 1}).encode())
    try:
        yield
    finally:
        put(lambda _: before)


@contextmanager
def _read_only(arena: Arena, _number: int) -> Iterator[None]:
    """Mount the file on itself; only root can."""
    file = arena.folder.store
    subprocess.run(["mount", "--bind", "-o", "ro", file, file], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", file], check=True)


def _flip(data: bytes, number: int) -> bytes:
    where = number % len(data)
    return data[:where] + bytes([data[where] ^ 1]) + data[where + 1 :]


def _twin(arena: Arena, _number: int) -> Done:
    """Start a scheduler with the same options and another state until it is refused."""
    options, folder = json.loads(arena.folder.options.read_text()), arena.folder.path
    options["scheduler"]["state"] = (folder / "twin.db").as_uri()
    write_private(folder / "twin.json", json.dumps(options))
    launch = replace(
        arena.launch, options=folder / "twin.json", log=folder / "twin.log", recording=folder / "twin.jsonl"
    )
    twin = RunScheduler(launch, arena.cluster.master.address, console=False, publish=lambda _: None)
    try:
        _wait_refused(arena, twin, _framework(arena))
    finally:
        twin.stop()
    return Done("another scheduler")


def _quorum_lost(arena: Arena, number: int) -> Done:
    assert arena.ensemble is not None
    began, servers = time.time(), arena.ensemble.servers
    spared = number % len(servers)
    with ExitStack() as stack:
        for server in (*servers[:spared], *servers[spared + 1 :]):
            stack.enter_context(frozen(server))
        done = program_of("worker")(arena, number)
        arena.until("the quorum was lost for a while", lambda: time.time() > began + _SESSION)
    return done


KINDS: Mapping[str, Kind] = {
    "zookeeper": _zookeeper,
    "zookeeper-frozen": _zookeeper_frozen,
    "disk-full": _disk_full,
    "state-lost": _state_lost,
    "nodes-deleted": _nodes_deleted,
    "byte-flipped": _spoiled(_flipped, "cannot be read", "is damaged"),
    "roll-back": _spoiled(_newer, "run the newer version"),
    "disk-read-only": _spoiled(_read_only, "Read-only file system"),
    "twin": _twin,
    "quorum-lost": _quorum_lost,
}
