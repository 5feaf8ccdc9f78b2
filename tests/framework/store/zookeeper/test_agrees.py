"""ZooKeeper store and memory store behave alike for any sequence of calls."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kit.memory_store import MemoryDisk, MemoryStore
from tf_scheduler.store.interface import Delete, Put, StoreConflictError, StoreError
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore, layout
from tf_scheduler.store.zookeeper import store as store_module

#: Three stores: two writers of one service and one of another.
SLOTS = {0: "a", 1: "a", 2: "a/b"}
_chroots = count(1)

keys = st.sampled_from(["k", "k/l", "m", "é b"])
writes = st.lists(st.builds(Put, keys, st.binary(max_size=60)) | st.builds(Delete, keys), max_size=6)
slots = st.sampled_from(sorted(SLOTS))


def outcome(call):
    """Return what the call returns, or the class of its error."""
    try:
        return call()
    except StoreError as error:
        return type(error)


class Agree(RuleBasedStateMachine):
    place: ZooKeeperAddress

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.here = ZooKeeperAddress(self.place.servers, f"/agree-{next(_chroots)}", session_timeout=5.0)
        self.pairs = {slot: self.opened(service) for slot, service in SLOTS.items()}
        self.readers = [self.opened(service) for service in ("a", "a/b")]

    def opened(self, service: str):
        return MemoryStore(service, self.disk), ZooKeeperStore(self.here, service)

    def ask(self, pair, call):
        memory, zookeeper = (outcome(lambda store=store: call(store)) for store in pair)
        assert memory == zookeeper
        return memory

    @rule(slot=slots)
    def load(self, slot):
        self.ask(self.pairs[slot], lambda store: store.load())

    @rule(slot=slots, writes=writes)
    def apply(self, slot, writes):
        self.ask(self.pairs[slot], lambda store: store.apply(writes))

    @rule(slot=slots, writes=writes, times=st.integers(1, 4))
    def load_and_apply(self, slot, writes, times):
        self.load(slot)
        for _ in range(times):
            assert self.ask(self.pairs[slot], lambda store: store.apply(writes)) is not StoreConflictError

    @rule(slot=slots)
    def erase(self, slot):
        self.ask(self.pairs[slot], lambda store: store.erase())

    @rule(slot=slots)
    def reopen(self, slot):
        self.ask(self.pairs[slot], lambda store: store.close())
        self.ask(self.pairs[slot], lambda store: store.load())
        self.pairs[slot] = self.opened(SLOTS[slot])

    @precondition(lambda self: self.readers)
    @invariant()
    def the_same_is_stored(self):
        for reader in self.readers:
            self.ask(reader, lambda store: store.load())

    def teardown(self):
        for pair in (*self.pairs.values(), *self.readers):
            self.ask(pair, lambda store: store.close())


@pytest.mark.zookeeper
@pytest.mark.parametrize("small", [False, True])
def test_stores_agree(zookeeper, monkeypatch, small):
    """With usual nodes, and with nodes so small that entries are always split and merged."""
    if small:
        monkeypatch.setattr(layout, "NODE_LIMIT", 100)
        monkeypatch.setattr(store_module, "_MIN_LOG_COST", 2048)
    monkeypatch.setattr(Agree, "place", zookeeper, raising=False)
    run_state_machine_as_test(
        Agree,
        settings=settings(
            max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
