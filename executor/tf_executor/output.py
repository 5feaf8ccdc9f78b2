"""The program's stdout and stderr: carried from a pipe to a file of bounded size; the last bytes are kept in mind."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import threading
import time
from pathlib import Path

#: Of a pipe: a program that writes in bursts need not wait for us. Linux lets everybody have that much.
PIPE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16
#: What the failure message is cut from.
TAIL_BYTES = 4096
_F_SETPIPE_SZ = 1031  # <fcntl.h>; in the module only since Python 3.10

log = logging.getLogger(__name__)


class RotatedFile:
    """A file that is only appended to; when it is full its content moves to `<name>.1`, that of `.1` to `.2`, ...

    The content is copied and the file emptied, so that its inode stays: `tail -f`, `tail -F`, Mesos' file API and a
    descriptor that the agent has given us go on. Nothing is lost, as nobody else writes.
    """

    def __init__(self, path: Path, limit: int, backups: int) -> None:
        self._path, self._limit, self._backups = path, max(1, limit), backups
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Append; a backup ends with a whole line where that is possible. Raise OSError when the disk is full."""
        while self._size + len(data) > self._limit:
            room = max(0, self._limit - self._size)
            cut = data.rfind(b"\n", 0, room) + 1
            if not cut and not self._size:
                cut = room or len(data)
            self._append(data[:cut])
            data = data[cut:]
            self._rotate()
        self._append(data)

    def close(self) -> None:
        os.close(self._file)

    def _append(self, data: bytes) -> None:
        while data:
            written = os.write(self._file, data)
            self._size += written
            data = data[written:]

    def _rotate(self) -> None:
        for number in range(self._backups - 1, 0, -1):
            if self._backup(number).exists():
                self._backup(number).replace(self._backup(number + 1))
        if self._backups:
            shutil.copyfile(self._path, self._backup(1))
        os.ftruncate(self._file, 0)
        self._size = 0

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


class InheritedFile:
    """A descriptor that the agent's container logger reads: it rotates itself (LogrotateContainerLogger)."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """It is the executor's own stdout or stderr."""


class Output:
    """One stream. Give `writer` to the processes; they are never stopped by what happens on our side."""

    def __init__(self, path: Path, descriptor: int, limit: int, backups: int) -> None:
        """`descriptor`: our own stream of that name. A pipe or the like is written to, instead of `path`."""
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._file = RotatedFile(path, limit, backups) if regular else InheritedFile(descriptor)
        self._reader, self.writer = os.pipe()
        _enlarge(self.writer)
        self._tail = b""
        #: When the last of it came (time.monotonic); at first, when it was made.
        self.last = time.monotonic()
        self._lost = 0
        self._thread = threading.Thread(target=self._carry, name=path.name, daemon=True)
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Call when the processes are gone: wait, `timeout` seconds at most, until all output is in the file."""
        os.close(self.writer)
        self._thread.join(timeout)
        if self._lost:
            log.warning("%s: %s bytes of output could not be written", self._thread.name, self._lost)

    def tail(self) -> bytes:
        """The last bytes that came, some thousand at most."""
        return self._tail

    def _carry(self) -> None:
        while True:
            chunk = os.read(self._reader, CHUNK_BYTES)
            if not chunk:
                break
            self.last = time.monotonic()
            self._tail = chunk[-TAIL_BYTES:] if len(chunk) >= TAIL_BYTES else (self._tail + chunk)[-TAIL_BYTES:]
            self._keep(chunk)
        os.close(self._reader)
        self._file.close()

    def _keep(self, chunk: bytes) -> None:
        """A full disk costs output, never the training."""
        try:
            self._file.write(chunk)
        except OSError as error:
            if not self._lost:
                log.warning("%s: %s; output is lost from here on", self._thread.name, error)
            self._lost += len(chunk)


def _enlarge(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        log.info("the system gives no larger pipes; the usual size does as well")
