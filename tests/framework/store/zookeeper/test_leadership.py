"""Leader election: one live scheduler per service."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit.commands import ENVIRONMENT, processes
from kit.freezing import freeze, thaw
from tf_scheduler.store.interface import LeadershipLostError, Put, StoreConflictError, StoreUnavailableError
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore
from tf_scheduler.store.zookeeper.leadership import ZooKeeperLeadership
from zookeeper_proxy import ZooKeeperProxy

ROOT = "dcos-service-tensorflow"
#: Maximum seconds to wait for an event.
LONG = 60.0


class Standby:
    """A store whose `lead` waits in a thread."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.holder: queue.Queue[str] = queue.Queue()
        self.leads = threading.Event()
        self._store = store
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def _wait(self) -> None:
        self._store.lead(waiting=self.holder.put, timeout=LONG)
        self.leads.set()

    def join(self) -> None:
        self._thread.join(LONG)
        assert self.leads.is_set()


@pytest.fixture
def leader() -> Iterator[Callable[[ZooKeeperAddress], subprocess.Popen[str]]]:
    """Start leader.py and wait until it has led."""
    with processes() as start:

        def start_leader(place: ZooKeeperAddress) -> subprocess.Popen[str]:
            url = f"{place}?session_timeout={place.session_timeout}"
            process: subprocess.Popen[str] = start(
                sys.executable, Path(__file__).with_name("leader.py"), url, env=ENVIRONMENT
            )
            assert "leads\n" == process.stdout.readline()
            return process

        yield start_leader


def lead(store: ZooKeeperStore) -> tuple[ZooKeeperLeadership, queue.Queue[str]]:
    """Become the leader and load the state; return also the reasons of a loss."""
    reasons: queue.Queue[str] = queue.Queue()
    leadership = store.lead()
    leadership.on_lost(reasons.put)
    store.load()
    return leadership, reasons


def test_standby_takes_over_after_leader(open_at, zookeeper) -> None:
    """The standby leads immediately, and the first leader can no longer write."""
    first, second = open_at(zookeeper), open_at(zookeeper)
    leadership = first.lead()
    first.load()
    first.apply([Put("first", b"1")])
    standby = Standby(second)
    assert f"process {os.getpid()} on" in standby.holder.get(timeout=LONG)
    assert not standby.leads.is_set()
    leadership.check()
    first.close()
    standby.join()

    assert {"first": b"1"} == second.load()
    with pytest.raises(LeadershipLostError, match="resigned"):
        leadership.check()


def test_standby_wait_times_out(open_at, zookeeper) -> None:
    """The error describes the leader."""
    open_at(zookeeper).lead()
    with pytest.raises(StoreUnavailableError, match=f"another scheduler leads this service: process {os.getpid()}"):
        open_at(zookeeper).lead(timeout=0.5)


def test_services_have_separate_leaders(open_at, zookeeper) -> None:
    for service in ("a", "a/b", "b"):
        open_at(zookeeper, service).lead(timeout=LONG).check()


def test_leader_reads_and_writes(open_at, zookeeper) -> None:
    """Other schedulers may read."""
    store = open_at(zookeeper)
    store.lead()
    store.load()
    for number in range(3):
        store.apply([Put("n", b"%d" % number)])
        assert {"n": b"%d" % number} == open_at(zookeeper).load()
    store.apply([])
    store.erase()

    assert {} == store.load()


def test_write_requires_load_after_election(open_at, zookeeper) -> None:
    """The previous leader may have written after an earlier load."""
    store = open_at(zookeeper)
    store.load()
    store.lead()

    with pytest.raises(StoreConflictError, match="must be loaded"):
        store.apply([Put("a", b"1")])


def test_standby_takes_over_killed_leader(zookeeper, open_at, leader) -> None:
    """When the session ends, with the whole state."""
    process = leader(replace(zookeeper, session_timeout=2.0))
    standby = Standby(open_at(zookeeper))
    standby.holder.get(timeout=LONG)
    process.kill()
    standby.join()


def test_frozen_leader_stops_acting(zookeeper, open_at, leader) -> None:
    """The frozen leader stops acting before the standby leads, and can store nothing."""
    process = leader(replace(zookeeper, session_timeout=2.0))
    standby = Standby(open_at(zookeeper))
    standby.holder.get(timeout=LONG)
    assert float(process.stdout.readline()) > 0
    process.send_signal(signal.SIGSTOP)
    standby.join()
    taken_over = time.clock_gettime(time.CLOCK_BOOTTIME)
    process.send_signal(signal.SIGCONT)
    *acts, lost, stored = process.communicate(timeout=LONG)[0].splitlines()

    assert all(float(act) < taken_over for act in acts)
    assert lost.startswith("lost this scheduler is no longer the leader")
    assert "stored nothing" == stored


