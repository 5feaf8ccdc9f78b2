"""Where things are kept: XDG folders, and the folder of one run."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

#: Files of a task's working directory that a run keeps.
LOG_FILES = ("stdout", "stderr", "executor.log")
_LONGEST_NAME = 80


def state_home() -> Path:
    """`$XDG_STATE_HOME/dcos-tensorflow`. A relative value is ignored (XDG base directory specification)."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "state") / "dcos-tensorflow"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """What is left of one run: its checkpoints, the logs of its tasks and of the scheduler."""

    path: Path

    @classmethod
    def create(cls, name: str, unique: str) -> RunFolder:
        """A new folder, named after the service and the time (UTC)."""
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
        short = name.replace("/", "-")[:_LONGEST_NAME]
        folder = cls(state_home() / "runs" / f"{short}-{stamp}-{unique[:6]}")
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        # Output, state and options of a run are nobody else's on this machine.
        folder.path.mkdir(mode=0o700)
        folder.logs.mkdir()
        folder.checkpoints.mkdir()
        return folder

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def options(self) -> Path:
        """What the scheduler runs with; may hold passwords."""
        return self.path / "options.json"

    @property
    def scheduler(self) -> Path:
        """The scheduler's working directory."""
        return self.path / "scheduler"

    @property
    def recording(self) -> Path:
        """What its scheduler records (tf_scheduler.history), until it is kept."""
        return self.scheduler / "recording.jsonl"

    @property
    def store(self) -> Path:
        return self.path / "state.db"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def scheduler_log(self) -> Path:
        return self.logs / "scheduler.log"

    def keep_logs(self, task: str, sandbox: Path) -> Path | None:
        """Keep a task's output here; None when it left none. Raise OSError when it cannot be kept."""
        target = self.logs / task
        found = [path for name in LOG_FILES for path in sorted(sandbox.glob(f"{name}*")) if path.is_file()]
        if not found:
            return None
        target.mkdir(parents=True, exist_ok=True)
        for path in found:
            _keep(path, target / path.name)
        return target

    def forget_scheduler(self) -> None:
        """Remove its options, its state (with SQLite's side files) and its working directory, after its end."""
        shutil.rmtree(self.scheduler, ignore_errors=True)
        self.options.unlink(missing_ok=True)
        for path in self.path.glob(f"{self.store.name}*"):
            path.unlink()


def _keep(source: Path, target: Path) -> None:
    """A second name costs nothing, however long the log is; across file systems it takes a copy."""
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)
