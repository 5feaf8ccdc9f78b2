"""Contract of every state store (tf_scheduler.store.interface)."""

from __future__ import annotations

import threading

import pytest

from kit.stores import increment_concurrently
from tf_scheduler.store.interface import Delete, InvalidKeyError, Put, StoreConflictError, StoreError


def test_new_service_is_empty(open_store) -> None:
    assert open_store().load() == {}


def test_applied_writes_are_loaded_by_next_store(open_store) -> None:
    """Byte for byte."""
    values = {"framework": b"", "tasks/worker-0": bytes(range(256)), "result": b"x" * 1_000_000}
    store = open_store()
    store.load()
    store.apply([Put(key, value) for key, value in values.items()])
    store.close()

    assert values == open_store().load()


def test_writer_sees_its_own_writes(open_store) -> None:
    """A writer applies repeatedly without loading; a load returns all its writes."""
    store = open_store()
    store.load()
    for number in range(3):
        store.apply([Put(f"n/{number}", b"%d" % number)])

    assert store.load() == {"n/0": b"0", "n/1": b"1", "n/2": b"2"}


def test_writes_apply_in_order(open_store) -> None:
    """In a transaction the last write to a key wins; deleting a missing key is OK."""
    store = open_store()
    store.load()
    store.apply([Put("a", b"1"), Put("a", b"2"), Put("b", b"1"), Delete("b"), Delete("c"), Put("c", b"3")])

    assert store.load() == {"a": b"2", "c": b"3"}


def test_delete_removes_one_key(open_store) -> None:
    """Keys with a common prefix are independent."""
    store = open_store()
    store.load()
    store.apply([Put("tasks", b"1"), Put("tasks/worker-0", b"2"), Put("tasks/worker-0/log", b"3")])
    store.apply([Delete("tasks/worker-0")])

    assert store.load() == {"tasks": b"1", "tasks/worker-0/log": b"3"}


def test_thousands_of_keys_fit_one_transaction(open_store) -> None:
    """A decision about thousands of tasks is one transaction."""
    values = {f"tasks/worker-{index}": b"%d" % index for index in range(5_000)}
    store = open_store()
    store.load()
    store.apply([Put(key, value) for key, value in values.items()])

    assert values == open_store().load()


def test_snapshot_is_immutable(open_store) -> None:
    """Neither later writes nor its reader change loaded values."""
    store = open_store()
    store.load()
    store.apply([Put("a", b"1")])
    snapshot = store.load()
    store.apply([Put("a", b"2")])

    assert snapshot == {"a": b"1"}
    with pytest.raises(TypeError):
        snapshot["a"] = b"3"


def test_write_requires_load(open_store) -> None:
    """A writer that has not seen the state cannot change it."""
    for change in (lambda store: store.apply([Put("a", b"1")]), lambda store: store.erase()):
        with pytest.raises(StoreConflictError):
            change(open_store())

    assert open_store().load() == {}


def test_second_writer_conflicts_until_load(open_store) -> None:
    """After another writer's change all writes fail until a new load takes over."""
    first, second = open_store(), open_store()
    first.load()
    second.load()
    first.apply([Put("writer", b"first")])
    for _ in range(2):
        with pytest.raises(StoreConflictError):
            second.apply([Put("other", b"2"), Delete("writer")])
    with pytest.raises(StoreConflictError):
        second.erase()
    assert second.load() == {"writer": b"first"}
    second.apply([Put("writer", b"second")])

    with pytest.raises(StoreConflictError):
        first.apply([Put("writer", b"first again")])
    assert open_store().load() == {"writer": b"second"}


def test_equal_bytes_advance_version(open_store) -> None:
    """Two writers that store the same bytes still conflict."""
    first, second = open_store(), open_store()
    first.load()
    second.load()
    first.apply([Put("a", b"1")])

    with pytest.raises(StoreConflictError):
        second.apply([Put("a", b"1")])


