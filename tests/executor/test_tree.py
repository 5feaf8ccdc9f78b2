"""Signals reach only processes of the task."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tf_executor.process import tree
from tf_executor.process.tree import descendants, signal_descendants


class Shell:
    """A shell with one child, whose id it prints."""

    def __init__(self, stack: ExitStack) -> None:
        command = ["/bin/sh", "-c", "sleep 1000 & echo $!; wait"]
        self.process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(self.process.kill)
        assert self.process.stdout is not None
        self.child = int(self.process.stdout.readline())
        self.exits = os.pidfd_open(self.child)
        stack.callback(os.close, self.exits)
        stack.callback(self._kill_child)

    def _kill_child(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.exits, signal.SIGKILL)

    def child_has_exited(self, timeout: float = 20.0) -> bool:
        return bool(select.select([self.exits], [], [], timeout)[0])


@pytest.fixture
def shells() -> Iterator[tuple[Shell, Shell]]:
    with ExitStack() as stack:
        yield Shell(stack), Shell(stack)


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_id_of_another_process_is_not_signalled(
    shells: tuple[Shell, Shell], has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the scan of /proc and the signal, an id may be given to any process."""
    if not has_descriptors:
        monkeypatch.setattr(tree, "_open_process", lambda pid: None)
    own, stranger = shells
    assert [own.child] == descendants(own.process.pid)
    gone = subprocess.Popen(["true"])
    gone.wait()

    signal_descendants(own.process.pid, [stranger.child, gone.pid, own.child], signal.SIGKILL)

    assert own.child_has_exited()
    assert not stranger.child_has_exited(0.0)


def test_condition_is_checked_again(shells: tuple[Shell, Shell]) -> None:
    own, _ = shells
    signal_descendants(own.process.pid, [own.child], signal.SIGKILL, lambda pid: pid != own.child)
    assert not own.child_has_exited(0.0)


def test_kernel_without_descriptors_is_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.8, and Linux before 5.3."""
    monkeypatch.delattr(os, "pidfd_open")
    assert tree._open_process(os.getpid()) is None
