"""Stored values of older and newer versions of this program."""

from __future__ import annotations

import json

import pytest

from builders import a_spec
from tf_scheduler.model.effects import AgentFailureRecorded, FrameworkRegistered, ReservationMade, TaskLaunched
from tf_scheduler.model.placement import AgentLocation
from tf_scheduler.model.resources import Reservation
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import AgentFailures, TaskRecord
from tf_scheduler.store import records
from tf_scheduler.store.interface import Put, StoreCorruptError, StoreVersionError


def value(**fields):
    """A stored framework id, with a checksum as of schema 2."""
    if fields["schema"] not in (1, 0, -1, "1", None, []):
        fields["crc32"] = records.checksum("framework", fields)
    return {"framework": json.dumps(fields).encode()}


def as_schema_1(put: Put, *missing: str) -> bytes:
    """Return a value as schedulers of schema 1 stored it, without these fields."""
    fields = {**json.loads(put.value), "schema": 1}
    return json.dumps({name: item for name, item in fields.items() if name not in ("crc32", *missing)}).encode()


def test_newer_value_is_rejected() -> None:
    """A downgraded program reads such values; the message names the key."""
    with pytest.raises(StoreVersionError, match="'framework' was written by a newer version"):
        records.changes(value(schema=records.SCHEMA + 1, id="fw"))


@pytest.mark.parametrize("schema", [0, -1, "1", None, []])
def test_invalid_schema_is_reported(schema) -> None:
    """As damage, not as another version."""
    with pytest.raises(StoreCorruptError, match="'framework' cannot be read") as caught:
        records.changes(value(schema=schema, id="fw"))
    assert not isinstance(caught.value, StoreVersionError)


def test_older_value_is_upgraded_stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its own schema, as a later version of this program would."""

    def to_two(kind, fields):
        return {"number": fields["id"]} if kind == "framework" else fields

    def to_three(kind, fields):
        return {"id": f"{kind}-{fields['number']}"}

    monkeypatch.setattr(records, "SCHEMA", 3)
    monkeypatch.setattr(records, "UPGRADES", (to_two, to_three))

    for stored in (value(schema=1, id="7"), value(schema=2, number="7"), value(schema=3, id="framework-7")):
        assert (FrameworkRegistered("framework-7"),) == records.changes(stored)


def test_launch_without_placeholder_field_is_read() -> None:
    record = TaskRecord("ps-0", "ps-0__1", JobKind.PS, 0, "agent-1-id", "agent-1", "10.0.0.1:31000", 1, (), 0.0)
    launched = TaskLaunched(record)
    (put,) = records.writes(launched, SchedulerState(a_spec()))
    assert json.loads(put.value)["idle"] is False

    assert (launched,) == records.changes({put.key: as_schema_1(put, "idle")})


def test_flipped_bytes_are_detected() -> None:
    """Each flip of one bit is refused, or changes nothing."""
    registered = FrameworkRegistered("fw-1")
    (put,) = records.writes(registered, SchedulerState(a_spec()))

    for place in range(len(put.value)):
        for bit in range(8):
            damaged = bytearray(put.value)
            damaged[place] ^= 1 << bit
            try:
                read = records.changes({put.key: bytes(damaged)})
            except StoreCorruptError:
                continue
            assert (registered,) == read, bytes(damaged)


def test_value_under_another_key_is_detected() -> None:
    (put,) = records.writes(AgentFailureRecorded(AgentFailures("agent-1", "a")), SchedulerState(a_spec()))

    with pytest.raises(StoreCorruptError, match="checksum is wrong; import a backup"):
        records.changes({"agents/agent-2": put.value})


def test_every_older_schema_has_upgrade() -> None:
    """Raising SCHEMA without a step would lose every stored state."""
    assert records.SCHEMA == len(records.UPGRADES) + 1


def test_renamed_attribute_keeps_its_stored_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename in the model must not lose what is stored."""
    renamed = {AgentFailures: {"hostname": "host"}, AgentLocation: {"zone": "old_zone"}}
    monkeypatch.setattr(records, "STORED_NAMES", {**records.STORED_NAMES, **renamed})
    suspected = AgentFailureRecorded(AgentFailures("agent-1-id", "agent-1"))
    reserved = ReservationMade(Reservation("r", "ps-0", "ps", "agent-1-id", AgentLocation("agent-1", zone="z"), 5.0))

    for change, name in ((suspected, '"host": "agent-1"'), (reserved, '"old_zone": "z"')):
        (put,) = records.writes(change, SchedulerState(a_spec()))
        assert name in put.value.decode()
        assert (change,) == records.changes({put.key: put.value})
