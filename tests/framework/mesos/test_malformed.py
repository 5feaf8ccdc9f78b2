"""Events that cannot be decoded are skipped."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import a_running_state, a_spec
from kit.mesos_events import EVENTS, OFFER
from tf_scheduler.core.scheduler import handle
from tf_scheduler.mesos import decode
from tf_scheduler.model.effects import Decline
from tf_scheduler.model.events import EventSkipped, OffersReceived, StatusUpdated

STATE = a_running_state(a_spec())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from paths(child, (*path, key))


def changed(event: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """Return the event with another value at the path; `...` removes it."""
    result = copy.deepcopy(event)
    parent = result
    for key in path[:-1]:
        parent = parent[key]
    if value is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return result


def test_samples_are_of_all_types() -> None:
    assert set(decode._DECODERS) == set(EVENTS)
    assert not [event for event in EVENTS.values() if isinstance(decode.event(event), EventSkipped | None)]


@pytest.mark.parametrize("kind", sorted(EVENTS))
@given(st.data())
@settings(max_examples=300)
def test_any_change_of_an_event_is_handled(kind: str, data: st.DataObject) -> None:
    """Neither the decoder nor the decision raises."""
    event = EVENTS[kind]
    path = data.draw(st.sampled_from([path for path in paths(event) if path != ("type",)]))
    raw = json.loads(json.dumps(changed(event, path, data.draw(st.just(...) | VALUES))))

    decoded = decode.event(raw)

    if decoded is not None:
        handle(STATE, decoded, 110.0, lambda: "id")


@pytest.mark.parametrize(
    ("kind", "path", "value", "problem"),
    [
        ("UPDATE", ("update", "status", "state"), "TASK_PAUSED", "'TASK_PAUSED' is not a valid TaskState"),
        ("UPDATE", ("update", "status", "task_id"), ..., "missing field 'task_id'"),
        ("UPDATE", ("update", "status", "task_id", "value"), "", "task_id '' is not a valid id"),
        ("UPDATE", ("update", "status", "task_id", "value"), "..", "task_id '..' is not a valid id"),
        ("UPDATE", ("update", "status", "agent_id", "value"), "a/b", "agent_id 'a/b' is not a valid id"),
    ],
)
def test_malformed_event_is_reported(kind: str, path: tuple[Any, ...], value: Any, problem: str) -> None:
    event = decode.event(changed(EVENTS[kind], path, value))

    assert EventSkipped(kind, problem) == event
    decision = handle(STATE, event, 110.0, lambda: "id")
    assert ((), ()) == (decision.changes, decision.calls)
    (outcome,) = decision.outcomes
    assert ("EventSkipped", True) == (outcome.kind, outcome.warning)
    assert problem in outcome.message


def test_status_without_container_counts() -> None:
    """Its addresses are optional."""
    event = decode.event(changed(EVENTS["UPDATE"], ("update", "status", "container_status"), None))

    assert isinstance(event, StatusUpdated)
    assert () == event.status.addresses


def test_malformed_offer_is_declined() -> None:
    """The other offers of the event count."""
    bad = {**OFFER, "id": {"value": "o-2"}, "resources": [{"name": "x", "type": "TEXT", "text": {"value": "y"}}]}
    worse = [{**OFFER, "id": {"value": "../x"}}, {**OFFER, "id": {}}]

    event = decode.event({"type": "OFFERS", "offers": {"offers": [OFFER, bad, *worse]}})

    assert isinstance(event, OffersReceived)
    assert (["o-1"], ("o-2",)) == ([offer.id for offer in event.offers], event.malformed)
    decision = handle(STATE, event, 110.0, lambda: "id")
    assert "o-2" in {offer_id for call in decision.calls if isinstance(call, Decline) for offer_id in call.offer_ids}
