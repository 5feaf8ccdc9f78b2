"""Corrections of kazoo's connection handling."""

from __future__ import annotations

import gc
import logging
import random
import socket
import threading
from dataclasses import replace

import pytest

from tf_scheduler.store.interface import Put
from tf_scheduler.store.zookeeper import ZooKeeperStore


def test_silent_server_times_out(zookeeper, open_at, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen server accepts connections; the next one is tried within the session."""
    monkeypatch.setattr(random, "sample", lambda population, k: list(population)[:k])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = (f"127.0.0.1:{silent.getsockname()[1]}", *zookeeper.servers)
        # kazoo itself would wait for half of the session timeout.
        store = open_at(zookeeper, servers=servers, session_timeout=10.0, request_timeout=4.0)

        assert {} == store.load()


def test_close_leaves_no_thread_or_socket(zookeeper, recwarn) -> None:
    """ResourceWarning reports a forgotten socket."""
    before = set(threading.enumerate())
    for number in range(5):
        store = ZooKeeperStore(zookeeper, "tensorflow")
        store.lead()
        store.load()
        store.apply([Put("n", b"%d" % number)])
        store.close()
        store.close()
    gc.collect()

    assert set() == set(threading.enumerate()) - before
    assert [] == [str(warning.message) for warning in recwarn]


def test_password_is_not_logged(zookeeper, open_at, caplog: pytest.LogCaptureFixture) -> None:
    """kazoo logs the password at its lowest level."""
    caplog.set_level(logging.DEBUG)
    store = open_at(replace(zookeeper, credentials="me:hunter2"))
    store.load()
    store.apply([Put("a", b"1")])
    store.close()

    assert "hunter2" not in caplog.text
