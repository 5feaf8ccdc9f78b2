"""Copy output to rotated files, and keep its last bytes."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

#: Size of the pipes, so that programs can write in bursts. Linux allows this size to every user.
PIPE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16
#: Bytes kept for the failure message, enough for a long traceback.
TAIL_BYTES = 1 << 14
#: First bytes kept of a longer traceback, and the seconds in which Python writes the whole of it.
TRACEBACK_BYTES, _TRACEBACK_SECONDS = 1 << 13, 10.0
_TRACEBACK = b"Traceback (most recent call last):"
_F_SETPIPE_SZ = 1031  # <fcntl.h>; in Python's fcntl since 3.10

log = logging.getLogger(__name__)


class RotatedFile:
    """Log file with rotation: a full file becomes `NAME.1`, then `NAME.2`, and so on.

    The content is copied and the file truncated, so that the inode stays valid for `tail -f`, Mesos' file API and
    inherited descriptors. Nothing is lost, because no other process writes. If the file was removed, the next output
    goes to a new file. If the file was renamed, output goes to a new file after the next rotation.

    The executor may be root, and the folder may belong to the program's user. So the executor opens the folder once,
    before the program starts, creates files only in this folder, and follows no link.
    """

    _CREATE = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    _OUTPUT = os.O_RDWR | os.O_APPEND | _CREATE

    def __init__(self, path: Path, limit: int, backups: int) -> None:
        self._name, self._limit, self._backups = path.name, max(1, limit), backups
        self._folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(self._name, dir_fd=self._folder, follow_symlinks=False).st_mode):
                # A link or a pipe, which the job's archive may contain.
                os.unlink(self._name, dir_fd=self._folder)
        self._file = self._open(self._name, self._OUTPUT)
        self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        """Append `data`; rotate at the end of a line if possible. Raises OSError."""
        if not os.fstat(self._file).st_nlink and self._renew():
            self._size = 0
        while self._size + len(data) > self._limit:
            space = max(0, self._limit - self._size)
            cut = data.rfind(b"\n", 0, space) + 1
            if not cut and not self._size:
                cut = space or len(data)
            self._append(data[:cut])
            data = data[cut:]
            self._rotate()
        self._append(data)

    @property
    def size(self) -> int:
        """Bytes since the last rotation."""
        return self._size

    def replace(self, data: bytes) -> None:
        """Replace the content. Raises OSError."""
        os.ftruncate(self._file, 0)
        self._size = 0
        self.write(data)

    def close(self) -> None:
        os.close(self._file)
        os.close(self._folder)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags, 0o644, dir_fd=self._folder)

    def _append(self, data: bytes) -> None:
        while data:
            written = os.write(self._file, data)
            self._size += written
            data = data[written:]

    def _rotate(self) -> None:
        for number in range(self._backups - 1, 0, -1):
            # Renames follow no link. They fail if a backup is missing, or if the program put a folder in its place.
            with suppress(OSError):
                old, new = self._backup(number), self._backup(number + 1)
                os.replace(old, new, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        if self._backups:
            try:
                self._copy_to(self._backup(1))
            except OSError as error:
                log.warning("%s: output is not kept: %s", self._backup(1), error)
        if not self._renew():
            os.ftruncate(self._file, 0)
        self._size = 0

    def _copy_to(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)
        backup = self._open(name, os.O_WRONLY | self._CREATE | os.O_EXCL)
        try:
            copied = 0
            # Not by name: the program may have removed or renamed the file.
            while part := os.sendfile(backup, self._file, copied, PIPE_BYTES):
                copied += part
        finally:
            os.close(backup)

    def _renew(self) -> bool:
        """Create the file again if it was removed or renamed; return whether it was."""
        try:
            # Fails if the name exists: as this file, or as another one of the program's user.
            new = self._open(self._name, self._OUTPUT | os.O_EXCL)
        except OSError:
            return False
        status = os.fstat(self._file)
        with suppress(OSError):
            os.fchown(new, status.st_uid, status.st_gid)
        os.close(self._file)
        self._file = new
        return True

    def _backup(self, number: int) -> str:
        return f"{self._name}.{number}"


#: Suffix of the index of an output file, and its maximum number of lines: one read of Mesos returns them all.
TIMES_SUFFIX, _MAX_TIMES = ".times", 2048
#: Minimum seconds between two lines of the index.
_TIMES_INTERVAL = 0.25


class OutputTimes:
    """Index of an output file: lines `OFFSET UNIX_TIME`, to show output by time.

    The bytes from an offset on were written at the time in this line, or later but before the time in the next line. A
    full index drops every second line of its older half.
    """

    def __init__(self, path: Path) -> None:
        self._file = RotatedFile(path, 1 << 30, 0)
        self._file.replace(b"")
        self._lines: list[str] = []
        self._due = 0.0

    def add(self, offset: int, now: float) -> None:
        """Note the time of output from `offset` on (0: file rotated). Raises OSError."""
        if offset and now < self._due:
            return
        self._due = now + _TIMES_INTERVAL
        line = f"{offset} {now:.2f}\n"
        if offset and len(self._lines) < _MAX_TIMES:
            self._lines.append(line)
            self._file.write(line.encode())
            return
        half = len(self._lines) // 2
        self._lines = [*self._lines[:half:2], *self._lines[half:], line] if offset else [line]
        self._file.replace("".join(self._lines).encode())

    def close(self) -> None:
        self._file.close()


class InheritedFile:
    """Descriptor of Mesos' LogrotateContainerLogger, which rotates the files itself."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Keep the executor's own stdout or stderr open."""


class Output:
    """One output stream; file errors never block processes that write to `writer`."""

    def __init__(self, path: Path, descriptor: int, limit: int, backups: int) -> None:
        """`descriptor`: the executor's own stream; a pipe is used in place of `path`."""
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._file = RotatedFile(path, limit, backups) if regular else InheritedFile(descriptor)
        self._times = OutputTimes(path.with_name(path.name + TIMES_SUFFIX)) if regular else None
        self._reader, self.writer = os.pipe()
        _enlarge(self.writer)
        #: Time of the last output (time.monotonic), initially of the start.
        self.last = time.monotonic()
        #: Number of bytes until now, up to TAIL_BYTES of the last output, its time; replaced as a whole.
        self.recent = (0, b"", self.last)
        #: First bytes of the last traceback that begins before the tail, and its time.
        self._traceback, self._traceback_at = b"", self.last
        self._lost = 0
        self._thread = threading.Thread(target=self._copy, name=path.name, daemon=True)
        self._thread.start()

    @property
    def tail(self) -> bytes:
        """Up to TAIL_BYTES of the last output."""
        return self.recent[1]

    @property
    def traceback(self) -> bytes:
        """First bytes of a traceback that begins before the tail and ends the output."""
        return self._traceback if self.last < self._traceback_at + _TRACEBACK_SECONDS else b""

    def finish(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for all output of processes that have exited."""
        os.close(self.writer)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("%s: the last output may be lost: not written within %s s", self._thread.name, timeout)
        if self._lost:
            log.warning("%s: %s bytes of output lost", self._thread.name, self._lost)

    def _copy(self) -> None:
        while True:
            chunk = os.read(self._reader, CHUNK_BYTES)
            if not chunk:
                break
            self.last = time.monotonic()
            total, tail, _ = self.recent
            data = tail + chunk
            self.recent = (total + len(chunk), data[-TAIL_BYTES:], self.last)
            self._keep_traceback(data, len(data) - TAIL_BYTES)
            self._write(chunk)
        os.close(self._reader)
        self._file.close()
        if self._times is not None:
            self._times.close()

    def _keep_traceback(self, data: bytes, dropped: int) -> None:
        """Keep the first bytes of the last traceback that is in `data[:dropped]`."""
        if dropped <= 0:
            return
        begin = data.rfind(_TRACEBACK, 0, dropped + len(_TRACEBACK) - 1)
        if begin >= 0:
            self._traceback, self._traceback_at = data[begin:dropped][:TRACEBACK_BYTES], self.last
        elif self._traceback:
            self._traceback += data[: min(dropped, TRACEBACK_BYTES - len(self._traceback))]

    def _write(self, chunk: bytes) -> None:
        """Write output. On a full disk output is lost, but the program continues."""
        try:
            if isinstance(self._file, RotatedFile) and self._times is not None:
                before = self._file.size
                self._file.write(chunk)
                is_rotated = self._file.size < before + len(chunk)
                self._times.add(0 if is_rotated else before, time.time())
            else:
                self._file.write(chunk)
        except OSError as error:
            if not self._lost:
                log.warning("%s: cannot write, output is lost: %s", self._thread.name, error)
            self._lost += len(chunk)


def _enlarge(descriptor: int) -> None:
    try:
        fcntl.fcntl(descriptor, _F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        log.info("cannot enlarge the output pipe; using the default size")
