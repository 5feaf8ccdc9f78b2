"""Lock of a folder."""

import threading
from pathlib import Path

import pytest

from tf_scheduler.store.sqlite import directory_lock

PATIENCE = 60


def test_directory_lock_is_exclusive(tmp_path: Path) -> None:
    """The second process waits until the first one leaves."""
    seen, waits = [], threading.Event()

    def second() -> None:
        waits.set()
        with directory_lock(tmp_path):
            seen.append("second")

    other = threading.Thread(target=second)
    with directory_lock(tmp_path) as held:
        assert held
        other.start()
        assert waits.wait(PATIENCE)
        other.join(0.1)
        seen.append("first")
    other.join(PATIENCE)

    assert ["first", "second"] == seen


def test_unlockable_folder_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller learns that the folder is not locked."""

    def refuse(*_) -> None:
        raise OSError("not here")

    monkeypatch.setattr("fcntl.flock", refuse)

    with directory_lock(tmp_path) as first, directory_lock(tmp_path) as second:
        assert (False, False) == (first, second)
