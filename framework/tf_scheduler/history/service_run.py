"""The recording of a service that is, or was, installed -> a run of the history."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tf_scheduler.errors import JobError

from .lines import decode
from .model import Run
from .recording import read

#: State of a service that had not ended when its recording was taken.
RUNNING = "running"


def service_run(path: Path, name: str, options: Mapping[str, Any]) -> Run:
    """`name`: of the service; `options`: without secrets. Raise JobError when the file is no recording.

    Its id follows from the first launch: a recording that has grown stands for the same run.
    """
    try:
        return _run(path, name, options)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:  # JSON, but not a scheduler's
        raise JobError(f"{path} is no recording of a scheduler: a line has not what it must have") from error


def _run(path: Path, name: str, options: Mapping[str, Any]) -> Run:
    lines = [line for line in map(_line, _text(path).splitlines()) if line]
    recorded = read(path)
    if not recorded.launches:
        raise JobError(f"{path} is no recording of a scheduler: it has no launch")
    begun, ended = lines[0]["t"], lines[-1]["t"]
    result: Mapping[str, Any] = next((line for line in reversed(lines) if "result" in line), {})
    stamp = datetime.fromtimestamp(begun, timezone.utc).strftime("%Y%m%d-%H%M%S")
    digest = hashlib.sha256(recorded.launches[0].id.encode()).hexdigest()[:6]
    return Run(
        id=f"{name.strip('/').replace('/', '-')}-{stamp}-{digest}",
        service=name,
        state=result.get("result", RUNNING),
        reason=result.get("reason", ""),
        submitted=begun,
        seconds=round(ended - begun, 3),
        options=options,
        launches=recorded.launches,
        curves=recorded.curves,
        unit=recorded.unit,
        told=recorded.told,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from error


def _line(text: str) -> Mapping[str, Any] | None:
    """None for what no recorder has written, such as a line that was cut off."""
    line = decode(text)
    return line if line is not None and isinstance(line.get("t"), (int, float)) else None
