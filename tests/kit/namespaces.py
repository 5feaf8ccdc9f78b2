"""Namespaces of Linux, in which a test changes its network or its mounts."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .commands import run_program

_CLONE_NEWNET = 0x40000000
_PRIVATE = ("unshare", "--mount", "--propagation", "private")


def mount_namespace(folder: Path) -> tuple[str, ...]:
    """Return the words before a command that give it mounts of its own below a folder.

    Skips the test where the kernel does not allow it.
    """
    if run_program(*_PRIVATE, "mount", "-t", "tmpfs", "none", folder).returncode:
        pytest.skip("mounting in a mount namespace of its own needs root")
    return _PRIVATE


@contextmanager
def network_namespace(*addresses: str) -> Iterator[None]:
    """Move this thread and its processes into a new network with these addresses.

    Skips the test where the kernel does not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        if libc.unshare(_CLONE_NEWNET):
            pytest.skip(f"a network namespace needs root: {os.strerror(ctypes.get_errno())}")
        try:
            for command in ("link set lo up", *(f"address add {address}/24 dev lo" for address in addresses)):
                subprocess.run(["ip", *command.split()], check=True)
            yield
        finally:
            assert libc.setns(before.fileno(), _CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
