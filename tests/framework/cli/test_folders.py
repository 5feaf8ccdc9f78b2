"""Folders of runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tf_scheduler.cli.common.folders import RunFolder


@pytest.fixture
def loose_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_run_folder_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loose_umask: None) -> None:
    """Other users cannot read the output, whatever the umask."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = RunFolder.create("dev/mnist", "0123456789")
    assert 0o700 == stat.S_IMODE(folder.path.stat().st_mode)
    assert folder.logs.is_dir()
    assert folder.checkpoints.is_dir()
    assert folder.path.name.startswith("dev-mnist-")