def test_leader_stops_while_zookeeper_is_frozen(three_places, ensemble, open_at, operator) -> None:
    """Before its session could end: afterwards the session still has its nodes."""
    store = open_at(replace(three_places, session_timeout=8.0))
    leadership, lost = lead(store)
    for server in ensemble.servers:
        freeze(server)
    assert lost.get(timeout=LONG)
    with pytest.raises(LeadershipLostError):
        leadership.check()
    for server in ensemble.servers:
        thaw(server)
    ensemble.wait_serving()
    lock = operator(three_places).exists(f"{three_places.chroot}/{ROOT}/lock")
    store.load()

    assert store._session.number == lock.ephemeralOwner
    assert lost.empty()
    with pytest.raises(LeadershipLostError):
        leadership.check()


@pytest.mark.parametrize("which", ["leader", "ours"])
def test_leadership_survives_one_server(three_places, ensemble, open_at, server_of, which) -> None:
    """The ensemble's leader is killed, or the connected server is frozen."""
    store = open_at(replace(three_places, session_timeout=6.0))
    leadership, lost = lead(store)
    before = server_of(store)
    if which == "leader":
        ensemble.leader().kill()
    else:
        freeze(before)
    lease_end = leadership._lease_end
    while leadership._lease_end < lease_end + store._session.timeout and lost.empty():
        leadership.check()
        store.apply([Put("n", b"1")])
        time.sleep(0.05)

    assert lost.empty()
    if which == "ours":
        assert before is not server_of(store)


@pytest.mark.parametrize("lost", [["request"], ["answer"], ["answer", "answer"], ["request", "answer", "request"]])
def test_lost_answers_during_election_are_retried(zookeeper, open_at, lost) -> None:
    """The standby leads and does not wait for itself."""
    with ZooKeeperProxy(zookeeper.servers[0]) as proxy:
        store = open_at(zookeeper, servers=(proxy.address,))
        proxy.lose(*lost)
        store.lead(timeout=LONG, waiting=pytest.fail).check()
        store.close()


def test_removed_lock_ends_leadership(zookeeper, open_at, operator) -> None:
    """And the scheduler can store nothing."""
    store = open_at(zookeeper)
    leadership, lost = lead(store)
    client = operator(zookeeper)
    client.delete(leadership.node)
    with pytest.raises(LeadershipLostError):
        store.apply([Put("a", b"1")])

    assert "was removed" in lost.get(timeout=LONG)
    with pytest.raises(LeadershipLostError, match="was removed"):
        leadership.check()
    assert {} == open_at(zookeeper).load()


def test_session_end_ends_leadership(zookeeper, open_at, expire) -> None:
    """A write in the new session is rejected even if no other process has written."""
    store = open_at(zookeeper)
    leadership, lost = lead(store)
    store.apply([Put("a", b"1")])
    expire(store, zookeeper)
    assert lost.get(timeout=LONG)

    again: queue.Queue[str] = queue.Queue()
    leadership.on_lost(again.put)
    assert "session" in again.get(timeout=LONG)
    for write in (lambda: store.apply([Put("a", b"2")]), lambda: store.apply([]), store.erase):
        with pytest.raises(LeadershipLostError):
            write()
    with pytest.raises(LeadershipLostError):
        leadership.check()
    assert lost.empty()
    assert {"a": b"1"} == open_at(zookeeper).load()


def test_leader_uses_granted_session_timeout(zookeeper, open_at) -> None:
    """The server's limit of 10 s counts for a leader that requested a minute."""
    store = open_at(zookeeper, session_timeout=60.0)
    asked = time.clock_gettime(time.CLOCK_BOOTTIME)
    leadership = store.lead()

    assert 10.0 == store._session.timeout
    assert 0 < leadership._lease_end - asked < 10.0


def test_standbys_lead_one_at_a_time(zookeeper, open_at) -> None:
    leading, most, served = [], [], []
    guard = threading.Lock()

    def serve(number: int) -> None:
        store = open_at(zookeeper)
        leadership = store.lead(timeout=LONG)
        with guard:
            leading.append(number)
            most.append(len(leading))
        store.load()
        store.apply([Put(f"n/{number}", b"")])
        leadership.check()
        with guard:
            leading.remove(number)
            served.append(number)
        store.close()

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [1] * 5 == most
    assert {f"n/{number}": b"" for number in served} == open_at(zookeeper).load()
    assert set(range(5)) == set(served)
