"""ZooKeeper outages: no decision is lost or made twice, and no call hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest
from kazoo.exceptions import BadVersionError

from kit.freezing import freeze, thaw
from kit.stores import increment_concurrently
from kit.waiting import wait_until
from tf_scheduler.store.interface import Put, StoreConflictError, StoreError, StoreUnavailableError
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore
from zookeeper_proxy import ZooKeeperProxy

PATIENCE = 60.0  # seconds
T = TypeVar("T")
HEAD = "dcos-service-tensorflow/head"


@pytest.fixture
def proxy(zookeeper: ZooKeeperAddress) -> Iterator[ZooKeeperProxy]:
    """A proxy in front of the server of `zookeeper`."""
    with ZooKeeperProxy(zookeeper.servers[0]) as started:
        yield started


def count_up(store: ZooKeeperStore, start: int, end: int) -> None:
    """Make one decision per number; every decision writes `log`, one writes `n`."""
    for number in range(start, end):
        store.apply([Put("last", b"%d" % number), Put(f"n/{number}", b"")])


def patiently(call: Callable[[], T]) -> T:
    """Return the result of a call, retried while ZooKeeper is unavailable."""
    return wait_until(lambda: (call(),), "ZooKeeper is unavailable", StoreUnavailableError)[0]


def counted(end: int) -> dict[str, bytes]:
    """Return the state after the numbers below `end`."""
    return {"last": b"%d" % (end - 1)} | {f"n/{number}": b"" for number in range(end)}


@pytest.mark.parametrize("lost", [["request"], ["answer"], ["answer", "request"], ["request"] * 2, ["answer"] * 2])
@pytest.mark.parametrize("before", [0, 3])
def test_unanswered_commit_acts_once(open_at, zookeeper, proxy, operator, lost, before) -> None:
    """Whether requests or answers get lost."""
    store = open_at(replace(zookeeper, servers=(proxy.address,)))
    store.load()
    count_up(store, 0, before)
    proxy.lose(*lost)
    count_up(store, before, before + 3)

    assert counted(before + 3) == open_at(zookeeper).load()
    assert before + 2 == operator(zookeeper).exists(f"{zookeeper.chroot}/{HEAD}").version


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_unanswered_check_is_retried(open_at, zookeeper, proxy, lost) -> None:
    """The check stores nothing, so the request may be sent repeatedly."""
    store = open_at(replace(zookeeper, servers=(proxy.address,)))
    store.load()
    count_up(store, 0, 2)
    proxy.lose(lost)
    store.apply([])
    open_at(zookeeper).load()
    proxy.lose(lost)

    assert counted(2) == store.load()


@pytest.mark.parametrize(("lost", "stored"), [("request", 3), ("answer", 4)])
def test_unknown_outcome_is_a_conflict(open_at, zookeeper, proxy, operator, lost, stored) -> None:
    """Writes fail until a load, which returns the state and bars the lost commit."""
    place = replace(zookeeper, servers=(proxy.address,), request_timeout=1.0)
    store = open_at(place)
    store.load()
    count_up(store, 0, 3)
    client = operator(zookeeper)
    proxy.lose(lost, stay_away=True)
    with pytest.raises(StoreConflictError, match="load the state again"):
        count_up(store, 3, 4)
    with pytest.raises(StoreConflictError, match="must be loaded"):
        store.apply([])
    with pytest.raises(StoreUnavailableError):
        store.load()
    proxy.heal()

    assert counted(stored) == patiently(store.load)
    assert 3 == client.exists(f"{zookeeper.chroot}/{HEAD}").version
    with pytest.raises(BadVersionError):
        client.set(f"{zookeeper.chroot}/{HEAD}", b"what was sent on version 2", version=2)
    count_up(store, stored, 6)
    assert counted(6) == open_at(zookeeper).load()


def test_unknown_first_change_is_a_conflict(open_at, zookeeper, proxy, operator) -> None:
    """Without a head, the next load creates one, so that the lost change cannot act."""
    store = open_at(replace(zookeeper, servers=(proxy.address,), request_timeout=1.0))
    store.load()
    proxy.lose("request", stay_away=True)
    with pytest.raises(StoreConflictError, match="load the state again"):
        count_up(store, 0, 1)
    proxy.heal()

    assert {} == patiently(store.load)
    assert 0 == operator(zookeeper).exists(f"{zookeeper.chroot}/{HEAD}").version
    count_up(store, 0, 2)
    assert counted(2) == open_at(zookeeper).load()


def test_nothing_is_sent_without_connection(open_at, zookeeper, proxy) -> None:
    """So nothing is stored, and the same call may succeed later."""
    store = open_at(replace(zookeeper, servers=(proxy.address,), request_timeout=1.0))
    store.load()
    count_up(store, 0, 2)
    proxy.cut()
    for call in (lambda: store.apply([]), lambda: count_up(store, 2, 3), store.erase, store.load):
        with pytest.raises(StoreUnavailableError, match=proxy.address):
            call()
    proxy.heal()
    patiently(store.load)
    count_up(store, 2, 4)

    assert counted(4) == open_at(zookeeper).load()


def test_start_without_server_is_unavailable(zookeeper, proxy) -> None:
    """With the address and the reason."""
    proxy.cut()
    with pytest.raises(StoreUnavailableError, match=f"zk://{proxy.address}/"):
        ZooKeeperStore(replace(zookeeper, servers=(proxy.address,), request_timeout=1.0), "tensorflow")
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1: .*refused"):
        ZooKeeperStore(replace(zookeeper, servers=("127.0.0.1:1",), request_timeout=1.0), "tensorflow")


def test_writer_continues_after_session_end(open_at, zookeeper, expire) -> None:
    """Without leadership."""
    store = open_at(zookeeper)
    store.load()
    count_up(store, 0, 2)
    expire(store, zookeeper)
    count_up(store, 2, 4)

    assert counted(4) == open_at(zookeeper).load()


def test_apply_survives_killed_zookeeper_leader(ensemble, three_places, open_at) -> None:
    """Every apply succeeds on the other servers."""
    store = open_at(three_places)
    store.load()
    writer = threading.Thread(target=count_up, args=(store, 0, 400))
    writer.start()
    try:
        for _ in range(2):
            leader = ensemble.leader()
            leader.kill()
            ensemble.wait_serving()
            leader.start()
    finally:
        writer.join()

    assert counted(400) == open_at(three_places).load()


def test_frozen_server_is_replaced(ensemble, three_places, open_at, server_of) -> None:
    """Before the session ends."""
    store = open_at(three_places)
    store.load()
    count_up(store, 0, 2)
    session = store._session.number
    for number in range(2, 4):
        server = server_of(store)
        freeze(server)
        count_up(store, number, number + 1)
        thaw(server)
        ensemble.wait_serving()

    assert counted(4) == open_at(three_places).load()
    assert session == store._session.number


def test_load_is_not_stale(ensemble, three_places, open_at) -> None:
    """A new leader must not start from the past of a server that was frozen."""
    follower = ensemble.followers()[0]
    writer = open_at(three_places, servers=(ensemble.leader().address,))
    reader = open_at(three_places, servers=(follower.address,))
    writer.load()
    end, loaded = 0, []
    for _ in range(5):
        reader.load()
        freeze(follower)
        count_up(writer, end, end + 50)
        end += 50
        thread = threading.Thread(target=lambda: loaded.append(reader.load()))
        thread.start()
        thaw(follower)
        thread.join()
        assert counted(end) == loaded[-1]


def test_lost_quorum_is_unavailable_until_back(ensemble, three_places, open_at) -> None:
    """Without a majority each call fails in time; with one the state is complete."""
    store = open_at(three_places, request_timeout=2.0)
    store.load()
    count_up(store, 0, 3)
    killed = [*ensemble.followers()]
    for server in killed:
        server.kill()
    with pytest.raises((StoreConflictError, StoreUnavailableError)) as caught:
        count_up(store, 3, 4)
    with pytest.raises(StoreUnavailableError):
        open_at(three_places, request_timeout=1.0)
    for server in killed:
        server.launch()
    ensemble.wait_serving()
    loaded = patiently(store.load)
    assert loaded in ((counted(3), counted(4)) if isinstance(caught.value, StoreConflictError) else (counted(3),))
    stored = len(loaded) - 1
    count_up(store, stored, 6)

    assert counted(6) == open_at(three_places).load()


def test_state_survives_restart_of_all_servers(ensemble, three_places, open_at) -> None:
    store = open_at(three_places)
    store.load()
    count_up(store, 0, 5)
    for server in ensemble.servers:
        server.kill()
    for server in ensemble.servers:
        server.launch()
    ensemble.wait_serving()

    assert counted(5) == store.load()
    count_up(store, 5, 6)
    assert counted(6) == open_at(three_places).load()


def test_writers_on_different_servers_lose_no_update(ensemble, three_places, open_at) -> None:
    """Three writers on different servers increment one key without losing a count."""
    stores = [open_at(three_places, servers=(server.address,)) for server in ensemble.servers]
    increment_concurrently(stores, 20)

    assert {"count": b"60"} == open_at(three_places).load()


def test_close_with_frozen_server_returns(ensemble, three_places) -> None:
    server = ensemble.servers[0]
    store = ZooKeeperStore(replace(three_places, servers=(server.address,), session_timeout=2.0), "tensorflow")
    store.load()
    freeze(server)
    store.close()

    with pytest.raises(StoreError, match="closed"):
        store.load()
