"""What the guardian's process does, which `guardian` starts: it waits, kills, removes. Imports little, to be small."""

from __future__ import annotations

import os
import sys
import time

_SIGKILL = 9  # the module signal would double what we load
_LOOKS, _PAUSE = 100, 0.05  # seconds: what is killed takes a moment to go, and may have forked before
#: After each path that we are told.
END = b"\0"
#: What is not ours to remove, or is too deep, stays.
_TROUBLE = (OSError, RecursionError)


def main() -> None:
    """Read paths from standard input until it ends; then kill whatever has all of our arguments as entries of its
    environment, and remove what is at those paths.
    """
    told = b""
    while True:
        part = os.read(0, 4096)
        if not part:
            break
        told += part
    _end_all(set(map(os.fsencode, sys.argv[1:])))
    for path in told.split(END)[:-1]:
        remove(os.fsdecode(path))


def _end_all(wanted: set[bytes]) -> None:
    for _ in range(_LOOKS):
        found = [pid for pid in _others() if wanted and wanted <= _environment(pid)]  # nothing fits everybody
        if not found:
            return
        for pid in found:
            _kill(pid)
        time.sleep(_PAUSE)


def _others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is not loaded


def _environment(pid: int) -> set[bytes]:
    """Empty for what has gone meanwhile, or is another user's."""
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


# Removing.


def remove(path: str) -> None:
    """Remove a folder and what is in it, as far as that goes. Never raises OSError.

    No link is followed, whoever changes the folder meanwhile, and nothing is touched that is mounted in it.
    """
    above, name = os.path.split(path)
    try:
        folder = os.open(above, os.O_PATH | os.O_DIRECTORY)
        try:
            _remove_folder(name, folder)
        finally:
            os.close(folder)
    except _TROUBLE:
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
    except _TROUBLE:
        return  # the others shall go all the same


def _enter(name: str, above: int) -> int:
    """A descriptor of a folder that is no link and no mount. Its owner may have taken their own rights to it away."""
    found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    try:
        if _mount(found) != _mount(above):
            raise OSError(f"{name} is mounted")
        os.chmod(f"/proc/self/fd/{found}", 0o700)  # noqa: PTH101
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)


def _mount(descriptor: int) -> list[bytes]:
    """Which mount it is in (proc(5), fdinfo); a folder that is bound to another place is told by this only."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:  # noqa: PTH123
        return [line for line in file if line.startswith(b"mnt_id:")]
