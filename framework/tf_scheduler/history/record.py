"""Recordings: lines of JSON by `history.recorder`, and the runs they describe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tf_executor.contract.reports import Progress, drop_other_count, strict_json
from tf_executor.contract.text import downsample
from tf_scheduler.errors import JobError

from . import model

Line = dict[str, Any]


def encode_line(line: Mapping[str, Any]) -> str:
    """Encode a line of JSON; non-finite numbers become null."""
    return json.dumps(strict_json(line), separators=(",", ":"), allow_nan=False) + "\n"


def decode_line(text: str) -> dict[str, Any] | None:
    """Decode a line; None if invalid."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


#: Maximum points of a curve and maximum warnings of a run.
MAX_POINTS = 400
MAX_WARNINGS = 200


#: The run of a recording alone.
_NO_RUN = model.Run("", "", model.RUNNING, "", 0.0, 0.0)


def read_recording(path: Path, run: model.Run = _NO_RUN) -> model.Run:
    """Add a recording to a run. A missing file adds nothing.

    An incomplete last line is ignored.
    """
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return run
    return fold_lines((line for line in map(decode_line, text.splitlines()) if line is not None), run)


def fold_lines(lines: Iterable[Mapping[str, Any]], run: model.Run = _NO_RUN) -> model.Run:
    """Return the run with the content of a recording's lines."""
    launches: dict[str, model.RecordedLaunch] = {}
    curves: dict[str, list[Progress]] = {}
    warnings: list[model.RunWarning] = []
    for line in lines:
        kind = next((name for name in _OF_LAUNCHES if name in line), "")
        if kind == "launched":
            launches[line["launched"]] = _launch(line)
        elif kind and line[kind] in launches:
            launches[line[kind]] = _OF_LAUNCHES[kind](launches[line[kind]], line)
        elif "progress" in line:
            point, curve = Progress.from_json({**line, "time": line["t"]}), curves.setdefault(line["progress"], [])
            drop_other_count(curve, point)
            curve.append(point)
        elif "warning" in line:
            warnings.append(model.RunWarning(line["t"], line["warning"]))
    thinned = {task: tuple(downsample(points, MAX_POINTS)) for task, points in curves.items()}
    first = model.leading_task(thinned)
    for task in thinned.keys() - {first}:
        thinned[task] = tuple(replace(point, metrics={}) for point in thinned[task])
    return replace(
        run,
        launches=tuple(launches.values()),
        curves=thinned,
        best=model.best_values(curves.get(first or "", ())),
        warnings=tuple(warnings[-MAX_WARNINGS:]),
    )


def _launch(line: Mapping[str, Any]) -> model.RecordedLaunch:
    amounts = dict.fromkeys(("cpus", "gpus", "mem"), 0.0)
    values = {**amounts, **model.known_fields(model.RecordedLaunch, line)}
    return model.RecordedLaunch(**{**values, "id": line["launched"], "launched": line.get("at") or line["t"]})


def _status(launch: model.RecordedLaunch, line: Mapping[str, Any]) -> model.RecordedLaunch:
    running = line["t"] if line["state"] == "running" and launch.running is None else launch.running
    ended = line["t"] if line.get("ended") and launch.ended is None else launch.ended
    return replace(
        launch,
        running=running,
        ended=ended,
        state=line["state"],
        message=line.get("message", ""),
        exit_code=line.get("exit_code"),
    )


_OF_LAUNCHES: Mapping[str, Callable[[model.RecordedLaunch, Mapping[str, Any]], model.RecordedLaunch]] = {
    "launched": lambda launch, _: launch,
    "status": _status,
    "replaced": lambda launch, line: replace(launch, replaced=line["why"]),
}


def service_run(path: Path, name: str, options: Mapping[str, Any]) -> model.Run:
    """Return a recording's run. `options`: without secrets. Raises JobError.

    The id depends on the framework and its start, so a longer copy of a recording replaces a shorter one.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from error
    try:
        lines = [
            line for line in map(decode_line, text.splitlines()) if line and isinstance(line.get("t"), int | float)
        ]
        return _identified(fold_lines(lines), lines, name, options)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:  # JSON, but not a scheduler's
        raise JobError(f"{path}: not a recording of a run, such as a scheduler's recording.jsonl") from error


def _identified(run: model.Run, lines: Sequence[Mapping[str, Any]], name: str, options: Mapping[str, Any]) -> model.Run:
    first = run.launches[0]
    # Restarted schedulers of a service have other recordings, but the same framework.
    framework: Mapping[str, Any] = next((line for line in lines if "framework" in line), {})
    identity = str(framework.get("framework") or first.id)
    begun, ended = framework.get("since") or lines[0]["t"], max(line["t"] for line in lines)
    result: Mapping[str, Any] = next((line for line in reversed(lines) if "result" in line), {})
    stamp = datetime.fromtimestamp(begun, timezone.utc).strftime("%Y%m%d-%H%M%S")
    digest = hashlib.sha256(identity.encode()).hexdigest()[:6]
    return replace(
        run,
        id=f"{name.strip('/').replace('/', '-')}-{stamp}-{digest}",
        service=name,
        state=result.get("result", model.RUNNING),
        reason=result.get("reason", ""),
        submitted=begun,
        seconds=round(ended - begun, 3),
        options=options,
    )
