"""PyTorch's example on a real Mesos, if there is a PyTorch without CUDA.

Its runtime is made once and stays on the machine, as downloads do: 0.2 GB. Only the index of PyTorch itself, and those
that mirror it, have that build: pip asks one of these where its settings say so (PIP_EXTRA_INDEX_URL).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from own_runtimes import need

pytestmark = [pytest.mark.mesos, pytest.mark.timeout(600)]

OPTIONS = Path(__file__).parents[2] / "examples" / "pytorch_ddp" / "options.json"
#: A version with `+cpu` can be no other build: the usual one brings gigabytes of CUDA along.
TORCH = ("--package", "torch==2.13.0+cpu", "--package", "numpy")


@pytest.fixture
def _torch() -> None:
    """The runtime that the options name is there, or the test is skipped."""
    need("torch", *TORCH, slow=False)


@pytest.mark.usefixtures("_torch")
def test_both_workers_train_one_model(train_on_mesos: Callable[..., Any]) -> None:
    """Workers meet by environment, see the same loss, and rank 0 tests the model."""
    train_on_mesos(OPTIONS).check_two_workers(epochs=8)