def test_empty_apply_only_detects_conflict(open_store) -> None:
    """An empty apply does not disturb other writers."""
    first, second = open_store(), open_store()
    first.load()
    second.load()
    first.apply([])
    second.apply([Put("a", b"1")])

    with pytest.raises(StoreConflictError):
        first.apply([])


def test_load_does_not_disturb_writer(open_store) -> None:
    writer, reader = open_store(), open_store()
    writer.load()
    for number in range(3):
        writer.apply([Put("a", b"%d" % number)])
        assert {"a": b"%d" % number} == reader.load()


def test_services_are_isolated(open_store) -> None:
    """Even if their names have a common prefix."""
    stores = {name: open_store(name) for name in ("a", "a/b", "A")}
    for store in stores.values():
        store.load()
    for name, store in stores.items():
        store.apply([Put("name", name.encode())])
    stores["a"].erase()

    assert [store.load() for store in stores.values()] == [{}, {"name": b"a/b"}, {"name": b"A"}]


def test_leading_slash_names_same_service(open_store) -> None:
    """DC/OS writes `/group/tf`."""
    store = open_store("/group/tf")
    store.load()
    store.apply([Put("a", b"1")])

    assert open_store("group/tf").load() == {"a": b"1"}


@pytest.mark.parametrize("service", ["", "/", "//a", "a/", "..", "a\0b"])
def test_invalid_service_name_is_rejected(open_store, service: str) -> None:
    """Service names follow the rules for keys."""
    with pytest.raises(InvalidKeyError):
        open_store(service)


def test_store_is_usable_after_erase(open_store) -> None:
    store = open_store()
    store.load()
    store.apply([Put("a", b"1"), Put("b/c", b"2")])
    store.erase()
    assert open_store().load() == {}
    store.apply([Put("d", b"3")])

    assert open_store().load() == {"d": b"3"}


def test_stale_writer_conflicts_after_reinstall(open_store) -> None:
    """Even after equally many changes of the erased and reinstalled service."""
    stale, other = open_store(), open_store()
    stale.load()
    stale.apply([Put("a", b"old")])
    other.load()
    other.erase()
    other.apply([Put("a", b"new")])

    with pytest.raises(StoreConflictError):
        stale.apply([Put("a", b"stale")])
    assert other.load() == {"a": b"new"}


def test_store_works_across_threads(open_store) -> None:
    """Opened by one thread, used and closed by another."""
    store = open_store()
    seen = []

    def work() -> None:
        store.load()
        store.apply([Put("a", b"1")])
        seen.append(store.load())
        store.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert seen == [{"a": b"1"}]


def test_concurrent_writers_lose_no_update(open_store) -> None:
    """Three writers that increment one key and reload on conflict lose no count."""
    increment_concurrently([open_store() for _ in range(3)], 15)

    assert open_store().load() == {"count": b"45"}


def test_closed_store_rejects_calls(open_store) -> None:
    """Closing twice is allowed."""
    store = open_store()
    store.load()
    store.close()
    store.close()

    for call in (store.load, store.erase, lambda: store.apply([]), lambda: store.apply([Put("a", b"1")])):
        with pytest.raises(StoreError, match="closed"):
            call()


def test_removed_service_can_be_reinstalled(open_store) -> None:
    store = open_store()
    store.load()
    store.apply([Put("a", b"1")])
    store.remove()
    store.close()

    again = open_store()
    assert again.load() == {}
    again.apply([Put("b", b"2")])
    assert open_store().load() == {"b": b"2"}


def test_writer_of_removed_service_conflicts(open_store) -> None:
    """Also after a service of the same name is installed."""
    late, store = open_store(), open_store()
    late.load()
    late.apply([Put("a", b"1")])
    store.load()
    store.remove()
    store.close()
    again = open_store()
    again.load()
    again.apply([Put("b", b"2")])

    with pytest.raises(StoreConflictError):
        late.apply([Put("a", b"3")])
    assert open_store().load() == {"b": b"2"}
