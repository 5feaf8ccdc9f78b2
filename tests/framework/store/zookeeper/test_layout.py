"""Names and contents of the nodes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.store.interface import (
    Delete,
    InvalidKeyError,
    Put,
    StoreCorruptError,
    StoreVersionError,
    check_key,
    service_key,
)
from tf_scheduler.store.zookeeper import layout
from tf_scheduler.store.zookeeper.layout import Head


def keys():
    def legal(text: str) -> bool:
        try:
            return bool(check_key(text))
        except InvalidKeyError:
            return False

    return (st.text("ab_%/-é", min_size=1, max_size=8) | st.text(min_size=1, max_size=8)).filter(legal)


ZERO = layout.encode_head(Head("i")).replace(b'"schema": 1', b'"schema": 0')
HEAD = Head("abc", 12, 9, "t0", 3, "change", "host 12")
writes = st.lists(st.builds(Put, keys(), st.binary(max_size=50)) | st.builds(Delete, keys()), max_size=8)


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("tensorflow", "dcos-service-tensorflow"),
        ("/group/tf", "dcos-service-group__tf"),
        ("a_b", "dcos-service-a%5Fb"),
        ("a%5Fb", "dcos-service-a%255Fb"),
    ],
)
def test_service_folder_matches_sdk(service: str, name: str) -> None:
    """The DC/OS janitor finds the node; only names invalid in Marathon are escaped."""
    assert name == layout.service_folder(service_key(service))


@given(keys(), keys())
def test_service_folders_are_unique(one, other) -> None:
    """And one segment of a path."""
    assert (one == other) == (layout.service_folder(one) == layout.service_folder(other))
    assert "/" not in layout.service_folder(one)


@given(writes)
def test_decoding_inverts_encoding(written) -> None:
    assert written == layout.decode_writes(layout.encode_writes(written), "here")


@given(writes, st.data())
def test_truncated_entry_is_rejected(written, data) -> None:
    """With the name of the node."""
    whole = layout.encode_writes(written)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(StoreCorruptError, match="/here"):
        layout.decode_writes(whole[:length], "/here")


@given(st.binary(max_size=60))
def test_decoding_raises_store_corrupt_only(data) -> None:
    """Any bytes are writes or a StoreCorruptError, as an entry and as a head."""
    for read in (layout.decode_writes, layout.decode_head):
        for content in (data, b"\x01" + data):
            try:
                read(content, "here")
            except StoreCorruptError:
                continue


@given(st.binary(max_size=60))
def test_invalid_content_is_rejected(data) -> None:
    """Compressed foreign content is a StoreCorruptError, or happens to be writes."""
    try:
        written = layout.decode_writes(b"\x01" + zlib.compress(data), "here")
    except StoreCorruptError:
        return
    assert data == zlib.decompress(layout.encode_writes(written)[1:])


def test_decoding_head_inverts_encoding() -> None:
    """With all fields."""
    assert HEAD == layout.decode_head(layout.encode_head(HEAD), "here")
    assert (
        ["part-0000000009-t0-0000", "part-0000000009-t0-0001", "part-0000000009-t0-0002"],
        ["entry-0000000010", "entry-0000000011", "entry-0000000012"],
    ) == HEAD.names()


def flipped(data: bytes) -> Iterator[bytes]:
    """Return the data with each bit flipped in turn."""
    for place in range(len(data)):
        for bit in range(8):
            yield bytes([*data[:place], data[place] ^ 1 << bit, *data[place + 1 :]])


def test_flipped_bits_of_head_are_detected() -> None:
    """One digit of a number would lose decisions, or name another snapshot."""
    for data in flipped(layout.encode_head(HEAD)):
        try:
            assert HEAD == layout.decode_head(data, "here")
        except StoreCorruptError:
            continue


def test_flipped_bits_of_writes_are_detected() -> None:
    """In entries and snapshots."""
    written = [Put(f"tasks/worker-{n}", b'{"name": "worker-%d"}' % n) for n in range(3)]
    for data in flipped(layout.encode_writes([*written, Delete("tasks/ps-0")])):
        try:
            assert [*written, Delete("tasks/ps-0")] == layout.decode_writes(data, "here")
        except StoreCorruptError:
            continue


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b'{"schema": 1, "x": 1}', b'{"schema": "1"}', b"\xff", ZERO]
)
def test_damaged_head_is_reported(data: bytes) -> None:
    """With the node and a remedy."""
    with pytest.raises(StoreCorruptError, match=r"/place.*state import"):
        layout.decode_head(data, "/place")


def test_newer_schema_is_rejected() -> None:
    """In the head and in the nodes that it names."""
    with pytest.raises(StoreVersionError, match="newer version"):
        layout.decode_head(b'{"schema": 2}', "here")
    with pytest.raises(StoreVersionError, match="newer version"):
        layout.decode_writes(b"\x02", "here")


@given(
    st.integers(0, 30).flatmap(lambda last: st.tuples(st.just(last), st.integers(0, last))),
    st.integers(0, 3),
)
def test_current_nodes_are_not_garbage(numbers, parts) -> None:
    """Nor nodes that a later head could name."""
    last, snapshot = numbers
    head = Head("i", last, snapshot, "token", parts if snapshot else 0)
    named = [name for names in head.names() for name in names]
    later = [layout.entry_name(last + 1), layout.part_name(last + 1, "other", 0)]

    assert not [name for name in (*named, *later, "what-ever", "part-x-y-0") if layout.is_garbage(name, head)]


@given(st.integers(1, 30), st.integers(1, 30))
def test_nodes_before_snapshot_are_garbage(snapshot, number) -> None:
    """Entries, older snapshots, and unused parts of other writers."""
    head = replace(Head("i"), last=snapshot, snapshot=snapshot, token="t", parts=1)
    names = [layout.entry_name(number), layout.part_name(number, "other", 0)]

    assert [number <= snapshot] * 2 == [layout.is_garbage(name, head) for name in names]


def test_pieces_fit_node() -> None:
    """And join to the whole."""
    data = bytes(range(256)) * 8192
    pieces = layout.split(data)

    assert data == b"".join(pieces)
    assert all(0 < len(piece) <= layout.NODE_LIMIT for piece in pieces)
    assert [] == list(layout.split(b""))
