"""Files of the user: state, runs, input and output of commands."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO

import click

from tf_executor.contract.text import format_size, printable
from tf_executor.user import keep
from tf_scheduler.errors import OptionsError

#: Files of a task's sandbox that a run keeps.
LOG_FILES = ("stdout", "stderr", "executor.log")
_LONGEST_NAME = 80
#: File with the report of an ended run.
RESULT = "result.json"
#: Reason of a run without a result.
LOST_REASON = "ended without a result: the process of `local run` was killed, or the machine stopped"


def state_home() -> Path:
    """Return `$XDG_STATE_HOME/dcos-tensorflow`; ignore a relative value (XDG)."""
    folder = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (folder if folder.is_absolute() else Path.home() / ".local" / "state") / "dcos-tensorflow"


def history_file() -> Path:
    """Return the path of the database with the past runs of this user."""
    return state_home() / "history.db"


def read_bytes(path: Path) -> bytes:
    """Read a file of the user. Raises OptionsError that names the file."""
    if path.exists() and not path.is_file():
        raise OptionsError(f"{path} is not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise OptionsError(f"{path}: {error.strerror}") from error


def open_regular(path: Path) -> BinaryIO:
    """Open a file that another user may have replaced by a link, pipe or device.

    Raises OSError instead of following the link or waiting for the pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def short_path(path: str) -> str:
    """Return the path, with `~` in place of this user's home folder."""
    home = str(Path.home())
    return f"~{path.removeprefix(home)}" if f"{path}{os.sep}".startswith(f"{home}{os.sep}") else path


class UserPath(click.Path):
    """Parameter type for paths. An unreadable path is not reported as wrong usage."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(readable=False, path_type=Path, **settings)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises OptionsError if it exists, but cannot be read."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if path.exists() and not os.access(path, os.R_OK):
            raise OptionsError(f"{path}: {os.strerror(errno.EACCES)}")
        return path


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable only by its owner (it may hold passwords)."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    draft.touch(0o600, exist_ok=False)
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


class RunFolder:
    """Folder of one run: its checkpoints, the logs of its tasks and of the scheduler."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints, self.logs = path / "checkpoints", path / "logs"
        self.scheduler_log = self.logs / "scheduler.log"
        self.result, self.store = path / RESULT, path / "state.db"
        #: Options of the scheduler; may hold passwords.
        self.options = path / "options.json"
        #: Token of the scheduler's API, for the commands of this user.
        self.token = path / "api-token"
        #: Working directory of the scheduler, with its recording (tf_scheduler.history) until the run is stored.
        self.scheduler = path / "scheduler"
        self.recording = self.scheduler / "recording.jsonl"

    @classmethod
    def create(cls, name: str, unique: str) -> RunFolder:
        """Create a folder, named after the service and the time (UTC)."""
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        short = name.replace("/", "-")[:_LONGEST_NAME]
        folder = cls(state_home() / "runs" / f"{short}-{stamp}-{unique[:6]}")
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        # Other users of this machine must not read output, state and options.
        folder.path.mkdir(mode=0o700)
        folder.logs.mkdir()
        folder.checkpoints.mkdir()
        return folder

    def keep_logs(self, task: str, sandbox: Path) -> Path | None:
        """Link or copy a task's logs to this folder; None without logs. Raises OSError."""
        target = self.logs / task
        files = (path for name in LOG_FILES for path in sorted(sandbox.glob(f"{name}*")))
        logs = [path for path in files if stat.S_ISREG(path.lstat().st_mode)]
        if not logs:
            return None
        target.mkdir(parents=True, exist_ok=True)
        for path in logs:
            try:
                (target / path.name).hardlink_to(path)
            except OSError:  # another file system
                with open_regular(path) as log, (target / path.name).open("wb") as copy:
                    shutil.copyfileobj(log, copy)
        return target

    def forget_scheduler(self) -> None:
        """Remove the options, token, state and working directory of an exited scheduler."""
        shutil.rmtree(self.scheduler, ignore_errors=True)
        self.options.unlink(missing_ok=True)
        self.token.unlink(missing_ok=True)
        for path in self.path.glob(f"{self.store.name}*"):
            path.unlink()


#: Maximum bytes of a record of kept files, and of a file.
_MAX_RECORD, _MAX_SIZE = 16 << 20, 1 << 63


def kept_files(checkpoints: Iterable[Path], launches: Container[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the files that these launches `kept`, and those that they `left`.

    Each has task, folder, name, bytes, and why it was left.
    """
    found: dict[str, list[dict[str, Any]]] = {"kept": [], "left": []}
    for path in sorted(path for folder in checkpoints for path in (folder / keep.FOLDER).glob("*.json")):
        # Written as the user of the task.
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError), open_regular(path) as file:
            record = json.loads(file.read(_MAX_RECORD))
            is_stored = "://" in record["folder"]
            own = {"task": str(record["task"]), "folder": record["folder"] if is_stored else str(path.with_suffix(""))}
            for kind, files in found.items():
                files += [_file(own, *item) for item in record[kind] if record["launch"] in launches]
    return found


def _file(own: Mapping[str, str], name: object, size: object, *why: str) -> dict[str, Any]:
    if not (isinstance(name, str) and isinstance(size, int) and 0 <= size < _MAX_SIZE):
        raise TypeError("not a name and a size")
    return {**own, "name": name, "bytes": size, "why": "".join(why)}


def checkpoints_in(folder: str) -> list[Path]:
    """Return what programs wrote into CHECKPOINT_DIR, the newest first.

    Empty for a URL.
    """
    try:
        entries = sorted(Path(folder).iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []
    return [path for path in entries if not path.name.startswith(".") and path.name != keep.FOLDER]


def name_and_size(file: Mapping[str, Any]) -> str:
    """Return a text such as `model.keras (1.2 MB)`, in one line."""
    return f"{printable(file['name'])} ({format_size(file['bytes'])})"


def folder_size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(file.lstat().st_size for file in files if file.is_file())


def has_containers(directory: Path | None = None) -> bool:
    """Return whether the cluster in `directory` runs containers; default: `local up`."""
    from mesos_local.cluster import LocalCluster  # not in the bundle of the scheduler, which imports this module
    from mesos_local.host import MesosLocalError

    with suppress(MesosLocalError):  # a damaged cluster, reported by the run
        running = LocalCluster.running(directory or state_home() / "local")
        return running is not None and running.has_containers
    return False


# --- files of options

file_type = click.Path(allow_dash=True, readable=False, path_type=Path)
#: Without `-` for standard input.
named_file_type = click.Path(readable=False, path_type=Path)
output_option = click.option(
    "-o", "--output", type=UserPath(dir_okay=False), help="File to write. Default: standard output."
)
force_option = click.option("--force", is_flag=True, help="Replace an existing file.")


def read(file: Path) -> bytes:
    """Read a file, or standard input for `-`. Raises OptionsError that names the file."""
    return sys.stdin.buffer.read() if str(file) == "-" else read_bytes(file)


def source_name(file: Path) -> str:
    """Name of a file in messages."""
    return "standard input" if str(file) == "-" else str(file)
