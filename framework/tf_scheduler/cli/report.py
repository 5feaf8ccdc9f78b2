"""The result of a run, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mesos_local import LocalCluster
from tf_scheduler.model.state import SchedulerState, Verdict
from tf_scheduler.model.task import TaskRecord

from .folders import RunFolder
from .follow import Watched, sandbox_of
from .tail import last_lines
from .view import leader

#: Of the error output of a task that failed.
_ERROR_LINES = 5

Report = dict[str, Any]


def report(watched: Watched, cluster: LocalCluster, folder: RunFolder, seconds: float) -> Report:
    """Everything worth keeping of a run; keeps the logs of its tasks in its folder."""
    state = watched.state
    return {
        "service": state.spec.name,
        **_outcome(watched),
        "seconds": round(seconds, 1),
        "framework_id": state.framework_id,
        "run": str(folder.path),
        "checkpoints": state.spec.checkpoint_dir,
        "pending": {name: list(reasons) for name, reasons in watched.pending.items()},
        "tasks": [_task(state, record, cluster, folder) for record in state.tasks.values()],
    }


def summary(found: Report) -> str:
    """The same in a few lines."""
    return "\n".join(_lines(found))


def _lines(found: Report) -> Iterator[str]:
    yield f"{found['service']} {found['state']} after {found['seconds']} s: {found['reason']}"
    for task in found["tasks"]:
        yield f"  {task['name']}: {task['state']} on {task['agent']}"
        yield from (f"    | {line}" for line in task["last_lines"])
    for name, reasons in found["pending"].items():
        yield f"  {name} was pending:"
        yield from (f"    {reason}" for reason in reasons)
    yield f"logs: {found['run']}/logs"
    yield f"model and checkpoints: {found['checkpoints']}"


def _outcome(watched: Watched) -> dict[str, str]:
    result, trouble = watched.state.result, watched.trouble
    if result is not None and (result.verdict is Verdict.SUCCEEDED or not trouble):
        reason = f"{result.reason} ({trouble})" if trouble else result.reason
        return {"state": result.verdict.value, "reason": reason}
    if watched.state.refused:
        return {"state": "refused", "reason": watched.state.refused}
    return {"state": Verdict.STOPPED.value if result else Verdict.FAILED.value, "reason": trouble}


def _task(state: SchedulerState, record: TaskRecord, cluster: LocalCluster, folder: RunFolder) -> Report:
    status = state.status(record.name)
    sandbox = sandbox_of(cluster, state, record)
    return {
        "name": record.name,
        "task_id": record.id,
        "state": status.state.spoken if status else "not heard of",
        "message": status.message if status else "",
        "agent": record.hostname,
        "address": record.address,
        "generation": record.generation,
        "last_lines": [] if sandbox is None else _last_words(state, record, sandbox),
        "logs": None if sandbox is None else _kept(record, sandbox, folder),
    }


def _last_words(state: SchedulerState, record: TaskRecord, sandbox: Path) -> list[str]:
    """Of a task that failed, the end of its error output; of the leader its last line: mostly the result."""
    status = state.status(record.name)
    if status is not None and status.state.ended and status.state.value not in ("TASK_FINISHED", "TASK_KILLED"):
        return last_lines(sandbox / "stderr", _ERROR_LINES)
    return last_lines(sandbox / "stdout", 1) if record is leader(state) else []


def _kept(record: TaskRecord, sandbox: Path, folder: RunFolder) -> str | None:
    try:
        kept: Path | None = folder.keep_logs(record.name, sandbox)
    except OSError as error:
        return f"not kept: {error.strerror}"
    return str(kept) if kept else None


def exit_code(found: Mapping[str, Any]) -> int:
    """0 for success, else 1."""
    return 0 if found["state"] == Verdict.SUCCEEDED.value else 1
