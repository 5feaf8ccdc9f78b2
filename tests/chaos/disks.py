"""Agents' disks of their own, which become full while tasks run; only root can."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mesos_local.node import AgentNode, agent_directory

_SIZE = "1g"


def work_folder(cluster: Path, agent: str) -> Path:
    return agent_directory(cluster, agent) / "agents" / "0" / "work"


@contextmanager
def own_disk(agent: AgentNode, folder: Path) -> Iterator[None]:
    """Move an agent's work folder, without tasks yet, to a file system of its own."""
    before = folder.with_name("before")
    agent.stop()
    folder.rename(before)
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "none", folder], check=True)
    try:
        shutil.copytree(before, folder, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(before)
        agent.start()
        yield
    finally:
        agent.stop()
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Shrink the file system to its content."""
    disk = os.statvfs(folder)
    _resize(folder, str((disk.f_blocks - disk.f_bfree) * disk.f_frsize))
    try:
        yield
    finally:
        _resize(folder, _SIZE)


def _resize(folder: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
