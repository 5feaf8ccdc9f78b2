"""Horovod's example on a real Mesos; building takes minutes and 1 GB."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from own_runtimes import need

pytestmark = [pytest.mark.mesos, pytest.mark.tensorflow, pytest.mark.timeout(1800)]

OPTIONS = Path(__file__).parents[2] / "examples" / "horovod" / "options.json"
PACKAGES = ("scikit-learn", "setuptools<70", "wheel", "packaging")
CONTENT = ("--tensorflow", "2.13", *(word for name in PACKAGES for word in ("--package", name)))
BUILD = ("--build", "horovod==0.28.1")
#: Two compilers at once.
SETTINGS = {"MAKEFLAGS": "-j2", "HOROVOD_WITH_TENSORFLOW": "1", "HOROVOD_WITHOUT_MPI": "1"}


@pytest.fixture
def _horovod() -> None:
    """The runtime that the options name is there, or the test is skipped."""
    missing = [program for program in ("cmake", "make", "g++") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"to build Horovod {', '.join(missing)} is missing")
    need("horovod", *CONTENT, *BUILD, environment=SETTINGS)


@pytest.mark.usefixtures("_horovod")
def test_both_workers_train_one_model(train_on_mesos: Callable[..., Any]) -> None:
    """Workers meet at rank 0's executor, see one loss, and rank 0 tests the model."""
    train_on_mesos(OPTIONS).check_two_workers(epochs=12)
