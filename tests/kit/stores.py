"""Checks for any state store: concurrent writers, crashes, equal results."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tf_scheduler.store.interface import Delete, Put, StateStore, StoreConflictError, StoreError, Write

from .memory_store import MemoryDisk, MemoryStore


def increment_concurrently(stores: Iterable[StateStore], times: int) -> None:
    """Let each store increment `count` in its thread, reloading after conflicts."""

    def count(store: StateStore) -> None:
        done = 0
        while done < times:
            number = int(store.load().get("count", b"0"))
            try:
                store.apply([Put("count", b"%d" % (number + 1))])
                done += 1
            except StoreConflictError:
                continue

    threads = [threading.Thread(target=count, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


#: Three stores: two writers of one service and one of another.
_SLOTS = {0: "a", 1: "a", 2: "a/b"}
_keys = st.sampled_from(["k", "k/l", "m"]) | st.text("ab.- é/", min_size=1, max_size=6).filter(
    lambda key: not {"", ".", ".."} & set(key.split("/"))
)
_writes = st.lists(st.builds(Put, _keys, st.binary(max_size=60)) | st.builds(Delete, _keys), max_size=6)
_slots = st.sampled_from(sorted(_SLOTS))

Pair = tuple[StateStore, StateStore]


class StoresAgree(RuleBasedStateMachine):
    """Compare a store with a memory store, call by call; define `open_store`."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.pairs = {slot: self.open_pair(service) for slot, service in _SLOTS.items()}
        self.readers = [self.open_pair(service) for service in ("a", "a/b")]

    def open_store(self, service: str) -> StateStore:
        raise NotImplementedError

    def open_pair(self, service: str) -> Pair:
        return MemoryStore(service, self.disk), self.open_store(service)

    def call(self, pair: Pair, method: str, *args: object) -> object:
        """Return the common result, or the class of the common error."""
        memory, other = (_outcome(getattr(store, method), *args) for store in pair)
        assert memory == other
        return memory

    @rule(slot=_slots)
    def load(self, slot: int) -> None:
        self.call(self.pairs[slot], "load")

    @rule(slot=_slots, writes=_writes)
    def apply(self, slot: int, writes: list[Write]) -> None:
        self.call(self.pairs[slot], "apply", writes)

    @rule(slot=_slots, writes=_writes, times=st.integers(1, 4))
    def load_and_apply(self, slot: int, writes: list[Write], times: int) -> None:
        pair = self.pairs[slot]
        if self.call(pair, "load") is not StoreError:
            for _ in range(times):
                assert self.call(pair, "apply", writes) is not StoreConflictError

    @rule(slot=_slots)
    def erase(self, slot: int) -> None:
        self.call(self.pairs[slot], "erase")

    @rule(slot=_slots)
    def close(self, slot: int) -> None:
        self.call(self.pairs[slot], "close")

    @rule(slot=_slots)
    def reopen(self, slot: int) -> None:
        self.close(slot)
        self.pairs[slot] = self.open_pair(_SLOTS[slot])

    @invariant()
    def readers_agree(self) -> None:
        for reader in self.readers:
            self.call(reader, "load")

    def teardown(self) -> None:
        for pair in (*self.pairs.values(), *self.readers):
            self.call(pair, "close")


def _outcome(call: Callable[..., object], *args: object) -> object:
    try:
        return call(*args)
    except StoreError as error:
        return type(error)


def transaction(number: int) -> list[Write]:
    """Return writes with four equal parts and the log of the last two transactions."""
    parts = [Put(f"part/{part}", b"%06d" % number * 200) for part in range(4)]
    return [*parts, Put(f"log/{number}", b""), Delete(f"log/{number - 2}")]


def apply_transactions(store: StateStore, acknowledged: Path, numbers: Iterable[int]) -> Iterator[int]:
    """Apply the transactions; after each, add a byte to the file, yield the number."""
    with acknowledged.open("ab", buffering=0) as acknowledgements:
        for number in numbers:
            store.apply(transaction(number))
            acknowledgements.write(b".")
            yield number


def run_in_child(run: Callable[[], None]) -> int:
    """Return the signal that ended the child, 0 for none."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        run()
        os._exit(0)
    return -min(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def check_transactions(store: StateStore, acknowledged: Path) -> tuple[int, int]:
    """Return (acknowledged, stored) after checking the stored transactions."""
    values = store.load()
    stored = max((int(key.removeprefix("log/")) for key in values if key.startswith("log/")), default=0)
    assert _state_after(stored) == values
    store.apply([Put("after", b"the crash")])
    assert {**_state_after(stored), "after": b"the crash"} == store.load()
    return (acknowledged.stat().st_size if acknowledged.exists() else 0), stored


def _state_after(number: int) -> Mapping[str, bytes]:
    parts = {f"part/{part}": b"%06d" % number * 200 for part in range(4)} if number else {}
    return parts | {f"log/{entry}": b"" for entry in range(max(1, number - 1), number + 1)}
