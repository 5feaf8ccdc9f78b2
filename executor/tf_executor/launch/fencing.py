"""Let only the newest launch of a task use its checkpoint folder.

Two launches of a task can run at the same time. Either Mesos has given up the agent of the older launch, or the
scheduler has lost its state, so that the service has two frameworks. So each launch writes its serial number and time
to `CHECKPOINT_DIR/.dcos-tensorflow/SERVICE.TASK.json`. A launch stops if the file names a newer launch:

- If the launches belong to two frameworks, the newer launch is that of the framework that came to the folder last. The
  files `SERVICE.NUMBER.json` list the frameworks; each change of the list has the next number. Each numbered file can
  be created only once. If two frameworks arrive at the same moment, exactly one of them is therefore last, and it is
  last for every task. Serial numbers of two frameworks cannot be compared, because a framework without the earlier
  state begins at 1. A framework never gets the folder back. Otherwise two schedulers that relaunch their tasks would
  stop each other's tasks forever. One exception: if programs of both frameworks run before either framework is listed,
  the times of the launches that list them decide the order. A running launch remembers the list, because a program may
  remove the files.
- If both launches belong to one framework, the newer one has the higher serial number and the later time of launch. If
  the number and the time disagree (a restored backup, or a clock set back), the launch that wrote last is newer.

An empty folder needs no protection, and programs may require an empty folder. So a launch writes its files only if the
folder has another file. The program of any task may also remove the folder when it starts. The removal would fail if a
file appeared meanwhile. So a launch writes a missing file only after two checks in a row, if the number of files has
not decreased. Only a starting launch that sees FOLDER writes at its first check.
"""

from __future__ import annotations

import json
import logging
import math
import os
import stat
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from glob import escape, iglob
from pathlib import Path
from typing import Callable, Mapping
from urllib.parse import quote

from tf_executor.contract.payload import Payload
from tf_executor.lifecycle.events import Event, Superseded
from tf_executor.process.tree import access_files_as

