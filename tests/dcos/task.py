"""One task of an app: its sandbox, fetched files and process."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mesos_local.host import MARK, ProcessId
from mesos_local.node import environment as node_environment
from mesos_local.node import node_command

from .app import App, task_environment

#: Where tasks run and can be reached; also the address of the server.
HOST = os.environ.get("LOCAL_DCOS_HOST", "127.0.0.1")
#: Exit code of what SIGTERM ended, as a shell has it.
_TERMINATED = 143
#: Number and length of the output lines in the message about a task that exited by itself.
_LINES, _LONGEST = 5, 300


@dataclass(frozen=True, slots=True)
class Place:
    """A task's place. `mark`: cluster folder, by which cleanup finds processes.

    `given`: variables that the task gets besides those of its app, which are kept nowhere.
    """

    task_id: str
    sandbox: Path
    ports: Sequence[int]
    mark: Path
    given: Mapping[str, str] = field(default_factory=dict, repr=False)


class Task:
    """A started task; another thread calls `on_end` with its exit code (or -signal).

    What cannot be fetched or started is an exit code as well; the sandbox's stderr says why.
    """

    def __init__(self, app: App, place: Place, started_at: float, on_end: Callable[[int], None]) -> None:
        self.app, self.place, self.started_at = app, place, started_at
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._killed = False
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name=f"task {place.task_id}", daemon=True)
        place.sandbox.mkdir(mode=0o700, parents=True)
        self._thread.start()

    @property
    def process(self) -> ProcessId | None:
        """The process, or None before the command has started."""
        return None if self._process is None else ProcessId.of(self._process.pid)

    def kill(self) -> None:
        """Send SIGTERM to all its processes, SIGKILL after the grace period, and wait."""
        with self._lock:
            self._killed = True
        self._signal(signal.SIGTERM)
        self._thread.join(self.app.kill_grace)
        if self._thread.is_alive():
            self._signal(signal.SIGKILL)
            self._thread.join()

    def last_words(self, code: int) -> str:
        """Describe the end by exit code and last lines of the newer output file."""
        with suppress(OSError):
            files = [self.place.sandbox / name for name in ("stderr", "stdout")]
            newest = max(files, key=lambda file: file.stat().st_mtime_ns)
            lines = newest.read_text(errors="replace").splitlines()[-_LINES:]
            return "\n".join([f"Command exited with status {code}", *(line[:_LONGEST] for line in lines)])
        return f"Command exited with status {code}"

    def _signal(self, number: int) -> None:
        with self._lock:
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, number)  # a session of its own: see _start

    def _run(self) -> None:
        code = self._fetch() or self._start()
        self._on_end(code)

    def _fetch(self) -> int:
        left = [item for item in self.app.definition["fetch"] if not copied(item, self.place.sandbox, self.app.user)]
        if not left:
            return 0
        info = fetcher_info(left, self.place.sandbox, self.app.user)
        variables = {**node_environment(self.place.mark), "MESOS_FETCHER_INFO": json.dumps(info)}
        return self._wait(node_command("fetcher"), variables, None)

    def _start(self) -> int:
        place = self.place
        own = task_environment(self.app, place.task_id, HOST, place.ports, str(place.sandbox))
        variables = {"PATH": os.environ.get("PATH", os.defpath), **place.given, **own, MARK: str(place.mark)}
        return self._wait(["/bin/sh", "-c", self.app.command], variables, self.app.user)

    def _wait(self, command: Sequence[str], variables: Mapping[str, str], user: str | None) -> int:
        try:
            process = self._launch(command, variables, user)
        except (OSError, LookupError) as error:
            with (self.place.sandbox / "stderr").open("a") as log:
                log.write(f"cannot start as {user}: {error}\n")
            return 1
        return _TERMINATED if process is None else _ended(process)

    def _launch(
        self, command: Sequence[str], variables: Mapping[str, str], user: str | None
    ) -> subprocess.Popen[bytes] | None:
        """Start the process; None if it was killed before."""
        owner = _owner(user, self.place.sandbox)
        sandbox = self.place.sandbox
        with (sandbox / "stdout").open("ab") as out, (sandbox / "stderr").open("ab") as err, self._lock:
            if self._killed:
                return None
            self._process = subprocess.Popen(
                command,
                cwd=sandbox,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                user=owner.uid,
                group=owner.gid,
                extra_groups=owner.groups,
            )
            return self._process


def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code, after the rest of its process group is killed, as in a container."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # not reaped yet: its id is still its own
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def copied(item: Mapping[str, object], sandbox: Path, user: str | None) -> bool:
    """Copy a plain local file to the sandbox; False for URIs that need the fetcher.

    What goes wrong is left to the fetcher, which tells it.
    """
    uri, name = urlsplit(str(item["uri"])), str(item.get("destPath") or "")
    plain = uri.scheme == "file" and not item.get("extract", True) and not item.get("executable", False)
    if not plain or uri.netloc not in ("", "localhost") or Path(name).name != name or not name:
        return False
    try:
        shutil.copyfile(unquote(uri.path), sandbox / name)
        if user is not None and os.geteuid() == 0:
            shutil.chown(sandbox / name, user)
    except (OSError, LookupError):
        return False
    return True


def fetcher_info(fetch: Sequence[Mapping[str, object]], sandbox: Path, user: str | None) -> dict[str, object]:
    """Mesos' FetcherInfo of an app's `fetch`."""
    items = [
        {
            "action": "BYPASS_CACHE",
            "uri": {
                "value": item["uri"],
                "extract": item.get("extract", True),
                "executable": item.get("executable", False),
                **({"output_file": item["destPath"]} if item.get("destPath") else {}),
            },
        }
        for item in fetch
    ]
    return {"sandbox_directory": str(sandbox), "items": items, **({"user": user} if user else {})}


@dataclass(frozen=True, slots=True)
class _Owner:
    """User and group of the task; None: those of this process."""

    uid: int | None = None
    gid: int | None = None
    groups: list[int] | None = None


def _owner(user: str | None, sandbox: Path) -> _Owner:
    """Return the task's user; only root can switch. Raises KeyError if unknown."""
    if user is None or os.geteuid() != 0:
        return _Owner()
    entry = pwd.getpwnam(user)
    os.chown(sandbox, entry.pw_uid, entry.pw_gid)
    return _Owner(entry.pw_uid, entry.pw_gid, os.getgrouplist(user, entry.pw_gid))
