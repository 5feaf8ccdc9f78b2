"""Runtimes (virtual environments) that tests create once per user and then reuse.

What takes minutes to make is made only with TEST_RUNTIMES=make in the environment, as continuous integration has it.
"""

from __future__ import annotations

import json
import os
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


def _runtime(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a runtime command at low priority."""
    command = ["nice", "-n", "15", sys.executable, "-m", "tf_scheduler", "runtime", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
