"""Small files that are stored beside the state."""

import logging

import pytest

from kit.memory_store import MemoryDisk, MemoryStore
from tf_scheduler.errors import FileError
from tf_scheduler.store import operator_files
from tf_scheduler.store.interface import Put
from tf_scheduler.store.operator_files import MAX_BYTES, OperatorFiles


@pytest.fixture
def disk():
    return MemoryDisk()


def opened(disk):
    store = MemoryStore("service", disk)
    return store, OperatorFiles(store, store.load())


@pytest.mark.parametrize("content", [b"", b"text\r\n", bytes(range(256)) * 4])
def test_a_file_is_there_after_the_next_start(disk, content):
    """Every byte of it, also in place of one of that name."""
    _, files = opened(disk)
    files.keep("a.txt", b"before")
    files.keep("a.txt", content)

    _, again = opened(disk)

    assert (["a.txt"], content, None) == (again.names(), again.content("a.txt"), again.content("b"))


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "-a", "a" * 65, "ä", "a\n"])
def test_a_name_is_no_path(disk, name):
    """It is part of a key of the store."""
    store, files = opened(disk)

    with pytest.raises(FileError, match="invalid file name") as told:
        files.keep(name, b"")
    assert (400, {}) == (told.value.http_status, store.load())


def test_what_is_too_much_is_refused(disk, monkeypatch):
    """Of one, and of all."""
    monkeypatch.setattr(operator_files, "MAX_FILES", 1)
    _, files = opened(disk)

    with pytest.raises(FileError, match="1025 bytes: at most 1024"):
        files.keep("a", b"x" * (MAX_BYTES + 1))
    files.keep("a", b"x" * MAX_BYTES)
    files.keep("a", b"y")
    with pytest.raises(FileError, match="too many files: 1"):
        files.keep("b", b"")


def test_what_cannot_be_stored_is_not_shown(disk):
    """Another scheduler has taken the state over."""
    _, files = opened(disk)
    newer, _ = opened(disk)
    newer.apply([Put("x", b"")])

    with pytest.raises(FileError, match="cannot be stored") as told:
        files.keep("a", b"")
    assert (503, []) == (told.value.http_status, files.names())


def test_what_a_newer_version_stored_costs_that_file_only(disk, caplog):
    """And is said."""
    store, files = opened(disk)
    files.keep("a", b"x")
    store.apply([Put("files/b", b'{"schema": 2}'), Put("files/c", b"{")])

    with caplog.at_level(logging.WARNING):
        assert ["a"] == opened(disk)[1].names()
    assert 2 == len(caplog.records)
