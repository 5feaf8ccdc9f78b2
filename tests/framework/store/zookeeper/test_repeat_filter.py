"""kazoo's warnings while ZooKeeper is away."""

from __future__ import annotations

import logging

import pytest

from tf_scheduler.store.zookeeper import session
from tf_scheduler.store.zookeeper.session import RepeatFilter


@pytest.fixture
def log() -> logging.Logger:
    return logging.Logger("test")


def test_repeated_warnings_are_counted(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """kazoo warns twice a second; the first and every 30 s are enough."""
    now = [0.0]
    log.addFilter(RepeatFilter(lambda: now[0]))
    log.addHandler(caplog.handler)
    for half_seconds in range(121):
        now[0] = half_seconds / 2
        log.warning("Connection dropped: %s", f"attempt {half_seconds}")

    assert caplog.messages == [
        "Connection dropped: attempt 0",
        "Connection dropped: attempt 60 (59 more since the last report)",
        "Connection dropped: attempt 120 (59 more since the last report)",
    ]


def test_other_and_later_warnings_pass(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    """Another message passes immediately, and the next outage starts again."""
    now = [0.0]
    log.addFilter(RepeatFilter(lambda: now[0]))
    log.addHandler(caplog.handler)
    for message in ("Connection dropped: %s", "Connection time-out: %s"):
        log.warning(message, "a")
    now[0] = 3600.0
    log.warning("Connection dropped: %s", "b")

    assert caplog.messages == ["Connection dropped: a", "Connection time-out: a", "Connection dropped: b"]


def test_kazoo_uses_filter() -> None:
    """One filter for all sessions of the process."""
    (only,) = logging.getLogger(f"{session.__name__}.client").filters

    assert isinstance(only, RepeatFilter)
