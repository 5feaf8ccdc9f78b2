"""Small files that operators store with the service."""

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
def test_file_survives_restart(disk, content: bytes) -> None:
    """Byte by byte, also in place of an earlier file of that name."""
    _, files = opened(disk)
    files.keep("a.txt", b"before")
    files.keep("a.txt", content)

    _, again = opened(disk)

    assert (["a.txt"], content, None) == (again.names(), again.content("a.txt"), again.content("b"))


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "-a", "a" * 65, "ä", "a\n"])
def test_file_name_cannot_be_a_path(disk, name: str) -> None:
    """The name is part of a key of the store."""
    store, files = opened(disk)

    with pytest.raises(FileError, match="invalid file name") as error:
        files.keep(name, b"")
    assert (400, {}) == (error.value.http_status, store.load())


def test_size_and_number_of_files_are_limited(disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_files, "MAX_FILES", 1)
    _, files = opened(disk)

    with pytest.raises(FileError, match="1025 bytes: at most 1024"):
        files.keep("a", b"x" * (MAX_BYTES + 1))
    files.keep("a", b"x" * MAX_BYTES)
    files.keep("a", b"y")
    with pytest.raises(FileError, match="too many files: 1"):
        files.keep("b", b"")


def test_unstored_file_is_not_visible(disk) -> None:
    """After another scheduler has taken over the state."""
    _, files = opened(disk)
    newer, _ = opened(disk)
    newer.apply([Put("x", b"")])

    with pytest.raises(FileError, match="cannot be stored") as error:
        files.keep("a", b"")
    assert (503, []) == (error.value.http_status, files.names())


def test_unreadable_file_is_logged_and_skipped(disk, caplog: pytest.LogCaptureFixture) -> None:
    store, files = opened(disk)
    files.keep("a", b"x")
    store.apply([Put("files/b", b'{"schema": 2}'), Put("files/c", b"{")])

    with caplog.at_level(logging.WARNING):
        assert ["a"] == opened(disk)[1].names()
    assert 2 == len(caplog.records)
