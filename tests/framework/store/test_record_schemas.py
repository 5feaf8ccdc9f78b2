"""Stored values of this version and of a newer one."""

from __future__ import annotations

import json

import pytest

from builders import a_spec
from kit.stored_samples import current, recorded, sample_changes, sample_values, stored_values
from tf_scheduler import __version__
from tf_scheduler.core.state.reducer import apply
from tf_scheduler.model.effects import (
    RecoveryDecided,
)
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import AgentFailures, Cause, Recovery
from tf_scheduler.store import records
from tf_scheduler.store.interface import Put, StoreCorruptError, StoreVersionError, checksum


def value(**fields):
    """A stored framework id with its checksum."""
    fields["crc32"] = checksum("framework", fields)
    return {"framework": json.dumps(fields).encode()}


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


@pytest.mark.parametrize("schema", [0, -1, "1", None, []])
def test_invalid_schema_is_reported(schema) -> None:
    """As damage, not as another version."""
    with pytest.raises(StoreCorruptError, match="'framework' in the state cannot be read") as caught:
        records.changes(value(schema=schema, id="fw"))
    assert not isinstance(caught.value, StoreVersionError)


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
    (put,) = records.writes(AgentFailures("agent-1", "a"), SchedulerState(a_spec()))

    with pytest.raises(
        StoreCorruptError, match=r"in /var/state\.db cannot be read: its checksum is wrong; import a backup"
    ):
        records.changes({"agents/agent-2": put.value}, "/var/state.db")
