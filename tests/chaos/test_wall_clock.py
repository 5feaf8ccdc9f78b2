"""The clock that a fault steps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.wall_clock import WallClock

STEP = """
import sys, time
from tf_scheduler.clock import SteadyClock
clock, began = SteadyClock(), time.monotonic()
print(flush=True)
input()
time.sleep(0.001)
print(round(clock.step(), -1), time.monotonic() - began < 60, flush=True)
"""


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_step_is_seen_by_the_scheduler_clock_only(tmp_path: Path, seconds: float) -> None:
    clock = WallClock(tmp_path / "clock")
    variables = {**os.environ, **clock.variables}

    with subprocess.Popen(
        [sys.executable, "-c", STEP], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            clock.set(seconds)
            answer, _ = process.communicate("\n", timeout=30)
        finally:
            process.kill()
    assert [str(seconds), "True"] == answer.split()
