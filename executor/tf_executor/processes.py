"""What Linux offers to keep hold of a process tree: prctl, /proc, and signals."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Any, Callable, Iterator

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

#: Python ignores these itself, and subprocess resets them.
_OF_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
#: To whom these come by default notices nothing. While SIGCHLD is ignored, nobody could wait for a process (wait(2)).
_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}

_LIBC = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Processes below us whose parent ends become our children, not those of init. Raise OSError if refused."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def hide_environment() -> None:
    """Other processes of our user cannot read our memory, nor /proc/PID/environ, where the agent's token stays.

    The user's program is one of them, unless it runs as root.
    """
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def start_with_usual_signals() -> None:
    """What we start gets every signal as a terminal's programs do, whoever has started us. Before the first fork.

    A signal that is ignored, as by nohup, or blocked, stays so in every program after exec (signal(7), execve(2)): a
    shell could not even set a trap. One that has a handler is reset by exec, and we go on although it comes.
    """
    for number in signal.valid_signals() - _OF_PYTHON:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if number in _HARMLESS else _nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _nothing(number: int, frame: Any) -> None:
    """Handles what was ignored."""


def die_with_parent() -> Callable[[], None]:
    """For `preexec_fn`: the child gets SIGKILL when the calling THREAD ends (prctl(2)), so call it from one that stays.

    What runs between fork and exec calls one C function that is loaded already and takes no lock of ours.
    """
    parent = os.getpid()

    def in_child() -> None:
        # Only ours is hidden. Python itself reads /proc/self/fd before it executes the program.
        _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return in_child


def descendants(root: int) -> list[int]:
    """Process ids of all processes below `root`, parents before their children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(entry), []).append(int(entry.name))
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        found += below
        pending += below
    return found


def _parent(entry: Path) -> int:
    """Parent of a /proc entry; 0 when it has gone meanwhile."""
    try:
        text = (entry / "stat").read_text(errors="replace")
    except OSError:
        return 0
    # The name, in brackets, may hold anything, brackets too; state and parent follow its last one (proc(5)).
    return int(text.rpartition(")")[2].split()[1])


def open_files(pid: int) -> Iterator[tuple[int, int]]:
    """Device and inode of each file that a process has open; none when it has gone, or is another user's."""
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            found = entry.stat()
        except OSError:
            continue  # closed meanwhile
        yield found.st_dev, found.st_ino


def signal_process(pid: int, number: int) -> None:
    """Send it; a process that has gone or is another user's is none of our business."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal; False when it has gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return False
    # A mask in hexadecimal digits, signal 1 first (proc(5)).
    caught = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


def signal_group(group: int, number: int) -> None:
    """The same for a whole process group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
