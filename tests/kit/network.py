"""A network namespace with several addresses that are not loopback."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_CLONE_NEWNET = 0x40000000


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
