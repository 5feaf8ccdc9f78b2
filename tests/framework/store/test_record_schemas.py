"""Stored values of older and newer versions of this program."""

from __future__ import annotations

import json

import pytest

from builders import a_spec
from kit.stored_samples import current, recorded, sample_changes, sample_values, stored_values
from tf_scheduler import __version__
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import (
    AgentFailureRecorded,
    FrameworkRegistered,
    RecoveryDecided,
    TaskLaunched,
)
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import AgentFailures, Cause, Recovery, TaskRecord
from tf_scheduler.store import records
from tf_scheduler.store.interface import Put, StoreCorruptError, StoreVersionError, checksum


def value(**fields):
    """A stored framework id, with a checksum as of schema 2."""
    if fields["schema"] not in (1, 0, -1, "1", None, []):
        fields["crc32"] = checksum("framework", fields)
    return {"framework": json.dumps(fields).encode()}


def as_schema_1(put: Put, *missing: str) -> bytes:
    """Return a value as schedulers of schema 1 stored it, without these fields."""
    fields = {**json.loads(put.value), "schema": 1}
    return json.dumps({name: item for name, item in fields.items() if name not in ("crc32", *missing)}).encode()


def test_restarted_scheduler_knows_the_same_recent_losses() -> None:
    """Old losses do not displace them, whatever the order of the names."""
    state = SchedulerState(a_spec())
    decided = [
        RecoveryDecided(Recovery(f"worker-{100 - number}", "x", Cause.USER_ERROR, "x", at, at, at))
        for number, at in enumerate([*range(0, 6000, 100), *range(6000, 6005)])
    ]
    puts = [put for change in decided for put in records.writes(change, state) if isinstance(put, Put)]

    loaded = apply(state, *records.changes({put.key: put.value for put in puts}))

    assert apply(state, *decided).derived.recent_losses == loaded.derived.recent_losses


def test_newer_value_is_rejected() -> None:
    """A downgraded program reads such values; the message names remedies."""
    newer = records.SCHEMA + 1
    with pytest.raises(StoreVersionError) as caught:
        records.changes(value(schema=newer, id="fw", program="9.8.0"), "/var/state.db")

    assert str(caught.value) == (
        f"stored value 'framework' in /var/state.db was written by version 9.8.0 with schema {newer}; "
        f"this is version {__version__}, which reads schemas up to {records.SCHEMA}: run the newer version, or restore "
        "a backup of this or an older version with `dcos-tensorflow state import --replace`"
    )
    with pytest.raises(
        StoreVersionError, match="'framework' in the state was written by a newer version of this program"
    ):
        records.changes(value(schema=newer, id="fw"))


@pytest.mark.parametrize("schema", range(1, records.SCHEMA + 1))
def test_samples_of_each_schema_are_read(schema: int) -> None:
    """Each build reads all that earlier builds stored, and stores all of it again."""
    stored = stored_values(recorded(schema))
    before = SchedulerState(a_spec())

    written = [write for change in records.changes(stored) for write in records.writes(change, before)]

    again = {put.key: json.loads(put.value) for put in written if isinstance(put, Put)}
    assert stored.keys() == again.keys()
    for key, data in stored.items():
        own = {name: item for name, item in json.loads(data).items() if name not in ("schema", "crc32", "program")}
        assert own == {name: again[key][name] for name in own}


def test_stored_values_decode_to_their_changes() -> None:
    """With each field of each change set: none is forgotten, or read as another type."""
    changes = set(map(repr, sample_changes()))

    assert changes == set(map(repr, records.changes(stored_values(current()))))


@pytest.mark.parametrize(
    ("key", "missing"),
    [("framework", "removed"), ("statuses/text", "addresses"), ("recoveries/text", "shuns"), ("result", "collateral")],
)
def test_schema_2_adds_what_first_builds_lacked(key: str, missing: str) -> None:
    """The step from schema 1: in schema 2 a missing field is damage."""
    for schema in (1, 2):
        fields = {**recorded(schema)["values"][key], "schema": schema}
        del fields[missing]
        if schema == 1:
            (change,) = records.changes({key: json.dumps(fields).encode()})
            (put,) = records.writes(change, SchedulerState(a_spec()))
            assert not json.loads(put.value)[missing]
            continue
        del fields["crc32"]
        fields["crc32"] = checksum(key, fields)
        with pytest.raises(StoreCorruptError, match=f"cannot be read: '{missing}'"):
            records.changes({key: json.dumps(fields).encode()})


@pytest.mark.parametrize("schema", [0, -1, "1", None, []])
def test_invalid_schema_is_reported(schema) -> None:
    """As damage, not as another version."""
    with pytest.raises(StoreCorruptError, match="'framework' in the state cannot be read") as caught:
        records.changes(value(schema=schema, id="fw"))
    assert not isinstance(caught.value, StoreVersionError)


def test_older_value_is_upgraded_stepwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its own schema, as a later version of this program would."""

    def to_two(kind, fields):
        return {"number": fields["id"]} if kind == "framework" else fields

    def to_three(kind, fields):
        return {"id": f"{kind}-{fields['number']}", "removed": False}

    monkeypatch.setattr(records, "SCHEMA", 3)
    monkeypatch.setattr(records, "UPGRADES", (to_two, to_three))

    for stored in (
        value(schema=1, id="7"),
        value(schema=2, number="7"),
        value(schema=3, id="framework-7", removed=False),
    ):
        assert (FrameworkRegistered("framework-7"),) == records.changes(stored)


def test_launch_without_placeholder_field_is_read() -> None:
    record = TaskRecord("ps-0", "ps-0__1", JobKind.PS, 0, "agent-1-id", "agent-1", "10.0.0.1:31000", 1, (), 0.0)
    launched = TaskLaunched(record)
    (put,) = records.writes(launched, SchedulerState(a_spec()))
    assert json.loads(put.value)["idle"] is False

    assert (launched,) == records.changes({put.key: as_schema_1(put, "idle")})


@pytest.mark.parametrize("key", sorted(sample_values()))
def test_flipped_bits_are_detected(key: str) -> None:
    """In each stored value: each flip of one bit is refused, or changes nothing."""
    data = stored_values(current())[key]
    expected = records.changes({key: data})

    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            try:
                read = records.changes({key: bytes(damaged)})
            except StoreCorruptError:
                continue
            assert expected == read, bytes(damaged)


def test_value_under_another_key_is_detected() -> None:
    (put,) = records.writes(AgentFailureRecorded(AgentFailures("agent-1", "a")), SchedulerState(a_spec()))

    with pytest.raises(
        StoreCorruptError, match=r"in /var/state\.db cannot be read: its checksum is wrong; import a backup"
    ):
        records.changes({"agents/agent-2": put.value}, "/var/state.db")


def test_every_older_schema_has_upgrade() -> None:
    """Raising SCHEMA without a step would lose every stored state."""
    assert records.SCHEMA == len(records.UPGRADES) + 1


def test_renamed_attribute_keeps_its_stored_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename in the model must not lose what is stored."""
    monkeypatch.setattr(records, "STORED_NAMES", {**records.STORED_NAMES, AgentFailures: {"hostname": "host"}})
    suspected = AgentFailureRecorded(AgentFailures("agent-1-id", "agent-1"))

    (put,) = records.writes(suspected, SchedulerState(a_spec()))

    assert '"host": "agent-1"' in put.value.decode()
    assert (suspected,) == records.changes({put.key: put.value})
