"""Control a process tree on Linux with prctl, /proc and signals."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Sequence

# <linux/prctl.h>
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38

#: Machine -> number of the system call setgroups.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}

#: Python ignores these, and subprocess resets them.
_PYTHON_SIGNALS = {signal.SIGPIPE, signal.SIGXFSZ}
#: Signals that are ignored by default. While SIGCHLD is ignored, waitpid fails (wait(2)).
_DEFAULT_IGNORED = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.getenv.restype = ctypes.c_void_p


def become_subreaper() -> None:
    """Adopt orphaned descendants instead of init. Raises OSError if refused."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def hide_environment() -> None:
    """Hide memory and environment (agent's token) from other processes of this user.

    Both are hidden from the user's program, too, unless it runs as root. A forked child stays hidden until it executes
    a program that its user may read (prctl(2)). `os.environ` still has the token.
    """
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    token = _LIBC.getenv(b"MESOS_EXECUTOR_AUTHENTICATION_TOKEN")
    if token is not None:
        # In the block that /proc/PID/environ shows.
        ctypes.memset(token, 0, len(ctypes.string_at(token)))


def forbid_new_privileges() -> None:
    """Disable set-user-id, set-group-id and file capabilities, also in children.

    Raises OSError if refused.
    """
    if _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")


def close_descriptors_on_exec() -> None:
    """Let started programs inherit only stdin, stdout and stderr."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2:
            with suppress(OSError):  # that of the folder is closed
                os.set_inheritable(int(name), False)


def access_files_as(user: int, group: int, groups: Sequence[int]) -> None:
    """Let the calling thread access files as another user; other threads stay root.

    On a machine type that _SETGROUPS lacks, the thread keeps its supplementary groups.
    """
    number = _SETGROUPS.get(os.uname().machine)
    if number is not None:
        # Not os.setgroups, which changes all threads (nptl(7)).
        _LIBC.syscall(number, len(groups), (ctypes.c_uint32 * len(groups))(*groups))
    _LIBC.setfsgid(group)
    _LIBC.setfsuid(user)


def reset_signals() -> None:
    """Make started processes receive all signals. Call it before the first fork.

    Signals that are ignored (for example by nohup) or blocked stay ignored or blocked after exec (signal(7),
    execve(2)): a shell could not even set a trap. So an ignored signal gets a handler here: exec resets the handler,
    and the handler keeps this process alive.
    """
    for number in signal.valid_signals() - _PYTHON_SIGNALS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL if number in _DEFAULT_IGNORED else _discard)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _discard(number: int, frame: Any) -> None:
    """Discard a signal that was ignored before."""


def die_with_parent() -> Callable[[], None]:
    """Return a `preexec_fn` that ties a child's life to the calling thread (prctl(2)).

    When that thread ends, the kernel kills the child; so call this from a thread that lives as long as the executor.
    Between fork and exec, the `preexec_fn` calls only loaded C functions, which take no lock.
    """
    parent = os.getpid()

    def in_child() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # the parent exited before the line above
            os._exit(1)

    return in_child


def descendants(root: int) -> list[int]:
    """Return the ids of all processes below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(entry), []).append(int(entry.name))
    result: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(), [])
        result += below
        pending += below
    return result


def _parent(entry: Path) -> int:
    """Return the parent of a /proc entry, 0 if the process has exited."""
    # The name in parentheses may contain anything; state and parent follow its last parenthesis (proc(5)).
    fields = read_proc(entry / "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def read_proc(path: Path) -> str:
    """Return the content of a file in /proc or /sys; empty if it does not exist."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _descriptors(pid: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield path in /proc and status of each open file; nothing if unreadable."""
    with suppress(OSError):
        for entry in list(Path(f"/proc/{pid}/fd").iterdir()):
            with suppress(OSError):  # closed meanwhile
                yield entry, entry.stat()


def open_files(pid: int) -> Iterator[tuple[int, int]]:
    """Yield device and inode of each open file; nothing if unreadable or exited."""
    return ((status.st_dev, status.st_ino) for _, status in _descriptors(pid))


_LOG = re.compile(r"tfevents|\.(log|csv|txt|jsonl)$")


def written_file(pids: Iterable[int], folder: str) -> str:
    """Return the newest file open for writing, preferably in `folder`, or "".

    Event files and logs do not count: they are open during the whole training.
    """
    files: list[tuple[bool, float, str]] = []
    for entry, status in (each for pid in pids for each in _descriptors(pid)):
        flags = re.search(r"flags:\s+(\d+)", read_proc(entry.parent.with_name("fdinfo") / entry.name))
        path = os.path.realpath(entry)
        is_written = flags is not None and int(flags[1], 8) & os.O_ACCMODE and stat.S_ISREG(status.st_mode)
        if is_written and not _LOG.search(path):
            files.append((path.startswith(folder), status.st_mtime, path))
    return max(files, default=(False, 0.0, ""))[2]


def signal_process(pid: int, number: int) -> None:
    """Signal process `pid` or group -`pid`, unless it is another user's or has exited."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def signal_descendants(root: int, pids: Iterable[int], number: int, condition: Callable[[int], bool] = bool) -> None:
    """Signal those of `pids` that are below `root` and fulfil the condition.

    An id may belong to another process by now. So each process is checked again after a descriptor pins it.
    """
    for pid in pids:
        try:
            process = _open_process(pid)
        except ProcessLookupError:
            continue
        try:
            if not _is_below(pid, root) or not condition(pid):
                continue
            if process is None:
                signal_process(pid, number)
            else:
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(process, number)
        finally:
            if process is not None:
                os.close(process)


def _open_process(pid: int) -> int | None:
    """Return a descriptor of the process; None before Linux 5.3 or Python 3.9."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None


def _is_below(pid: int, root: int) -> bool:
    """Whether a process is below `root`."""
    for _ in range(2):  # the second time finds a process whose parent has just exited
        parent = pid
        while parent > 1:
            parent = _parent(Path(f"/proc/{parent}"))
            if parent == root:
                return True
    return False


def has_signal_handler(pid: int, number: int) -> bool:
    """Return whether the process handles the signal, False if it has exited."""
    text = read_proc(Path(f"/proc/{pid}/status"))
    # Hexadecimal mask, signal 1 in the lowest bit (proc(5)).
    caught = next((line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)
