from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import payloads
from tf_executor.contract.payload import VERSION, Payload, PayloadError
from tf_executor.contract.reports import NO_END, TaskEnd
from tf_executor.contract.settings import Liveness

CLUSTER = {"ps": ["10.0.0.1:31000"], "worker": ["10.0.0.2:31000"]}


def a_payload(command: str = "python train.py", **fields: Any) -> Payload:
    config = {"cluster": CLUSTER, "task": {"type": "worker", "index": 0}}
    return payloads.a_payload(command, **{"tf_config": config, **fields})


def test_full_payload_round_trips() -> None:
    """Also nested fields, although JSON has no tuples."""
    payload = a_payload(
        secrets=("TOKEN",),
        fetch=("s3://bucket/job.zip",),
        ulimits={"nofile": (1024, 4096), "core": (0, -1)},
        liveness=Liveness("http", "http://localhost:{port}/", failures=1),
        cluster_flags=True,
    )
    assert payload == Payload.decode(payload.encode())
    assert payload == Payload.decode(payload.encode(json.dumps(payload.tf_config["cluster"])))


@given(
    command=st.text(min_size=1),
    environment=st.dictionaries(st.text(), st.text()),
    grace=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    gpus=st.integers(min_value=0),
)
def test_payload_round_trips(command: str, environment: dict[str, str], grace: float, gpus: int) -> None:
    payload = a_payload(command=command, environment=environment, kill_grace=grace, gpus=gpus)
    assert payload == Payload.decode(payload.encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"3", b"null", b"{}", b'{"version": 1}'])
def test_other_data_is_not_a_payload(data: bytes) -> None:
    with pytest.raises(PayloadError):
        Payload.decode(data)


def test_unknown_fields_are_ignored() -> None:
    """A newer scheduler may send more; the version says what must be understood."""
    payload = a_payload(liveness=Liveness("http", "http://localhost/"))
    values = json.loads(payload.encode())
    liveness = {**values["settings"]["liveness"], "sort": "new"}
    newer = {**values, "unheard_of": 1, "settings": {**values["settings"], "unheard_of": 1, "liveness": liveness}}
    assert payload == Payload.decode(json.dumps(newer).encode())


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_other_version_is_reported(version: int) -> None:
    fields = json.loads(a_payload().encode())
    with pytest.raises(PayloadError, match=f"version `{version}` .*: this executor requires {VERSION}; use the"):
        Payload.decode(json.dumps({**fields, "version": version}).encode())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"index": "0"}, "index is '0', expected type int"),
        ({"gpus": True}, "gpus is True, expected type int"),
        ({"command": None}, "command is None, expected type str"),
        ({"environment": {"A": 1}}, "environment variable A is 1, expected a string"),
        ({"tf_config": {"cluster": []}}, r"tf_config.cluster is \[\], expected an object"),
        ({"command": ""}, "command is '', expected a command or a job_name"),
        ({"secrets": "TOKEN"}, "secrets is 'TOKEN', expected type list"),
        ({"fetch": [1]}, r"fetch is \[1\], expected a list of strings"),
        ({"more_ports": ["1"]}, r"more_ports is \['1'\], expected a list of integers"),
        ({"settings": 3}, f"does not match version {VERSION}"),
        ({"settings": "nice"}, f"does not match version {VERSION}"),
        ({"settings": {"ulimits": {"core": [0]}}}, r"settings\.ulimits is .*, expected an object whose values"),
        ({"settings": {"ulimits": {"core": 0}}}, r"settings\.ulimits is .*, expected an object whose values"),
        ({"settings": {"liveness": {"kind": "ping"}}}, r"settings\.liveness\.kind is 'ping', expected one of"),
        (
            {"settings": {"liveness": {"kind": "http", "interval": "1"}}},
            r"settings\.liveness\.interval is '1', expected type int",
        ),
        ({"settings": {"liveness": {"sort": "http"}}}, f"does not match version {VERSION}.*kind"),
        ({"settings": {"liveness": 3}}, f"does not match version {VERSION}"),
        ({"settings": {"gpu_check": 1}}, r"settings\.gpu_check is 1, expected type bool"),
    ],
)
def test_invalid_field_is_named(change: dict[str, object], sentence: str) -> None:
    fields = json.loads(a_payload().encode())
    with pytest.raises(PayloadError, match=sentence):
        Payload.decode(json.dumps({**fields, **change}).encode())


@pytest.mark.parametrize(
    "ending",
    [
        TaskEnd(exit_code=0),
        TaskEnd(exit_code=42),
        TaskEnd(signal=9, out_of_memory=True),
        TaskEnd(0, failed_stage="post"),
        TaskEnd(1, port_taken=True, error="x" * 1000),
        NO_END,
    ],
)
def test_end_report_round_trips(ending: TaskEnd) -> None:
    assert ending == TaskEnd.decode(ending.encode())


@pytest.mark.parametrize("data", [b"", b"rubbish", b"[]", b"\xff"])
def test_other_status_data_gives_empty_end_report(data: bytes) -> None:
    """Updates of the agent or master carry no end report."""
    assert NO_END == TaskEnd.decode(data)
