"""Malicious reports in an executor's name are ignored without an exception."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_executor.contract.reports import MAX_BYTES, NO_END, Message, Progress, TaskEnd, decode_message

DEEP = b"[" * 20_000
#: Values that JSON can express but no report may contain.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.sampled_from([0, 1, 255, 256, 2**63, -1])
    | st.floats()
    | st.text(st.characters(), max_size=5)
    | st.sampled_from(["nan", "inf", "\ud800", "x" * 300]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
endings = st.fixed_dictionaries({}, optional={item.name: anything for item in dataclasses.fields(TaskEnd)})
progresses = st.fixed_dictionaries(
    {"version": st.just(1), "kind": st.just("progress"), "task_id": st.just("t") | anything, "sequence": st.just(1)},
    optional={item.name: anything for item in dataclasses.fields(Progress) if item.name != "sequence"},
)


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


def is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 300 and bool(value.encode())


def is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def is_well_typed(ending: TaskEnd) -> bool:
    return (
        (ending.exit_code is None or is_whole(ending.exit_code, 0, 255))
        and (ending.signal is None or is_whole(ending.signal, 1, 64))
        and all(value == "" or is_text(value) for value in (ending.failed_stage, ending.error))
        and all(type(value) is bool for value in (ending.out_of_memory, ending.port_taken, ending.was_frozen))
    )


def is_sound(message: Message) -> bool:
    progress = message.report
    if not isinstance(progress, Progress):
        return False
    counts = (progress.sequence, progress.step or 0, progress.total or 0, progress.examples or 0)
    speeds = (progress.time, progress.steps_per_second or 0.0, progress.examples_per_second or 0.0)
    return (
        is_text(message.task_id)
        and all(is_whole(count, -(2**63), 2**63 - 1) for count in counts)
        and all(type(real) is float and math.isfinite(real) for real in (*speeds, progress.begun or 0.0))
        and (progress.loss is None or type(progress.loss) is float)
    )


@given(st.binary() | anything.map(written) | endings.map(written))
@settings(max_examples=300)
def test_any_status_data_decodes_to_end_report(data: bytes) -> None:
    """An update that raises is never acknowledged and is sent again forever."""
    assert is_well_typed(TaskEnd.decode(data))


@given(st.binary() | anything.map(written) | progresses.map(written))
@settings(max_examples=300)
def test_any_message_decodes_to_progress_or_none(data: bytes) -> None:
    """Decoding never raises."""
    report = decode_message(data)
    assert report is None or is_sound(report)


@pytest.mark.parametrize(
    "data", [DEEP, b'{"exit_code":' + DEEP, b"9" * 5000, b" " * MAX_BYTES + b"{}"], ids=["deep", "in", "huge", "long"]
)
def test_deep_or_long_data_is_ignored(data: bytes) -> None:
    """The log message does not quote the data."""
    problems: list[str] = []
    assert NO_END == TaskEnd.decode(data, problems.append)
    assert decode_message(data, problems.append) is None
    assert [f"ignored {len(data)} bytes from an executor: not a JSON object"] * 2 == problems


def test_invalid_end_fields_are_ignored() -> None:
    data = b'{"exit_code": "\\ud800", "signal": {"x": [1]}, "out_of_memory": true, "failed_stage": "\\ud800"}'
    problems: list[str] = []
    assert TaskEnd(out_of_memory=True) == TaskEnd.decode(data, problems.append)
    assert ["ignored invalid fields of an executor's end report: exit_code, signal, failed_stage"] == problems


@pytest.mark.parametrize(
    "wrong",
    [{"step": 2**63}, {"step": True}, {"step": 1.5}, {"time": math.nan}, {"begun": "inf"}, {"examples_per_second": []}],
    ids=str,
)
def test_invalid_progress_number_is_ignored(wrong: dict[str, Any]) -> None:
    """The next message may be valid."""
    right = {"version": 1, "kind": "progress", "task_id": "t", "sequence": 1, "time": 0}
    assert decode_message(written(right)) == Message("t", Progress(1, 0.0))
    problems: list[str] = []
    assert decode_message(written({**right, **wrong}), problems.append) is None
    assert [f"ignored an executor's progress report with invalid or missing fields: {next(iter(wrong))}"] == problems
