"""Fields and types of stored values are those recorded for the schema."""

from __future__ import annotations

from kit.stored_samples import differences, is_released, recorded, sample_file
from tf_scheduler.store import records


def test_stored_fields_are_recorded() -> None:
    """Older schedulers name a newer schema, but take unknown fields for damage."""
    schema = records.SCHEMA
    assert sample_file(schema).exists(), f"schema {schema} has no samples: run scripts/record-state"
    recording = recorded(schema)
    remedy = (
        f"schema {schema} was released: raise SCHEMA in store/records.py to {schema + 1}, read both, "
        "and run scripts/record-state"
        if is_released(recording)
        else f"schema {schema} is not released yet: give new fields a default, and run scripts/record-state"
    )
    lines = "\n".join(differences(recording))
    assert not lines, f"what is stored has changed; {remedy}\n{lines}"
