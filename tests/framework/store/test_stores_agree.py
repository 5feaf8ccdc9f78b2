"""Memory store and SQLite store behave alike for any sequence of calls."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kit.memory_store import MemoryDisk, MemoryStore
from tf_scheduler.store.interface import Delete, Put, StoreConflictError, StoreError
from tf_scheduler.store.sqlite import SqliteStore

SERVICES = ("a", "a/b")
#: Three stores: two writers of one service and one of another.
SLOTS = {0: "a", 1: "a", 2: "a/b"}

keys = st.sampled_from(["k", "k/l", "m"]) | st.text("ab.- é/", min_size=1, max_size=6).filter(
    lambda key: not {"", ".", ".."} & set(key.split("/"))
)
writes = st.lists(st.builds(Put, keys, st.binary(max_size=20)) | st.builds(Delete, keys), max_size=6)
slots = st.sampled_from(sorted(SLOTS))


def outcome(call):
    """Return what the call returns, or the class of its error."""
    try:
        return call()
    except StoreError as error:
        return type(error)


class Pair:
    """A memory store and a SQLite store that get the same calls."""

    def __init__(self, disk: MemoryDisk, file: Path, service: str) -> None:
        self.stores = (MemoryStore(service, disk), SqliteStore(file, service))

    def ask(self, call):
        memory, sqlite = (outcome(lambda store=store: call(store)) for store in self.stores)
        assert memory == sqlite
        return memory


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "state.db"
        self.disk = MemoryDisk()
        self.pairs = {slot: self.opened(service) for slot, service in SLOTS.items()}
        self.readers = [self.opened(service) for service in SERVICES]

    def opened(self, service: str) -> Pair:
        return Pair(self.disk, self.file, service)

    @rule(slot=slots)
    def load(self, slot):
        self.pairs[slot].ask(lambda store: store.load())

    @rule(slot=slots, writes=writes)
    def apply(self, slot, writes):
        self.pairs[slot].ask(lambda store: store.apply(writes))

    @rule(slot=slots, writes=writes)
    def load_and_apply(self, slot, writes):
        pair = self.pairs[slot]
        before = pair.ask(lambda store: store.load())
        if before is not StoreError:
            assert pair.ask(lambda store: store.apply(writes)) is not StoreConflictError

    @rule(slot=slots)
    def erase(self, slot):
        self.pairs[slot].ask(lambda store: store.erase())

    @rule(slot=slots)
    def close(self, slot):
        self.pairs[slot].ask(lambda store: store.close())

    @rule(slot=slots)
    def reopen(self, slot):
        self.close(slot)
        self.pairs[slot] = self.opened(SLOTS[slot])

    @invariant()
    def the_same_is_stored(self):
        for reader in self.readers:
            reader.ask(lambda store: store.load())

    def teardown(self):
        for pair in (*self.pairs.values(), *self.readers):
            pair.ask(lambda store: store.close())
        self.folder.cleanup()


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
