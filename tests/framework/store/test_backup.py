"""Backup documents: values restore unchanged, invalid backups are explained."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_scheduler.store.backup import Backup, BackupError, decode, encode

NOW = datetime(2026, 11, 21, 3, 4, 5, tzinfo=timezone.utc)
GOOD = {
    "format": "dcos-tensorflow state",
    "version": 1,
    "service": "tf",
    "values": {"framework": {"id": "fw", "schema": 1}},
    "binary": {"raw": "AAEC"},
}

keys = st.text("abc-_", min_size=1, max_size=6)
contents = st.binary(max_size=30) | st.dictionaries(st.text(max_size=4), st.integers() | st.text(), max_size=3).map(
    lambda content: json.dumps(content, sort_keys=True).encode()
)


@given(st.dictionaries(keys, contents, max_size=6))
def test_values_restore_byte_for_byte(values) -> None:
    backup = Backup("group/tf", values)

    assert backup == decode(encode(backup, NOW, "1.0"))


def test_records_are_readable_json() -> None:
    """Other values are in base64."""
    document = json.loads(
        encode(Backup("tf", {"framework": b'{"id": "fw", "schema": 1}', "raw": b"\0\1\2"}), NOW, "1.0")
    )

    assert GOOD == {name: document[name] for name in GOOD}
    assert "2026-11-21T03:04:05Z" == document["exported"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, 'missing "format"'),
        ({"version": 2}, "unknown version 2; this program reads version 1"),
        ({"service": None}, "'service' must be the name"),
        ({"service": "a//b"}, "service: key 'a//b'"),
        ({"values": []}, "'values' must be an object"),
        ({"values": {"a/../b": {}}}, "values: key 'a/../b'"),
        ({"binary": None}, "'binary' must be an object"),
        ({"binary": {"x": "?"}}, "'x': invalid base64"),
        ({"binary": {"x": 3}}, "'x': invalid base64"),
        ({"binary": {"framework": ""}}, "'framework' is in both `values` and `binary`"),
    ],
)
def test_invalid_backup_is_explained(change, message: str) -> None:
    with pytest.raises(BackupError, match=message):
        decode(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 90_000], ids=["deep", "long"])
def test_extreme_json_is_rejected(text: str) -> None:
    with pytest.raises(BackupError, match="invalid JSON"):
        decode(text)


@given(st.text())
def test_decoding_raises_backup_error_only(text) -> None:
    """Any text is a backup or a BackupError; so is any prefix of a backup."""
    whole = json.dumps(GOOD)
    for document in (text, f'{{"format": "dcos-tensorflow state", {text}', whole[: len(text) % len(whole)]):
        with pytest.raises(BackupError):
            decode(document)
