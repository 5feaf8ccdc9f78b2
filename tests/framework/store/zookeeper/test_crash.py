"""A scheduler killed at any request leaves whole decisions for its successor."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL

import pytest

from kit.commands import ENVIRONMENT
from kit.stores import check_transactions
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore

CRASHER = Path(__file__).with_name("crasher.py")
TRANSACTIONS = 6
POINTS = 110


def left_behind(place: ZooKeeperAddress, acknowledged: Path) -> tuple[int, int]:
    with closing(ZooKeeperStore(place, "tensorflow")) as store:
        # The requests of the dead scheduler are settled when its session has ended.
        store.lead()
        return check_transactions(store, acknowledged)


@pytest.mark.parametrize("kind", ["before", "after"])
def test_kill_at_every_request(zookeeper, tmp_path: Path, kind) -> None:
    """Every acknowledged decision is stored, and at most one more."""
    command = [sys.executable, str(CRASHER), zookeeper.servers[0], str(tmp_path), kind, *map(str, range(POINTS))]
    output = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, timeout=170).stdout
    ended_by = [int(line) for line in output.split()]
    left: Counter[tuple[int, int]] = Counter()
    for point in range(POINTS):
        place = replace(zookeeper, chroot=f"/{tmp_path.name}-{point}", session_timeout=2.0)
        acknowledged, stored = left_behind(place, tmp_path / f"{kind}-{point}")
        left[acknowledged, stored - acknowledged] += 1

    # The last points are after the last request: every request was covered.
    assert [SIGKILL] * ended_by.count(SIGKILL) + [0] * ended_by.count(0) == ended_by
    assert 0 == ended_by[-1]
    # Before a commit's request only acknowledged decisions are stored; after it, one more.
    more = 0 if kind == "before" else 1
    assert {(done, more) for done in range(TRANSACTIONS)} | {(TRANSACTIONS, 0)} <= left.keys()
    assert {stored_more for _, stored_more in left} <= {0, 1}
