"""Whose turn it is in a folder."""

import threading

from tf_scheduler.store.turn import turn

PATIENCE = 60


def test_one_has_its_turn_after_the_other(tmp_path):
    """Who comes second waits until the first has gone."""
    seen, waits = [], threading.Event()

    def second():
        waits.set()
        with turn(tmp_path):
            seen.append("second")

    other = threading.Thread(target=second)
    with turn(tmp_path) as held:
        assert held
        other.start()
        assert waits.wait(PATIENCE)
        other.join(0.1)
        seen.append("first")
    other.join(PATIENCE)

    assert ["first", "second"] == seen


def test_where_folders_cannot_be_locked_nobody_waits(tmp_path, monkeypatch):
    """And who cares is told."""

    def refuse(*_):
        raise OSError("not here")

    monkeypatch.setattr("fcntl.flock", refuse)

    with turn(tmp_path) as first, turn(tmp_path) as second:
        assert (False, False) == (first, second)
