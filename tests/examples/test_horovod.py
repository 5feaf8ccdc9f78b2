"""Horovod's example on a real Mesos."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from own_runtimes import need_horovod

pytestmark = [pytest.mark.usefixtures("real_versions"), pytest.mark.timeout(1800)]

OPTIONS = Path(__file__).parents[2] / "examples" / "horovod" / "options.json"


def test_both_workers_train_one_model(train_on_mesos: Callable[..., Any]) -> None:
    """Workers meet at rank 0's executor, see one loss, and rank 0 tests the model."""
    need_horovod()
    train_on_mesos(OPTIONS).check_two_workers(epochs=12)
