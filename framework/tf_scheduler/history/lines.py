"""What one decision of the scheduler adds to the recording, as lines of JSON. Pure.

Lines are only ever appended, so that a scheduler that dies, or is started anew, loses nothing and repeats nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from tf_scheduler.model.effects import (
    Change,
    Decision,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
    TaskLaunched,
)
from tf_scheduler.model.events import Event, ProgressReported
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.state import SchedulerState

Line = dict[str, Any]


def lines(event: Event, decision: Decision, now: float) -> Iterator[Line]:
    """In the order in which they happened; `now` in seconds since the epoch."""
    for change in decision.changes:
        yield from ({"t": now, **found} for found in _change(change))
    if isinstance(event, ProgressReported):
        yield from _progress(event, decision.state, now)
    for outcome in decision.outcomes:
        if outcome.warning:
            yield {"t": now, "told": outcome.message}


def encode(line: Mapping[str, Any]) -> str:
    """One line of text, with its end. Numbers that JSON lacks become null."""
    return json.dumps(_finite(line), separators=(",", ":"), allow_nan=False) + "\n"


def decode(text: str) -> dict[str, Any] | None:
    """One line; None for what is none."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return value


def _change(change: Change) -> Iterator[Line]:
    if isinstance(change, TaskLaunched):
        record = change.record
        yield {
            "launched": record.id,
            "task": record.name,
            "generation": record.generation,
            "agent": record.hostname,
            "address": record.address,
            "at": record.launched_at,
            **{name: _total(record.resources, name) for name in ("cpus", "mem", "gpus")},
        }
    elif isinstance(change, StatusStored):
        status = change.status
        yield {
            "status": status.id,
            "state": status.state.spoken,
            "ended": status.state.ended,
            "message": status.message,
            "exit_code": status.exit_code,
            # When it was made, and whether the program's server answers: 0 and None for what nobody told.
            "said": status.timestamp,
            "healthy": status.healthy,
        }
    elif isinstance(change, RecoveryDecided):
        yield {"replaced": change.recovery.launch, "why": change.recovery.why}
    elif isinstance(change, ResultDecided):
        yield {"result": change.result.verdict.value, "reason": change.result.sentence}


def _progress(event: ProgressReported, state: SchedulerState, now: float) -> Iterator[Line]:
    told = event.progress
    task = next((record.name for record in state.tasks.values() if record.id == event.task_id), None)
    if task is None:
        return
    by_examples = told.examples_per_second is not None
    yield {
        "t": now,
        "progress": task,
        "step": told.step,
        "loss": told.loss,
        "speed": told.examples_per_second if by_examples else told.steps_per_second,
        "unit": "examples" if by_examples else "steps",
        **({} if told.begun is None else {"begun": told.begun}),
    }


def _total(resources: tuple[Resource, ...], name: str) -> float:
    """Mesos counts in thousandths."""
    found = (entry.value for entry in resources if entry.name == name and isinstance(entry.value, int))
    return sum(found) / 1000
