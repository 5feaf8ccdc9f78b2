"""Login of a service account; the server checks its signature with PyJWT."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from dcos_stand_in import UID, pem
from tf_scheduler.dcos import (
    VARIABLE,
    AccountError,
    LoginError,
    MissingExtraError,
    ServiceLogin,
    account_of,
    claims_of,
    parse_account,
)


def login_of(dcos, **changes):
    return ServiceLogin(parse_account(dcos.credential(**changes)))


@pytest.mark.parametrize("kind", ["PKCS8", "PKCS1"])
def test_login_accepts_both_forms_of_key(dcos, kind) -> None:
    """DC/OS writes PKCS#8; the server verifies the signature."""
    assert dcos.is_known(f"token={login_of(dcos, private_key=pem(kind)).token()}")


@pytest.mark.parametrize("module", ["jwt", "cryptography.exceptions"])
def test_account_without_extra_names_the_image(dcos, monkeypatch: pytest.MonkeyPatch, module) -> None:
    """The one-file scheduler has no compiled module."""
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtraError, match="needs the extra `dcos`, which the scheduler image contains"):
        account_of({VARIABLE: dcos.credential()})


@pytest.mark.parametrize("token", ["", "a.b", "a.!.c", "a.bm90IGpzb24.c", "a.W10.c"])
def test_invalid_token_has_no_claims(token) -> None:
    """It is used until it is refused."""
    assert {} == claims_of(token)


def test_header_has_the_format_of_dcos(dcos) -> None:
    """One login serves many requests; the signed token is short-lived."""
    credentials = login_of(dcos).credentials()
    header = credentials.header()

    assert header == credentials.header()
    assert dcos.is_known(header)
    (said,) = dcos.logins
    assert UID == said["uid"]
    assert 0 < claims_of(said["token"])["exp"] - time.time() <= 120


@pytest.mark.parametrize(
    ("lifetime", "after", "logins"), [(7200, 5300, 1), (7200, 5500, 2), (600, 290, 1), (600, 310, 2)]
)
def test_token_is_renewed_before_it_expires(dcos, lifetime, after, logins) -> None:
    """Half an hour before, or after half of a short life; failure changes nothing."""
    dcos.lifetime = lifetime
    late = [0.0]
    credentials = ServiceLogin(parse_account(dcos.credential()), clock=lambda: time.time() + late[0]).credentials()
    first = credentials.header()
    late[0] = after

    dcos.down = True
    assert first == credentials.header()
    dcos.down = False
    assert (first == credentials.header()) is (logins == 1)


def test_refused_token_is_renewed(dcos) -> None:
    """After a 401: an operator has revoked it."""
    credentials = login_of(dcos).credentials()
    first = credentials.header()

    assert credentials.renew(first)
    assert first != credentials.header()
    assert 2 == len(dcos.logins)


def test_refused_login_has_the_servers_message(dcos) -> None:
    """The key is not quoted."""
    with pytest.raises(LoginError, match=r"DC/OS refused the login of nobody: HTTP 401: .*Invalid credentials"):
        login_of(dcos, uid="nobody").token()


def test_unreachable_login_is_an_os_error(dcos) -> None:
    """The driver retries after an OSError."""
    endpoint = "http://127.0.0.1:9/acs/api/v1/auth/login"
    with pytest.raises(OSError, match=r"127\.0\.0\.1:9/acs/api/v1/auth/login does not answer: ConnectionError"):
        login_of(dcos, login_endpoint=endpoint).token()


def test_credential_is_read_from_file_or_variable(dcos, tmp_path: Path) -> None:
    file = tmp_path / "service-account.json"
    file.write_text(dcos.credential())

    assert UID == account_of({VARIABLE: str(file)}).uid == account_of({VARIABLE: dcos.credential()}).uid
    assert account_of({}) is None
    assert dcos.address == account_of({VARIABLE: str(file)}).cluster


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "must be a JSON object with uid, private_key, login_endpoint and scheme"),
        ("{", "must be a JSON object"),
        ("/nowhere/at/all", "the file that it names cannot be read: FileNotFoundError"),
        ({"scheme": "HS256"}, "the scheme must be RS256"),
        ({"login_endpoint": "leader.mesos"}, "login_endpoint must be a URL"),
        ({"private_key": "hush"}, "private_key must be an RSA key"),
        ({"private_key": pem().replace("M", "N", 40)}, "undamaged and without a password"),
    ],
)
def test_invalid_credential_is_not_quoted(dcos, text, problem) -> None:
    value = text if isinstance(text, str) else dcos.credential(**text)
    with pytest.raises(AccountError, match=problem) as caught:
        account_of({VARIABLE: value})
    assert "hush" not in str(caught.value)
    assert json.dumps(pem())[30:60] not in str(caught.value)


def test_key_is_not_in_repr(dcos) -> None:
    """An account may be logged."""
    account = parse_account(dcos.credential())
    assert str(account.key.private_numbers().d) not in repr(ServiceLogin(account))
