"""A service account's credential, as DC/OS hands it over: who, which private key, where to log in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tf_scheduler.errors import SchedulerError

from .jwt import KeyFormatError, PrivateKey, load_private_key

#: Variable with the credential, or with the path of a file that holds it (DC/OS SDK: both).
VARIABLE = "DCOS_SERVICE_ACCOUNT_CREDENTIAL"
_SCHEME = "RS256"


class AccountError(SchedulerError):
    """The credential cannot be used. Nothing of it is quoted."""


@dataclass(frozen=True, slots=True)
class Account:
    """Who logs in."""

    uid: str
    key: PrivateKey = field(repr=False)
    login_endpoint: str

    @property
    def cluster(self) -> str:
        """Base address of the cluster's services."""
        parts = urlsplit(self.login_endpoint)
        return f"{parts.scheme}://{parts.netloc}"


def account_of(environment: Mapping[str, str]) -> Account | None:
    """The account of the scheduler's environment; None: it has none. Raise AccountError."""
    given = environment.get(VARIABLE, "").strip()
    if not given:
        return None
    try:
        text = given if given.startswith("{") else Path(given).read_text()
    except (OSError, ValueError) as error:
        raise AccountError(f"{VARIABLE} names a file that cannot be read: {type(error).__name__}") from None
    return parse_account(text)


def parse_account(text: str) -> Account:
    """The JSON that `dcos security secrets create-sa-secret` stores. Raise AccountError."""
    try:
        found: dict[str, Any] = json.loads(text)
        uid, pem, endpoint = (str(found[name]) for name in ("uid", "private_key", "login_endpoint"))
    except (ValueError, KeyError, TypeError, RecursionError):
        wanted = "a JSON object with uid, private_key, login_endpoint and scheme"
        raise AccountError(
            f"{VARIABLE} must be {wanted}, as `dcos security secrets create-sa-secret` makes it"
        ) from None
    if found.get("scheme", _SCHEME) != _SCHEME:
        raise AccountError(f"{VARIABLE}: the scheme must be {_SCHEME}")
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        raise AccountError(
            f"{VARIABLE}: login_endpoint must be an address such as https://leader.mesos/acs/api/v1/auth/login"
        )
    try:
        return Account(uid, load_private_key(pem), endpoint)
    except KeyFormatError as error:
        raise AccountError(f"{VARIABLE}: private_key {error}") from None
