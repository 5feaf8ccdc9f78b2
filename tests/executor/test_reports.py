"""What a malicious program may send in an executor's name: it is never an error, and nothing wrong is believed."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tf_executor.reports import MOST_BYTES, NO_ENDING, Ending, Progress

DEEP = b"[" * 20_000
#: Numbers that no counter has, half characters, texts, nested things: what JSON can write, and Python's reads besides.
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
endings = st.fixed_dictionaries({}, optional={item.name: anything for item in dataclasses.fields(Ending)})
progresses = st.fixed_dictionaries(
    {"version": st.just(1), "kind": st.just("progress"), "task_id": st.just("t") | anything, "sequence": st.just(1)},
    optional={item.name: anything for item in dataclasses.fields(Progress) if item.name not in ("task_id", "sequence")},
)


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


def is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 300 and bool(value.encode())


def is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def is_well_typed(ending: Ending) -> bool:
    return (
        (ending.exit_code is None or is_whole(ending.exit_code, 0, 255))
        and (ending.signal is None or is_whole(ending.signal, 1, 64))
        and (ending.oom is None or type(ending.oom) is bool)
        and (ending.failed_stage is None or is_text(ending.failed_stage))
    )


def is_sound(progress: Progress) -> bool:
    counts = (progress.sequence, progress.step or 0, progress.total or 0, progress.examples or 0)
    speeds = (progress.time, progress.steps_per_second or 0.0, progress.examples_per_second or 0.0)
    return (
        is_text(progress.task_id)
        and all(is_whole(count, -(2**63), 2**63 - 1) for count in counts)
        and all(type(real) is float and math.isfinite(real) for real in (*speeds, progress.begun or 0.0))
        and (progress.loss is None or type(progress.loss) is float)
    )


@given(st.binary() | anything.map(written) | endings.map(written))
@settings(max_examples=300)
def test_any_data_of_an_update_is_a_well_typed_ending(data: bytes) -> None:
    """Never an error: an update that cannot be read is never acknowledged, and comes again for ever."""
    assert is_well_typed(Ending.decode(data))


@given(st.binary() | anything.map(written) | progresses.map(written))
@settings(max_examples=300)
def test_any_message_is_sound_progress_or_none(data: bytes) -> None:
    """Never an error."""
    found = Progress.decode(data)
    assert found is None or is_sound(found)


@pytest.mark.parametrize(
    "data", [DEEP, b'{"exit_code":' + DEEP, b"9" * 5000, b" " * MOST_BYTES + b"{}"], ids=["deep", "in", "huge", "long"]
)
def test_what_is_deep_or_long_is_ignored_and_told(data: bytes) -> None:
    """One sentence, without what was sent."""
    told: list[str] = []
    assert NO_ENDING == Ending.decode(data, told.append)
    assert Progress.decode(data, told.append) is None
    assert [f"{len(data)} bytes that an executor sent are ignored: they are no JSON object of ours"] * 2 == told


def test_what_is_wrong_in_an_ending_is_ignored_and_told() -> None:
    """The rest of it is believed."""
    data = b'{"exit_code": "\\ud800", "signal": {"x": [1]}, "oom": true, "failed_stage": "\\ud800"}'
    told: list[str] = []
    assert Ending(oom=True) == Ending.decode(data, told.append)
    assert ["what an executor said of its task's end is ignored: exit_code, signal, failed_stage"] == told


@pytest.mark.parametrize(
    "wrong",
    [{"step": 2**63}, {"step": True}, {"step": 1.5}, {"time": math.nan}, {"begun": "inf"}, {"examples_per_second": []}],
    ids=str,
)
def test_progress_with_a_wrong_number_is_ignored_and_told(wrong: dict[str, Any]) -> None:
    """The next message may be better."""
    right = {"version": 1, "kind": "progress", "task_id": "t", "sequence": 1, "time": 0}
    assert Progress.decode(written(right)) == Progress("t", 1, 0.0)
    told: list[str] = []
    assert Progress.decode(written({**right, **wrong}), told.append) is None
    assert [f"progress that an executor told is ignored: {next(iter(wrong))}"] == told
