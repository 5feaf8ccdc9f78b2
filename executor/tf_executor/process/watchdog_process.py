"""Wait for the executor's exit, then kill its processes and remove its folders.

Runs as the process that `watchdog` starts; imports little, to use little memory.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import sys
import time

_SIGKILL = 9  # importing signal would double the memory
_SCANS, _SCAN_INTERVAL = 100, 0.05  # seconds: killed processes exit late, and may have forked before
_BATCH = 500  # processes, each with a descriptor
#: Ends each entry: a path, a session, or a process.
END = b"\0"
#: Errors of entries that are kept: without permission, or nested too deep.
_KEPT_ON = (OSError, RecursionError)


def main() -> None:
    """Read entries from stdin until its end; then kill the task and remove folders.

    Kills these processes: all whose environment contains every argument (NAME=VALUE), all of the last session entry,
    those of process entries, and all descendants of these. The leader of an earlier session has exited. So another
    session may have its id by now, and an earlier session is not killed.
    """
    data = b""
    while True:
        part = os.read(0, 4096)
        if not part:
            break
        data += part
    entries = data.split(END)[:-1]
    pairs = [entry.split() for entry in entries if not entry.startswith(b"/")]
    last = [pair for pair in pairs if not pair[0].startswith(b"+")][-1:]
    _kill_all(set(map(os.fsencode, sys.argv[1:])), dict(last + [pair for pair in pairs if pair[0].startswith(b"+")]))
    for path in entries:
        if path.startswith(b"/"):
            remove_folder(os.fsdecode(path))


def session_entry(leader: int) -> str:
    """Return the entry of a session: the id and the start time of its leader."""
    return f"{leader} {_stat(leader)[3].decode()}"


def process_entry(pid: int, start_time: int) -> str:
    """Return the entry of a process to kill, in any session and with any environment."""
    return f"+{pid} {start_time}"


def _kill_all(marks: set[bytes], sessions: dict[bytes, bytes]) -> None:
    for _ in range(_SCANS):
        pids = _find(marks, sessions)
        if not pids:
            return
        pinned = {pid: _open_process(pid) for pid in pids[:_BATCH]}
        # An id may belong to another process by now.
        again = set(_find(marks, sessions))
        for pid, process in pinned.items():
            if pid in again:
                _kill(pid, process)
            if process is not None:
                os.close(process)
        time.sleep(_SCAN_INTERVAL)


def _find(marks: set[bytes], sessions: dict[bytes, bytes]) -> list[int]:
    """Return the processes of the task."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - without pathlib
    stats = {pid: _stat(pid) for pid in pids}

    def is_own(pid: int) -> bool:
        session = stats[pid][2]
        leader = stats.get(int(session))
        # A leader that started at another time leads another session. No new process gets the id while one uses it.
        if session in sessions and (leader is None or leader[3] == sessions[session]):
            return True
        if sessions.get(b"+%d" % pid) == stats[pid][3]:
            return True
        return bool(marks) and marks <= _environment(pid)  # no marks would match all

    own = set(filter(is_own, stats))
    below = own
    while below:
        below = {pid for pid, stat in stats.items() if int(stat[1]) in own} - own
        own |= below
    return [pid for pid in own if stats[pid][0] not in (b"Z", b"X")]


def _stat(pid: int) -> tuple[bytes, bytes, bytes, bytes]:
    """Return state, parent, session and start time (proc(5)); state X if exited."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        return fields[0], fields[1], fields[3], fields[19]
    except OSError:
        return b"X", b"0", b"0", b"0"


def _environment(pid: int) -> set[bytes]:
    """Return a process's environment; empty if exited or of another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def _open_process(pid: int) -> int | None:
    """Return a descriptor; None if exited, or before Linux 5.3 or Python 3.9."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _kill(pid: int, process: int | None) -> None:
    try:
        if process is None:
            os.kill(pid, _SIGKILL)
        else:
            _signal.pidfd_send_signal(process, _SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


# Removing folders.


def remove_folder(path: str) -> None:
    """Remove a folder with its content, as far as possible. Never raises OSError.

    Follows no link, even if another process changes the folder meanwhile, and skips mounts.
    """
    above, name = os.path.split(path)
    try:
        folder = os.open(above, os.O_PATH | os.O_DIRECTORY)
        try:
            _remove_folder(name, folder)
        finally:
            os.close(folder)
    except _KEPT_ON:
        return


def _remove_folder(name: str, above: int) -> None:
    folder = _enter(name, above)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                _remove_entry(entry, folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=above)


def _remove_entry(entry: os.DirEntry[str], folder: int) -> None:
    try:
        if entry.is_dir(follow_symlinks=False):
            _remove_folder(entry.name, folder)
        else:
            os.unlink(entry.name, dir_fd=folder)
    except _KEPT_ON:
        return  # continue with the other entries


def _enter(name: str, above: int) -> int:
    """Open a folder, not a link or mount, and make it accessible to its owner."""
    entry = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        if _mount(entry) != _mount(above):
            raise OSError(f"{name} is a mount")
        os.chmod(f"/proc/self/fd/{entry}", 0o700)  # noqa: PTH101
        return os.open(f"/proc/self/fd/{entry}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(entry)


def _mount(descriptor: int) -> list[bytes]:
    """Return the mount id line (proc(5), fdinfo), the only sign of a bind mount."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:  # noqa: PTH123
        return [line for line in file if line.startswith(b"mnt_id:")]
