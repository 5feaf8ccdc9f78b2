"""Copy output to rotated files, and find messages and errors in its last bytes."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Iterable, Sequence

#: Size of the pipes, so that programs can write in bursts. Linux allows this size to every user.
PIPE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 16
#: Bytes kept for the failure message, enough for a long traceback.
TAIL_BYTES = 1 << 14
_F_SETPIPE_SZ = 1031  # <fcntl.h>; in Python's fcntl since 3.10

log = logging.getLogger(__name__)


class RotatedFile:
    """Log file with rotation: a full file moves to `NAME.1`, `NAME.1` to `NAME.2`, ...

    The content is copied and the file truncated, so that the inode stays valid for `tail -f`, Mesos' file API and
    inherited descriptors. Nothing is lost, because no other process writes. If the file was removed, the next output
    goes to a new file; if it was renamed, after the next rotation.

    The executor may be root, and the folder may belong to the program's user. So the folder is opened once, before the
    program starts, files are only created in it, and no link is followed.
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
        """Append `data`; a backup ends with a line if possible. Raises OSError."""
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

    The bytes from an offset on were written at that time, or before the next line's. A full index forgets every second
    line of its older half.
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
        """`descriptor`: the executor's own stream, which replaces `path` if it is a pipe."""
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._file = RotatedFile(path, limit, backups) if regular else InheritedFile(descriptor)
        self._times = OutputTimes(path.with_name(path.name + TIMES_SUFFIX)) if regular else None
        self._reader, self.writer = os.pipe()
        _enlarge(self.writer)
        #: Number of bytes until now, and up to TAIL_BYTES of the last output; replaced as a whole.
        self.recent = (0, b"")
        #: Time of the last output (time.monotonic), initially of the start.
        self.last = time.monotonic()
        self._lost = 0
        self._thread = threading.Thread(target=self._copy, name=path.name, daemon=True)
        self._thread.start()

    @property
    def tail(self) -> bytes:
        """Up to TAIL_BYTES of the last output."""
        return self.recent[1]

    def finish(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for all output of processes that have exited."""
        os.close(self.writer)
        self._thread.join(timeout)
        if self._lost:
            log.warning("%s: %s bytes of output lost", self._thread.name, self._lost)

    def _copy(self) -> None:
        while True:
            chunk = os.read(self._reader, CHUNK_BYTES)
            if not chunk:
                break
            self.last = time.monotonic()
            total, tail = self.recent
            self.recent = (total + len(chunk), (tail + chunk)[-TAIL_BYTES:])
            self._write(chunk)
        os.close(self._reader)
        self._file.close()
        if self._times is not None:
            self._times.close()

    def _write(self, chunk: bytes) -> None:
        """Write output; a full disk loses output but does not stop the program."""
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


# Excerpt: the last lines for a status message, short and without secrets.

#: Maximum bytes of each stream. Mesos keeps messages in the master's memory and shows them in tables.
STDERR_BYTES, STDOUT_BYTES = 400, 200
REDACTED = "***"
#: Shorter secrets are not redacted: they would hide half of every text.
_MIN_SECRET = 4
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
#: Python's markers below a line of a traceback.
_MARKERS = re.compile(r"[\^~ ]+")
_SEPARATOR = " | "
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def output_excerpt(stderr: bytes, stdout: bytes, secrets: Iterable[str], cut_off: int) -> str:
    """Return `; stderr: ... | ...; stdout: ...`, or an empty string.

    Streams of at least `cut_off` bytes are assumed to be truncated at the beginning.
    """
    values = [secret for secret in secrets if len(secret) >= _MIN_SECRET]
    excerpts = [
        (name, excerpt(data, values, size, len(data) >= cut_off))
        for name, data, size in (("stderr", stderr, STDERR_BYTES), ("stdout", stdout, STDOUT_BYTES))
    ]
    return "".join(f"; {name}: {text}" for name, text in excerpts if text)


def excerpt(data: bytes, secrets: Sequence[str], size: int, is_truncated: bool) -> str:
    """Return the last lines of `data`, up to `size` bytes, joined by ` | `."""
    lines = (line.strip() for line in _displayed_lines(data, secrets, is_truncated))
    return _last_bytes(_SEPARATOR.join(line for line in lines if not _MARKERS.fullmatch(line)), size)


def _displayed_lines(data: bytes, secrets: Sequence[str], is_truncated: bool) -> list[str]:
    """Return the lines without blank ones, as a terminal displays them."""
    text = redact(data.decode("utf-8", "replace"), secrets)
    if is_truncated:
        text = _drop_first_line(text, secrets)
    return [shown for line in text.split("\n") if (shown := _as_displayed(line))]


def redact(text: str, secrets: Sequence[str]) -> str:
    """Replace each secret, the longest first, and each line of a multi-line secret."""
    parts = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _MIN_SECRET:
            text = text.replace(part, REDACTED)
    return text


def _drop_first_line(text: str, secrets: Sequence[str]) -> str:
    """Drop the first line, which may begin inside a secret that was not recognised."""
    first, newline, rest = text.partition("\n")
    return rest if newline else first[max(map(len, secrets), default=0) :]


def _as_displayed(line: str) -> str:
    """Return the line as a terminal displays it: no colours, no overwritten text."""
    visible = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return _CONTROL.sub("", visible).rstrip()


def _last_bytes(text: str, size: int) -> str:
    data = text.encode()
    if len(data) <= size:
        return text
    kept = data[len(data) + 3 - size :].decode("utf-8", "ignore")
    # Begin with a complete line if that keeps more than half.
    _part, separator, rest = kept.partition(_SEPARATOR)
    return "..." + (rest if separator and len(rest) > len(kept) // 2 else kept)


# Error: the end of the last traceback, for the scheduler to compare the ends of launches.

#: Maximum characters of the first and of the last line of an exception, and of a path.
_LINE_CHARACTERS, _PATH_CHARACTERS = 400, 100
_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(.+)", line (\d+)')
#: Tracebacks of finalizers do not end a program.
_IGNORED = "Exception ignored "
#: Files of Python, of installed packages and of the executor: not the user's program.
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python[\d.]+/|^<frozen |/\.tf_executor/")
#: Lines of loggers (logging, glog), which may follow a traceback.
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d |[IWE]\d{4,8} ")


def error_of(stderr: bytes, secrets: Iterable[str], sandbox: str) -> str:
    """Return what ended a program: `ModuleNotFoundError: ... (train.py line 3)`.

    The first and last line of the exception, with the innermost line of the user's program. Without a traceback: the
    last line. Empty without output.
    """
    values = [secret for secret in secrets if len(secret) >= _MIN_SECRET]
    lines = _displayed_lines(stderr, values, len(stderr) >= TAIL_BYTES)
    if not lines:
        return ""
    first, location = _exception(lines, sandbox.rstrip("/") + "/")
    end = next((n for n, line in enumerate(lines) if n > first and line.startswith(_IGNORED)), len(lines))
    last = next((line for line in reversed(lines[first:end]) if not _LOGGED.match(line)), lines[-1])
    shown = [_middle_cut(text.strip()) for text in dict.fromkeys((lines[first], last))]
    text = " ... ".join(shown) + location
    return "".join(character if character.isprintable() else " " for character in text)


def _exception(lines: Sequence[str], sandbox: str) -> tuple[int, str]:
    """Return the index of the exception's first line, and ` (FILE line N)` if known.

    A SyntaxError of the program has no header, and that of a long traceback may be cut off.
    """
    last = len(lines) - 1
    headers = [
        number
        for number, line in enumerate(lines)
        if line == _HEADER and not (number and lines[number - 1].startswith(_IGNORED))
    ]
    begin = headers[-1] + 1 if headers else next((n for n, line in enumerate(lines) if _FRAME.match(line)), last)
    first = next((n for n, line in enumerate(lines[begin:], begin) if not line.startswith(" ")), last)
    frames = [frame for line in lines[begin:first] if (frame := _FRAME.match(line))]
    own = [frame for frame in frames if not _LIBRARY.search(frame[1])]
    if not own:
        return first, ""
    path = own[-1][1]
    path = path[len(sandbox) :] if path.startswith(sandbox) else path
    return first, f" ({path[-_PATH_CHARACTERS:]} line {own[-1][2]})"


def _middle_cut(text: str) -> str:
    half = _LINE_CHARACTERS // 2
    return text if len(text) <= _LINE_CHARACTERS else f"{text[: half - 3]}...{text[-half:]}"
