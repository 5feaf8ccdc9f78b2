"""A scheduler killed before or after any request leaves whole decisions, which its successor continues."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL

import pytest

import tf_scheduler
from tf_scheduler.store.interface import Put
from tf_scheduler.store.zookeeper import ZooKeeperAddress, ZooKeeperStore

pytestmark = pytest.mark.zookeeper

CRASHER = Path(__file__).with_name("crasher.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tf_scheduler.__file__).parents[1])}
TRANSACTIONS = 6
POINTS = 110


def state_after(number: int) -> dict[str, bytes]:
    """Return the result of the crasher's first `number` transactions."""
    parts = {f"part/{part}": b"%06d" % number * 200 for part in range(4)} if number else {}
    return parts | {f"log/{entry}": b"" for entry in range(max(1, number - 1), number + 1)}


def left_behind(place: ZooKeeperAddress, acknowledged: Path) -> tuple[int, int]:
    """Return (acknowledged, stored) transactions, after checking that the stored ones are complete and usable."""
    with closing(ZooKeeperStore(place, "tensorflow")) as store:
        # As the next scheduler does; the dead one's requests are settled when its session has ended.
        store.lead()
        values = store.load()
        stored = max((int(key.removeprefix("log/")) for key in values if key.startswith("log/")), default=0)
        assert state_after(stored) == values
        store.apply([Put("after", b"the crash")])
        assert state_after(stored) | {"after": b"the crash"} == store.load()
    return (acknowledged.stat().st_size if acknowledged.exists() else 0), stored


@pytest.mark.parametrize("kind", ["before", "after"])
def test_kill_at_every_request(zookeeper, tmp_path, kind):
    """Every acknowledged decision is stored, and at most one more."""
    command = [sys.executable, str(CRASHER), zookeeper.servers[0], str(tmp_path), kind, *map(str, range(POINTS))]
    output = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, timeout=170).stdout
    ended_by = [int(line) for line in output.split()]
    left = Counter()
    for point in range(POINTS):
        place = replace(zookeeper, chroot=f"/{kind}-{point}", session_timeout=2.0)
        acknowledged, stored = left_behind(place, tmp_path / f"{kind}-{point}")
        left[acknowledged, stored - acknowledged] += 1

    # The last points lie behind the last request: every request had its turn.
    assert [SIGKILL] * ended_by.count(SIGKILL) + [0] * ended_by.count(0) == ended_by
    assert 0 == ended_by[-1]
    # Before a commit's request nothing more is stored than was acknowledged; after it, one decision more.
    more = 0 if kind == "before" else 1
    assert {(done, more) for done in range(TRANSACTIONS)} | {(TRANSACTIONS, 0)} <= left.keys()
    assert {stored_more for _, stored_more in left} <= {0, 1}
