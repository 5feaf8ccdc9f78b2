"""Run commands of users in a running task (`dcos tensorflow exec`).

    MESSAGE -> code and id checked -> the command in its own session -> output and exit status in EXEC_FOLDER

The result is a file, which the scheduler reads through the agent as it reads logs.
"""

from __future__ import annotations

import logging
import os
import select
import shlex
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Optional, Sequence

from tf_executor.contract.payload import EXEC_FOLDER, ExecRequest, PayloadError
from tf_executor.contract.reports import MAX_EXEC_OUTPUT, ExecReport, TaskEnd
from tf_executor.process.last_output import redact
from tf_executor.process.supervisor import SpawnError
from tf_executor.process.temporary import replace_file

#: Maximum number of commands at the same time, and of kept results.
MAX_RUNNING, MAX_KEPT = 4, 16
#: Seconds to wait for the output of processes that a command leaves in other sessions.
_SETTLE = 0.5
#: Seconds between two looks whether a command without output has ended.
_INTERVAL = 0.1
_CHUNK = 1 << 16

#: Runs a command line with descriptors for stdout and stderr and a timeout. None: it was killed after the timeout.
RunLine = Callable[[str, int, int, float], Optional[TaskEnd]]

log = logging.getLogger(__name__)


def make_folder(sandbox: str) -> None:
    """Make the folder of results, which only the executor's user may enter.

    The folder's existence shows that this executor supports commands of users.
    """
    with suppress(OSError):
        (Path(sandbox) / EXEC_FOLDER).mkdir(0o700)


class UserCommands:
    """Commands of users in one task. Thread-safe."""

    def __init__(self, key: str, task_id: str, sandbox: str, run: RunLine, secrets: Callable[[], list[str]]) -> None:
        """`secrets`: values to hide in output."""
        self._key, self._task_id = key, task_id
        self._folder = Path(sandbox) / EXEC_FOLDER
        self._run, self._secrets = run, secrets
        self._lock = threading.Lock()
        #: Ids of all requests of the launch, against replays.
        self._seen: set[str] = set()
        self._running: dict[str, threading.Thread] = {}

    def receive(self, message: bytes) -> None:
        """Run the command of a message; ignore a message not from the scheduler."""
        try:
            request = ExecRequest.decode(message, self._key, self._task_id)
        except PayloadError as error:
            log.warning("command ignored: %s", error)
            return
        with self._lock:
            if request.id in self._seen:
                log.warning("command %s ignored: a repeated message", request.id)
                return
            self._seen.add(request.id)
            is_full = len(self._running) >= MAX_RUNNING
            if not is_full:
                thread = threading.Thread(target=self._execute, args=(request,), name="command", daemon=True)
                self._running[request.id] = thread
                thread.start()
        if is_full:
            self._write(request.id, ExecReport(error=f"{MAX_RUNNING} commands run in this task already"))

    def settle(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for the results of commands that have ended."""
        end = time.monotonic() + timeout
        with self._lock:
            threads = list(self._running.values())
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _execute(self, request: ExecRequest) -> None:
        log.info("command %s: %s arguments", request.id, len(request.command) - 1)
        try:
            report = self._report(request)
        except (OSError, ValueError, SpawnError) as error:
            report = ExecReport(error=f"cannot run the command: {error}")
        log.info("command %s: exit code %s, signal %s", request.id, report.exit_code, report.signal)
        try:
            self._write(request.id, report)
        finally:
            with self._lock:
                del self._running[request.id]

    def _report(self, request: ExecRequest) -> ExecReport:
        streams = [_Capture(), _Capture()]
        try:
            line = f"exec {shlex.join(request.command)}"
            ending = self._run(line, streams[0].writer, streams[1].writer, request.timeout)
        finally:
            for stream in streams:
                stream.finish()
        secrets = self._secrets()
        texts = [stream.text(secrets) for stream in streams]
        cut = any(stream.is_cut for stream in streams) or None
        if ending is None:
            return ExecReport(timed_out=True, cut=cut, stdout=texts[0], stderr=texts[1])
        return ExecReport(ending.exit_code, ending.signal, cut=cut, stdout=texts[0], stderr=texts[1])

    def _write(self, name: str, report: ExecReport) -> None:
        """Write a result atomically, and remove the oldest results."""
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(folder).st_uid != os.geteuid():
                    raise OSError(f"{EXEC_FOLDER} belongs to another user")
                replace_file(name, report.encode(), None, folder)
                _remove_oldest(folder)
            finally:
                os.close(folder)
        except OSError as error:
            log.warning("result of command %s is lost: %s", name, error)


class _Capture:
    """The first bytes of an output stream; the rest is read and dropped."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._data = bytearray()
        self.is_cut = False
        self._end: float | None = None
        self._thread = threading.Thread(target=self._copy, name="command output", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        os.close(self.writer)
        self._end = time.monotonic() + _SETTLE
        self._thread.join()

    def text(self, secrets: Sequence[str]) -> str:
        text = redact(self._data.decode("utf-8", "replace"), secrets)
        # The last characters may be the begin of a secret.
        return text[: -max(map(len, secrets))] if self.is_cut and secrets else text

    def _copy(self) -> None:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        while self._end is None or time.monotonic() < self._end:
            if poll.poll(_INTERVAL * 1000):
                chunk = os.read(self._reader, _CHUNK)
                if not chunk:
                    break
                self.is_cut = self.is_cut or len(self._data) + len(chunk) > MAX_EXEC_OUTPUT
                self._data += chunk[: MAX_EXEC_OUTPUT - len(self._data)]
        os.close(self._reader)


def _remove_oldest(folder: int) -> None:
    def age(name: str) -> float:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime

    for name in sorted(os.listdir(folder), key=age)[:-MAX_KEPT]:
        os.unlink(name, dir_fd=folder)
