"""The secret store, after its documentation."""

from __future__ import annotations

import base64

import pytest

from tf_scheduler.dcos import SecretStore, ServiceLogin, parse_account
from tf_scheduler.errors import SecretError, SourceUnavailableError
from tf_scheduler.model.secrets import SecretSource

JSON = "application/json"
KEY = SecretSource("dcos", "team/key")


@pytest.fixture
def store(dcos):
    dcos.secrets = {
        "team/key": (JSON, b'{"value": "canary"}'),
        "team/__dcos_base64__keytab": (JSON, b'{"value": "%s"}' % base64.b64encode(b"\0keytab")),
        "team/raw": ("application/octet-stream", b"\xff\0"),
        "team/odd": (JSON, b'{"path": "x"}'),
    }
    return SecretStore(dcos.address, ServiceLogin(parse_account(dcos.credential())).credentials())


@pytest.mark.parametrize(
    ("path", "value"),
    [("team/key", b"canary"), ("team/__dcos_base64__keytab", b"\0keytab"), ("team/raw", b"\xff\0")],
)
def test_values_are_read(store, path, value) -> None:
    """Text, base64 if the name says so, and bytes."""
    assert value == store.read(SecretSource("dcos", path))


def test_revoked_token_is_renewed_once(store, dcos) -> None:
    store.read(KEY)
    dcos.revoked.add(store.credentials.header().removeprefix("token="))
    assert b"canary" == store.read(KEY)
    assert 2 == len(dcos.logins)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("team/none", "HTTP 404: .*ERR_SECRET_NOT_FOUND"),
        (
            "forbidden/key",
            "HTTP 403: .*; the service account needs the permission `dcos:secrets:default:/forbidden/key read`",
        ),
        ("team/odd", "did not return a secret"),
    ],
)
def test_refusal_names_the_reason(store, path, problem) -> None:
    """With the missing permission."""
    with pytest.raises(SecretError, match=problem):
        store.read(SecretSource("dcos", path))


def test_sealed_store_is_unavailable(store, dcos) -> None:
    """So is a store whose login fails."""
    store.read(KEY)
    dcos.down = True
    with pytest.raises(SourceUnavailableError, match="HTTP 503: sealed"):
        store.read(KEY)
    fresh = SecretStore(dcos.address, ServiceLogin(parse_account(dcos.credential())).credentials())
    with pytest.raises(SourceUnavailableError, match="DC/OS refused the login"):
        fresh.read(KEY)
