"""XDG folders, the folder of one run, and private files."""

from __future__ import annotations

import os
import shutil
from datetime import datetime, timezone
from pathlib import Path

#: Files of a task's sandbox that a run keeps.
LOG_FILES = ("stdout", "stderr", "executor.log")
_LONGEST_NAME = 80
#: File with the report of an ended run.
RESULT = "result.json"
#: Reason of a run without a result.
LOST_REASON = "ended without a result: the process of `local run` was killed, or the machine stopped"


def state_home() -> Path:
    """`$XDG_STATE_HOME/dcos-tensorflow`; a relative value is ignored (XDG)."""
    folder = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (folder if folder.is_absolute() else Path.home() / ".local" / "state") / "dcos-tensorflow"


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
        """Link or copy a task's logs to this folder; None: there are none. Raises OSError."""
        target = self.logs / task
        logs = [path for name in LOG_FILES for path in sorted(sandbox.glob(f"{name}*")) if path.is_file()]
        if not logs:
            return None
        target.mkdir(parents=True, exist_ok=True)
        for path in logs:
            try:
                (target / path.name).hardlink_to(path)
            except OSError:  # another file system
                shutil.copyfile(path, target / path.name)
        return target

    def forget_scheduler(self) -> None:
        """Remove the options, token, state and working directory of an exited scheduler."""
        shutil.rmtree(self.scheduler, ignore_errors=True)
        self.options.unlink(missing_ok=True)
        self.token.unlink(missing_ok=True)
        for path in self.path.glob(f"{self.store.name}*"):
            path.unlink()
