"""Runs of this user and of a team, also those whose command was killed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dcos_command.command import echo
from mesos_local.host import ProcessId
from mesos_local.libmesos.native import VERSION as MESOS
from tf_scheduler import __version__
from tf_scheduler.errors import JobError
from tf_scheduler.history.compare import describe_environment
from tf_scheduler.history.database import RunDatabase, SharedRuns
from tf_scheduler.history.model import RUNNING, Run
from tf_scheduler.history.record import read_recording, service_run
from tf_scheduler.options.schema.jobs import JOBS
from tf_scheduler.runtimes.runtimes import is_own_interpreter

from .folders import LOST_REASON, RESULT, RunFolder, history_file, kept_files

#: State of a run without a result whose command has exited.
LOST = "lost"


def run_database() -> RunDatabase:
    """Return the history of this user."""
    return RunDatabase(history_file(), now=_refreshed)


def past_runs(store: Path | None) -> tuple[list[Run], list[str]]:
    """Return the runs of this user and a team, and the unreadable files of the team.

    The newest run is the first. Runs of other users have no folder: their records could name any folder of this
    machine. Raises JobError.
    """
    shared, unreadable = ([], []) if store is None else SharedRuns(store).runs()
    runs = {run.id: run for run in (*(replace(run, folder="") for run in shared), *run_database().runs())}
    return sorted(runs.values(), key=lambda run: (run.submitted, run.id), reverse=True), unreadable


def _refreshed(run: Run) -> Run:
    """Update a run that is stored as running: its state and its recorded history."""
    if not run.process:
        return run
    pid, _, start_time = run.process.partition(":")
    alive = ProcessId(int(pid), int(start_time)).alive()
    run = run if alive else replace(run, state=LOST, reason=LOST_REASON, process="")
    recording = RunFolder(Path(run.folder)).recording
    with suppress(JobError):  # nothing was launched
        recorded = service_run(recording, run.service, run.options)
        if not alive and recorded.state != RUNNING:
            run = replace(run, state=recorded.state, reason=recorded.reason)
        end = time.time() if alive else recorded.submitted + recorded.seconds
        run = replace(read_recording(recording, run), seconds=round(end - run.submitted, 3))
    if not alive:
        share_run(run)
    return run


def files_of(run: Run) -> dict[str, list[dict[str, Any]]]:
    """Return kept files as the run reported them; of a killed run, from its folder."""
    if not run.folder:
        return {"kept": [], "left": []}
    folder = Path(run.folder)
    with suppress(OSError, ValueError, LookupError, TypeError):
        found = json.loads((folder / RESULT).read_text())["files"]
        is_kept = {True: list[Any](), False: list[Any]()}
        for item in found["kept"]:
            is_kept["://" in item["folder"] or Path(item["folder"], item["name"]).is_file()].append(item)
        gone = [{**item, "why": "removed since then"} for item in is_kept[False]]
        return {"kept": is_kept[True], "left": [*found["left"], *gone]}
    return kept_files([folder / "checkpoints"], {each.id for each in run.launches})


def share_run(run: Run) -> None:
    """Write the record of an ended run into the folder of its team; print errors."""
    if folder := run.resolved.get("history", {}).get("store"):
        try:
            SharedRuns(Path(folder)).save(run)
        except JobError as error:
            echo(f"notice: the run is only in the history of this machine: {error}", err=True)


def environment_of(options: Mapping[str, Any], *, own: bool = True) -> dict[str, str]:
    """Return versions and digests of a local run with these resolved options.

    Not `own`: the author of the record has named programs to start and files to read, so only own interpreters start.
    """
    files, may_start = (_job_files(options), bool) if own else ((), is_own_interpreter)
    return describe_environment(__version__, MESOS, _interpreters(options), files, may_start)


def _interpreters(options: Mapping[str, Any]) -> Iterator[str]:
    default = options["service"]["python"] or sys.executable
    yield default
    yield from (options[job]["python"] or default for job in JOBS if options[job]["count"])


def _job_files(options: Mapping[str, Any]) -> Iterator[Path]:
    url = options["service"]["job_url"]
    if url.startswith("file://"):
        yield Path(unquote(url.removeprefix("file://")))
