"""Poll for conditions that no event announces."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

#: Seconds that a test waits for a condition that must come: far more than it takes, on a busy machine too.
PATIENCE = 180.0

T = TypeVar("T")


def wait_until(condition: Callable[[], T], message: str = "", ignore: type[Exception] | tuple[()] = ()) -> T:
    """Poll until `condition()` is true; return its value. `ignore` counts as false.

    Fails with `message` after PATIENCE seconds.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            if value := condition():
                return value
        except ignore:
            pass
        assert time.monotonic() < end, message or f"the condition did not come within {PATIENCE:.0f} s"
        threading.Event().wait(0.02)
