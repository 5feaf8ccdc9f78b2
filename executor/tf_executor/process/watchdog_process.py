"""Wait for the executor's exit, then kill its processes and remove its folders.

Runs as the process that `watchdog` starts; imports little, to use little memory.
"""

from __future__ import annotations

import os
import sys
import time

_SIGKILL = 9  # importing signal would double the memory
_SCANS, _SCAN_INTERVAL = 100, 0.05  # seconds: killed processes exit late, and may have forked before
#: Ends each path.
END = b"\0"
#: Errors of entries that are kept: without permission, or nested too deep.
_KEPT_ON = (OSError, RecursionError)


def main() -> None:
    """Read paths from stdin to its end; then kill marked processes and remove paths.

    A process is marked if its environment contains all arguments, which are NAME=VALUE.
    """
    data = b""
    while True:
        part = os.read(0, 4096)
        if not part:
            break
        data += part
    _kill_all(set(map(os.fsencode, sys.argv[1:])))
    for path in data.split(END)[:-1]:
        remove_folder(os.fsdecode(path))


def _kill_all(marks: set[bytes]) -> None:
    for _ in range(_SCANS):
        pids = [pid for pid in _processes() if marks and marks <= _environment(pid)]  # no marks would match all
        if not pids:
            return
        for pid in pids:
            _kill(pid)
        time.sleep(_SCAN_INTERVAL)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - without pathlib


def _environment(pid: int) -> set[bytes]:
    """Return a process's environment; empty if exited or of another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return set(file.read().split(b"\0"))
    except OSError:
        return set()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, _SIGKILL)
    except ProcessLookupError:
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
