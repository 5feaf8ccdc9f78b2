"""Rules for keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.store.interface import Delete, InvalidKeyError, Put, StoreError, check_key, service_key


@pytest.mark.parametrize(
    "key", ["a", "tasks/worker-0", "statuses/worker-0__1f", "a/...", ".a", "a b", "ä/名", "\ufeff"]
)
def test_valid_keys_are_accepted(key: str) -> None:
    """Segments of any printable BMP characters."""
    assert key == check_key(key)


@pytest.mark.parametrize(
    "key",
    [
        *("", "/", "/a", "a/", "a//b", ".", "..", "a/./b", "a/..", "\0", "a\0b", "a\n", "\x1f", "\x7f", "\x9f"),
        *("\ud800", "\udfff", "\ue000", "\uf8ff", "\ufff0", "\uffff", "\U00010000", "\U0010ffff", "a/😀"),
    ],
)
def test_invalid_keys_are_rejected(key: str) -> None:
    """ZooKeeper could not store them; the message shows the key."""
    for make in (check_key, Delete, lambda key: Put(key, b"")):
        with pytest.raises(InvalidKeyError) as caught:
            make(key)
        assert repr(key) in str(caught.value)


@given(st.text(st.characters(exclude_categories=())))
def test_check_key_accepts_or_raises(key) -> None:
    """Any string is a legal ZooKeeper path (UTF-16 rules) or an InvalidKeyError."""
    try:
        accepted = check_key(key)
    except InvalidKeyError:
        return
    units = memoryview(accepted.encode("utf-16-le", "surrogatepass")).cast("H")
    assert not any(u < 0x20 or 0x7F <= u <= 0x9F or 0xD800 <= u <= 0xF8FF or u >= 0xFFF0 for u in units)
    assert not {"", ".", ".."} & set(accepted.split("/"))
    assert accepted.encode().decode() == key


def test_invalid_key_is_store_error_and_value_error() -> None:
    """Callers may catch the store's errors or ValueError."""
    assert issubclass(InvalidKeyError, StoreError)
    assert issubclass(InvalidKeyError, ValueError)


def test_service_key_drops_leading_slash() -> None:
    """Marathon's `/group/name` is `group/name`."""
    assert [service_key("/group/tf"), service_key("tf")] == ["group/tf", "tf"]