#: Folder in CHECKPOINT_DIR. TensorFlow and TensorBoard ignore hidden folders without their files.
FOLDER = ".dcos-tensorflow"
#: Seconds between two checks.
INTERVAL = 5.0
#: Maximum seconds that a file system may delay the start of the program.
CLAIM_LIMIT = 10.0
#: Number of frameworks in a file and of files that list them, and maximum size of a file.
_FRAMEWORKS, _MAX_BYTES = 100, 1 << 16
#: Maximum length of a name: the file's content gets into messages, and any user of the folder can change it.
_MAX_NAME = 255

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FolderClaim:
    """Content of a file: the launch that uses the folder, or that changed the list."""

    task_id: str
    #: Frameworks that have used the folder; the last one has it.
    frameworks: tuple[str, ...]
    serial: int
    launched_at: float

    @classmethod
    def decode(cls, data: bytes) -> FolderClaim | None:
        """Decode a file; None if it is damaged."""
        try:
            values = json.loads(data)
            task_id, *frameworks = map(str, (values["task_id"], *values["frameworks"]))
            claim = cls(task_id, tuple(frameworks), int(values["serial"]), float(values["launched_at"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None
        is_valid = all(len(name) <= _MAX_NAME and name.isprintable() for name in (task_id, *frameworks))
        return claim if frameworks and is_valid else None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def is_superseded(self, other: FolderClaim, running: bool) -> bool:
        """Whether `other`, a launch of the same framework, is newer than this launch.

        `running`: whether this launch's program had started before it saw `other`.
        """
        mine, theirs = (self.serial, self.launched_at), (other.serial, other.launched_at)
        is_higher = [own < foreign for own, foreign in zip(mine, theirs)]
        return any(is_higher) if running else all(is_higher)

    @property
    def framework(self) -> str:
        """The framework of the launch."""
        return self.frameworks[-1]

    def after(self, other: FolderClaim | None) -> FolderClaim:
        """Return this claim, with the earlier frameworks of `other`."""
        names = (*(other.frameworks if other else ()), *self.frameworks)
        # Each framework once, at its last position.
        ordered = tuple(reversed(dict.fromkeys(reversed(names))))
        return replace(self, frameworks=ordered[-_FRAMEWORKS:])


def fence_of(
    payload: Payload, task_id: str, environ: Mapping[str, str], put: Callable[[Event], None]
) -> FolderFence | None:
    """Return the fence of a launch; None if its checkpoint folder is not a path."""
    if not payload.fenced_folder:
        return None
    claim = FolderClaim(task_id, (environ.get("MESOS_FRAMEWORK_ID", ""),), payload.serial, payload.launched_at)
    service = quote(payload.service, safe="")
    return FolderFence(Path(payload.fenced_folder, FOLDER), service, payload.task, claim, put)


class FolderFence:
    """Writes and checks the file of one launch; reports Superseded to `put`."""

    def __init__(self, folder: Path, service: str, task: str, claim: FolderClaim, put: Callable[[Event], None]) -> None:
        self._path, self._service = folder / f"{service}.{task}.json", service
        self._claim, self._put = claim, put
        self._problem = ""
        #: Number of files at the last check, if it has missed this launch's file.
        self._file_count = math.inf
        self._checked, self._stopped = threading.Event(), threading.Event()

    def start(self, owner: tuple[int, int, tuple[int, ...]] | None) -> None:
        """Check in a thread every INTERVAL; return after one check, or after CLAIM_LIMIT.

        `owner`: user, group and all groups of the program; None: the executor's.
        """
        threading.Thread(target=self._run, args=(owner,), name="fence", daemon=True).start()
        self._checked.wait(CLAIM_LIMIT)

    def stop(self) -> None:
        """Stop checking; does not wait, because the file system may hang."""
        self._stopped.set()

    def _run(self, owner: tuple[int, int, tuple[int, ...]] | None) -> None:
        if owner is not None:
            # The folder belongs to the user, who may put links there, and NFS servers refuse root.
            access_files_as(*owner)
        running = False
        while not self._stopped.is_set():
            winner = self._check(running)
            running = True
            if winner is not None and not self._stopped.is_set():
                is_final = winner.framework != self._claim.framework
                self._put(Superseded(self._describe(winner), is_final))
                self._stopped.set()
            self._checked.set()
            self._stopped.wait(INTERVAL)

    def _check(self, running: bool) -> FolderClaim | None:
        """Write the file if needed; return the launch that has superseded this one."""
        try:
            claim, winner = self._read(self._path), None
            if claim is not None or self._may_write(running):
                winner = self._compare(claim, running)
                self._file_count = math.inf
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:
                log.warning("CHECKPOINT_DIR is not protected against older launches: %s", error)
            self._problem = str(error)
            return None
        return winner

    def _may_write(self, running: bool) -> bool:
        """Whether a missing file may be written."""
        # Not while the folder is empty or being removed.
        before, self._file_count = self._file_count, _count_files(self._path.parent.parent)
        return before <= self._file_count > 0 or (not running and self._path.parent.exists())

    def _compare(self, claim: FolderClaim | None, running: bool) -> FolderClaim | None:
        """Return the launch that has superseded this one; else write this launch's claim.

        `claim`: content of this task's file.
        """
        if claim is None or claim.task_id != self._claim.task_id:
            last = self._last_framework(running)
            if last.framework != self._claim.framework:
                return last
            if (
                claim is not None
                and claim.framework == self._claim.framework
                and self._claim.is_superseded(claim, running)
            ):
                return claim
            self._claim = replace(self._claim, frameworks=last.frameworks)
            self._write(self._claim, self._path)
        return None

    def _last_framework(self, running: bool) -> FolderClaim:
        """Return the list of frameworks; this framework is added if it is missing."""
        last = self._last_number()
        listed: FolderClaim | None = None
        for number in range(max(last, 1), last + _FRAMEWORKS):
            path = self._numbered(number)
            claim = self._read(path)
            if claim is None:
                if listed is not None and self._claim.framework in listed.frameworks:
                    return listed
                new = self._claim.after(listed)
                if running and listed is not None and self._is_older(listed):
                    new = replace(listed, frameworks=(listed.framework,)).after(new)
                with suppress(FileExistsError):
                    self._write(new, path, _create)
                    self._numbered(number - _FRAMEWORKS).unlink(missing_ok=True)
                # Another framework may have been faster.
                claim = self._read(path)
            listed = claim or listed
        raise OSError(f"cannot write `{self._numbered(last + 1)}`")

    def _is_older(self, listed: FolderClaim) -> bool:
        is_known = listed.framework in self._claim.frameworks
        return not is_known and self._claim.launched_at < listed.launched_at

    def _last_number(self) -> int:
        before, after = len(self._service) + 1, len(".json")
        with suppress(FileNotFoundError), os.scandir(self._path.parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(f"{self._service}.")]
            return max((int(name[before:-after]) for name in names if name[before:-after].isdecimal()), default=0)
        return 0

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._service}.{number}.json")

    def _describe(self, winner: FolderClaim) -> str:
        folder, framework = self._path.parent.parent, winner.framework
        if framework == self._claim.framework:
            return f"CHECKPOINT_DIR `{folder}` is used by the newer launch {winner.task_id}"
        return (
            f"CHECKPOINT_DIR `{folder}` is used by framework {framework} of the same service, which started later "
            f"({winner.task_id}); use another folder, or uninstall framework {framework} and install this service again"
        )

    def _read(self, path: Path) -> FolderClaim | None:
        try:
            with path.open("rb") as file:
                return FolderClaim.decode(file.read(_MAX_BYTES))
        except FileNotFoundError:
            return None

    def _write(self, claim: FolderClaim, path: Path, put: Callable[[Path, Path], object] = Path.replace) -> None:
        folder = path.parent
        with suppress(FileExistsError):
            folder.mkdir()
            # Everyone who may write checkpoints may write the files, for example another user of the service.
            folder.chmod(stat.S_IMODE(folder.parent.stat().st_mode))
        new = folder / f".{path.name}.{self._claim.task_id[-12:]}"
        try:
            new.write_bytes(claim.encode())
            put(new, path)
        finally:
            new.unlink(missing_ok=True)


def _create(new: Path, path: Path) -> None:
    """Link `new` as `path`: works only once, also on NFS. Raises FileExistsError."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise
    except OSError:
        # Most often the file system has no links; which error this is differs. Readers may see a part of this file.
        content = new.read_bytes()
        with path.open("xb") as file:
            file.write(content)


def _count_files(folder: Path) -> int:
    """Return the number of names in a folder and its direct subfolders; 0 if missing.

    Hidden names are not counted. Deeper folders are not read: a folder with a data set would take minutes.
    """
    # Path.glob fails if a subfolder is removed meanwhile.
    return sum(1 for pattern in ("*", "*/*") for _ in iglob(f"{escape(str(folder))}/{pattern}"))  # noqa: PTH207
