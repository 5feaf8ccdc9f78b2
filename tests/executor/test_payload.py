from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tf_executor.payload import VERSION, Liveness, Payload, PayloadError
from tf_executor.reports import NO_ENDING, Ending

CLUSTER = {"ps": ["10.0.0.1:31000"], "worker": ["10.0.0.2:31000"]}


def a_payload(**changes: object) -> Payload:
    fields = {
        "task": "worker-0",
        "job": "worker",
        "index": 0,
        "command": "python train.py",
        "tf_config": {"cluster": CLUSTER, "task": {"type": "worker", "index": 0}},
    }
    return Payload(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_full_payload_survives_the_wire() -> None:
    """Every kind of field, nested ones too, and equal although JSON has no tuples."""
    payload = a_payload(
        secrets=("TOKEN",),
        fetch=("s3://bucket/job.zip",),
        ulimits={"nofile": (1024, 4096), "core": (0, -1)},
        liveness=Liveness("http", "http://localhost:{port}/", failures=1),
        cluster_flags=True,
    )
    assert payload == Payload.decode(payload.encode())


@given(
    command=st.text(min_size=1),
    environment=st.dictionaries(st.text(), st.text()),
    grace=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    gpus=st.integers(min_value=0),
)
def test_a_payload_survives_the_wire(command: str, environment: dict[str, str], grace: float, gpus: int) -> None:
    """Decoding what was encoded gives the same payload."""
    payload = a_payload(command=command, environment=environment, kill_grace=grace, gpus=gpus)
    assert payload == Payload.decode(payload.encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"3", b"null", b"{}", b'{"version": 1}'])
def test_what_is_no_payload_is_refused(data: bytes) -> None:
    """Every kind of rubbish ends in the same error type."""
    with pytest.raises(PayloadError):
        Payload.decode(data)


def test_another_version_is_named() -> None:
    """An old executor says which version it lacks."""
    fields = json.loads(a_payload().encode())
    with pytest.raises(PayloadError, match=f"version 7, this executor understands {VERSION}"):
        Payload.decode(json.dumps({**fields, "version": 7}).encode())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"index": "0"}, "index is '0', it must be of type int"),
        ({"gpus": True}, "gpus is True, it must be of type int"),
        ({"command": None}, "command is None, it must be of type str"),
        ({"environment": {"A": 1}}, "environment variable A is 1, it must be a string"),
        ({"tf_config": {"cluster": []}}, r"tf_config.cluster is \[\], it must map a job"),
        ({"command": ""}, "command is '', it must be filled, or job_name must"),
        ({"secrets": "TOKEN"}, "secrets is 'TOKEN', it must be of type list"),
        ({"fetch": [1]}, r"fetch is \[1\], it must be a list of texts"),
        ({"ulimits": {"core": [0]}}, "ulimits is .*, it must be an object of"),
        ({"ulimits": {"core": 0}}, "ulimits is .*, it must be an object of"),
        ({"liveness": {"kind": "ping"}}, "liveness.kind is 'ping', it must be one of"),
        ({"liveness": {"kind": "http", "interval": "1"}}, "liveness.interval is '1', it must be of type int"),
        ({"liveness": {"sort": "http"}}, f"does not fit its version {VERSION}.*sort"),
        ({"liveness": 3}, f"does not fit its version {VERSION}"),
        ({"gpu_check": 1}, "gpu_check is 1, it must be of type bool"),
        ({"unheard_of": 1}, f"does not fit its version {VERSION}.*unheard_of"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, object], sentence: str) -> None:
    """The sentence says which field, what it is and what it must be."""
    fields = json.loads(a_payload().encode())
    with pytest.raises(PayloadError, match=sentence):
        Payload.decode(json.dumps({**fields, **change}).encode())


@pytest.mark.parametrize(
    "ending",
    [Ending(exit_code=0), Ending(exit_code=42), Ending(signal=9, oom=True), Ending(0, failed_stage="post"), NO_ENDING],
)
def test_an_ending_survives_the_wire(ending: Ending) -> None:
    """The scheduler reads the code that the executor wrote, a 0 too."""
    assert ending == Ending.decode(ending.encode())


@pytest.mark.parametrize("data", [b"", b"rubbish", b"[]", b"\xff"])
def test_foreign_status_data_is_no_ending(data: bytes) -> None:
    """Updates of the agent or the master carry no ending of ours."""
    assert NO_ENDING == Ending.decode(data)
