"""Nodes in ZooKeeper: names, rights, sizes, garbage, damage and older programs."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.protocol.connection import ConnectionHandler

from tf_scheduler.store.interface import (
    Delete,
    Put,
    StoreConflictError,
    StoreCorruptError,
    StoreError,
    StoreVersionError,
)
from tf_scheduler.store.zookeeper import layout

ROOT = "dcos-service-tensorflow"


def filled(open_at, place, count=3):
    """A store with `count` decisions."""
    store = open_at(place)
    store.load()
    for number in range(count):
        store.apply([Put(f"n/{number}", b"%d" % number)])
    return store


def nodes(client, path):
    """Every node at and below the path."""
    paths = [path]
    for name in client.get_children(path):
        paths += nodes(client, f"{path}/{name}")
    return paths


def folder(client, place):
    """Path of the entries and parts."""
    root = f"{place.chroot}/{ROOT}"
    (name,) = [name for name in client.get_children(root) if name.startswith("state-")]
    return f"{root}/{name}"


def test_tree_matches_docstring(open_at, zookeeper, operator) -> None:
    """One entry per decision; each one raises the version of `head`."""
    filled(open_at, zookeeper)
    client = operator(zookeeper)
    data, stat = client.get(f"{zookeeper.chroot}/{ROOT}/head")

    assert 2 == stat.version
    assert str(os.getpid()) in json.loads(data)["writer"]
    assert ["entry-0000000001", "entry-0000000002", "entry-0000000003"] == sorted(
        client.get_children(folder(client, zookeeper))
    )


def test_no_node_exists_before_first_change(open_at, zookeeper, operator) -> None:
    """Reading leaves no trace."""
    store = open_at(zookeeper)
    store.load()
    store.apply([])

    assert None is operator(zookeeper).exists(zookeeper.chroot)


def test_removed_service_leaves_no_node(open_at, zookeeper, operator) -> None:
    store = open_at(zookeeper)
    store.lead()
    store.load()
    store.apply([Put("a", b"1")])

    store.remove()
    store.close()

    assert [zookeeper.chroot] == nodes(operator(zookeeper), zookeeper.chroot)


def test_reinstalled_service_is_not_removed(open_at, zookeeper) -> None:
    """By a late removal of its predecessor."""
    store = filled(open_at, zookeeper)
    store.remove()
    other = open_at(zookeeper)
    other.load()
    other.apply([Put("a", b"1")])

    store.close()

    assert {"a": b"1"} == open_at(zookeeper).load()


def test_missing_chroot_is_created(open_at, zookeeper) -> None:
    place = replace(zookeeper, chroot=f"{zookeeper.chroot}/a/b")
    filled(open_at, place)

    assert 3 == len(open_at(place).load())


def test_nodes_without_credentials_are_open(open_at, zookeeper, operator) -> None:
    """As by default in ZooKeeper."""
    filled(open_at, zookeeper)
    client = operator(zookeeper)

    assert {"world"} == {acl.id.scheme for path in nodes(client, zookeeper.chroot) for acl in client.get_acls(path)[0]}
    assert open_at(zookeeper).is_open()
    # Credentials do not change existing nodes.
    assert open_at(replace(zookeeper, credentials="me:secret")).is_open()
    assert not open_at(replace(zookeeper, chroot=f"{zookeeper.chroot}/new", credentials="me:secret")).is_open()


def test_nodes_with_credentials_are_private(open_at, zookeeper, operator) -> None:
    """Other users can neither read nor write them, and get a helpful error."""
    mine = replace(zookeeper, credentials="me:secret")
    store = filled(open_at, mine)
    store.lead()
    owner, other = operator(mine, auth_data=[("digest", "me:secret")]), operator(mine)
    paths = nodes(owner, f"{mine.chroot}/{ROOT}")

    assert not store.is_open()
    assert 8 == len(paths)  # the service, head, lock, leader, the folder and three entries
    for path in paths:
        assert [("digest", "ALL")] == [(acl.id.scheme, acl.acl_list[0]) for acl in owner.get_acls(path)[0]]
        with pytest.raises(NoAuthError):
            other.get(path)
    for place in (zookeeper, replace(zookeeper, credentials="me:other")):
        with pytest.raises(StoreError, match="use the credentials that created them") as caught:
            open_at(place).load()
        assert "other" not in str(caught.value).replace("another", "")
    assert {f"n/{n}": b"%d" % n for n in range(3)} == open_at(mine).load()


def test_requests_stay_below_zookeeper_limit(open_at, zookeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """For five thousand tasks in one decision, and for incompressible megabytes."""
    sizes = []
    write = ConnectionHandler._write

    def measured(self, message, timeout):
        sizes.append(len(message))
        return write(self, message, timeout)

    monkeypatch.setattr(ConnectionHandler, "_write", measured)
    store = open_at(zookeeper)
    store.load()
    store.apply([Put(f"tasks/worker-{n}", os.urandom(150)) for n in range(5_000)])
    big = os.urandom(3_000_000)
    store.apply([Put("big", big), Put("small", b"1")])
    store.apply([Delete("tasks/worker-0")])
    values = open_at(zookeeper).load()

    assert big == values["big"]
    assert 5_001 == len(values)
    assert max(sizes) < layout.NODE_LIMIT + 1024


def test_values_are_compressed_together(open_at, zookeeper, operator) -> None:
    """Five thousand records of half a kilobyte take one node."""
    record = '{"agent_id": "2b8b2d1e-S%d", "hostname": "10.0.0.%d", "resources": ["cpus", "mem", "ports"], "x": "%s"}'
    store = open_at(zookeeper)
    store.load()
    store.apply([Put(f"tasks/worker-{n}", (record % (n, n % 250, "y" * 400)).encode()) for n in range(5_000)])
    client = operator(zookeeper)
    path = folder(client, zookeeper)
    (name,) = client.get_children(path)

    assert client.exists(f"{path}/{name}").dataLength < 100_000


def test_entries_are_merged_and_removed(open_at, zookeeper, operator) -> None:
    """The tree stays small for any number of decisions."""
    store = open_at(zookeeper)
    store.load()
    for number in range(700):
        store.apply([Put(f"n/{number % 50}", b"%d" % number)])
    client = operator(zookeeper)
    head = json.loads(client.get(f"{zookeeper.chroot}/{ROOT}/head")[0])
    client.sync("/")

    assert head["snapshot"] > 400
    assert len(client.get_children(folder(client, zookeeper))) <= 256
    assert {f"n/{number % 50}": b"%d" % number for number in range(650, 700)} == open_at(zookeeper).load()


def test_nodes_of_dead_writer_are_removed(open_at, zookeeper, operator) -> None:
    """Orphaned parts, of this or of a removed tree, go with the next snapshot."""
    store = filled(open_at, zookeeper)
    client = operator(zookeeper)
    path = folder(client, zookeeper)
    client.create(f"{path}/{layout.part_name(4, 'deadbeef', 0)}", b"x")
    client.create(f"{zookeeper.chroot}/{ROOT}/state-other/part-0000000001-t-0000", b"x", makepath=True)
    store.apply([Put("big", os.urandom(layout.NODE_LIMIT + 1))])
    store.load()

    assert ["part"] * 2 == [name.partition("-")[0] for name in client.get_children(path)]
    assert path == folder(client, zookeeper)
    assert 4 == len(store.load())


def test_removed_tree_is_a_conflict(open_at, zookeeper, operator) -> None:
    """A removal by the DC/OS janitor is noticed, even if the tree exists again."""
    store = filled(open_at, zookeeper)
    client = operator(zookeeper)
    client.delete(f"{zookeeper.chroot}/{ROOT}", recursive=True)
    with pytest.raises(StoreConflictError):
        store.apply([])
    filled(open_at, zookeeper)
    assert 2 == client.exists(f"{zookeeper.chroot}/{ROOT}/head").version

    for change in (lambda: store.apply([Put("a", b"stale")]), store.erase):
        with pytest.raises(StoreConflictError):
            change()
    assert {"n/0", "n/1", "n/2"} == open_at(zookeeper).load().keys()


@pytest.mark.parametrize("name", ["head", "entry-0000000002"])
@pytest.mark.parametrize("data", [b"", b"nonsense", b"\x01" + b"nonsense"])
def test_damage_is_reported(open_at, zookeeper, operator, name, data) -> None:
    """With node and place; the state is unchanged."""
    filled(open_at, zookeeper)
    client = operator(zookeeper)
    path = f"{zookeeper.chroot}/{ROOT}/head" if name == "head" else f"{folder(client, zookeeper)}/{name}"
    client.set(path, data)

    with pytest.raises(StoreCorruptError, match=f"{name} in zk://"):
        open_at(zookeeper).load()


def test_missing_entry_is_reported(open_at, zookeeper, operator) -> None:
    """The state without it must not be used."""
    filled(open_at, zookeeper)
    client = operator(zookeeper)
    client.delete(f"{folder(client, zookeeper)}/entry-0000000002")

    with pytest.raises(StoreCorruptError, match="are missing"):
        open_at(zookeeper).load()


def test_state_of_newer_version_is_rejected(open_at, zookeeper, operator) -> None:
    """This version neither loads nor changes it."""
    older = filled(open_at, zookeeper)
    client, head = operator(zookeeper), f"{zookeeper.chroot}/{ROOT}/head"
    client.set(head, json.dumps({**json.loads(client.get(head)[0]), "schema": layout.SCHEMA + 1}).encode())

    with pytest.raises(StoreConflictError):
        older.apply([Put("old", b"1")])
    for store in (older, open_at(zookeeper)):
        with pytest.raises(StoreVersionError, match="newer version"):
            store.load()
