"""Runtimes (virtual environments) that tests create once per user and then reuse.

What takes minutes to make is made only with TEST_RUNTIMES=make in the environment, as continuous integration has it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

import pytest

MAKE = "TEST_RUNTIMES"


def need(name: str, *content: str, slow: bool = True, environment: Mapping[str, str] | None = None) -> None:
    """Ensure that a runtime made of `content` exists; otherwise skip the test."""
    if name in {one["name"] for one in json.loads(_runtime({}, "list", "--json").stdout)}:
        return
    if slow and os.environ.get(MAKE) != "make":
        pytest.skip(f"no runtime {name}: {MAKE}=make makes it, which takes some minutes")
    made = _runtime(environment or {}, "create", name, *content)
    if made.returncode:
        pytest.skip(f"no runtime {name}, and none can be made: {made.stderr}")


def need_torch() -> None:
    """Ensure the runtime of examples/pytorch_ddp: 0.2 GB, made at once.

    Only the index of PyTorch itself, and those that mirror it, have a build without CUDA: pip asks one of these where
    its settings say so (PIP_EXTRA_INDEX_URL). A version with `+cpu` can be no other build: the usual one brings
    gigabytes of CUDA along.
    """
    need("torch", "--package", "torch==2.13.0+cpu", "--package", "numpy", slow=False)


def need_horovod() -> None:
    """Ensure the runtime of examples/horovod: building takes minutes and 1 GB."""
    missing = [program for program in ("cmake", "make", "g++") if shutil.which(program) is None]
    if missing:
        pytest.skip(f"to build Horovod {', '.join(missing)} is missing")
    packages = ("scikit-learn", "setuptools<70", "wheel", "packaging")
    content = ("--tensorflow", "2.13", *(word for name in packages for word in ("--package", name)))
    # Two compilers at once.
    settings = {"MAKEFLAGS": "-j2", "HOROVOD_WITH_TENSORFLOW": "1", "HOROVOD_WITHOUT_MPI": "1"}
    need("horovod", *content, "--build", "horovod==0.28.1", environment=settings)


def _runtime(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a runtime command at low priority."""
    command = ["nice", "-n", "15", sys.executable, "-m", "tf_scheduler", "runtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
